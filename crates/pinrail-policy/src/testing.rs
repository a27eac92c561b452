//! What every policy promises, as checks that anybody can run on a policy of their own (feature `testing`).
//!
//! Each check first asks the cases that have a name, then a few hundred of the generators in [`strategies`], and panics
//! with the smallest case in which a promise is broken:
//!
//! ```
//! use pinrail_policy::{ChunkInfo, Order, testing};
//!
//! /// Few rails first.
//! struct Narrow;
//!
//! impl Order for Narrow {
//!     fn order(&self, chunks: &[ChunkInfo]) -> Vec<u32> {
//!         let mut order: Vec<u32> = (0..).take(chunks.len()).collect();
//!         order.sort_by_key(|&at| chunks[at as usize].rails);
//!         order
//!     }
//!     fn spec(&self) -> String {
//!         "narrow".to_owned()
//!     }
//! }
//!
//! testing::check_order(&Narrow);
//! testing::check_order_is_by(&Narrow, |chunk| chunk.rails);
//! ```
//!
//! Whole policies are checked on whole plans by `pinrail_plan::testing`, controllers in a run beside dispatch's oracle
//! by `pinrail_dispatch::testing`.

mod concurrency;
mod order;
mod select;
pub mod strategies;

pub use concurrency::check_concurrency;
pub use order::{check_order, check_order_is_by};
pub use select::check_select;

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// What a case answers: why a promise is broken.
pub type Verdict = Result<(), String>;

/// Runs a case for each of the values, always the same ones.
///
/// # Panics
/// With the smallest value whose case fails, and why.
pub fn for_all<T: Debug>(strategy: &impl Strategy<Value = T>, case: impl Fn(&T) -> Verdict) {
    // Files of failures are for the tests of the crate they lie in, and this one is called from any.
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, deterministic());
    let result = runner.run(strategy, |value| case(&value).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// A check that fails must fail for whoever looks into it.
fn deterministic() -> proptest::test_runner::TestRng {
    proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha)
}

/// A spec is printed, parsed again and put into shells.
fn check_spec(spec: &str) {
    assert!(!spec.is_empty(), "a policy without a spec");
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,.:@+".contains(c);
    assert!(spec.chars().all(plain), "{spec:?} has a character that a shell or a spec takes for something else");
}

/// Asserts that a check finds what was planted.
#[cfg(test)]
fn finds(check: impl FnOnce() + std::panic::UnwindSafe, what: &str) {
    let panic = std::panic::catch_unwind(check).expect_err("the planted fault is not found");
    let message = panic.downcast_ref::<String>().expect("a check panics with a text");
    assert!(message.contains(what), "{message}");
}

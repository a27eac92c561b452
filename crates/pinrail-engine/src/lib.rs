#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **Threads, because calls block.** Each registration is one system call that waits in the kernel; an executor would
//!   need the same threads. As many are started as could ever be busy under the limits, the caller's thread among them.
//! - **Rollback is the default and tries everything.** What cannot be undone is handed back live, with its memory.
//! - **Every call into a backend has its panics caught.** A third party's bug is an error of one step.
//!
//! # Not here
//!
//! Which step comes next (`pinrail-dispatch`), what is to be done (`pinrail-plan`), how (`Registrar`, `Prepare`).

#![forbid(unsafe_code)]

/// Whether a test has planted this fault here; `false`, and no code, in every other build.
macro_rules! planted {
    ($canary:ident) => {{
        #[cfg(any(test, feature = "testing"))]
        let is_planted = pinrail_dispatch::testing::Canary::$canary.is_planted();
        #[cfg(not(any(test, feature = "testing")))]
        let is_planted = false;
        is_planted
    }};
}

mod calls;
mod clock;
mod crew;
mod deregister;
mod descriptor;
mod engine;
mod failure;
mod handle;
#[cfg(all(test, loom))]
mod model;
mod parker;
mod quarantine;
mod register;
mod registration;
pub mod registry;
mod report;
mod run;
mod sync;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use deregister::StillRegistered;
pub use engine::{Attempts, Engine, OnFailure, Options};
pub use failure::{Failure, Reason, Refusal, StepError, StepFailure, Stuck};
pub use handle::{Canceller, Handle};
pub use quarantine::Quarantine;
pub use registration::{LookupError, Piece, Registration};
pub use report::{Handout, Report};

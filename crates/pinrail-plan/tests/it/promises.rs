//! The promises of plans, under every combination of parts; and that a policy which breaks one is found.

use std::sync::Arc;

use pinrail_core::Machine;
use pinrail_plan::{Plan, testing};
use pinrail_policy::{Policy, PolicyError, SelectRails, Selection};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::policy;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 24 }))]

    // Each case plans a few hundred batches on as many machines, five times over.
    #[test]
    fn every_policy_keeps_the_promises_of_plans(policy in testing::strategies::policies()) {
        testing::check_policy(&policy);
    }
}

/// A policy of somebody else's that plans accept and whose fault shows in the plan alone.
struct ByAddress;

impl SelectRails for ByAddress {
    fn select(&self, buffer: &pinrail_core::Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
        let selection = Selection::all_usable(self, buffer, machine)?;
        let at = usize::try_from(buffer.extent().start() / (1 << 30)).unwrap_or(0) % selection.rails.len();
        Ok(Selection { rails: vec![selection.rails[at]], ..selection })
    }
    fn spec(&self) -> String {
        "by-address".into()
    }
}

#[test]
#[should_panic(expected = "moved, it is another plan")]
fn a_policy_that_goes_by_addresses_is_found() {
    testing::check_policy(&Policy { rails: Arc::new(ByAddress), ..policy("") });
}

/// Checks of plans that are never made would find nothing.
#[test]
fn most_batches_of_the_generators_can_be_planned() {
    let mut runner = TestRunner::deterministic();
    let mut draw = |policy: &Policy| {
        let (batch, machine) = (testing::strategies::batches(), testing::strategies::machines());
        let (batch, machine) = (batch, machine).new_tree(&mut runner).expect("generators reject nothing").current();
        Plan::new(batch.buffers(0), &machine, policy)
    };
    let plans: Vec<Plan> = (0..1000).filter_map(|_| draw(&policy("")).ok()).collect();
    let with = |what: fn(&Plan) -> bool| plans.iter().filter(|plan| what(plan)).count();
    let several = with(|plan| plan.chunks().len() > plan.buffers().len());
    let prepared = with(|plan| plan.chunk_ids().any(|chunk| plan.prepares(chunk) > 0));
    let seen = (plans.len(), several, prepared);
    assert!(seen.0 > 400 && seen.1 > 40 && seen.2 > 100, "planned, with a buffer in several chunks, prepared: {seen:?}");
}

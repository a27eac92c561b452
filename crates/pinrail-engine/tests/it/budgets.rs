//! What rails can hold, over all that is registered on them.

use pinrail_core::{ErrorKind, Memory};
use pinrail_engine::registry::{ClaimError, Claimed, Held, Overlap, Registry, RegistryError};
use pinrail_engine::{Engine, Options};
use pinrail_plan::{Budget, Plan, PlanError};
use pinrail_policy::Policy;

use crate::fake::{Fake, PAGE, engine, machine};

/// A buffer of so many pages in memory of its own.
fn plan(machine: &pinrail_core::Machine, nth: u64, pages: u64, spec: &str) -> Plan {
    let memory = Memory::imagined((1 + nth) << 30, pages * PAGE).unwrap();
    let buffer = pinrail_core::Buffer::new(format!("buffer{nth}"), memory, 0..pages * PAGE).unwrap();
    let policy = Policy::new(std::num::NonZeroU32::MIN).with(spec).unwrap();
    Plan::new(vec![buffer], machine, &policy).unwrap()
}

fn register(registry: &Registry, plan: Plan) -> Result<Held, RegistryError> {
    registry.register(plan, Overlap::Refuse, &Options::default())
}

#[test]
fn limits_hold_for_all_batches_together_and_what_is_released_is_free_again() {
    let mut machine = machine(2, 1);
    machine.rails.iter_mut().for_each(|rail| rail.limits.max_bytes = Some(16 * PAGE));
    let fake = Fake::new(&machine);
    let engine: Engine = engine(&fake);
    let registry = Registry::new(engine).unwrap();
    let first = register(&registry, plan(&machine, 0, 10, "no-prefault")).unwrap();
    // Each was planned as if it were alone.
    let refused = register(&registry, plan(&machine, 1, 10, "no-prefault")).map(|_| ()).unwrap_err();
    let RegistryError::Claim(ClaimError::Plan(over)) = refused else { panic!("{refused}") };
    let expected = (Budget::Bytes, 16 * PAGE, 10 * PAGE, 10 * PAGE);
    assert!(matches!(&over, PlanError::Budget { budget, limit, need, live, .. } if (*budget, *limit, *need, *live) == expected));
    assert_eq!(over.diagnosis().kind, ErrorKind::Exhausted);
    assert_eq!(registry.counts().mrs, 2, "nothing of it was registered");

    // Where the policy allows it, what is live changes where the next batch goes, and the plan says so.
    let Claimed::New(claim) = registry.claim(plan(&machine, 2, 10, "no-prefault+coverage=disjoint"), Overlap::Refuse).unwrap()
    else {
        panic!("it is new")
    };
    let shared = claim.plan().shared_out().map(ToString::to_string);
    assert!(shared.is_some_and(|why| why.contains("of which 40960 are live already")), "{:?}", claim.plan());
    assert!(claim.plan().chunk_ids().all(|chunk| claim.plan().rails_of(chunk).len() == 1));
    drop(claim);

    first.release().unwrap();
    register(&registry, plan(&machine, 3, 16, "no-prefault")).unwrap().release().unwrap();
}

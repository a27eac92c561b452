//! What is pinned, for how long.

use pinrail_core::{Access, PinsCounted, Registrar};
use pinrail_memory::Maps;

use crate::support::{PAGE, alone, every_rail, forbid_writing, ids, pages, passed, pinned_bytes, register, skipped};

#[test]
fn a_registration_pins_its_pages_and_a_deregistration_lets_them_go_at_once() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let (memory, before) = (pages(16), pinned_bytes());
    for rail in ids(&verbs) {
        assert_eq!(verbs.rails()[rail.index()].pins, PinsCounted::Process);
        // Eight pages are touched by seven and two bytes.
        let mut mr = register(&verbs, rail, &memory, PAGE - 1..8 * PAGE + 1).unwrap();
        assert_eq!(pinned_bytes() - before, 9 * PAGE);
        let mut again = register(&verbs, rail, &memory, 0..PAGE).unwrap();
        assert_eq!(pinned_bytes() - before, 10 * PAGE, "each MR pins for itself");
        verbs.deregister(&mut mr).unwrap();
        verbs.deregister(&mut again).unwrap();
        assert_eq!(pinned_bytes(), before);
    }
}

#[test]
fn a_registration_that_fails_pins_nothing() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let (memory, before) = (pages(4), pinned_bytes());
    forbid_writing(&memory, 3);
    for rail in ids(&verbs) {
        register(&verbs, rail, &memory, 0..4 * PAGE).unwrap_err();
        assert_eq!(pinned_bytes(), before);
    }
}

#[test]
fn an_mr_that_is_dropped_leaks_pin_and_memory_together() {
    let _alone = alone();
    if every_rail().is_some() {
        passed(&crate::support::in_a_process(&["env"], "pins::child_that_drops_an_mr"));
    }
}

#[test]
#[ignore = "started by the test above: what it leaks would disturb others"]
fn child_that_drops_an_mr() {
    let (verbs, memory) = (every_rail().unwrap(), pages(3));
    let extent = memory.extent();
    drop(register(&verbs, pinrail_core::RailId(0), &memory, 0..3 * PAGE).unwrap());
    drop(verbs);
    drop(memory);
    assert_eq!(pinned_bytes(), 3 * PAGE);
    assert_eq!(Maps::read().unwrap().check(extent, Access::FULL), Ok(()));
}

#[test]
fn another_registrars_mr_is_refused_and_stays_live() {
    let _alone = alone();
    let (Some(ours), Some(theirs)) = (every_rail(), every_rail()) else { return skipped("no RDMA device") };
    let memory = pages(1);
    for rail in ids(&ours) {
        let mut mr = register(&ours, rail, &memory, 0..PAGE).unwrap();
        assert_eq!(theirs.deregister(&mut mr).unwrap_err().cause, pinrail_core::Cause::NotOurs);
        assert!(mr.is_live());
        ours.deregister(&mut mr).unwrap();
        assert_eq!(ours.deregister(&mut mr).unwrap_err().cause, pinrail_core::Cause::NotOurs);
    }
}

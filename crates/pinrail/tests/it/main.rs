//! A whole registration through the facade alone: on paper, in memory, on four rails, and gone again.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use pinrail::core::batch::BatchSpec;
use pinrail::core::{ChunkId, Machine, Memory, RailId, Registrar, StepWhat};
use pinrail::engine::{Engine, Handout, Options, Registration};
use pinrail::memory::{Mapping, Memlock, Pages, Populate};
use pinrail::plan::Plan;
use pinrail::policy::Policy;
use pinrail::uring::Uring;

/// Pins are counted for the whole process, so one test at a time has any.
static PINS: Mutex<()> = Mutex::new(());

fn register(shape: &str, rails: u16, policy: &str) -> Registration {
    let uring = Uring::open(&Machine::of_rails(rails).rails).unwrap();
    let machine = Machine { rails: uring.rails().to_vec(), ..Machine::default() };
    let layout = BatchSpec::shape(shape).unwrap().layout().unwrap();
    let map = |allocation: &pinrail::core::batch::Allocation| {
        Memory::new(Mapping::anonymous(allocation.span.end - allocation.span.start, Pages::Small, None).unwrap())
    };
    let memories: Vec<Memory> = layout.allocations.iter().map(map).collect();
    let policy = Policy::new(NonZeroU32::MIN).with(policy).unwrap();
    let plan = Plan::new(layout.buffers(&memories).unwrap(), &machine, &policy).unwrap();
    Engine::new(Arc::new(uring), Arc::new(Populate::new())).register(plan, &Options::default()).unwrap()
}

fn pinned() -> u64 {
    Memlock::read().unwrap().pinned_bytes
}

#[test]
fn exactly_the_pages_of_the_buffers_are_pinned_once_a_rail_and_none_afterwards() {
    let _alone = PINS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = pinned();
    let registration = register("kimi-k3/32", 4, "ascending+capped=2");
    let pages: u64 = registration.plan().buffers().iter().map(|buffer| buffer.extent().pages(4096)).sum();
    assert_eq!(registration.live(), 182 * 4);
    assert_eq!(pinned() - before, 4 * pages * 4096);
    registration.deregister().unwrap();
    assert_eq!(pinned(), before);
}

/// The registrations of a run, each with its rail.
fn calls(registration: &Registration) -> Vec<(RailId, Handout)> {
    let report = registration.report();
    let task = |&handout: &Handout| match report.steps.what(handout.step) {
        StepWhat::Task { rail, .. } => Some((rail, handout)),
        StepWhat::Prepare { .. } => None,
    };
    report.record.iter().filter_map(task).collect()
}

fn overlap(a: &Handout, b: &Handout) -> bool {
    a.start < b.end && b.start < a.end
}

/// Pairs of calls that overlapped: on different rails, and on one.
fn overlaps(calls: &[(RailId, Handout)]) -> (usize, usize) {
    let pairs = calls.iter().enumerate().flat_map(|(at, a)| calls[at + 1..].iter().map(move |b| (a, b)));
    let (other, same): (Vec<_>, Vec<_>) = pairs.filter(|(a, b)| overlap(&a.1, &b.1)).partition(|(a, b)| a.0 != b.0);
    (other.len(), same.len())
}

#[test]
fn calls_overlap_on_different_rails_and_never_on_one() {
    let _alone = PINS.lock().unwrap_or_else(PoisonError::into_inner);
    let two = register("64x1MiB", 4, "capped=2+no-prefault");
    assert_eq!(two.report().peak_in_flight, 2);
    let (other, same) = overlaps(&calls(&two));
    assert!(other > 0 && same == 0, "{other} on different rails, {same} on one");
    drop(two);
    let one = register("64x1MiB", 4, "capped=1+no-prefault");
    assert_eq!((one.report().peak_in_flight, overlaps(&calls(&one))), (1, (0, 0)));
}

#[test]
fn a_range_over_a_seam_is_answered_by_two_keys() {
    let _alone = PINS.lock().unwrap_or_else(PoisonError::into_inner);
    let uring = Uring::open(&Machine::of_rails(1).rails).unwrap();
    let mut machine = Machine { rails: uring.rails().to_vec(), ..Machine::default() };
    machine.rails[0].limits.max_mr_size = Some(8 * 4096);
    let memory = Memory::new(Mapping::anonymous(17 * 4096, Pages::Small, None).unwrap());
    let buffer = pinrail::core::Buffer::new("kv", memory, 0..17 * 4096).unwrap();
    let extent = buffer.extent();
    let plan = Plan::new(vec![buffer], &machine, &Policy::new(NonZeroU32::MIN)).unwrap();
    let engine = Engine::new(Arc::new(uring), Arc::new(Populate::new()));
    let registration = engine.register(plan, &Options::default()).unwrap();
    let across = pinrail::core::Extent::new(extent.start() + 8 * 4096 - 10, 20).unwrap();
    let pieces = registration.range(across, RailId(0)).unwrap();
    let seen: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.at, piece.extent.len())).collect();
    assert_eq!(seen, [(8 * 4096 - 10, 10), (0, 10)]);
    assert!(std::ptr::eq(pieces[1].mr, registration.mr(ChunkId(1), RailId(0)).unwrap()));
}

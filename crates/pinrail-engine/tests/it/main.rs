//! The engine on a registrar that keeps books: whatever fails, no MR is lost and no worker is stuck.

#![allow(clippy::unwrap_used, reason = "tests")]

mod budgets;
mod detach;
mod fake;
mod pairs;
mod policies;
mod real;
mod reports;
mod seeds;
mod soak;
mod states;
mod threads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fake::{Fake, Fault, Held, PAGE, Slices, engine, machine, plan, tasks};
use pinrail_core::{BufferId, Cause, ChunkId, ErrorKind, Extent, Machine, Memory, RailId, StepWhat};
use pinrail_engine::{Attempts, Engine, LookupError, OnFailure, Options, Reason, Refusal};
use proptest::prelude::*;

fn enomem() -> Fault {
    Fault::Fails(Cause::Exhausted { what: "planted".into() }, u32::MAX)
}

fn options() -> Options {
    Options::default()
}

#[test]
fn every_task_is_registered_once_and_deregistered_once() {
    let machine = machine(3, 2);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1, 5, 2, 9], "");
    let all: BTreeSet<_> = tasks(&plan).into_iter().collect();
    let registration = engine(&fake).register(plan, &options()).unwrap();
    assert_eq!((registration.live(), fake.live()), (12, 12));
    assert_eq!(fake.registered().into_iter().collect::<BTreeSet<_>>(), all);
    let report = registration.deregister().unwrap();
    assert_eq!((report.record.len(), fake.live(), fake.deregistered().len()), (12, 0, 12));
}

#[test]
fn an_empty_batch_is_registered() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let registration = engine(&fake).register(plan(&machine, &[], ""), &options()).unwrap();
    assert_eq!(registration.live(), 0);
    assert_eq!(registration.deregister().unwrap().threads, 1);
}

#[test]
fn calls_on_different_rails_overlap_and_on_one_rail_stay_within_its_lane() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    // No registration returns before two are in flight: with one call a rail that needs both rails at once.
    fake.meet(2);
    let registration = engine(&fake).register(plan(&machine, &[1; 10], "capped=4+no-prefault"), &options()).unwrap();
    let record = &registration.report().record;
    let rail = |at: usize| match registration.report().steps.what(record[at].step) {
        StepWhat::Task { rail, .. } => rail,
        StepWhat::Prepare { .. } => unreachable!("no-prefault"),
    };
    let overlap = |a: usize, b: usize| record[a].start < record[b].end && record[b].start < record[a].end;
    let pairs = (0..record.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    assert!(pairs.clone().any(|(a, b)| rail(a) != rail(b) && overlap(a, b)));
    assert!(pairs.clone().all(|(a, b)| rail(a) != rail(b) || !overlap(a, b)));
    assert_eq!((fake.peak_on(0), fake.peak_on(1)), (1, 1));
}

#[test]
fn a_cap_bounds_what_is_in_flight_and_the_record_proves_the_order() {
    let machine = machine(4, 8);
    for cap in [1, 2, 3] {
        let fake = Fake::new(&machine);
        let registration =
            engine(&fake).register(plan(&machine, &[3, 1, 2], &format!("ascending+capped={cap}")), &options()).unwrap();
        let report = registration.report();
        assert!(report.peak_in_flight <= cap && report.threads <= cap);
        assert!(report.record.iter().map(|handout| handout.seq).eq(0..15), "3 slices and 12 tasks, without a gap");
        if cap == 1 {
            assert!(report.record.iter().map(|handout| handout.step.0).eq(0..15), "one at a time is the plan's own order");
        }
    }
}

#[test]
fn preparation_comes_before_the_chunks_own_registrations() {
    let machine = machine(2, 4);
    let fake = Fake::new(&machine);
    let slices = Arc::new(Slices::default());
    let engine = Engine::new(fake.clone(), slices.clone());
    let plan = plan(&machine, &[40 << 8, 1], "prefault+capped=3");
    let registration = engine.register(plan, &options()).unwrap();
    assert_eq!(slices.done.load(std::sync::atomic::Ordering::Relaxed), 3, "40 MiB are two slices, a page is one");
    let report = registration.report();
    for handout in &report.record {
        if let StepWhat::Task { chunk, .. } = report.steps.what(handout.step) {
            let of_chunk = report
                .record
                .iter()
                .filter(|other| matches!(report.steps.what(other.step), StepWhat::Prepare { chunk: c, .. } if c == chunk));
            assert!(of_chunk.clone().count() > 0 && of_chunk.clone().all(|slice| slice.end <= handout.start));
        }
    }
}

#[test]
fn a_range_over_seams_comes_back_as_ordered_pieces() {
    let mut machine = machine(2, 1);
    machine.rails.iter_mut().for_each(|rail| rail.limits.max_mr_size = Some(8 * PAGE));
    let fake = Fake::new(&machine);
    let registration = engine(&fake).register(plan(&machine, &[17, 1], ""), &options()).unwrap();
    let start = registration.plan().buffers()[0].extent().start();
    let lens = |at: u64, len: u64| -> Result<Vec<(u64, u64)>, LookupError> {
        let pieces = registration.range(Extent::new(start + at, len).unwrap(), RailId(1))?;
        Ok(pieces.iter().map(|piece| (piece.at, piece.extent.len())).collect())
    };
    assert_eq!(lens(0, 17 * PAGE).unwrap(), [(0, 8 * PAGE), (0, 8 * PAGE), (0, PAGE)]);
    assert_eq!(lens(8 * PAGE - 1, 2).unwrap(), [(8 * PAGE - 1, 1), (0, 1)]);
    assert_eq!(lens(16 * PAGE, PAGE).unwrap(), [(0, PAGE)]);
    assert_eq!(lens(16 * PAGE, PAGE + 1), Err(LookupError::NotRegistered { address: start + 17 * PAGE }));
    assert_eq!(lens(17 * PAGE, 1), Err(LookupError::NotRegistered { address: start + 17 * PAGE }));
    let before = Extent::new(start - 1, 2).unwrap();
    assert_eq!(registration.range(before, RailId(0)).unwrap_err(), LookupError::NotRegistered { address: start - 1 });
    assert_eq!(registration.buffer(BufferId(1), RailId(0)).unwrap().len(), 1);
    let elsewhere = registration.range(Extent::new(start, 1).unwrap(), RailId(7)).unwrap_err();
    assert_eq!(elsewhere, LookupError::NotOnRail { address: start, rail: RailId(7) });
}

#[test]
fn a_failure_at_any_task_leaves_nothing_and_is_undone_in_reverse() {
    let machine = machine(2, 1);
    for series in ["rails-in-series", "rails-in-parallel"] {
        let spec = format!("{series}+capped=1");
        for attempts in [Attempts::All, Attempts::StopEarly] {
            let all = tasks(&plan(&machine, &[2, 1, 3], &spec));
            for (at, &task) in all.iter().enumerate() {
                let fake = Fake::new(&machine);
                fake.fail_register(task, enomem());
                let failure =
                    engine(&fake).register(plan(&machine, &[2, 1, 3], &spec), &Options { attempts, ..options() }).unwrap_err();
                assert_eq!(fake.live(), 0);
                let mut undone = fake.deregistered();
                undone.reverse();
                assert_eq!(undone, fake.registered(), "in reverse");
                let left = if attempts == Attempts::All { 0 } else { all.len() - at - 1 };
                assert_eq!((failure.rolled_back, failure.not_attempted), (all.len() as u64 - 1 - left as u64, left as u64));
                assert!(matches!(&failure.reason, Reason::Step(step) if step.rail.as_ref().unwrap().0 == RailId(task.0)));
                let diagnosis = failure.diagnosis();
                assert_eq!((diagnosis.kind, diagnosis.errno), (ErrorKind::Exhausted, Some(12)));
                assert!(diagnosis.buffer.is_some() && diagnosis.rail.is_some() && diagnosis.api.is_some());
            }
        }
    }
}

#[test]
fn the_first_failure_in_dispatch_order_is_the_reason_and_the_others_are_listed() {
    let machine = machine(1, 4);
    let plan = plan(&machine, &[1; 6], "no-prefault");
    let fake = Fake::new(&machine);
    let all = tasks(&plan);
    for &at in &[4, 1, 3] {
        fake.fail_register(all[at], enomem());
    }
    let failure = engine(&fake).register(plan, &options()).unwrap_err();
    let Reason::Step(first) = &failure.reason else { panic!("{failure:?}") };
    assert_eq!((first.chunk.0, failure.failed.len()), (1, 3));
    assert!(failure.failed.iter().map(|failure| failure.chunk.0).eq([1, 3, 4]));
}

#[test]
fn a_failed_slice_drops_its_chunk_and_the_rest_is_undone() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let slices = Arc::new(Slices::default());
    let plan = plan(&machine, &[1, 1, 1], "");
    slices.fail_at.lock().unwrap().insert(tasks(&plan)[2].1);
    let failure = Engine::new(fake.clone(), slices).register(plan, &options()).unwrap_err();
    assert_eq!((fake.live(), failure.rolled_back, failure.not_attempted), (0, 4, 2));
    assert!(matches!(&failure.reason, Reason::Step(step) if step.rail.is_none() && step.buffer == "buffer1"));
}

#[test]
fn what_cannot_be_deregistered_is_given_back_and_a_retry_touches_only_that() {
    let machine = machine(3, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1], "");
    let stuck = tasks(&plan)[1];
    let registration = engine(&fake).register(plan, &options()).unwrap();
    fake.fail_deregister(stuck, Fault::Fails(Cause::Busy { what: "planted".into() }, u32::MAX));
    let still = registration.deregister().unwrap_err();
    assert_eq!((still.left.live(), fake.live(), still.failed.len()), (1, 1, 1));
    assert_eq!(still.failed[0].diagnosis().kind, ErrorKind::Busy);
    let undone = fake.deregistered().len();
    fake.heal();
    assert_eq!(still.left.deregister().unwrap().record.len(), 1);
    assert_eq!((fake.live(), fake.deregistered().len()), (0, undone + 1));
}

#[test]
fn what_a_rollback_cannot_undo_is_quarantined_with_its_memory() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1, 1], "no-prefault");
    let all = tasks(&plan);
    fake.fail_register(all[3], enomem());
    fake.fail_deregister(all[0], Fault::Panics);
    let failure = engine(&fake).register(plan, &options()).unwrap_err();
    assert_eq!((fake.live(), failure.rolled_back), (1, 2));
    assert!(failure.diagnosis().message.contains("stay pinned"), "{failure}");
    let quarantine = failure.quarantine.unwrap();
    assert_eq!((quarantine.live(), quarantine.tasks()), (1, vec![(ChunkId(0), RailId(0))]));
    fake.heal();
    quarantine.deregister().unwrap();
    assert_eq!(fake.live(), 0);
}

#[test]
fn a_panic_in_a_backend_is_an_error_of_one_step() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1, 1], "");
    fake.fail_register(tasks(&plan)[2], Fault::Panics);
    let failure = engine(&fake).register(plan, &options()).unwrap_err();
    assert!(failure.to_string().contains("a planted panic"), "{failure}");
    assert_eq!((fake.live(), failure.rolled_back), (0, 3));
}

#[test]
fn a_backend_that_lies_about_deregistering_is_not_believed() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1], "");
    fake.fail_deregister(tasks(&plan)[0], Fault::Lies);
    let still = engine(&fake).register(plan, &options()).unwrap().deregister().unwrap_err();
    assert_eq!((still.left.live(), fake.live()), (1, 1));
    fake.heal();
    still.left.deregister().unwrap();
}

#[test]
fn eagain_is_tried_again_bounded_and_nothing_else_is() {
    let machine = machine(1, 1);
    for (fault, works, calls) in [
        (Fault::Fails(Cause::Again, 3), true, 4),
        (Fault::Fails(Cause::Again, u32::MAX), false, 6),
        (Fault::Fails(Cause::Other { what: "EINVAL".into() }, 1), false, 1),
    ] {
        let fake = Fake::new(&machine);
        let plan = plan(&machine, &[1], "");
        fake.fail_register(tasks(&plan)[0], fault);
        let result = engine(&fake).register(plan, &options());
        assert_eq!((result.is_ok(), fake.calls()), (works, calls));
    }
}

#[test]
fn complete_buffers_are_kept_when_asked_and_the_rest_undone() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1, 1, 1], "");
    fake.fail_register(tasks(&plan)[2], enomem());
    let failure = engine(&fake).register(plan, &Options { on_failure: OnFailure::KeepComplete, ..options() }).unwrap_err();
    let kept = failure.kept.unwrap();
    assert_eq!((kept.live(), fake.live(), failure.rolled_back), (4, 4, 1));
    assert!(kept.buffer(BufferId(2), RailId(1)).is_ok() && kept.buffer(BufferId(1), RailId(1)).is_err());
    kept.deregister().unwrap();
    assert_eq!(fake.live(), 0);
}

#[test]
fn nothing_starts_after_a_cancel_and_calls_in_flight_are_undone() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1; 5], "no-prefault");
    fake.hold(tasks(&plan)[1]);
    let handle = engine(&fake).start(plan, &options()).unwrap();
    fake.wait_for_calls(2);
    handle.canceller().cancel();
    fake.release();
    let failure = handle.wait().unwrap_err();
    assert!(matches!(failure.reason, Reason::Cancelled));
    assert_eq!((fake.calls(), fake.live(), failure.rolled_back, failure.not_attempted), (2, 0, 2, 3));
    assert_eq!(failure.diagnosis().kind, ErrorKind::Cancelled);
}

#[test]
fn a_deadline_is_when_cancel_is_sent() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1; 3], "no-prefault");
    // The first call returns only after the deadline has certainly passed: the parked worker then has nothing to start.
    fake.hold(tasks(&plan)[0]);
    let handle = engine(&fake).start(plan, &Options { deadline: Some(Duration::from_millis(30)), ..options() }).unwrap();
    fake.wait_for_calls(4);
    while handle.progress().running > 1 {
        std::thread::yield_now();
    }
    // Time passes only for the engine's own clock; a slow machine makes this wait longer and nothing else.
    std::thread::park_timeout(Duration::from_millis(60));
    fake.release();
    let failure = handle.wait().unwrap_err();
    assert!(matches!(failure.reason, Reason::Deadline), "{failure}");
    assert_eq!(fake.live(), 0);
}

#[test]
fn a_deadline_that_has_passed_starts_nothing() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let failure =
        engine(&fake).register(plan(&machine, &[1], ""), &Options { deadline: Some(Duration::ZERO), ..options() }).unwrap_err();
    assert!(matches!(failure.reason, Reason::Deadline));
    assert_eq!((fake.calls(), failure.not_attempted), (0, 1));
}

#[test]
fn a_deadline_beyond_the_end_of_time_is_none() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let never = Options { deadline: Some(Duration::MAX), ..options() };
    assert_eq!(engine(&fake).register(plan(&machine, &[1], ""), &never).unwrap().live(), 1);
}

#[test]
fn a_dropped_handle_cancels_and_never_frees_under_a_call() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1; 3], "no-prefault");
    let memory: Memory = plan.buffers()[0].memory.clone();
    fake.hold(tasks(&plan)[0]);
    let handle = engine(&fake).start(plan, &options()).unwrap();
    fake.wait_for_calls(1);
    drop(handle);
    assert_eq!(memory.len(), PAGE);
    fake.release();
    while fake.deregistered().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!((fake.calls(), fake.live()), (1, 0));
}

#[test]
fn a_dropped_registration_deregisters_and_leaks_what_it_cannot() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1, 1], "");
    fake.fail_deregister(tasks(&plan)[0], Fault::Panics);
    drop(engine(&fake).register(plan, &options()).unwrap());
    assert_eq!((fake.live(), fake.deregistered().len()), (1, 3));
}

#[test]
fn a_plan_for_other_rails_is_refused_before_any_call() {
    let fake = Fake::new(&machine(2, 1));
    let failure = engine(&fake).register(plan(&Machine::of_rails(3), &[1], ""), &options()).unwrap_err();
    assert!(matches!(failure.reason, Reason::Refused(Refusal::OtherRails { .. })));
    assert_eq!((fake.calls(), failure.not_attempted), (0, 3));
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![Just(enomem()), Just(Fault::Panics), Just(Fault::Fails(Cause::Again, 1))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_mr_is_lost_whatever_fails(
        pages in prop::collection::vec(1u64..20, 0..10),
        rails in 1u16..4,
        parallel in 1u32..3,
        spec in prop_oneof![Just(""), Just("rails-in-series+ascending"), Just("unbounded+no-prefault"), Just("capped=1+descending"), Just("per-rail=1")],
        failing in prop::collection::vec((any::<prop::sample::Index>(), fault()), 0..4),
        stuck in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        attempts in prop_oneof![Just(Attempts::All), Just(Attempts::StopEarly)],
        on_failure in prop_oneof![Just(OnFailure::RollBack), Just(OnFailure::KeepComplete)],
    ) {
        let machine = machine(rails, parallel);
        let fake = Fake::new(&machine);
        let plan = plan(&machine, &pages, spec);
        let all = tasks(&plan);
        if !all.is_empty() {
            failing.iter().for_each(|(at, fault)| fake.fail_register(*at.get(&all), fault.clone()));
            stuck.iter().for_each(|at| fake.fail_deregister(*at.get(&all), Fault::Panics));
        }
        let held = match engine(&fake).register(plan, &Options { attempts, on_failure, ..options() }) {
            Ok(registration) => vec![Held::Kept(registration)],
            Err(failure) => {
                let live = failure.quarantine.as_ref().map_or(0, |left| left.live()) + failure.kept.as_ref().map_or(0, |kept| kept.live());
                let ended = failure.rolled_back + live + failure.not_attempted;
                let failed = failure.failed.iter().filter(|failed| failed.rail.is_some()).count() as u64;
                prop_assert_eq!(ended + failed, all.len() as u64, "every task is in exactly one of the lists");
                Held::of(*failure)
            }
        };
        let live: u64 = held.iter().map(|held| held.live()).sum();
        prop_assert_eq!(live, fake.live() as u64, "what is live is held");
        fake.heal();
        for held in held {
            held.deregister().unwrap();
        }
        prop_assert_eq!(fake.live(), 0);
        prop_assert_eq!(fake.registered().len(), fake.deregistered().len());
    }
}

#[test]
fn a_refused_sharing_is_undone_and_the_batch_registered_all_the_same() {
    use pinrail_core::batch::{BatchSpec, BufferSpec};
    let machine = machine(2, 1);
    let tensors = (0..6).map(|at| BufferSpec { allocation: Some("kv".into()), ..BufferSpec::new(format!("t{at}"), PAGE) });
    let buffers = || BatchSpec::of(tensors.clone()).layout().unwrap().imagined().unwrap();
    let policy = pinrail_policy::Policy::new(std::num::NonZeroU32::MIN);
    let shared = pinrail_plan::Plan::new(buffers(), &machine, &policy).unwrap();
    assert_eq!(shared.tasks(), 2);
    let first = tasks(&shared)[0];
    // Refused once, as a provider does that takes no such range; each tensor alone is taken.
    let fake = Fake::new(&machine);
    fake.fail_register(first, Fault::Fails(Cause::Other { what: "EINVAL".into() }, 1));
    let registration = engine(&fake).register(shared, &options()).unwrap();
    assert_eq!((registration.live(), registration.plan().chunks().len(), fake.live()), (12, 6, 12));
    drop(registration);
    // What is not the fault of sharing is not tried again.
    let fake = Fake::new(&machine);
    fake.fail_register(first, enomem());
    let shared = pinrail_plan::Plan::new(buffers(), &machine, &policy).unwrap();
    assert!(engine(&fake).register(shared, &options()).is_err());
    assert_eq!((fake.calls(), fake.live()), (2, 0));
}

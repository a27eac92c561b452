//! Dispatch against its oracle, and the cases that have a name.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use crate::testing::{Op, Shape, run_beside_oracle};
use crate::{Dispatch, Outcome, Seen, Stop, Take, Wake};
use pinrail_core::{Kind, Limits, RailId, StepId, StepWhat, WorkerId};
use pinrail_policy::{Control, Controller, ControllerReport, Finished, Tick};
use proptest::prelude::*;

fn n(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a test names a limit")
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        8 => Just(Outcome::Done),
        1 => Just(Outcome::Failed),
        1 => Just(Outcome::Exhausted),
        1 => Just(Outcome::Skip),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => any::<u8>().prop_map(Op::Take),
        6 => (any::<u8>(), outcome()).prop_map(|(at, outcome)| Op::DoneAndTake(at, outcome)),
        4 => (any::<u8>(), outcome()).prop_map(|(at, outcome)| Op::Done(at, outcome)),
        2 => (0..5u8, 0..3u8, 0..4u8, 0..3u8).prop_map(|(a, b, c, d)| Op::Limit(a, b, c, d)),
        1 => Just(Op::Stop),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let lanes = prop::collection::vec((1..4u32).prop_map(n), 1..5);
    let chunks = prop::collection::vec((any::<u8>(), prop_oneof![3 => Just(0u8), 2 => 1..4u8]), 0..12);
    (lanes, chunks, any::<bool>()).prop_map(|(lanes, chunks, series)| Shape { lanes, chunks, series })
}

fn ceiling() -> impl Strategy<Value = Limits> {
    prop_oneof![
        2 => Just(Limits::NONE),
        2 => (1..5u32).prop_map(|total| Limits::total(n(total))),
        1 => (1..3u32).prop_map(|per_rail| Limits { per_rail: n(per_rail), ..Limits::NONE }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 2_000 }))]
    #[test]
    fn every_hand_out_is_the_oracles(
        shape in shape(), ceiling in ceiling(), control in control(), ops in prop::collection::vec(op(), 0..120),
    ) {
        let control = match control {
            None => Control::Fixed(Limits::NONE),
            Some(answers) => Control::Adaptive(Box::new(Reads { answers, at: 0 })),
        };
        run_beside_oracle(&shape, ceiling, control, &ops);
    }
}

fn control() -> impl Strategy<Value = Option<Vec<Answer>>> {
    let limits = (1..6u32, 1..3u32, 1..4u32, 1..3u32).prop_map(|(total, prepare, register, per_rail)| Limits {
        total: n(total),
        prepare: n(prepare),
        register: n(register),
        per_rail: n(per_rail),
        ..Limits::NONE
    });
    let answer = prop_oneof![6 => Just(Answer::Keeps), 6 => limits.prop_map(Answer::Sets), 1 => Just(Answer::Panics)];
    prop::option::of(prop::collection::vec(answer, 1..40))
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Keeps,
    Sets(Limits),
    Panics,
}

/// A controller that reads its answers from a list, over and over.
struct Reads {
    answers: Vec<Answer>,
    at: usize,
}

impl Controller for Reads {
    fn limits(&self) -> Limits {
        Limits::total(n(2))
    }
    fn finished(&mut self, _: Tick, _: &Finished) -> Option<Limits> {
        self.at += 1;
        match self.answers[self.at % self.answers.len()] {
            Answer::Keeps => None,
            Answer::Sets(limits) => Some(limits),
            // As a panic, without a message a case.
            Answer::Panics => std::panic::resume_unwind(Box::new("a bug of the controller")),
        }
    }
    fn report(&self) -> ControllerReport {
        ControllerReport::default()
    }
}

fn dispatch(shape: Shape, ceiling: Limits) -> Dispatch {
    Dispatch::new(shape.steps(), ceiling, Control::Fixed(Limits::NONE))
}

fn two_rails(chunks: &[(u8, u8)], series: bool) -> Shape {
    Shape { lanes: vec![n(1), n(1)], chunks: chunks.to_vec(), series }
}

#[test]
fn an_empty_run_is_finished_at_once() {
    let dispatch = dispatch(two_rails(&[], false), Limits::NONE);
    assert_eq!(dispatch.take(WorkerId(0)), Take::Finished);
    assert_eq!(dispatch.workers_max(), 0);
}

#[test]
fn a_chunk_waits_for_its_slices_and_others_do_not() {
    // Chunk 0 has two slices (steps 0, 1) and a task (2); chunk 1 has a task (3) on the same rail.
    let dispatch = dispatch(two_rails(&[(1, 2), (1, 0)], false), Limits::NONE);
    let starts: Vec<StepId> = (0..3).filter_map(|w| dispatch.take(WorkerId(w)).start()).map(|start| start.step).collect();
    assert_eq!(starts, [StepId(0), StepId(1), StepId(3)]);
    assert_eq!(dispatch.done(StepId(0), Outcome::Done, Seen::default()), Wake::None);
    assert_eq!(dispatch.take(WorkerId(0)), Take::Wait);
    assert_eq!(dispatch.done(StepId(1), Outcome::Done, Seen::default()), Wake::None, "the rail is still busy");
    assert_eq!(dispatch.done(StepId(3), Outcome::Done, Seen::default()), Wake::One);
    assert_eq!(dispatch.take(WorkerId(0)).start().unwrap().step, StepId(2));
}

#[test]
fn a_failed_preparation_drops_its_chunk_and_nothing_else() {
    let dispatch = dispatch(two_rails(&[(3, 2), (1, 0)], false), Limits::total(n(1)));
    assert_eq!(dispatch.take(WorkerId(0)).start().unwrap().step, StepId(0));
    let (_, next) = dispatch.done_and_take(WorkerId(0), Some((StepId(0), Outcome::Skip, Seen::default())));
    let step = next.start().unwrap().step;
    assert!(matches!(dispatch.steps().what(step), StepWhat::Task { chunk, rail: RailId(0), .. } if chunk.0 == 1));
    assert_eq!(dispatch.counts().dropped, 3);
    let (_, end) = dispatch.done_and_take(WorkerId(0), Some((step, Outcome::Done, Seen::default())));
    assert_eq!(end, Take::Finished);
}

#[test]
fn rails_in_series_go_on_after_a_failure() {
    let dispatch = dispatch(two_rails(&[(3, 0)], true), Limits::NONE);
    assert_eq!(dispatch.take(WorkerId(0)).start().unwrap().step, StepId(0));
    let (_, next) = dispatch.done_and_take(WorkerId(0), Some((StepId(0), Outcome::Failed, Seen::default())));
    assert_eq!(next.start().unwrap().step, StepId(1));
}

#[test]
fn the_end_wakes_everyone_and_so_does_a_stop() {
    for stop in [false, true] {
        let dispatch = dispatch(two_rails(&[(1, 0)], false), Limits::NONE);
        let start = dispatch.take(WorkerId(0)).start().unwrap();
        if stop {
            assert_eq!(dispatch.stop(Stop::Deadline), Wake::None, "nobody waits yet");
            assert_eq!(dispatch.stop(Stop::Cancelled), Wake::None);
            assert_eq!(dispatch.stopped(), Some(Stop::Deadline), "the first reason is kept");
        }
        assert_eq!(dispatch.take(WorkerId(1)), Take::Finished, "nothing will start any more");
        assert_eq!(dispatch.done(start.step, Outcome::Done, Seen::default()), Wake::None);
    }
}

#[test]
#[should_panic(expected = "step 0 is not running")]
fn a_step_cannot_end_twice() {
    let dispatch = dispatch(two_rails(&[(1, 0), (1, 0)], false), Limits::NONE);
    assert!(dispatch.take(WorkerId(0)).start().is_some());
    assert_eq!(dispatch.done(StepId(0), Outcome::Done, Seen::default()), Wake::None);
    let _ = dispatch.done(StepId(0), Outcome::Done, Seen::default());
}

#[test]
fn as_many_workers_as_could_ever_be_busy() {
    let all = |prepares, ceiling| dispatch(two_rails(&[(3, prepares), (3, 0), (3, 0)], false), ceiling).workers_max();
    assert_eq!(all(0, Limits::NONE), 2, "two lanes of one call each");
    assert_eq!(all(3, Limits::NONE), 5, "and three slices");
    assert_eq!(all(3, Limits::total(n(4))), 4);
    assert_eq!(all(3, Limits { prepare: n(1), register: n(1), ..Limits::NONE }), 2);
    let wide =
        |ceiling| dispatch(Shape { lanes: vec![n(3), n(2)], chunks: vec![(3, 0); 9], series: false }, ceiling).workers_max();
    assert_eq!(wide(Limits::NONE), 5, "as many calls as each lane takes");
    assert_eq!(wide(Limits { per_rail: n(2), ..Limits::NONE }), 4);
}

/// Keeps what it was told.
struct Listens(Arc<Mutex<Vec<(Tick, Finished)>>>);

impl Controller for Listens {
    fn limits(&self) -> Limits {
        Limits::NONE
    }
    fn finished(&mut self, now: Tick, seen: &Finished) -> Option<Limits> {
        self.0.lock().unwrap().push((now, *seen));
        None
    }
    fn report(&self) -> ControllerReport {
        ControllerReport::default()
    }
}

#[test]
fn a_controller_is_told_how_each_step_went() {
    let told = Arc::default();
    let steps = two_rails(&[(2, 1), (2, 0)], false).steps();
    let dispatch = Dispatch::new(steps, Limits::NONE, Control::Adaptive(Box::new(Listens(Arc::clone(&told)))));
    for (now, outcome) in [(5, Outcome::Done), (9, Outcome::Failed), (12, Outcome::Exhausted)] {
        let start = dispatch.take(WorkerId(0)).start().unwrap();
        let seen = Seen { now: Tick(now), started: Tick(now - 2), in_flight: start.in_flight };
        assert_eq!(dispatch.done(start.step, outcome, seen), Wake::None);
    }
    let task = |step, started, exhausted| Finished {
        step: StepId(step),
        kind: Kind::Register,
        rail: Some(RailId(1)),
        bytes: 1,
        started: Tick(started),
        in_flight: 1,
        ok: false,
        exhausted,
    };
    let prepared = Finished { kind: Kind::Prepare, rail: None, ok: true, ..task(0, 3, false) };
    let wanted = [(Tick(5), prepared), (Tick(9), task(1, 7, false)), (Tick(12), task(2, 10, true))];
    assert_eq!(*told.lock().unwrap(), wanted);
}

/// Panics wherever it is asked, but for what `finished` is.
struct Broken {
    limits: bool,
}

impl Controller for Broken {
    fn limits(&self) -> Limits {
        assert!(!self.limits, "a bug of the controller");
        Limits::total(n(2))
    }
    fn finished(&mut self, _: Tick, _: &Finished) -> Option<Limits> {
        None
    }
    fn report(&self) -> ControllerReport {
        panic!("a bug of the controller")
    }
}

#[test]
fn a_controller_that_panics_first_or_last_takes_nothing_down() {
    for (limits, in_force) in [(true, Limits::NONE), (false, Limits::total(n(2)))] {
        let steps = two_rails(&[(1, 0)], false).steps();
        let dispatch = Dispatch::new(steps, Limits::NONE, Control::Adaptive(Box::new(Broken { limits })));
        let start = dispatch.take(WorkerId(0)).start().unwrap();
        assert_eq!(dispatch.done(start.step, Outcome::Done, Seen::default()), Wake::None);
        assert_eq!((dispatch.take(WorkerId(0)), dispatch.limits()), (Take::Finished, in_force));
        assert_eq!(dispatch.report().unwrap().levels, [(Tick(0), in_force, "the controller panicked")]);
    }
}

/// Widens by one after each completion, and panics when told to.
struct Widening {
    now: u32,
    panics_at: u32,
}

impl Controller for Widening {
    fn limits(&self) -> Limits {
        Limits::total(n(self.now))
    }
    fn finished(&mut self, _: Tick, seen: &Finished) -> Option<Limits> {
        assert_eq!(seen.kind, Kind::Register);
        self.now += 1;
        assert!(self.now < self.panics_at, "a bug of the controller");
        Some(self.limits())
    }
    fn report(&self) -> ControllerReport {
        ControllerReport { levels: vec![(Tick(0), self.limits(), "widened")] }
    }
}

fn wide(controller: Widening) -> Dispatch {
    let shape = Shape { lanes: vec![n(16)], chunks: vec![(1, 0); 16], series: false };
    Dispatch::new(shape.steps(), Limits::total(n(3)), Control::Adaptive(Box::new(controller)))
}

#[test]
fn a_controllers_limit_is_in_force_at_once_and_never_above_the_ceiling() {
    let dispatch = wide(Widening { now: 1, panics_at: 99 });
    let first = dispatch.take(WorkerId(0)).start().unwrap();
    assert_eq!(dispatch.take(WorkerId(1)), Take::Wait);
    let (_, next) = dispatch.done_and_take(WorkerId(0), Some((first.step, Outcome::Done, Seen::default())));
    assert!(next.start().unwrap().wake, "the wider limit lets the waiting worker start too");
    assert!(dispatch.take(WorkerId(1)).start().is_some());
    for step in [1, 2] {
        let _ = dispatch.done(StepId(step), Outcome::Done, Seen::default());
    }
    let started = (0..5).filter(|&w| dispatch.take(WorkerId(w)).start().is_some()).count();
    assert_eq!((started, dispatch.limits().total), (3, n(3)));
    assert_eq!(dispatch.report().unwrap().levels[0].2, "widened");
}

#[test]
fn a_controller_that_panics_leaves_its_last_limits_and_is_reported() {
    let dispatch = wide(Widening { now: 1, panics_at: 2 });
    let mut step = dispatch.take(WorkerId(0)).start().unwrap().step;
    for _ in 1..16 {
        let (_, take) = dispatch.done_and_take(WorkerId(0), Some((step, Outcome::Done, Seen::default())));
        step = take.start().unwrap().step;
    }
    assert_eq!(dispatch.limits().total, n(1));
    assert_eq!(dispatch.report().unwrap().levels[0].2, "the controller panicked");
}

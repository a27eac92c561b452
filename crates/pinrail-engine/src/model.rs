//! Workers of a run under a model checker: every interleaving of dispatch's lock and the parker's, up to a few preemptions.
//!
//! `cargo xtask deep loom` builds this with `--cfg loom`. A worker that sleeps for ever is a deadlock there and fails the
//! model; time-outs never come, so that none hides a wake-up that was lost.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use loom::thread;
use pinrail_core::{ChunkId, Group, Kind, Limits, RailId, StepWhat, Steps, WorkerId};
use pinrail_dispatch::{Dispatch, Outcome, Stop, Take, Wake};
use pinrail_policy::Control as Limiting;

use crate::clock::{self, Clock};
use crate::parker::Parker;
use crate::run::{self, Control, Work};
use crate::sync::{Mutex, lock};

/// Each more multiplies the interleavings; races that need three are rare, and the canary needs one.
const PREEMPTIONS_MAX: usize = 2;

#[allow(clippy::print_stdout, reason = "how many interleavings there were says what was proved")]
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} interleavings", runs.load(Ordering::Relaxed));
}

/// Chunks on these rails, with so many preparations, on lanes of one call each.
fn dispatch(chunks: &[(&[u16], u32)], series: bool, ceiling: u32) -> Dispatch {
    let sets: Arc<[Box<[RailId]>]> = chunks.iter().map(|(rails, _)| rails.iter().copied().map(RailId).collect()).collect();
    let mut steps = Steps::new(Kind::Register, series, vec![NonZeroU32::MIN; 2], sets).unwrap();
    for (at, &(_, prepares)) in (0..).zip(chunks) {
        steps.push(Group { chunk: ChunkId(at), set: at, prepares, bytes: 1 }).unwrap();
    }
    let ceiling = NonZeroU32::new(ceiling).map_or(Limits::NONE, Limits::total);
    Dispatch::new(steps, ceiling, Limiting::Fixed(Limits::NONE))
}

/// Writes down what is done; stops the run at a step, or pauses in one until the run is stopped.
#[derive(Default)]
struct Log {
    done: Mutex<Vec<StepWhat>>,
    stops_at: Option<u64>,
    pauses_at: Option<u64>,
}

impl Work for Log {
    fn step(&self, what: StepWhat, seq: u64, control: &Control) -> Outcome {
        lock(&self.done).push(what);
        if self.stops_at == Some(seq) {
            control.stop(Stop::Failure);
        }
        if self.pauses_at == Some(seq) {
            assert!(!control.pause(clock::now() + Duration::from_secs(3600)), "an hour has not passed");
        }
        Outcome::Done
    }
}

/// Runs `workers` workers to their end and answers how many steps were done.
fn run(dispatch: Dispatch, work: Log, workers: u32) -> usize {
    let control = Arc::new(Control::new(dispatch, None));
    let work = Arc::new(work);
    let clock = Clock::start();
    let others: Vec<_> = (1..workers)
        .map(|id| {
            let (control, work) = (Arc::clone(&control), Arc::clone(&work));
            thread::spawn(move || run::worker(WorkerId(id), &control, work.as_ref(), clock, &run::Log::default()))
        })
        .collect();
    run::worker(WorkerId(0), &control, work.as_ref(), clock, &run::Log::default());
    others.into_iter().for_each(|other| drop(other.join().unwrap()));
    let done = lock(&work.done).len();
    assert_eq!(control.dispatch.counts().running, 0);
    done
}

#[test]
fn two_workers_on_one_rail_do_every_step() {
    check(|| assert_eq!(run(dispatch(&[(&[0], 0), (&[0], 0)], false, 0), Log::default(), 2), 2));
}

#[test]
fn two_workers_on_two_rails_and_a_slice_do_every_step() {
    check(|| assert_eq!(run(dispatch(&[(&[0, 1], 1)], false, 0), Log::default(), 2), 3));
}

#[test]
fn rails_in_series_do_every_step() {
    check(|| assert_eq!(run(dispatch(&[(&[0, 1], 0), (&[1], 0)], true, 0), Log::default(), 2), 3));
}

#[test]
fn three_workers_wake_each_other() {
    check(|| assert_eq!(run(dispatch(&[(&[0], 1), (&[1], 0)], false, 2), Log::default(), 3), 3));
}

#[test]
fn a_stop_is_seen_by_everyone() {
    check(|| {
        let stops = Log { stops_at: Some(0), ..Log::default() };
        let done = run(dispatch(&[(&[0], 0), (&[0], 0), (&[0], 0)], false, 0), stops, 2);
        assert_eq!(done, 1, "the rail takes one call, which stopped the run");
    });
}

#[test]
fn a_stop_from_outside_wakes_who_waits_and_who_pauses() {
    check(|| {
        let control = Arc::new(Control::new(dispatch(&[(&[0], 0), (&[0], 0)], false, 0), None));
        let work = Arc::new(Log { pauses_at: Some(0), ..Log::default() });
        let clock = Clock::start();
        let canceller = {
            let control = Arc::clone(&control);
            thread::spawn(move || control.stop(Stop::Cancelled))
        };
        let other = {
            let (control, work) = (Arc::clone(&control), Arc::clone(&work));
            thread::spawn(move || run::worker(WorkerId(1), &control, work.as_ref(), clock))
        };
        run::worker(WorkerId(0), &control, work.as_ref(), clock, &run::Log::default());
        other.join().unwrap();
        canceller.join().unwrap();
        assert!(lock(&work.done).len() <= 2);
    });
}

/// The wake-up for a step that another may start is not spent on a worker that pauses between attempts.
#[test]
fn who_pauses_takes_no_wake_up_from_who_waits() {
    check(|| {
        // Worker 0 pauses in step 0 on rail 0; worker 1 does step 1 on rail 1, and worker 2 has to be woken for step 2,
        // which stops the run: only then does the pause end.
        let work = Log { pauses_at: Some(0), stops_at: Some(2), ..Log::default() };
        assert_eq!(run(dispatch(&[(&[0], 0), (&[1], 0), (&[1], 0)], false, 0), work, 3), 3);
    });
}

/// A worker as [`run::worker`] would be without the look at the epoch.
fn careless_worker(id: WorkerId, dispatch: &Dispatch, parker: &Parker) {
    let mut done = None;
    loop {
        let (wake, take) = dispatch.done_and_take(id, done.take());
        parker.deliver(wake);
        match take {
            Take::Finished => return,
            // The epoch of now and not that from before the take: a wake-up in between is lost.
            Take::Wait => parker.park(parker.epoch(), None),
            Take::Start(start) => {
                if start.wake {
                    parker.deliver(Wake::One);
                }
                done = Some((start.step, Outcome::Done, pinrail_dispatch::Seen::default()));
            }
        }
    }
}

/// The canary: if the checker does not find this one it finds nothing.
#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_wake_up_is_found() {
    check(|| {
        let run = Arc::new((dispatch(&[(&[0], 0), (&[0], 0)], false, 0), Parker::default()));
        let other = {
            let run = Arc::clone(&run);
            thread::spawn(move || careless_worker(WorkerId(1), &run.0, &run.1))
        };
        careless_worker(WorkerId(0), &run.0, &run.1);
        other.join().unwrap();
    });
}

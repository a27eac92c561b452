//! Workers of a run under a model checker: every interleaving of dispatch's lock and the parker's, up to a few preemptions.
//!
//! `cargo xtask deep loom` builds this with `--cfg loom`. A worker that sleeps for ever is a deadlock there and fails the
//! model; time-outs never come, so that none hides a wake-up that was lost.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::thread;
use pinrail_core::{Cause, ChunkId, Group, Kind, Limits, RailId, RegisterError, StepWhat, Steps, WorkerId};
use pinrail_dispatch::{Dispatch, Outcome, Stop, Take, Wake};
use pinrail_policy::Control as Limiting;

use crate::crew::Crew;
use crate::failure::StepError;
use crate::parker::Parker;
use crate::run::{Control, Team, Then, Work};
use crate::sync::{Mutex, lock};

/// Each more multiplies the interleavings; races that need three are rare, and the canary needs one.
const PREEMPTIONS_MAX: usize = 2;

#[allow(clippy::print_stdout, reason = "how many interleavings there were says what was proved")]
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
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

/// Writes down what is done; stops the run at a step, or answers a call with EAGAIN, so that its worker pauses.
#[derive(Default)]
struct Log {
    done: Mutex<Vec<StepWhat>>,
    stops_at: Option<u64>,
    pauses: Option<StepWhat>,
}

impl Work for Log {
    type Call = StepWhat;
    type Got = ();

    fn begin(&self, what: StepWhat) -> Option<StepWhat> {
        Some(what)
    }

    fn call(&self, what: &mut StepWhat) -> Result<(), StepError> {
        let mut done = lock(&self.done);
        done.push(*what);
        // Time stands still, so that the pause after this lasts until the run is stopped.
        let again = || RegisterError::new("model", None, Cause::Again).into();
        if self.pauses == Some(*what) { Err(again()) } else { Ok(()) }
    }

    fn returned(&self, _: StepWhat, seq: u64, _: StepWhat, _: Result<(), StepError>, control: &Control) -> Then<StepWhat> {
        if self.stops_at == Some(seq) {
            control.stop(Stop::Failure);
        }
        Then::End(Outcome::Done)
    }
}

/// The task of a chunk on its first rail.
fn task(chunk: u32, rail: u16) -> StepWhat {
    StepWhat::Task { chunk: ChunkId(chunk), rail: RailId(rail), nth: 0 }
}

/// Runs `workers` workers to their end and answers how many steps were done.
fn run(dispatch: Dispatch, work: Log, workers: u32) -> usize {
    let control = Arc::new(Control::new(dispatch, Crew::default(), None));
    let work = Arc::new(work);
    let team = Team::new(&control, &work, None);
    let own = team.worker();
    let others: Vec<_> = (1..workers)
        .map(|_| {
            let worker = team.worker();
            thread::spawn(move || worker.work())
        })
        .collect();
    own.work();
    others.into_iter().for_each(|other| other.join().unwrap());
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
        let control = Arc::new(Control::new(dispatch(&[(&[0], 0), (&[0], 0)], false, 0), Crew::default(), None));
        let work = Arc::new(Log { pauses: Some(task(0, 0)), ..Log::default() });
        let team = Team::new(&control, &work, None);
        let own = team.worker();
        let canceller = {
            let control = Arc::clone(&control);
            thread::spawn(move || control.stop(Stop::Cancelled))
        };
        let other = {
            let worker = team.worker();
            thread::spawn(move || worker.work())
        };
        own.work();
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
        let work = Log { pauses: Some(task(0, 0)), stops_at: Some(2), ..Log::default() };
        assert_eq!(run(dispatch(&[(&[0], 0), (&[1], 0), (&[1], 0)], false, 0), work, 3), 3);
    });
}

/// A worker as [`Worker`] would be without the look at the epoch.
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

//! One run of steps on threads: the same loop registers, deregisters and rolls back.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use pinrail_core::{StepWhat, WorkerId};
use pinrail_dispatch::{Dispatch, Outcome, Seen, Stop, Take, Wake};

use crate::clock::{self, Clock};
use crate::parker::Parker;
use crate::report::Handout;
use crate::sync::{Mutex, lock};

/// What the steps of a run do.
pub(crate) trait Work: Send + Sync + 'static {
    /// Does one step and must not panic; `seq` is its place in the order of hand-outs.
    fn step(&self, what: StepWhat, seq: u64, control: &Control) -> Outcome;
}

/// What a step may ask of its run, and what others may tell the run.
pub(crate) struct Control {
    pub(crate) dispatch: Dispatch,
    /// Where workers wait for a step.
    parker: Parker,
    /// Where workers wait between the attempts at one: a wake-up for a step must not be spent on them.
    pauses: Parker,
    deadline: Option<Instant>,
}

impl Control {
    pub(crate) fn new(dispatch: Dispatch, deadline: Option<Instant>) -> Control {
        Control { dispatch, parker: Parker::default(), pauses: Parker::default(), deadline }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Nothing starts after this.
    pub(crate) fn stop(&self, why: Stop) {
        self.parker.deliver(self.dispatch.stop(why));
        self.pauses.deliver(Wake::All);
    }

    /// True when nothing more shall begin; a deadline that has passed is noticed here.
    pub(crate) fn is_stopped(&self) -> bool {
        if self.deadline.is_some_and(|deadline| clock::now() >= deadline) {
            self.stop(Stop::Deadline);
        }
        self.dispatch.stopped().is_some()
    }

    /// Waits until then: how a step spaces its retries. False as soon as the run is stopped.
    pub(crate) fn pause(&self, until: Instant) -> bool {
        loop {
            // Read before the question, so that a stop between the two is seen.
            let epoch = self.pauses.epoch();
            if self.is_stopped() {
                return false;
            }
            if clock::now() >= until {
                return true;
            }
            self.pauses.park(epoch, Some(self.deadline.map_or(until, |deadline| deadline.min(until))));
        }
    }
}

/// What a run leaves behind, besides what its work holds.
pub(crate) struct Ended {
    pub(crate) record: Vec<Handout>,
    pub(crate) threads: u32,
}

/// Runs to the end on at most `threads_max` threads, the caller's among them.
pub(crate) fn run<W: Work>(control: &Arc<Control>, work: &Arc<W>, clock: Clock, threads_max: u32) -> Ended {
    let threads = control.dispatch.workers_max().min(threads_max).max(1);
    let logs: Arc<Vec<Mutex<Vec<Handout>>>> = Arc::new((0..threads).map(|_| Mutex::default()).collect());
    let worker = |id: u32| {
        let (control, work, logs) = (Arc::clone(control), Arc::clone(work), Arc::clone(&logs));
        move || *lock(&logs[id as usize]) = worker(WorkerId(id), &control, work.as_ref(), clock)
    };
    // A thread that cannot be had is not missed: those started, and at least this one, do all of the work.
    let others: Vec<JoinHandle<()>> =
        (1..threads).map_while(|id| thread::Builder::new().name(format!("pinrail-{id}")).spawn(worker(id)).ok()).collect();
    let threads = others.iter().fold(1, |threads, _| threads + 1);
    worker(0)();
    for other in others {
        if let Err(panic) = other.join() {
            // Calls of others are caught where they are made: this is a defect of the engine, and hiding it would lose steps.
            std::panic::resume_unwind(panic);
        }
    }
    let mut record: Vec<Handout> = logs.iter().flat_map(|log| std::mem::take(&mut *lock(log))).collect();
    record.sort_unstable_by_key(|handout| handout.seq);
    Ended { record, threads }
}

pub(crate) fn worker<W: Work>(id: WorkerId, control: &Control, work: &W, clock: Clock) -> Vec<Handout> {
    let mut log = Vec::new();
    let mut done = None;
    loop {
        // Read before the take, so that a wake-up between the two is seen.
        let epoch = control.parker.epoch();
        if control.deadline.is_some() {
            control.is_stopped();
        }
        let (wake, take) = control.dispatch.done_and_take(id, done.take());
        control.parker.deliver(wake);
        match take {
            Take::Finished => return log,
            Take::Wait => control.parker.park(epoch, control.deadline),
            Take::Start(start) => {
                if start.wake {
                    control.parker.deliver(Wake::One);
                }
                let started = clock.tick();
                let outcome = work.step(control.dispatch.steps().what(start.step), start.seq, control);
                let now = clock.tick();
                log.push(Handout {
                    seq: start.seq,
                    step: start.step,
                    worker: id,
                    start: started,
                    end: now,
                    ok: outcome == Outcome::Done,
                });
                done = Some((start.step, outcome, Seen { now, started, in_flight: start.in_flight }));
            }
        }
    }
}

//! One run of steps on threads: the same loop registers, deregisters and rolls back.

use std::sync::{self, Arc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use pinrail_core::{StepWhat, WorkerId};
use pinrail_dispatch::{Dispatch, Outcome, Seen, Stop, Take, Wake};
use pinrail_policy::Tick;

use crate::clock::{self, Clock};
use crate::parker::Parker;
use crate::report::Handout;
use crate::sync::{Condvar, Mutex, lock, wait};

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

/// Whether whoever waits for the end of a run still does, and where he waits: a call that never returns must not keep him.
#[derive(Default)]
pub(crate) struct Patience {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Patience {
    /// Nobody waits for a call that has not returned any more.
    pub(crate) fn end(&self) {
        *lock(&self.is_over) = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        *lock(&self.is_over)
    }

    /// Waits until `is_done`, which changes before [`Patience::look`]; false where the patience ended first.
    fn wait(&self, is_done: impl Fn() -> bool) -> bool {
        let mut is_over = lock(&self.is_over);
        loop {
            if is_done() {
                return true;
            }
            if *is_over {
                return false;
            }
            is_over = wait(&self.changed, is_over);
        }
    }

    /// Whoever waits looks again.
    fn look(&self) {
        // Taken, so that nobody is between his look and his sleep.
        drop(lock(&self.is_over));
        self.changed.notify_all();
    }
}

/// What one worker does and did, for whoever does not wait for it too. The standard library's lock, also under a model
/// checker: nobody else takes it before the worker has ended.
pub(crate) type Log = sync::Mutex<Logged>;

#[derive(Default)]
pub(crate) struct Logged {
    record: Vec<Handout>,
    now: Option<InFlight>,
    has_ended: bool,
}

/// A step whose call has not returned.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) seq: u64,
    pub(crate) what: StepWhat,
    pub(crate) since: Tick,
}

fn logged(log: &Log) -> sync::MutexGuard<'_, Logged> {
    log.lock().unwrap_or_else(sync::PoisonError::into_inner)
}

/// What a run leaves behind, besides what its work holds.
pub(crate) struct Ended {
    pub(crate) record: Vec<Handout>,
    pub(crate) threads: u32,
    /// Steps that were not waited for, in dispatch order.
    pub(crate) stuck: Vec<InFlight>,
}

/// Runs to the end on at most `threads_max` threads.
///
/// Without `patience` the caller's thread is one of them, and waits for all others. With it the caller only waits, and no
/// longer than the patience: a worker inside a call then is left behind, with all that its call needs.
pub(crate) fn run<W: Work>(
    control: &Arc<Control>,
    work: &Arc<W>,
    clock: Clock,
    threads_max: u32,
    patience: Option<&Arc<Patience>>,
) -> Ended {
    let threads = control.dispatch.workers_max().min(threads_max).max(1);
    let logs: Arc<Vec<Log>> = Arc::new((0..threads).map(|_| Log::default()).collect());
    let worker = |id: u32| {
        let (control, work, logs, patience) = (Arc::clone(control), Arc::clone(work), Arc::clone(&logs), patience.cloned());
        move || {
            let _ending = Ending { log: &logs[id as usize], patience: patience.as_deref() };
            worker(WorkerId(id), &control, work.as_ref(), clock, &logs[id as usize]);
        }
    };
    if let Some(patience) = patience {
        let spawned = |id: u32| thread::Builder::new().name(format!("pinrail-{}", id + 1)).spawn(worker(id)).ok();
        let workers: Vec<JoinHandle<()>> = (0..threads).map_while(spawned).collect();
        let threads = workers.iter().fold(0, |threads, _| threads + 1);
        if threads > 0 {
            let all_ended = || logs[..workers.len()].iter().all(|log| logged(log).has_ended);
            if patience.wait(all_ended) {
                join(workers);
            }
            return Ended::of(&logs, threads);
        }
        // Not one thread can be had: this one does all of the work, and is kept by a call that never returns.
    }
    // A thread that cannot be had is not missed: those started, and at least this one, do all of the work.
    let others: Vec<JoinHandle<()>> =
        (1..threads).map_while(|id| thread::Builder::new().name(format!("pinrail-{id}")).spawn(worker(id)).ok()).collect();
    let threads = others.iter().fold(1, |threads, _| threads + 1);
    worker(0)();
    join(others);
    Ended::of(&logs, threads)
}

fn join(workers: Vec<JoinHandle<()>>) {
    for worker in workers {
        if let Err(panic) = worker.join() {
            // Calls of others are caught where they are made: this is a defect of the engine, and hiding it would lose steps.
            std::panic::resume_unwind(panic);
        }
    }
}

/// Says that a worker has ended, also by a panic.
struct Ending<'l> {
    log: &'l Log,
    patience: Option<&'l Patience>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        logged(self.log).has_ended = true;
        if let Some(patience) = self.patience {
            patience.look();
        }
    }
}

impl Ended {
    fn of(logs: &[Log], threads: u32) -> Ended {
        let (mut record, mut stuck) = (Vec::new(), Vec::new());
        for log in logs {
            let mut log = logged(log);
            record.append(&mut log.record);
            stuck.extend(log.now);
        }
        record.sort_unstable_by_key(|handout: &Handout| handout.seq);
        stuck.sort_unstable_by_key(|step: &InFlight| step.seq);
        Ended { record, threads, stuck }
    }
}

pub(crate) fn worker<W: Work>(id: WorkerId, control: &Control, work: &W, clock: Clock, log: &Log) {
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
            Take::Finished => return,
            Take::Wait => control.parker.park(epoch, control.deadline),
            Take::Start(start) => {
                if start.wake {
                    control.parker.deliver(Wake::One);
                }
                let (what, started) = (control.dispatch.steps().what(start.step), clock.tick());
                logged(log).now = Some(InFlight { seq: start.seq, what, since: started });
                let outcome = work.step(what, start.seq, control);
                let now = clock.tick();
                let mut log = logged(log);
                log.now = None;
                log.record.push(Handout {
                    seq: start.seq,
                    step: start.step,
                    worker: id,
                    start: started,
                    end: now,
                    ok: outcome == Outcome::Done,
                });
                drop(log);
                done = Some((start.step, outcome, Seen { now, started, in_flight: start.in_flight }));
            }
        }
    }
}

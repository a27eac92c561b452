//! An oracle: the promises of [`Dispatch`] as the shortest program that keeps them, and a run of both side by side.
//!
//! One harness serves the property tests, the fuzz target and whoever writes a controller of their own.

mod canary;

pub use canary::Canary;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use pinrail_core::{ChunkId, Group, Kind, Limits, RailId, StepId, StepWhat, Steps, WorkerId};
use pinrail_policy::{Control, Controller, ControllerReport, Finished, Tick};

use crate::{Counts, Dispatch, Outcome, Seen, Stop, Take, Wake};

/// What happens to a run, one after another.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// This worker takes.
    Take(u8),
    /// The running step at this position (modulo their number, oldest first) ends and its worker takes again.
    DoneAndTake(u8, Outcome),
    /// The running step at this position ends.
    Done(u8, Outcome),
    /// The caller sets limits: total, preparations, tasks, on one rail; zero is none.
    Limit(u8, u8, u8, u8),
    /// The caller stops the run.
    Stop,
}

/// A run's shape, from small numbers.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Calls in parallel of each rail, at least one rail.
    pub lanes: Vec<NonZeroU32>,
    /// Chunks: their rails as a bit set (empty means the first), and their preparations.
    pub chunks: Vec<(u8, u8)>,
    /// Whether a chunk's rails go one after another.
    pub series: bool,
}

impl Shape {
    /// The steps of this shape.
    ///
    /// # Panics
    /// Without a lane.
    #[must_use]
    pub fn steps(&self) -> Steps {
        let rails_of = |bits: u8| -> Box<[RailId]> {
            let rails = (0..8).take(self.lanes.len()).filter(|rail| bits >> rail & 1 == 1).map(RailId).collect::<Vec<_>>();
            if rails.is_empty() { Box::new([RailId(0)]) } else { rails.into() }
        };
        let sets: Arc<[Box<[RailId]>]> = self.chunks.iter().map(|&(bits, _)| rails_of(bits)).collect();
        let mut steps = Steps::new(Kind::Register, self.series, self.lanes.clone(), sets).expect("sets name lanes");
        for (at, &(_, prepares)) in (0..).zip(&self.chunks) {
            let group = Group { chunk: ChunkId(at), set: at, prepares: u32::from(prepares % 4), bytes: 1 };
            steps.push(group).expect("a small run fits");
        }
        steps
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Pending,
    Running,
    Ended,
    Dropped,
}

/// The promises, step by step, without any structure that could be wrong in the same way.
pub struct Oracle {
    steps: Steps,
    at: Vec<At>,
    /// The limits in force.
    pub limits: Limits,
    /// Nothing may start any more.
    pub stopped: bool,
}

impl Oracle {
    /// Nothing of these has started.
    #[must_use]
    pub fn new(steps: Steps, limits: Limits) -> Oracle {
        Oracle { at: vec![At::Pending; steps.len()], steps, limits, stopped: false }
    }

    /// A step was handed out.
    pub fn start(&mut self, step: StepId) {
        self.at[step.index()] = At::Running;
    }

    /// A step has ended.
    pub fn end(&mut self, step: StepId, outcome: Outcome) {
        self.at[step.index()] = At::Ended;
        if outcome == Outcome::Skip {
            let (group, _) = self.steps.locate(step);
            let first = self.steps.first_of(group).index();
            for at in &mut self.at[first..first + self.steps.len_of(group) as usize] {
                if *at == At::Pending {
                    *at = At::Dropped;
                }
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = StepId> + use<> {
        (0..u32::try_from(self.at.len()).unwrap_or(u32::MAX)).map(StepId)
    }

    fn running(&self, like: impl Fn(StepWhat) -> bool) -> usize {
        self.all().filter(|&step| self.at[step.index()] == At::Running && like(self.steps.what(step))).count()
    }

    fn may_start(&self, step: StepId) -> bool {
        let (group, within) = self.steps.locate(step);
        let prepares = self.steps.groups()[group].prepares;
        let ended = |nth: u32| self.at[self.steps.first_of(group).index() + nth as usize] == At::Ended;
        let under = |running: usize, limit: NonZeroU32| running < limit.get() as usize;
        let limits = self.limits;
        let allowed = match self.steps.what(step) {
            StepWhat::Prepare { .. } => under(self.running(|what| matches!(what, StepWhat::Prepare { .. })), limits.prepare),
            StepWhat::Task { rail, nth, .. } => {
                let on_rail = self.running(|what| matches!(what, StepWhat::Task { rail: other, .. } if other == rail));
                let tasks = self.running(|what| matches!(what, StepWhat::Task { .. }));
                (0..prepares).all(ended)
                    && (!self.steps.in_series() || nth == 0 || ended(within - 1))
                    && under(on_rail, self.steps.lanes()[rail.index()].min(limits.per_rail))
                    && under(tasks, limits.of(self.steps.tasks()))
            }
        };
        self.at[step.index()] == At::Pending && allowed && under(self.running(|_| true), limits.total)
    }

    /// The step that must be handed out next; `None` where none may start.
    #[must_use]
    pub fn smallest(&self) -> Option<StepId> {
        if self.stopped { None } else { self.all().find(|&step| self.may_start(step)) }
    }

    /// Nothing will start any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stopped || !self.at.contains(&At::Pending)
    }

    fn count(&self, wanted: At) -> u32 {
        self.at.iter().filter(|&&at| at == wanted).fold(0, |n, _| n + 1)
    }
}

/// Runs `ops` on a [`Dispatch`] and on the oracle, checking after each that they agree; then lets every fault stop and
/// the run go to its end, which it must reach. The controller, if `control` is one, may answer what it likes and panic.
///
/// # Panics
/// When a promise is broken.
pub fn run_beside_oracle(shape: &Shape, ceiling: Limits, control: Control, ops: &[Op]) {
    let is_adaptive = matches!(control, Control::Adaptive(_));
    let (control, controlled) = overheard(control);
    let dispatch = Dispatch::new(shape.steps(), ceiling, control);
    let mut pair = Pair {
        oracle: Oracle::new(shape.steps(), Limits::NONE),
        dispatch: &dispatch,
        ceiling,
        is_adaptive,
        caller: Limits::NONE,
        controlled,
        running: Vec::new(),
        waiting: BTreeSet::new(),
        seq: 0,
        peak: 0,
    };
    pair.limit();
    for &op in ops {
        pair.apply(op);
        pair.check();
    }
    // Faults stop here; whoever waits is woken as asked, and everything ends.
    pair.apply(Op::Limit(0, 0, 0, 0));
    pair.apply(Op::Take(0));
    while !pair.running.is_empty() {
        pair.apply(Op::DoneAndTake(0, Outcome::Done));
        pair.check();
    }
    assert!(pair.oracle.has_ended(), "steps are left and nothing runs: {:?}", dispatch.counts());
    assert_eq!(dispatch.take(WorkerId(0)), Take::Finished);
}

/// The same control, and what it answered last: the oracle goes by that.
fn overheard(control: Control) -> (Control, Arc<Mutex<Limits>>) {
    match control {
        Control::Fixed(limits) => (control, Arc::new(Mutex::new(limits))),
        Control::Adaptive(controller) => {
            let said = Arc::new(Mutex::new(controller.limits()));
            (Control::Adaptive(Box::new(Overheard { controller, said: Arc::clone(&said) })), said)
        }
    }
}

struct Overheard {
    controller: Box<dyn Controller>,
    said: Arc<Mutex<Limits>>,
}

impl Controller for Overheard {
    fn limits(&self) -> Limits {
        self.controller.limits()
    }

    fn finished(&mut self, now: Tick, seen: &Finished) -> Option<Limits> {
        // A panic passes, and what was said last stays.
        let answer = self.controller.finished(now, seen);
        if let Some(limits) = answer {
            *self.said.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        }
        answer
    }

    fn report(&self) -> ControllerReport {
        self.controller.report()
    }
}

struct Pair<'d> {
    oracle: Oracle,
    dispatch: &'d Dispatch,
    ceiling: Limits,
    is_adaptive: bool,
    caller: Limits,
    controlled: Arc<Mutex<Limits>>,
    running: Vec<(StepId, WorkerId)>,
    waiting: BTreeSet<WorkerId>,
    seq: u64,
    peak: u32,
}

impl Pair<'_> {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Take(worker) => {
                let worker = WorkerId(u32::from(worker % 8));
                let take = self.dispatch.take(worker);
                self.taken(worker, take);
            }
            Op::Done(at, outcome) => {
                if let Some((step, _)) = self.end(at, outcome) {
                    let wake = self.dispatch.done(step, outcome, Seen { now: Tick(self.seq), ..Seen::default() });
                    self.limit();
                    self.deliver(wake);
                }
            }
            Op::DoneAndTake(at, outcome) => {
                if let Some((step, worker)) = self.end(at, outcome) {
                    let (wake, take) = self.dispatch.done_and_take(worker, Some((step, outcome, Seen::default())));
                    self.limit();
                    self.taken(worker, take);
                    self.deliver(wake);
                }
            }
            Op::Limit(total, prepare, register, per_rail) => {
                let limit = |n: u8| NonZeroU32::new(n.into()).unwrap_or(NonZeroU32::MAX);
                let limits = Limits {
                    total: limit(total),
                    prepare: limit(prepare),
                    register: limit(register),
                    per_rail: limit(per_rail),
                    ..Limits::NONE
                };
                self.caller = limits;
                self.limit();
                let wake = self.dispatch.set_limits(limits);
                self.deliver(wake);
            }
            Op::Stop => {
                self.oracle.stopped = true;
                let wake = self.dispatch.stop(Stop::Cancelled);
                self.deliver(wake);
            }
        }
    }

    /// What the oracle holds for the limits in force.
    fn limit(&mut self) {
        let controlled = *self.controlled.lock().unwrap_or_else(PoisonError::into_inner);
        self.oracle.limits = self.ceiling.least(self.caller).least(controlled);
    }

    /// The oracle's view of a step that ends.
    fn end(&mut self, at: u8, outcome: Outcome) -> Option<(StepId, WorkerId)> {
        if self.running.is_empty() {
            return None;
        }
        let (step, worker) = self.running.remove(usize::from(at) % self.running.len());
        self.oracle.end(step, outcome);
        Some((step, worker))
    }

    fn taken(&mut self, worker: WorkerId, take: Take) {
        self.waiting.remove(&worker);
        match take {
            Take::Start(start) => {
                assert_eq!(Some(start.step), self.oracle.smallest(), "not the smallest that may start");
                self.oracle.start(start.step);
                self.running.push((start.step, worker));
                assert_eq!(start.seq, self.seq, "sequence numbers have no gap");
                self.seq += 1;
                self.peak = self.peak.max(start.in_flight);
                let wanted = !self.waiting.is_empty() && self.oracle.smallest().is_some();
                assert_eq!(start.wake, wanted, "the chain of wake-ups");
                let wanted = self.is_adaptive && self.waiting.is_empty() && self.oracle.smallest().is_some();
                assert_eq!(start.hire, wanted, "one more worker");
                if start.wake {
                    self.deliver(Wake::One);
                }
            }
            Take::Wait => {
                assert_eq!(self.oracle.smallest(), None, "a worker waits while a step could start");
                assert!(!self.oracle.has_ended() && !self.running.is_empty(), "a worker waits for nothing");
                self.waiting.insert(worker);
            }
            Take::Finished => assert!(self.oracle.has_ended(), "finished with steps left"),
        }
    }

    /// Delivers a wake-up as the engine does: the woken worker takes again.
    fn deliver(&mut self, wake: Wake) {
        match wake {
            Wake::None => {}
            Wake::One => {
                let worker = *self.waiting.first().expect("a wake-up needs a sleeper");
                let take = self.dispatch.take(worker);
                assert!(take.start().is_some(), "woken for nothing");
                self.taken(worker, take);
            }
            Wake::All => {
                assert!(self.oracle.has_ended(), "everyone is woken at the end only");
                for worker in std::mem::take(&mut self.waiting) {
                    assert_eq!(self.dispatch.take(worker), Take::Finished);
                }
            }
        }
        assert!(self.waiting.is_empty() || self.oracle.smallest().is_none(), "somebody waits while a step could start");
        // Who waits while the last steps run is woken when one of them ends.
        let over = self.oracle.has_ended() && self.running.is_empty();
        assert!(self.waiting.is_empty() || !over, "somebody waits after the end");
    }

    fn check(&self) {
        let oracle = &self.oracle;
        let wanted = Counts {
            pending: oracle.count(At::Pending),
            running: oracle.count(At::Running),
            finished: oracle.count(At::Ended),
            dropped: oracle.count(At::Dropped),
            peak_running: self.peak,
        };
        assert_eq!(self.dispatch.counts(), wanted);
        let all = wanted.pending + wanted.running + wanted.finished + wanted.dropped;
        assert_eq!(all as usize, oracle.at.len(), "a step is lost or counted twice");
        assert_eq!(self.dispatch.limits(), oracle.limits);
    }
}

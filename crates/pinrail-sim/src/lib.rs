#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **No second scheduler.** What is handed out, when and to whom is `pinrail-dispatch`'s answer; the simulator only
//!   advances time and delivers wake-ups as the engine does.
//! - **Integer nanoseconds, one event at a time.** Events at the same moment happen in the order in which their steps were
//!   handed out, so that a trace is the same everywhere.
//!
//! # Not here
//!
//! Contention: a step's cost does not depend on what else runs. Threads and clocks (`pinrail-engine`).

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use pinrail_core::{Limits, StepId, StepWhat, Steps, WorkerId};
use pinrail_dispatch::{Dispatch, Outcome, Seen, Start, Take, Wake};
use pinrail_policy::{Control, Tick};

/// What the steps run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Most workers; as with the engine, no more start than could ever be busy.
    pub workers: u32,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Every step, in the order of hand-outs.
    pub steps: Vec<Event>,
    /// When the last one ended.
    pub end: Tick,
    /// The most steps in flight at once.
    pub peak_in_flight: u32,
}

/// One step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the order of hand-outs.
    pub seq: u64,
    /// The step.
    pub step: StepId,
    /// Who did it.
    pub worker: WorkerId,
    /// When it began.
    pub start: Tick,
    /// When it ended.
    pub end: Tick,
    /// Steps in flight when it began, itself included.
    pub in_flight: u32,
}

/// Runs `steps` to their end. `cost_ns` says how many nanoseconds a step takes, from what it is and its chunk's bytes.
pub fn run(steps: Steps, ceiling: Limits, control: Control, node: Node, cost_ns: impl FnMut(StepWhat, u64) -> u64) -> Trace {
    let dispatch = Dispatch::new(steps, ceiling, control);
    let workers = dispatch.workers_max().min(node.workers).max(1);
    let mut world = World {
        dispatch: &dispatch,
        cost_ns,
        now: Tick(0),
        events: BinaryHeap::new(),
        waiting: BTreeSet::new(),
        trace: Vec::new(),
    };
    for worker in (0..workers).map(WorkerId) {
        let take = dispatch.take(worker);
        world.taken(worker, take);
    }
    while let Some(Reverse((end, seq, worker))) = world.events.pop() {
        world.now = end;
        world.finish(seq, worker);
    }
    let end = world.trace.iter().map(|event| event.end).max().unwrap_or_default();
    Trace { steps: world.trace, end, peak_in_flight: dispatch.counts().peak_running }
}

struct World<'d, F> {
    dispatch: &'d Dispatch,
    cost_ns: F,
    now: Tick,
    /// Steps in flight, by when they end, then by when they were handed out.
    events: BinaryHeap<Reverse<(Tick, u64, WorkerId)>>,
    waiting: BTreeSet<WorkerId>,
    trace: Vec<Event>,
}

impl<F: FnMut(StepWhat, u64) -> u64> World<'_, F> {
    fn taken(&mut self, worker: WorkerId, take: Take) {
        match take {
            Take::Finished => {}
            Take::Wait => {
                self.waiting.insert(worker);
            }
            Take::Start(start) => self.begin(worker, start),
        }
    }

    fn begin(&mut self, worker: WorkerId, start: Start) {
        let steps = self.dispatch.steps();
        let (group, _) = steps.locate(start.step);
        let cost = (self.cost_ns)(steps.what(start.step), steps.groups()[group].bytes);
        let end = Tick(self.now.0.saturating_add(cost));
        let Start { seq, step, in_flight, .. } = start;
        self.trace.push(Event { seq, step, worker, start: self.now, end, in_flight });
        self.events.push(Reverse((end, start.seq, worker)));
        if start.wake {
            self.deliver(Wake::One);
        }
    }

    fn finish(&mut self, seq: u64, worker: WorkerId) {
        let event = self.trace[usize::try_from(seq).expect("a trace fits in memory")];
        let seen = Seen { now: self.now, started: event.start, in_flight: event.in_flight };
        let (wake, take) = self.dispatch.done_and_take(worker, Some((event.step, Outcome::Done, seen)));
        self.taken(worker, take);
        self.deliver(wake);
    }

    fn deliver(&mut self, wake: Wake) {
        let woken = match wake {
            Wake::None => return,
            Wake::One => self.waiting.pop_first().into_iter().collect(),
            Wake::All => std::mem::take(&mut self.waiting),
        };
        for worker in woken {
            let take = self.dispatch.take(worker);
            self.taken(worker, take);
        }
    }
}

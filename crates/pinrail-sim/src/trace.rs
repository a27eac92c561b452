use std::hash::Hasher as _;

use fnv::FnvHasher;
use pinrail_core::{StepId, StepWhat, WorkerId};
use pinrail_dispatch::Outcome;
use pinrail_policy::{ControllerReport, Tick};

/// One step that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its process, counted from 0.
    pub process: u32,
    /// Its place in the process's order of hand-outs.
    pub seq: u64,
    /// The step.
    pub step: StepId,
    /// What it is.
    pub what: StepWhat,
    /// Who did it.
    pub worker: WorkerId,
    /// When it began.
    pub start: Tick,
    /// When it ended.
    pub end: Tick,
    /// Steps in flight in the process when it began, itself included.
    pub in_flight: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Each process by itself.
    pub processes: Vec<Took>,
    /// When the last step ended.
    pub end: Tick,
    /// Core time used, in nanoseconds; by those too who spin.
    pub cpu_ns: u64,
    /// Steps that ended.
    pub steps: u64,
    /// A hash (FNV-1a) of every event in the order in which they ended: the same on every machine.
    pub hash: u64,
}

/// What a process came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// From the first preparation's start to the last one's end.
    pub prepare: Option<(Tick, Tick)>,
    /// The same of tasks.
    pub tasks: Option<(Tick, Tick)>,
    /// Its threads.
    pub threads: u32,
    /// The most steps that were in flight at once.
    pub peak_in_flight: u32,
    /// What an adaptive limit did.
    pub controller: Option<ControllerReport>,
}

impl Took {
    /// When its last step ended.
    #[must_use]
    pub fn end(&self) -> Tick {
        let end = |span: Option<(Tick, Tick)>| span.map_or(Tick(0), |(_, end)| end);
        end(self.prepare).max(end(self.tasks))
    }
}

/// Folds events into one number.
#[derive(Default)]
pub(crate) struct TraceHash(FnvHasher);

impl TraceHash {
    pub(crate) fn add(&mut self, event: &Event) {
        let outcome = match event.outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Skip => 2,
            Outcome::Exhausted => 3,
        };
        let ids = [event.process, event.step.0, event.worker.0, event.in_flight, outcome];
        // As bytes of one order: the hasher's own integers have the machine's.
        ids.into_iter().for_each(|id| self.0.write(&id.to_le_bytes()));
        [event.seq, event.start.0, event.end.0].into_iter().for_each(|n| self.0.write(&n.to_le_bytes()));
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.finish()
    }
}

pub(crate) mod auto;
pub(crate) mod capped;
pub(crate) mod unbounded;

use pinrail_core::{Kind, Limits, RailId, StepId};

/// How many steps may be in flight in the process.
pub trait Concurrency: Send + Sync {
    /// Called once at the start of a run: a registration, or a deregistration (which is a run of its own).
    fn begin(&self, run: &RunShape) -> Control;

    /// The term in a spec.
    fn spec(&self) -> String;
}

/// What a run looks like before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunShape {
    /// What its tasks do: [`Kind::Register`] or [`Kind::Deregister`].
    pub tasks_do: Kind,
    /// Its tasks.
    pub tasks: u64,
    /// Its preparations.
    pub prepares: u64,
    /// Bytes of its chunks, each counted once.
    pub bytes: u64,
    /// Bytes of its tasks: a chunk's as often as it has rails.
    pub task_bytes: u64,
    /// Rails it uses.
    pub rails: u32,
}

/// What holds the limits of a run.
pub enum Control {
    /// They stay as they are.
    Fixed(Limits),
    /// They follow what is seen.
    Adaptive(Box<dyn Controller>),
}

/// Limits that follow what is seen. Called under dispatch's lock: it must be quick and must not block.
pub trait Controller: Send {
    /// The limits in force.
    fn limits(&self) -> Limits;

    /// A step has finished; `Some` when the limits change.
    fn finished(&mut self, now: Tick, seen: &Finished) -> Option<Limits>;

    /// What it did and why, for records.
    fn report(&self) -> ControllerReport;
}

/// A moment of the run, in nanoseconds since its start. The engine reads a clock, a simulator counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

/// A step that has finished, as a controller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The step.
    pub step: StepId,
    /// What it did.
    pub kind: Kind,
    /// On which rail; `None` for a preparation.
    pub rail: Option<RailId>,
    /// Bytes of its chunk.
    pub bytes: u64,
    /// When its call began.
    pub started: Tick,
    /// Steps in flight when it was handed out, itself included.
    pub in_flight: u32,
    /// False when the call failed.
    pub ok: bool,
    /// True when it failed because memory, descriptors or the like ran out: fewer at once might not have.
    pub exhausted: bool,
}

/// What a controller did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerReport {
    /// The limits it set, with the moment and the reason.
    pub levels: Vec<(Tick, Limits, &'static str)>,
}

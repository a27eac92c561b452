use pinrail_core::{Kind, StepWhat};
use pinrail_dispatch::Outcome;

/// What becomes of calls: asked once for each, when it begins.
pub trait Faults {
    /// How this call ends, and what it costs besides.
    fn call(&mut self, call: &Asked) -> Fate;
}

/// A call that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its process, counted from 0.
    pub process: u32,
    /// What the run's tasks do.
    pub tasks: Kind,
    /// The step.
    pub what: StepWhat,
    /// Its place in the process's order of hand-outs.
    pub seq: u64,
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Well, or not.
    pub outcome: Outcome,
    /// Core time that it takes besides what its profile says, in nanoseconds.
    pub more_ns: u64,
}

/// Every call ends well.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl Faults for NoFaults {
    fn call(&mut self, _: &Asked) -> Fate {
        Fate { outcome: Outcome::Done, more_ns: 0 }
    }
}

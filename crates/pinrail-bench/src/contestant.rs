use std::sync::Arc;

use pinrail_core::{Buffer, Kind, Machine, Mr, Prepare, Registrar, WorkerId};

use crate::error::BenchError;

/// A way to register a batch: a policy through the engine, a reference, or a third party's own loop.
pub trait Contestant: Send + Sync {
    /// Gets ready, before the clock starts; what planning takes is reported by itself.
    ///
    /// # Errors
    /// Whatever stands in the way.
    fn ready(&self, setting: Setting) -> Result<Box<dyn Ready>, BenchError>;
}

/// What every contestant of a run gets alike, fresh for each trial.
#[derive(Clone)]
pub struct Setting {
    /// The buffers in the caller's order.
    pub batch: Vec<Buffer>,
    /// The machine; its rails are the registrar's.
    pub machine: Machine,
    /// What registers.
    pub registrar: Arc<dyn Registrar>,
    /// What makes memory resident.
    pub prepare: Arc<dyn Prepare>,
}

/// A contestant about to start.
pub trait Ready: Send {
    /// Registers the batch: this is what is timed. On failure nothing is left registered.
    ///
    /// # Errors
    /// The first failure.
    fn register(self: Box<Self>) -> Result<Box<dyn Live>, BenchError>;
}

/// A batch that is registered.
pub trait Live: Send {
    /// How it was registered.
    fn ran(&self) -> Ran;

    /// Every MR that is live: in the warm-up bytes are moved through each.
    fn mrs(&mut self) -> Vec<&Mr>;

    /// Deregisters everything: this is timed by itself.
    ///
    /// # Errors
    /// The first failure.
    fn deregister(self: Box<Self>) -> Result<Undone, BenchError>;
}

/// How a batch was registered, as the contestant tells it; what it did is seen from outside.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// The most threads at once, the caller's among them.
    pub threads: u32,
    /// The most steps in flight at once; `None` where only the calls tell.
    pub peak_in_flight: Option<u32>,
    /// What dispatch was given and handed out: one entry for each time it was called. Empty without a dispatch.
    pub dispatched: Vec<Dispatched>,
}

/// How a batch was deregistered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undone {
    /// The most threads at once, the caller's among them.
    pub threads: u32,
}

/// One run of dispatch.
#[derive(Clone, Debug, Default)]
pub struct Dispatched {
    /// Names of the buffers it was given, in the order in which it was given them.
    pub buffers: Vec<Arc<str>>,
    /// Its hand-outs, in order.
    pub handouts: Vec<Handout>,
    /// The limits that an adaptive policy set, with their moments in nanoseconds.
    pub levels: Vec<(u64, u32)>,
}

/// A step as it was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handout {
    /// What it was.
    pub kind: Kind,
    /// The chunk; chunks are numbered in the caller's order.
    pub chunk: u32,
    /// Its first address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The rail, by its place in the machine; `None` for a preparation.
    pub rail: Option<u16>,
    /// Who did it.
    pub worker: WorkerId,
    /// When its call began, in nanoseconds.
    pub start_ns: u64,
    /// When it had ended.
    pub end_ns: u64,
}

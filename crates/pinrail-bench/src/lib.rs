#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(test)]
mod canaries;
mod canary;
mod check;
mod clock;
mod contestant;
mod environment;
mod error;
mod memory;
mod processes;
mod record;
mod reference;
mod results;
mod rng;
mod run;
mod schedule;
mod spec;
mod stats;
mod summary;
mod through_engine;
mod trial;
mod variant;
mod verdict;
mod watch;

pub use contestant::{Contestant, Dispatched, Handout, Live, Ran, Ready, Setting, Undone};
pub use environment::Environment;
pub use error::BenchError;
pub use processes::{Processes, Skew, work};
pub use record::{Record, RecordedStep};
pub use results::{
    BatchRecord, Comparison, Figure, Finding, LoadResults, ProcessResults, Results, VERSION, VariantResults, Verdict,
};
pub use run::{Event, Observer, run};
pub use spec::{MemoryState, Spec};
pub use trial::{Moved, Open, Opened, RailLoad, Stages, Trial};
pub use variant::{Claims, Variant};

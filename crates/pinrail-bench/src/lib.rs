#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(test)]
mod canaries;
mod canary;
mod check;
mod clock;
mod compare;
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
mod sweep;
mod through_engine;
mod trace;
mod trial;
mod variant;
mod verdict;
mod watch;

pub use compare::{compare, read};
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
pub use sweep::{Point, Slope, Sweep, prior_bytes};
pub use trace::chrome;
pub use trial::{Moved, Open, Opened, RailLoad, Stages, Trial};
pub use variant::{Claims, Variant};

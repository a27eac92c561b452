#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **What ran is seen from the fabric's side.** Registrar and preparation are wrapped, every call is logged, and a variant's
//!   own word is never taken for what it did. Refused: counters kept by the variants.
//! - **A broken rule withholds verdicts; it does not hide figures.** Only another backend than the one named ends a run: its
//!   figures would be of something else altogether.
//! - **Medians of paired ratios.** Disturbances come as single trials that take ten times as long and as seconds in which
//!   everything is slow; the one leaves a median alone, the other a pair of one block. Refused: means, and samples that are
//!   compared without their blocks.
//! - **Backends come in as a function that opens fresh rails.** This crate knows none of them.
//! - **References use none of our planning and dispatch.** They are what others published, on the same registrar.
//!
//! # Not here
//!
//! Device memory, the command line, and any backend. What a figure means is in docs/MEASURING.md.
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
pub mod memory;
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

pub use clock::Clock;
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
pub use through_engine::dispatched;
pub use trace::chrome;
pub use trial::{Moved, Open, Opened, RailLoad, Stages, Trial};
pub use variant::{Claims, Variant};

#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **No second scheduler.** What is handed out, when and to whom is `pinrail-dispatch`'s answer, of plans that
//!   `pinrail-plan` made; the simulator only lets time pass and delivers wake-ups as the engine does.
//! - **Costs are data.** A [`Profile`] is a file whose figures name their sources. Two readings of one record are two
//!   profiles, and where they disagree the answer is that the record does not decide.
//! - **The world, what a call costs and what may fail are three things**: [`Node`], [`Profile`], [`Faults`].
//! - **Integer nanoseconds, one event at a time**, logarithms from `libm`: a trace has the same hash on every machine.
//!
//! # Not here
//!
//! Threads, clocks and files: who calls reads files and waits.

#![forbid(unsafe_code)]

mod budget;
mod cores;
mod cost;
mod error;
mod faults;
mod fidelity;
mod file;
mod node;
pub mod profile;
mod published;
mod registrar;
mod rng;
pub mod scenario;
mod search;
mod simulate;
mod trace;
mod verdict;

pub use error::Error;
pub use faults::{Asked, Fate, Faults, NoFaults};
pub use fidelity::{Promise, Row, fidelity, markdown};
pub use node::Node;
pub use profile::Profile;
pub use registrar::{Clock, Simulated};
pub use scenario::Scenario;
pub use search::{Found, Regret, THREAD_PER_BUFFER};
pub use simulate::{ProcessRun, Run};
pub use trace::{Event, Took, Trace};
pub use verdict::{Best, Decides, Verdict, verdict};

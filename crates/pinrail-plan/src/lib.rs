#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **Chunks and rail sets are stored, tasks are arithmetic.** A chunk's tasks are its rail set, so that a plan of a
//!   hundred thousand buffers on 32 rails is a few megabytes and changing the order changes nothing else.
//! - **The plan keeps its buffers' memory alive**, because whoever runs it registers exactly that memory.
//! - **Limits refuse before any call.** What a rail cannot hold is an error here that names the limit and the need.
//!
//! # Not here
//!
//! Running (`pinrail-engine`), handing out (`pinrail-dispatch`), what the host has (`pinrail-memory`).

#![forbid(unsafe_code)]

mod chunk;
mod error;
#[cfg(feature = "files")]
mod json;
mod needs;
mod plan;
mod runs;
mod seams;
mod shares;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod validate;

pub use chunk::PlannedChunk;
pub use error::PlanError;
#[cfg(feature = "files")]
pub use json::MemlockSeen;
pub use needs::{Needs, RailNeeds};
pub use plan::Plan;

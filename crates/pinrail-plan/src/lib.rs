#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **Chunks and rail sets are stored, tasks are arithmetic.** A chunk's tasks are its rail set, so that a plan of a
//!   hundred thousand buffers on 32 rails is a few megabytes and changing the order changes nothing else.
//! - **The plan keeps its buffers' memory alive**, because whoever runs it registers exactly that memory.
//! - **Limits refuse before any call.** What a rail cannot hold is an error here that names the limit, the need and what
//!   would fit. Budgets count over everything that is live on a rail: [`Plan::beside`].
//! - **A plan file is trusted no further than the planner** (feature `files`): `PlanDocument::plan` plans anew from what
//!   the file was made from, and refuses one that says anything else. Reading chunks and rails literally was refused: every
//!   promise of a plan would have to be checked a second time.
//!
//! # Not here
//!
//! Running (`pinrail-engine`), handing out (`pinrail-dispatch`), what the host has (`pinrail-memory`).

#![forbid(unsafe_code)]

mod chunk;
#[cfg(feature = "files")]
mod document;
mod error;
mod fits;
mod needs;
mod plan;
mod runs;
mod seams;
mod shares;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod validate;

pub use chunk::PlannedChunk;
#[cfg(feature = "files")]
pub use document::{Change, MemlockSeen, PlanDocument, PlanFileError, What};
pub use error::PlanError;
pub use fits::Fits;
pub use needs::{Budget, Needs, RailNeeds};
pub use plan::Plan;

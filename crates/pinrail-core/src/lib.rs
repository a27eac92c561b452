#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **The contracts block.** Each call of a [`Registrar`] is one system call or driver call; an `async` trait would
//!   only hide the thread that waits in the kernel. Threads, retries and clocks belong to `pinrail-engine`.
//! - **An [`Mr`] owns what it needs.** It keeps its memory and its domain alive and is given up only by the backend
//!   that made it. One dropped without that leaks its pin *and* its memory: a leak, never a dangling key.
//! - **A topology is data.** [`Machine`] is a plain value with a text form (feature `files`), so that placement is
//!   tested on machines nobody here owns.
//!
//! # Not here
//!
//! No clock, no thread, no I/O, no policy. The only unsafe code is in [`memory`].

#![deny(unsafe_code)]

mod access;
pub mod batch;
mod buffer;
pub mod descriptor;
mod error;
mod extent;
mod id;
mod machine;
#[allow(unsafe_code, reason = "the one room where a raw address becomes a value that safe code can copy from")]
pub mod memory;
mod mr;
mod pci;
mod prepare;
mod registrar;
pub mod size;
mod steps;

#[cfg(feature = "files")]
pub mod files;

pub use access::Access;
pub use buffer::{Buffer, Place};
pub use error::{Cause, DeregisterError, Diagnosis, ErrorKind, MoveError, PrepareError, RegisterError, errno_name};
pub use extent::{Extent, ExtentError};
pub use id::{BufferId, ChunkId, NodeId, RailId, StepId, WorkerId};
pub use machine::{
    Attachment, DevicePath, Gpu, Machine, MachineError, NumaNode, PathClass, PinsCounted, Rail, RailLimits, RailState,
};
pub use memory::{Memory, StableMemory};
pub use mr::{Chunk, Keys, Mr, Source};
pub use pci::{ParsePciError, PciAddress};
pub use prepare::{Prepare, PrepareStep, Prepared};
pub use registrar::{Identity, MoveBytes, Registrar};
pub use steps::{Group, Kind, Limits, StepWhat, Steps, StepsError};

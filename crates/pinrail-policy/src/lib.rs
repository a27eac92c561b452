#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **Pure and deterministic.** A policy sees values and answers values: no clock, no machine, no memory. The engine and
//!   the simulator run the same code, and a plan can be explained before anything happens.
//! - **Trait objects, not generics.** A policy is chosen at run time, from a spec; it is asked once per buffer or batch.
//! - **A wrong answer is an error that names the policy.** [`Permutation`] is made and checked here, so that no order
//!   policy, also a third party's, can skip or repeat a chunk.
//!
//! # Not here
//!
//! Cutting buffers into chunks and budgets (`pinrail-plan`), and doing anything (`pinrail-engine`).

#![forbid(unsafe_code)]

mod coalescing;
mod concurrency;
mod coverage;
mod error;
mod fan_out;
mod order;
mod per_rail;
mod policy;
mod prefault;
mod rails;
pub mod spec;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use coalescing::Coalescing;
pub use concurrency::auto::{Auto, Learned};
pub use concurrency::capped::Capped;
pub use concurrency::unbounded::Unbounded;
pub use concurrency::{Concurrency, Control, Controller, ControllerReport, Finished, RunShape, Tick};
pub use coverage::Coverage;
pub use error::PolicyError;
pub use fan_out::FanOut;
pub use order::ascending::Ascending;
pub use order::caller_order::CallerOrder;
pub use order::descending::Descending;
pub use order::{ChunkInfo, Order, Permutation};
pub use per_rail::PerRail;
pub use policy::Policy;
pub use prefault::{Preparation, Slices};
pub use rails::all_rails::AllRails;
pub use rails::device_local::DeviceLocal;
pub use rails::local::{Local, Share};
pub use rails::named_rails::NamedRails;
pub use rails::rail_local::RailLocal;
pub use rails::{SelectRails, Selection};

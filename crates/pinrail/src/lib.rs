#![cfg_attr(feature = "uring", doc = include_str!("../README.md"))]
//!
//! # Decisions
//!
//! - **Re-exports only.** Each crate can be used alone and is documented where it is; one that added types of its own
//!   here would give two names to one thing.
//! - **A feature adds a crate.** Which backend registers is the caller's code, never a feature's side effect.
//!
//! # Not here
//!
//! The command line (`pinrail-cli`), measuring (`pinrail-bench`), and the suite for backends (`pinrail-conformance`).

#![forbid(unsafe_code)]

pub use pinrail_core as core;
pub use pinrail_engine as engine;
#[cfg(feature = "libfabric")]
pub use pinrail_libfabric as libfabric;
pub use pinrail_memory as memory;
pub use pinrail_plan as plan;
pub use pinrail_policy as policy;
#[cfg(feature = "topology")]
pub use pinrail_topology as topology;
#[cfg(feature = "uring")]
pub use pinrail_uring as uring;
#[cfg(feature = "verbs")]
pub use pinrail_verbs as verbs;

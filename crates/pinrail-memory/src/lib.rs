#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **The kernel is asked to touch memory; we never do.** `MADV_POPULATE_*` answers an errno where a load or a store would
//!   raise SIGBUS: beyond the end of a file, with an empty pool of huge pages, on a broken page. Refused: a loop of
//!   writes (a data race with the owner, and a signal for every one of these).
//! - **Residency by sample, then by scan.** `PAGEMAP_SCAN` over an eighth of a slice costs one to two hundredths of pinning
//!   it; only a slice with a gap is scanned wholly, and then only its gaps are populated. Refused: smaps (three times as
//!   dear, and for the whole process), and populating everything (on resident pages as dear as the pin).
//! - **A node is preferred, never bound.** With `MPOL_BIND` a full node means the OOM killer, or SIGBUS for huge pages that
//!   were promised on another one. Where the pages came to lie is told by [`node_histogram`].
//! - **Limits are read after a refusal, not before.** The exceptions are those that come too late otherwise: memlock
//!   ([`Memlock::precheck`]) and a control group's limit on huge pages ([`Mapping::anonymous`]).
//! - **A page that nobody may touch lies behind every mapping**, at the price of a second entry in `vm.max_map_count`.
//!
//! # Not here
//!
//! Threads (the engine calls [`Populate`] from its workers), cutting memory into slices (`pinrail-plan`), pinning itself
//! (the backends), and device memory.

#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pinrail-memory speaks to 64-bit Linux only");

mod cgroup;
mod cores;
mod error;
mod faults;
mod hugetlb;
#[allow(unsafe_code, reason = "owns address space: maps, unmaps, and promises StableMemory")]
mod mapping;
mod maps;
mod memlock;
mod nodes;
mod pages;
mod populate;
mod residency;
#[allow(unsafe_code, reason = "every other system call of the crate, behind safe functions")]
mod sys;
#[cfg(feature = "testing")]
#[allow(unsafe_code, reason = "maps what no owned mapping is, and forks")]
pub mod testing;
#[cfg(test)]
mod tree;

pub use cores::Cores;
pub use error::MapError;
pub use hugetlb::HugePool;
pub use mapping::Mapping;
pub use maps::{Backing, MapCount, Maps, PagesBehind, Region, page_size_behind};
pub use memlock::Memlock;
pub use nodes::{NodeHistogram, host_place, node_histogram};
pub use pages::{Pages, ParsePagesError};
pub use populate::{Method, Populate, PopulateReport};
pub use residency::Residency;

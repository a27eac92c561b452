//! Linux facts about host memory, and its preparation.

#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pinrail-memory speaks to 64-bit Linux only");

mod error;
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

pub use error::MapError;
pub use hugetlb::HugePool;
pub use mapping::Mapping;
pub use maps::{Backing, Maps, PagesBehind, Region, page_size_behind};
pub use memlock::Memlock;
pub use nodes::{NodeHistogram, node_histogram};
pub use pages::{Pages, ParsePagesError};
pub use populate::{Method, Populate, PopulateReport};
pub use residency::Residency;

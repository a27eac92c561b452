#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **A rail is an RDMA device of the operating system.** A NIC without one can register nothing, whatever it is sold as,
//!   and one with two ports is one rail. Only NCCL's files, which name functions and not devices, are judged by what the
//!   function is.
//! - **A GPU is told by class and vendor**, never by the name of an operating system's device alone: an OpenCL device has
//!   been seen on the display device of a hypervisor.
//! - **Identity is the PCI address.** The order in which a source lists devices changes nothing.
//! - **What is not known stays unknown.** A NUMA node of -1 is no node 0, and what hwloc hangs at its root has no node.
//!   Speeds that a source does not state are inferred (the rated speed of an EFA card, else the PCI link's) and noted.
//! - **Nothing is dropped in silence.** Every PCI function is a GPU, has a rail, or is named in [`Machine::notes`] with the
//!   reason.
//! - **XML is read here, not by libhwloc.** libhwloc's own parser refuses files that begin with a comment unless a plugin
//!   with libxml2 is installed, drops devices in 32-bit PCI domains, and is C that would see whatever somebody sent. Read
//!   here, a file needs no system library. The tests hold both readings against each other.
//! - **quick-xml, not roxmltree**, which compares every attribute of an element with all its others: a megabyte of
//!   attributes took it 15 s.
//!
//! # Not here
//!
//! Which rails a buffer gets (`pinrail-policy`), whether a rail can be opened (the registrars), and CPUs.
//!
//! [`Machine::notes`]: pinrail_core::Machine::notes

#![forbid(unsafe_code)]

mod devices;
mod error;
mod hwloc_xml;
mod judge;
#[cfg(any(feature = "live", test))]
mod live;
mod matrix;
mod nccl_xml;
mod read;
#[cfg(any(feature = "testing", test))]
pub mod testing;
mod tree;
mod xml;

pub use error::TopologyError;
#[cfg(feature = "live")]
pub use live::discover;
pub use matrix::matrix;
pub use read::{FILE_BYTES_MAX, Source, Topology, read, read_file};

#![doc = include_str!("../README.md")]
//! # Decisions
//!
//! - **One PD per device, one device per rail.** A key is worth something on its PD alone, and a device's registrations
//!   share its limits whatever PD they are on. A second PD of one device would be a rail only in name.
//! - **A device is found by its PCI address**, and by its name only where the rail has no address: names follow the order
//!   in which the kernel met the devices.
//! - **Nothing is added to the access that was asked for**, but what verbs cannot do without (remote write implies local
//!   write). So read-only memory can be registered for reading. Relaxed ordering is the caller's to ask for.
//! - **Errors are told by evidence.** `ENOMEM` may be memlock or the device's room, `EFAULT` a hole or a protection,
//!   `EAGAIN` a control group or a device that is busy: what it was is looked up afterwards, where the kernel still shows
//!   it. Refused beforehand is only what the device itself has said it does not take.
//! - **The mover is a peer**: two connected queue pairs, and the remote key. A copy by the CPU would prove nothing.
//! - **The calls are those of libibverbs**, linked dynamically, not behind a trait of ours: what stands in for a NIC in the
//!   tests (`tests/shim`) is another libibverbs.
//!
//! # Fork
//!
//! [`fork_init`] makes registered memory survive a fork on kernels that do not see to it themselves. It has to be the
//! process's first verbs call.
//!
//! # Not here
//!
//! - No policy, no thread, no retry.
//! - No on-demand paging (`IBV_ACCESS_ON_DEMAND`), because it pins nothing: every limit that Pinrail plans for and all that
//!   its prefault gains are about pinned pages, and few devices offer it. A caller who wants it needs no planner.
//! - No memory windows, no atomics, no connection manager.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pinrail-verbs speaks to 64-bit Linux only");

mod access;
mod cause;
mod cgroup;
mod deadline;
mod device;
mod domain;
mod error;
mod ffi;
mod fork;
mod pair;
mod sysfs;
mod turns;
mod verbs;

pub use error::OpenError;
pub use fork::{ForkSafety, fork_init};
/// The bindings, whose types the handles have.
pub use rdma_sys as sys;
pub use verbs::{CallersPd, Handles, Verbs, devices};

#![doc = include_str!("../README.md")]
//! # Decisions
//!
//! - **One ring is one rail, one MR is one slot.** A ring's sparse buffer table is the closest that a plain kernel comes
//!   to a NIC's table of memory regions: it pins pages, charges them, and has limits of its own. Registration within
//!   one ring is serial in the kernel (2 x 1 GiB from two threads: 60 ms on one ring, 28 on two), so a rail takes one
//!   call at a time. One ring with many tables does not exist; one ring per buffer would have no limits to speak of.
//! - **One slot a call.** The kernel may do part of a batch of updates and report success.
//! - **A ring always pins for writing**, whatever access is asked for. So read-only memory is refused even for a
//!   registration that only reads, with [`Cause::Protection`]. [`Access`] still counts: the mover does not write through
//!   an MR without [`Access::LOCAL_WRITE`], because the owner of such memory may hold references to it.
//! - **Errors are told by evidence.** `EFAULT` is the kernel's answer to a hole, to a protection, to a file and to a
//!   length. Length and range are checked before the call, mappings and limits are looked at after it failed.
//! - **Raw `io_uring_register`** instead of the io-uring crate's calls: those throw the kernel's count away, and do not
//!   take a descriptor that somebody else set up. The mapped queues, where the difficulty lies, are that crate's.
//!
//! # When pages come back
//!
//! Deregistration empties the slot. Where no request uses the buffer, that unpins before the call returns, and `VmPin` of
//! `/proc/self/status` has fallen (tried on 6.18; the code is there since 6.4). Older kernels unpin up to a second later,
//! by a worker: then `VmPin` and the memlock account lag behind a deregistration that has succeeded. The pages are safe
//! either way: the kernel holds them until it has let them go.
//!
//! # Memlock
//!
//! The kernel charges pins to the user who opened the ring, whoever registers; other processes of that user count and
//! cannot be seen. Recent kernels charge the ring itself too, two pages (tried on 6.18), so a batch that needs exactly
//! the limit does not fit: each rail says so in [`Rail::own_pinned_bytes`](pinrail_core::Rail::own_pinned_bytes).
//!
//! # Fork
//!
//! The queues are mapped `MADV_DONTFORK`, so a forked child cannot touch them. It does inherit the ring's descriptor
//! until it calls exec: as long as it has it the ring is not closed, and what lies in its table stays pinned and
//! charged. That is one reason why slots are emptied one by one and never by closing. The [`Uring`] that a child
//! inherits refuses every call there: it would fill or empty its parent's slots.
//!
//! # Not here
//!
//! No policy, no thread, no retry; no GPU memory (a ring cannot pin it) and no peers (a ring has no remote keys).
//!
//! [`Access`]: pinrail_core::Access
//! [`Access::LOCAL_WRITE`]: pinrail_core::Access::LOCAL_WRITE
//! [`Cause::Protection`]: pinrail_core::Cause::Protection

#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pinrail-uring speaks to 64-bit Linux only");

mod cause;
#[allow(unsafe_code, reason = "makes the requests that the queue wants to be promised something about")]
mod mover;
#[allow(unsafe_code, reason = "touches the mapped queues, under its lock")]
mod queue;
mod refused;
mod registrar;
mod ring;
mod slots;
#[allow(unsafe_code, reason = "every system call without a safe wrapper, behind safe functions")]
mod sys;
#[allow(unsafe_code, reason = "the constructor over a caller's rings is unsafe to call")]
mod uring;

pub use refused::OpenError;
pub use uring::{CallersRing, Uring};

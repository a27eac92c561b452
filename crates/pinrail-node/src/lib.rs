#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **Locks of the kernel say who holds what.** Token i is a byte of a file in /dev/shm under a lock of the open file
//!   (`F_OFD_SETLK`), which goes when the process does. Refused: semaphores and robust mutexes in shared memory (a count
//!   that a killed process has lowered stays low, and whoever writes there can stop all others), a pipe of tokens (a killed
//!   process's are lost), a broker (somebody has to start it, and ten times the cost).
//! - **Memory is a hint.** One word, which processes sleep on for at most 20 ms, says that a token came back, and which.
//!   It is read and written by `pread` and `pwrite` and never dereferenced; any value it has is a good one.
//! - **One thread of a process asks at a time**, the others wait behind it. So processes queue, however many threads each
//!   has, and a token passes to who has slept longest: the fairness of the kernel's queue.
//! - **A budget never stands in the way.** What cannot be shared (no tmpfs, a file of another user, containers with a
//!   /dev/shm of their own, nobody giving back for a second) leaves a process its share, tokens divided by processes, and
//!   a [`Degraded`] that says why. It is advice, and no defence: who may lock bytes of the file can hold them all.
//! - **A number of processes that was promised is waited for.** Until all have been seen at once, each keeps to its share
//!   of the tokens: a container's own /dev/shm looks like a node of one's own.
//!
//! # Not here
//!
//! Counting cores and reading the launcher's variables (the caller passes both), logs, and threads of its own.
//!
//! A process forked without exec shares its parent's open files. It is kept out of them before it runs (`pthread_atfork`),
//! finds the budget [`Degraded::Forked`], and opens its own. `clone` by hand has no such hook: close the file there. As after
//! any fork, the child of a process with many threads may use nothing that another thread could have locked.

#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pinrail-node speaks to 64-bit Linux only");

mod budget;
mod error;
#[cfg_attr(loom, allow(dead_code, reason = "a model has no files"))]
mod fork;
#[cfg(all(test, loom))]
mod model;
#[cfg_attr(loom, path = "model/node_file.rs")]
mod node_file;
mod sync;
#[cfg_attr(loom, allow(dead_code, reason = "a model has no files"))]
#[allow(unsafe_code, reason = "every system call that the standard library has no safe form of")]
mod sys;
mod tokens;

pub use budget::{Config, NodeBudget, Token};
pub use error::{Degraded, FileError};

#![doc = include_str!("../README.md")]
//! # Decisions
//!
//! - **A copy by the CPU on one side, the fabric on the other.** Bytes that the fabric wrote and the fabric read back may
//!   both have gone to the wrong place.
//! - **Every value and its complement.** A pattern alone proves little about a buffer of one byte: what is there already
//!   may be equal. Bytes that follow a change in every bit are the right ones, however few.
//! - **The rail is proved by what moves the bytes, not by the pattern.** Two rails' registrations of one chunk are the same
//!   memory, and no byte in it tells by which one it came. A [`MoveBytes`](pinrail_core::MoveBytes) uses the ring or the
//!   endpoints of [`Mr::rail`](pinrail_core::Mr::rail), on which another rail's key is worth nothing.
//!
//! - **What is expected is a table, and everything else fails.** A suite that counts passes lets a new skip go by. What
//!   a provider may leave out (to refuse a wrong key, say) is a word in a cell, and a better word is news too.
//! - **The author of a registrar brings what only the author can make.** The suite has no unsafe code: memory with a hole
//!   and a peer that names keys at will come through the [`Fixture`].
//! - **Each check runs on a thread of its own with a limit.** Providers hang; the thread is abandoned then and the suite goes
//!   on. A process for each would be abandoned more cleanly, but a library does not start its caller's program again.
//!
//! # Not here
//!
//! No plan and no engine: registrations come as plain [`Target`]s, so that a registrar's author needs neither. No speed, and
//! no limits of the process: what memlock does is for each backend's own tests.

#![forbid(unsafe_code)]

mod checks;
mod expected;
mod fixture;
mod suite;
mod verify;

/// What the project's own registrars are expected to answer, a column each.
pub const EXPECTED: &str = include_str!("../expected.md");

pub use expected::{Difference, Expected, TableError, Unexpected};
pub use fixture::{DmaBuf, Failing, Fixture, Peer, Peered, Told};
pub use suite::{CHECKS, Check, Outcome, Report, run};
pub use verify::{Direction, Place, Target, Verified, VerifyError, verify};

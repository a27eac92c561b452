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
//! # Not here
//!
//! No plan and no engine: registrations come as plain [`Target`]s, so that a registrar's author needs neither.

#![forbid(unsafe_code)]

mod verify;

pub use verify::{Direction, Place, Target, Verified, VerifyError, verify};

//! A fixed task between trials: while it takes the same time, so does the machine.

use pinrail_core::Memory;
use pinrail_memory::{Mapping, Pages};

use crate::clock::Clock;
use crate::error::BenchError;
use crate::memory;

/// Bytes that it touches first: what registration of cold memory spends its time on, for some milliseconds.
const BYTES: u64 = 16 << 20;

/// Does the task; seconds.
pub(crate) fn run() -> Result<f64, BenchError> {
    let memories = [Memory::new(Mapping::anonymous(BYTES, Pages::Small, None)?)];
    let clock = Clock::start();
    memory::populate(&memories, Pages::Small, 1)?;
    Ok(clock.seconds())
}

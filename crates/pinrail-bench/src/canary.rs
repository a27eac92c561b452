//! A fixed task between trials: while it takes the same time, so does the machine.

use std::num::NonZeroU32;

use pinrail_core::Memory;
use pinrail_memory::{Mapping, Pages};

use crate::clock::Clock;
use crate::error::BenchError;
use crate::memory;

/// Bytes that it touches first: what registration of cold memory spends its time on, for some milliseconds.
const BYTES: u64 = 16 << 20;

/// Does the task; seconds.
pub(crate) fn run(clock: &Clock) -> Result<f64, BenchError> {
    if !clock.is_wall() {
        // No work of this host's moves another clock: what it moves by itself is all there is to see.
        return Ok(clock.start().seconds());
    }
    let memories = [Memory::new(Mapping::anonymous(BYTES, Pages::Small, None)?)];
    let clock = clock.start();
    memory::make_resident(&memories, Pages::Small, NonZeroU32::MIN, &|| true)?;
    Ok(clock.seconds())
}

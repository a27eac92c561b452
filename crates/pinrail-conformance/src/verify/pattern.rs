use pinrail_core::{ChunkId, RailId};

/// Where in a chunk a pattern lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    First,
    Last,
    /// Across the chunk's end, into the next.
    Seam,
}

/// `len` bytes that no other chunk, rail or part has: each block of eight is a number of its own, scrambled without loss.
pub(super) fn pattern(chunk: ChunkId, rail: RailId, part: Part, len: usize) -> Vec<u8> {
    let place = u64::from(chunk.0) << 32 | u64::from(rail.0) << 16 | (part as u64) << 8;
    let blocks = (0..=u8::MAX).map(|block| scramble(place | u64::from(block)));
    let bytes: Vec<u8> = blocks.flat_map(u64::to_le_bytes).take(len).collect();
    assert_eq!(bytes.len(), len, "a pattern has at most 2048 bytes");
    bytes
}

/// The step of the splitmix64 generator: a bijection, so different numbers stay different.
fn scramble(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_block_of_eight_bytes_comes_twice() {
        let mut seen = BTreeSet::new();
        for (chunk, rail) in [(0, 0), (1, 0), (0, 1), (u32::MAX, 0), (0, u16::MAX), (u32::MAX, u16::MAX)] {
            for part in [Part::First, Part::Last, Part::Seam] {
                for block in pattern(ChunkId(chunk), RailId(rail), part, 128).chunks(8) {
                    assert!(seen.insert(block.to_vec()));
                }
            }
        }
        assert_eq!(seen.len(), 6 * 3 * 16);
    }

    #[test]
    fn a_short_pattern_is_the_start_of_a_long_one() {
        let of = |len| pattern(ChunkId(7), RailId(1), Part::Seam, len);
        assert_eq!(of(5), of(128)[..5]);
        assert_eq!(of(2048).len(), 2048);
    }
}

use std::ops::Range;

use pinrail_core::{Access, Buffer, Chunk, Machine, Memory, Place, RailId, Source};

/// A part of a buffer that one registration covers.
pub(super) struct Piece {
    /// Its place among all.
    pub(super) at: usize,
    pub(super) memory: Memory,
    pub(super) range: Range<u64>,
    pub(super) access: Access,
    pub(super) place: Place,
    pub(super) page_size: u64,
}

impl Piece {
    pub(super) fn chunk<'p>(&'p self, source: &'p Source) -> Chunk<'p> {
        Chunk { memory: &self.memory, range: self.range.clone(), access: self.access, source }
    }
}

/// The batch as registrations take it.
pub(super) struct Pieces {
    pub(super) all: Vec<Piece>,
    /// By buffer, in the caller's order.
    pub(super) of_buffer: Vec<Range<usize>>,
}

impl Pieces {
    /// Cuts buffers that are longer than a registration may be, at page boundaries.
    pub(super) fn cut(batch: &[Buffer], machine: &Machine, rails: &[RailId]) -> Result<Pieces, String> {
        let max = rails.iter().filter_map(|rail| machine.rails[rail.index()].limits.max_mr_size).min().unwrap_or(u64::MAX);
        let mut pieces = Pieces { all: Vec::new(), of_buffer: Vec::with_capacity(batch.len()) };
        for buffer in batch {
            let (first, base, range) = (pieces.all.len(), buffer.memory.extent().start(), buffer.range());
            let mut start = range.start;
            while start < range.end {
                let whole = range.end - start;
                // The seam is a page boundary in the address space, not in the buffer.
                let cut = (base + start).saturating_add(max) / buffer.page_size * buffer.page_size - base;
                let end = if whole <= max { range.end } else { cut };
                if end <= start {
                    return Err(format!("a rail takes {max} bytes a registration, less than a page of buffer {:?}", buffer.name));
                }
                pieces.all.push(Piece {
                    at: pieces.all.len(),
                    memory: buffer.memory.clone(),
                    range: start..end,
                    access: buffer.access.effective(),
                    place: buffer.place,
                    page_size: buffer.page_size,
                });
                start = end;
            }
            pieces.of_buffer.push(first..pieces.all.len());
        }
        Ok(pieces)
    }

    /// The pieces of each buffer.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &[Piece]> {
        self.of_buffer.iter().map(|range| &self.all[range.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_tile_the_buffer_with_seams_on_page_boundaries() {
        let mut machine = Machine::of_rails(2);
        machine.rails[1].limits.max_mr_size = Some(8 * 4096);
        let memory = Memory::imagined(0x10000, 20 * 4096).unwrap();
        let buffer = Buffer::new("b", memory, 100..17 * 4096).unwrap();
        let rails: Vec<RailId> = machine.ids().collect();
        let pieces = Pieces::cut(&[buffer], &machine, &rails).unwrap();
        let ranges: Vec<Range<u64>> = pieces.all.iter().map(|piece| piece.range.clone()).collect();
        assert_eq!(ranges, [100..8 * 4096, 8 * 4096..16 * 4096, 16 * 4096..17 * 4096]);
        machine.rails[1].limits.max_mr_size = Some(100);
        let small = Buffer::new("b", Memory::imagined(0x10000, 4096).unwrap(), 0..4096).unwrap();
        assert!(Pieces::cut(&[small], &machine, &rails).is_err());
    }
}

//! One piece of memory, and the proof that the MRs over it reach it.

use std::time::Duration;

use pinrail_core::{Access, MoveBytes};

use super::pattern::{Part, pattern};
use super::{Direction, Target, VerifyError};

/// Bytes that follow one another in memory and are reached by one MR, or by two at a seam.
pub(super) struct Span<'t, 'a> {
    pub(super) pieces: Vec<Piece<'t, 'a>>,
    pub(super) part: Part,
}

/// The part of a span that one MR covers.
pub(super) struct Piece<'t, 'a> {
    pub(super) target: &'t Target<'a>,
    /// Counted from the chunk's first byte.
    pub(super) at: u64,
    pub(super) len: u64,
}

/// Proves each span, puts the bytes back, and says how many went through MRs.
pub(super) fn prove(mover: &dyn MoveBytes, spans: &[Span<'_, '_>], wait: Duration) -> Result<u64, VerifyError> {
    let mut moved = 0;
    for span in spans.iter().filter(|span| span.grants(Access::REMOTE_READ) || span.grants(Access::REMOTE_WRITE)) {
        let mut before = vec![0; span.len()];
        span.copy_out(&mut before)?;
        let proved = span.prove(mover, wait);
        let put_back = span.copy_in(&before);
        moved += proved?;
        put_back?;
    }
    Ok(moved)
}

impl Span<'_, '_> {
    fn prove(&self, mover: &dyn MoveBytes, wait: Duration) -> Result<u64, VerifyError> {
        let mr = self.first().target.mr;
        let pattern = pattern(self.first().target.id, mr.rail(), self.part, self.len());
        let complement: Vec<u8> = pattern.iter().map(|byte| !byte).collect();
        let mut moved = 0;
        // The bytes at the far end always change in every bit, so that what lay there before cannot pass for them.
        for (value, other) in [(&pattern, &complement), (&complement, &pattern)] {
            if self.grants(Access::REMOTE_WRITE) {
                self.copy_in(other)?;
                moved += self.write(mover, value, wait)?;
                let mut seen = other.clone();
                self.copy_out(&mut seen)?;
                self.compare(Direction::Write, value, &seen)?;
            }
            if self.grants(Access::REMOTE_READ) {
                self.copy_in(other)?;
                let mut seen = value.clone();
                moved += self.read(mover, &mut seen, wait)?;
                self.compare(Direction::Read, other, &seen)?;
            }
        }
        Ok(moved)
    }

    fn write(&self, mover: &dyn MoveBytes, from: &[u8], wait: Duration) -> Result<u64, VerifyError> {
        let mut rest = from;
        for piece in &self.pieces {
            let (bytes, after) = rest.split_at(piece.size());
            let failed = |source| piece.target.place().moving(Direction::Write, piece.at, piece.len, source);
            mover.write(piece.target.mr, piece.at, bytes, wait).map_err(failed)?;
            rest = after;
        }
        Ok(from.len() as u64)
    }

    fn read(&self, mover: &dyn MoveBytes, into: &mut [u8], wait: Duration) -> Result<u64, VerifyError> {
        let len = into.len() as u64;
        let mut rest = into;
        for piece in &self.pieces {
            let (bytes, after) = rest.split_at_mut(piece.size());
            let failed = |source| piece.target.place().moving(Direction::Read, piece.at, piece.len, source);
            mover.read(piece.target.mr, piece.at, bytes, wait).map_err(failed)?;
            rest = after;
        }
        Ok(len)
    }

    fn compare(&self, direction: Direction, expected: &[u8], seen: &[u8]) -> Result<(), VerifyError> {
        let Some(differs) = expected.iter().zip(seen).position(|(expected, seen)| expected != seen) else { return Ok(()) };
        let mut at = differs as u64;
        let mut of = self.first();
        for piece in &self.pieces {
            of = piece;
            if at < piece.len {
                break;
            }
            at -= piece.len;
        }
        Err(of.target.place().differing(direction, of.at + at, &expected[differs..], &seen[differs..]))
    }

    fn copy_in(&self, from: &[u8]) -> Result<(), VerifyError> {
        let (target, at) = (self.first().target, self.at());
        target.chunk.memory.write_at(at, from).map_err(|source| target.place().copying(Direction::Write, at, source))
    }

    fn copy_out(&self, into: &mut [u8]) -> Result<(), VerifyError> {
        let (target, at) = (self.first().target, self.at());
        target.chunk.memory.read_at(at, into).map_err(|source| target.place().copying(Direction::Read, at, source))
    }

    /// True where every MR grants it: a seam is crossed only as far as both sides can be.
    fn grants(&self, access: Access) -> bool {
        self.pieces.iter().all(|piece| piece.target.chunk.access.contains(access))
    }

    fn first(&self) -> &Piece<'_, '_> {
        &self.pieces[0]
    }

    /// Where it begins in the memory.
    fn at(&self) -> u64 {
        self.first().target.chunk.range.start + self.first().at
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(Piece::size).sum()
    }
}

impl Piece<'_, '_> {
    fn size(&self) -> usize {
        usize::try_from(self.len).expect("a few bytes at an end")
    }
}

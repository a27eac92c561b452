//! Whether the registrations of a batch reach the memory they were made for.

mod error;
mod pattern;
mod span;

use std::time::Duration;

use pinrail_core::{Chunk, ChunkId, MoveBytes, Mr};

pub use error::{Direction, Place, VerifyError};
use pattern::Part;
use span::{Piece, Span};

/// One registration, and what it was asked to cover.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// The buffer's name, for errors. Seams are looked for within a buffer.
    pub buffer: &'a str,
    /// The chunk's number, unique in the batch: the pattern is made from it and the rail's.
    pub id: ChunkId,
    /// What was asked for, as the plan has it and not as the MR says.
    pub chunk: Chunk<'a>,
    /// What was got.
    pub mr: &'a Mr,
}

/// What was proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// MRs through which bytes went, at both ends, in each direction that their access grants to peers.
    pub mrs: u64,
    /// Bytes moved through MRs, all directions together.
    pub bytes: u64,
    /// Seams crossed, counted on each rail by itself, in each direction that both sides grant.
    pub seams: u64,
    /// MRs whose access lets no peer in (neither remote-read nor remote-write): nothing was moved through these.
    pub closed_to_peers: u64,
}

/// Bytes moved at each end of an MR, and on each side of a seam; fewer where the MR has fewer.
const END: u64 = 64;

/// Moves a pattern through both ends of every MR and across every seam, on the MR's rail.
///
/// In each direction that an MR's access grants to peers: written by the fabric and read by
/// [`Memory::read_at`](pinrail_core::Memory::read_at), and written by
/// [`Memory::write_at`](pinrail_core::Memory::write_at) and read by the fabric. A pattern of eight bytes or more is
/// unique to its chunk and rail, so the bytes that an error shows can be told from any others'.
///
/// A seam lies where two chunks of one buffer, on one rail, touch: 3 buffers of 3 chunks on 1 rail have 6. The order of
/// `targets` means nothing.
///
/// `wait` bounds each transfer. The memory is used by nobody else meanwhile; its bytes are put back afterwards. Where an
/// MR is wrong, bytes that belong to another may have been overwritten and stay so.
///
/// # Errors
/// The first difference, transfer or copy that failed.
pub fn verify(mover: &dyn MoveBytes, targets: &[Target<'_>], wait: Duration) -> Result<Verified, VerifyError> {
    let mut sorted: Vec<&Target<'_>> = targets.iter().collect();
    sorted.sort_by_key(|target| (target.mr.rail(), first_address(target)));
    let mut verified = Verified::default();
    for target in &sorted {
        let moved = span::prove(mover, &ends(target), wait)?;
        *(if moved > 0 { &mut verified.mrs } else { &mut verified.closed_to_peers }) += 1;
        verified.bytes += moved;
    }
    for pair in sorted.windows(2) {
        if let [left, right] = *pair
            && touch(left, right)
        {
            let moved = span::prove(mover, &[across(left, right)], wait)?;
            verified.seams += u64::from(moved > 0);
            verified.bytes += moved;
        }
    }
    Ok(verified)
}

fn first_address(target: &Target<'_>) -> u64 {
    target.chunk.memory.extent().start() + target.chunk.range.start
}

fn touch(left: &Target<'_>, right: &Target<'_>) -> bool {
    left.mr.rail() == right.mr.rail()
        && left.buffer == right.buffer
        && left.chunk.memory.same(right.chunk.memory)
        && left.chunk.range.end == right.chunk.range.start
}

/// Both ends of a target; one span where they would meet.
fn ends<'t, 'a>(target: &'t Target<'a>) -> Vec<Span<'t, 'a>> {
    let len = target.chunk.range.end - target.chunk.range.start;
    let span = |at, len, part| Span { pieces: vec![Piece { target, at, len }], part };
    if len <= 2 * END {
        return vec![span(0, len, Part::First)];
    }
    vec![span(0, END, Part::First), span(len - END, END, Part::Last)]
}

/// The end of one target and the start of the next, as one transfer over a buffer would touch them.
fn across<'t, 'a>(left: &'t Target<'a>, right: &'t Target<'a>) -> Span<'t, 'a> {
    let left_len = left.chunk.range.end - left.chunk.range.start;
    let right_len = right.chunk.range.end - right.chunk.range.start;
    let before = left_len.min(END);
    let pieces =
        vec![Piece { target: left, at: left_len - before, len: before }, Piece { target: right, at: 0, len: right_len.min(END) }];
    Span { pieces, part: Part::Seam }
}

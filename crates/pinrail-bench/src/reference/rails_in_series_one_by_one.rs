use super::Work;
use super::pieces::Piece;

/// One buffer after another, each on one rail after another, on the caller's thread.
///
/// What transfer engines do that register in a plain loop: Mooncake's `registerLocalMemory` before it went parallel
/// (kvcache-ai/Mooncake issue 855, "sequential"), and its EFA transport inside each thread (issue 3210).
pub(super) fn walk(work: &Work<'_>) {
    work.pieces.buffers().for_each(|pieces| buffer(work, pieces));
}

/// One buffer on every rail.
pub(super) fn buffer(work: &Work<'_>, pieces: &[Piece]) {
    for piece in pieces {
        for &rail in work.rails {
            (work.call)(piece, rail);
        }
    }
}

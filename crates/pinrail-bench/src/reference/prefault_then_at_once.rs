use std::num::NonZeroU32;
use std::sync::Mutex;
use std::thread;

use crossbeam_deque::Injector;
use pinrail_core::{Prepare, PrepareError, PrepareStep};
use pinrail_policy::Slices;

use super::crew::Crew;
use super::pieces::{Piece, Pieces};
use super::{bounded_pool, lock};

/// First N threads make all memory resident, slice by slice from one queue; then all rails at once, as
/// `all-rails-at-once` does it.
///
/// Mooncake's follow-up to issue 855 (pull requests 875 and 1238): touch first, then go parallel over NICs. Slices are
/// those of Pinrail's own preparation, whatever N is: shares of one N-th each once showed a cliff that was not there.
pub(super) fn prefault(pieces: &Pieces, prepare: &dyn Prepare, crew: &Crew, threads: NonZeroU32) -> Result<(), PrepareError> {
    let (queue, slices) = (Injector::new(), Slices::default());
    for piece in &pieces.all {
        (0..slices.count(piece.range.end - piece.range.start, piece.page_size)).for_each(|nth| queue.push((piece, nth)));
    }
    let failed = Mutex::new(None);
    let (queue, failed_in) = (&queue, &failed);
    let work = move || {
        while let Some((piece, nth)) = bounded_pool::next(queue) {
            let Piece { memory, range, access, place, page_size, .. } = piece;
            let range = slices.nth(range, *page_size, nth);
            let step = PrepareStep::Populate { memory, range, access: *access, place: *place };
            if let Err(error) = prepare.prepare(&step) {
                *lock(failed_in) = Some(error);
                return;
            }
        }
    };
    thread::scope(|scope| (0..threads.get()).for_each(|_| crew.spawn(scope, work)));
    failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
}

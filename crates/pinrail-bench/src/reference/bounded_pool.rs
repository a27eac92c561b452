use std::num::NonZeroU32;
use std::thread;

use crossbeam_deque::{Injector, Steal};

use super::pieces::Piece;
use super::{Work, rails_in_series_one_by_one};

/// N threads take buffer after buffer from one queue, in the caller's order; each registers its buffer on one rail after
/// another.
///
/// The cap on buffers in flight that Mooncake's pull request 3216 brought: 16 threads a process were best on 192 cores.
pub(super) fn walk(work: &Work<'_>, threads: NonZeroU32) {
    let queue = Injector::new();
    work.pieces.buffers().for_each(|pieces| queue.push(pieces));
    drain(work, &queue, threads);
}

fn drain(work: &Work<'_>, queue: &Injector<&[Piece]>, threads: NonZeroU32) {
    thread::scope(|scope| {
        for _ in 0..threads.get() {
            work.crew.spawn(scope, move || {
                while let Some(pieces) = next(queue) {
                    rails_in_series_one_by_one::buffer(work, pieces);
                }
            });
        }
    });
}

/// The oldest entry of a queue that nobody fills any more.
pub(super) fn next<T>(queue: &Injector<T>) -> Option<T> {
    loop {
        match queue.steal() {
            Steal::Success(item) => return Some(item),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    }
}

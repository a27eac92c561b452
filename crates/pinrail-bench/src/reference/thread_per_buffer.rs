use std::thread;

use super::{Work, rails_in_series_one_by_one};

/// A thread a buffer, all started at once; each registers its buffer on one rail after another.
///
/// Mooncake's batch registration (`std::async` for every buffer) as its issue 3210 describes it: 182 buffers on 8 ranks
/// had 1100 to 1400 threads.
pub(super) fn walk(work: &Work<'_>) {
    thread::scope(|scope| {
        for pieces in work.pieces.buffers() {
            work.crew.spawn(scope, move || rails_in_series_one_by_one::buffer(work, pieces));
        }
    });
}

use std::thread;

use super::Work;

/// One buffer after another, each on all rails at once: a thread a rail and buffer, joined before the next buffer.
///
/// Mooncake's parallel registration over NICs as its issue 855 measured it ("parallel"): 4 times faster than one rail
/// after another on memory that had been touched, and 5 times slower on memory that had not.
pub(super) fn walk(work: &Work<'_>) {
    for pieces in work.pieces.buffers() {
        thread::scope(|scope| {
            for &rail in work.rails {
                work.crew.spawn(scope, move || pieces.iter().for_each(|piece| (work.call)(piece, rail)));
            }
        });
    }
}

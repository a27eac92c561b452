use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Scope};

/// Counts a reference's threads.
#[derive(Default)]
pub(super) struct Crew {
    live: AtomicU32,
    peak: AtomicU32,
}

impl Crew {
    /// Does the work on a thread of its own, or here where no thread can be had.
    pub(super) fn spawn<'scope, F>(&'scope self, scope: &'scope Scope<'scope, '_>, work: F)
    where
        F: FnOnce() + Copy + Send + 'scope,
    {
        let counted = move || {
            // Counted by the thread itself: one that waits to be scheduled is not yet a thread that works.
            let live = self.live.fetch_add(1, Ordering::SeqCst) + 1;
            self.peak.fetch_max(live, Ordering::SeqCst);
            work();
            self.live.fetch_sub(1, Ordering::SeqCst);
        };
        if thread::Builder::new().spawn_scoped(scope, counted).is_err() {
            work();
        }
    }

    /// The most threads at once, the caller's among them.
    pub(super) fn peak(&self) -> u32 {
        self.peak.load(Ordering::SeqCst) + 1
    }
}

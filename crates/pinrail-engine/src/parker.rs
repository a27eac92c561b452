use std::time::Instant;

use pinrail_dispatch::Wake;

use crate::sync::{Condvar, Mutex, lock, wait, wait_until};

/// Where workers sleep between steps.
///
/// A worker reads the epoch before it takes a step and parks only if it is unchanged: a wake-up delivered in between is
/// then not lost.
#[derive(Default)]
pub(crate) struct Parker {
    epoch: Mutex<u64>,
    moved: Condvar,
}

impl Parker {
    pub(crate) fn epoch(&self) -> u64 {
        *lock(&self.epoch)
    }

    /// Wakes whom dispatch says.
    pub(crate) fn deliver(&self, wake: Wake) {
        match wake {
            Wake::None => return,
            Wake::One | Wake::All => *lock(&self.epoch) += 1,
        }
        match wake {
            Wake::One => self.moved.notify_one(),
            Wake::None | Wake::All => self.moved.notify_all(),
        }
    }

    /// Sleeps until the epoch is no longer `seen`, or until the deadline.
    pub(crate) fn park(&self, seen: u64, deadline: Option<Instant>) {
        let mut epoch = lock(&self.epoch);
        while *epoch == seen {
            epoch = match deadline {
                None => wait(&self.moved, epoch),
                Some(deadline) => match wait_until(&self.moved, epoch, deadline) {
                    (_, true) => return,
                    (epoch, false) => epoch,
                },
            };
        }
    }
}

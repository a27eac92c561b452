use std::time::Instant;

use pinrail_dispatch::Wake;

use crate::sync::{Condvar, Mutex, lock, wait, wait_until};

/// Where workers sleep between steps.
///
/// A worker reads the epoch before it takes a step and parks only if it is unchanged: a wake-up delivered in between is
/// then not lost.
#[derive(Default)]
pub(crate) struct Parker {
    epoch: Mutex<Epoch>,
    moved: Condvar,
}

/// The wake-ups delivered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) of_one: u64,
    pub(crate) of_all: u64,
}

impl Parker {
    pub(crate) fn epoch(&self) -> Epoch {
        *lock(&self.epoch)
    }

    /// Wakes whom dispatch says.
    pub(crate) fn deliver(&self, wake: Wake) {
        match wake {
            Wake::None => {}
            Wake::One => {
                lock(&self.epoch).of_one += 1;
                self.moved.notify_one();
            }
            Wake::All => {
                lock(&self.epoch).of_all += 1;
                self.moved.notify_all();
            }
        }
    }

    /// Sleeps until the epoch is no longer `seen`, or until the deadline.
    pub(crate) fn park(&self, seen: Epoch, deadline: Option<Instant>) {
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

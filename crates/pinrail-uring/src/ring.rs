use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pinrail_core::Extent;

use crate::queue::Queue;
use crate::refused::Call;
use crate::slots::Slots;
use crate::sys;

/// Most slots a table may have: `IORING_MAX_REG_BUFFERS` of every kernel that has updatable tables.
pub(crate) const SLOTS_MAX: u32 = 1 << 14;

/// One ring: one rail. It lives as long as the registrar or an MR needs it.
///
/// Closing a ring would release what is still in its table, later and behind everybody's back. It does not come to
/// that: each live MR holds the ring, so at the last drop every slot has been emptied by its own deregistration.
pub(crate) struct Ring {
    handle: Handle,
    pub(crate) slots: Slots,
}

enum Handle {
    Ours(Box<Queue>),
    /// A duplicate of the caller's descriptor; the queues stay the caller's.
    Callers(OwnedFd),
}

impl Ring {
    /// A ring of our own with as many slots as the kernel grants, at most `wanted`.
    pub(crate) fn open(wanted: Option<u64>) -> Result<Ring, (Call, io::Error)> {
        let queue = Queue::open().map_err(|error| (Call::Setup, error))?;
        let wanted = wanted.and_then(|n| u32::try_from(n).ok()).map_or(SLOTS_MAX, |n| n.min(SLOTS_MAX));
        let mut slots = wanted;
        loop {
            match sys::register_table(queue.as_fd(), slots) {
                Ok(()) => return Ok(Ring { handle: Handle::Ours(Box::new(queue)), slots: Slots::new(0..slots) }),
                // Too many for this kernel, or no such call at all: then the smallest table fails as well.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && slots > 1 => slots = slots.next_power_of_two() / 2,
                Err(error) => return Err((Call::Table, error)),
            }
        }
    }

    /// The caller's ring, with the slots that are ours.
    pub(crate) fn over(ring: OwnedFd, slots: Range<u32>) -> Ring {
        Ring { handle: Handle::Callers(ring), slots: Slots::new(slots) }
    }

    /// Pins the range's pages into a slot. One slot a call: of several, the kernel may do some and report success.
    pub(crate) fn fill(&self, slot: u32, range: Extent) -> io::Result<()> {
        sys::update_slot(self.as_fd(), slot, Some(range))
    }

    pub(crate) fn clear(&self, slot: u32) -> io::Result<()> {
        sys::update_slot(self.as_fd(), slot, None)
    }

    /// The queues, where they are ours.
    pub(crate) fn queue(&self) -> Option<&Queue> {
        match &self.handle {
            Handle::Ours(queue) => Some(queue),
            Handle::Callers(_) => None,
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.handle {
            Handle::Ours(queue) => queue.as_fd(),
            Handle::Callers(fd) => fd.as_fd(),
        }
    }
}

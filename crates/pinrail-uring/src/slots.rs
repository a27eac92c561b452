use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The free slots of one ring's table.
///
/// The slot freed longest ago is taken first: a key that somebody kept too long meets an empty slot for as long as the
/// table allows, and not at once another buffer. The lock is held for a push or a pop and never across a system call.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Mutex<VecDeque<u32>>,
    total: u32,
}

impl Slots {
    pub(crate) fn new(slots: Range<u32>) -> Slots {
        Slots { total: slots.end.saturating_sub(slots.start), free: Mutex::new(slots.collect()) }
    }

    /// Slots, taken or free.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn take(&self) -> Option<u32> {
        self.free().pop_front()
    }

    pub(crate) fn give_back(&self, slot: u32) {
        self.free().push_back(slot);
    }

    fn free(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_is_the_last_to_be_taken_again() {
        let slots = Slots::new(5..8);
        assert_eq!(slots.take(), Some(5));
        slots.give_back(5);
        assert_eq!([slots.take(), slots.take(), slots.take(), slots.take()], [Some(6), Some(7), Some(5), None]);
        assert_eq!(slots.total(), 3);
    }

    #[test]
    #[allow(clippy::reversed_empty_ranges, reason = "what a caller might pass")]
    fn a_range_without_slots_has_none() {
        assert_eq!((Slots::new(9..2).total(), Slots::new(9..2).take()), (0, None));
    }
}

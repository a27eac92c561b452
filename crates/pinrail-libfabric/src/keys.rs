//! Keys for the providers that leave their choice to us.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hands out keys that are unique among ours on one domain.
///
/// A freed key comes back last, after all the others: a peer that still holds it hits nothing for as long as possible.
#[derive(Debug)]
pub(crate) struct Keys {
    range: RangeInclusive<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u64,
    live: BTreeSet<u64>,
}

/// A key in use; free again when dropped.
#[derive(Debug)]
pub(crate) struct Key {
    keys: Arc<Keys>,
    value: u64,
}

impl Keys {
    /// Keys within `range`, which is not empty.
    pub(crate) fn new(range: RangeInclusive<u64>) -> Arc<Keys> {
        let state = Mutex::new(State { next: *range.start(), live: BTreeSet::new() });
        Arc::new(Keys { range, state })
    }

    /// The keys that fit in `key_size` bytes, without 0 (which is easily taken for none) and without the reserved
    /// FI_KEY_NOTAVAIL.
    pub(crate) fn of_size(key_size: usize) -> RangeInclusive<u64> {
        match key_size {
            1..8 => 1..=(1 << (8 * key_size)) - 1,
            _ => 1..=u64::MAX - 1,
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        (self.range.end() - self.range.start()).saturating_add(1)
    }

    /// A key that is not in use; `None` when all are.
    pub(crate) fn take(self: &Arc<Keys>) -> Option<Key> {
        let mut state = self.state();
        if state.live.len() as u64 >= self.count() {
            return None;
        }
        loop {
            let value = state.next;
            state.next = if value == *self.range.end() { *self.range.start() } else { value + 1 };
            if state.live.insert(value) {
                return Some(Key { keys: Arc::clone(self), value });
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key {
    pub(crate) fn value(&self) -> u64 {
        self.value
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.keys.state().live.remove(&self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_in_use_are_equal_and_all_are_used() {
        let keys = Keys::new(Keys::of_size(1));
        let mut taken: Vec<Key> = (0..255).map(|_| keys.take().unwrap()).collect();
        let values: BTreeSet<u64> = taken.iter().map(Key::value).collect();
        assert_eq!(values, (1..=255).collect());
        assert!(keys.take().is_none());
        let freed = taken.swap_remove(7).value();
        assert_eq!(keys.take().unwrap().value(), freed);
    }

    #[test]
    fn a_freed_key_comes_back_last() {
        let keys = Keys::new(10..=12);
        assert_eq!(keys.take().unwrap().value(), 10);
        let next: Vec<_> = (0..3).map(|_| keys.take().unwrap().value()).collect();
        assert_eq!(next, [11, 12, 10]);
    }

    #[test]
    fn a_key_fits_the_providers_size() {
        assert_eq!(*Keys::of_size(4).end(), u64::from(u32::MAX));
        assert_eq!(*Keys::of_size(8).end(), u64::MAX - 1);
        assert_eq!(Keys::new(0..=u64::MAX).count(), u64::MAX);
    }
}

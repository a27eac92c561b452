//! The one place where this crate's synchronisation comes from, so that a model checker can stand in for it.

use std::sync::PoisonError;
use std::time::Instant;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Nothing in this crate panics while it holds a lock for longer than a plain assignment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait<'m, T>(condition: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// True when the time had passed.
pub(crate) fn wait_until<'m, T>(condition: &Condvar, guard: MutexGuard<'m, T>, until: Instant) -> (MutexGuard<'m, T>, bool) {
    let left = until.saturating_duration_since(crate::clock::now());
    if left.is_zero() {
        return (guard, true);
    }
    let (guard, timed_out) = condition.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
    (guard, timed_out.timed_out())
}

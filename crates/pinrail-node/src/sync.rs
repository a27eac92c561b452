//! The one place where this crate's synchronisation and time come from, so that a model checker can stand in for both.

use std::sync::PoisonError;
use std::time::Instant;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Nothing in this crate panics while it holds a lock for longer than plain assignments.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a signal, for one that nobody sent, or until then.
#[cfg(not(loom))]
pub(crate) fn wait<'m, T>(turn: &Condvar, guard: MutexGuard<'m, T>, until: Option<Instant>) -> MutexGuard<'m, T> {
    match until {
        None => turn.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(until) => {
            let left = until.saturating_duration_since(now());
            turn.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

/// Waits for a signal. The moment never comes, so that no time-out hides a signal that was lost.
#[cfg(loom)]
pub(crate) fn wait<'m, T>(turn: &Condvar, guard: MutexGuard<'m, T>, _: Option<Instant>) -> MutexGuard<'m, T> {
    turn.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(not(loom))]
#[expect(clippy::disallowed_methods, reason = "whoever waits for other processes must know how long")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Time stands still in a model.
#[cfg(loom)]
pub(crate) fn now() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "read once")]
    *START.get_or_init(Instant::now)
}

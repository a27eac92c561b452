//! The one place where this crate's synchronisation comes from, so that a model checker can stand in for it.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

#[cfg(not(loom))]
pub(crate) use arc_swap::ArcSwap;
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use newest::ArcSwap;
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// The newest value of an [`ArcSwap`], and how to look whether there is a newer one.
#[cfg(not(loom))]
pub(crate) type Newest<T> = arc_swap::Cache<Arc<ArcSwap<T>>, Arc<T>>;
#[cfg(loom)]
pub(crate) type Newest<T> = newest::Newest<T>;

/// What `arc-swap` promises, for the model checker, which cannot look into it: one moment at which a value is replaced, and
/// loads that see it afterwards.
#[cfg(loom)]
mod newest {
    use super::{Arc, Mutex, lock};

    pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

    #[derive(Clone)]
    pub(crate) struct Newest<T> {
        of: Arc<ArcSwap<T>>,
        seen: Arc<T>,
    }

    impl<T> ArcSwap<T> {
        pub(crate) fn from_pointee(value: T) -> ArcSwap<T> {
            ArcSwap(Mutex::new(Arc::new(value)))
        }

        pub(crate) fn load(&self) -> Arc<T> {
            Arc::clone(&lock(&self.0))
        }

        pub(crate) fn swap(&self, value: Arc<T>) -> Arc<T> {
            std::mem::replace(&mut lock(&self.0), value)
        }
    }

    impl<T> Newest<T> {
        pub(crate) fn new(of: Arc<ArcSwap<T>>) -> Newest<T> {
            Newest { seen: of.load(), of }
        }

        pub(crate) fn load(&mut self) -> &Arc<T> {
            self.seen = self.of.load();
            &self.seen
        }
    }
}

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

//! The engine's clock.

use std::time::Instant;

#[cfg(not(loom))]
#[expect(clippy::disallowed_methods, reason = "this is the room of the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Time stands still for a model checker, whose runs must not depend on it.
#[cfg(loom)]
#[expect(clippy::disallowed_methods, reason = "this is the room of the clock")]
pub(crate) fn now() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now)
}

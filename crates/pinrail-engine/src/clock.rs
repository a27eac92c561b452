//! The engine's clock.

use std::time::Instant;

use pinrail_policy::Tick;

#[expect(clippy::disallowed_methods, reason = "this is the room of the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time of one run, from its start.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(now())
    }

    pub(crate) fn tick(self) -> Tick {
        Tick(u64::try_from(now().saturating_duration_since(self.0).as_nanos()).unwrap_or(u64::MAX))
    }
}

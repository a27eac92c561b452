//! The one place of this crate that reads a clock and sleeps: a transfer waits no longer than it was told to.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pinrail_core::{Cause, MoveError};

/// When to stop waiting.
#[derive(Debug)]
pub(crate) struct Deadline {
    started: Instant,
    wait: Duration,
    pauses: Cell<u32>,
}

/// Looks at the queues that a transfer on an idle machine needs at most. After so many, somebody else has the core that
/// the provider's own thread would need.
const EAGER: u32 = 200;
const NAP: Duration = Duration::from_micros(50);

impl Deadline {
    #[allow(clippy::disallowed_methods, reason = "MoveBytes waits for as long as its caller says; this is the room for it")]
    pub(crate) fn after(wait: Duration) -> Deadline {
        Deadline { started: Instant::now(), wait, pauses: Cell::new(0) }
    }

    /// Lets others run before the next look, or says that the time is over.
    #[allow(clippy::disallowed_methods, reason = "providers that make progress only when asked have nothing to park on")]
    pub(crate) fn pause(&self, api: &'static str) -> Result<(), MoveError> {
        if self.started.elapsed() >= self.wait {
            let waited_ms = u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX);
            return Err(MoveError::new(api, None, Cause::Timeout { waited_ms }));
        }
        self.pauses.set(self.pauses.get().saturating_add(1));
        if self.pauses.get() < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Forgets how long it has been waited: something has happened.
    pub(crate) fn awake(&self) {
        self.pauses.set(0);
    }
}

//! The one place of this crate that reads a clock: a transfer waits no longer than it was told to.

use std::time::{Duration, Instant};

use pinrail_core::{Cause, MoveError};

/// When to stop waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    started: Instant,
    wait: Duration,
}

impl Deadline {
    #[allow(clippy::disallowed_methods, reason = "MoveBytes waits for as long as its caller says; this is the room for it")]
    pub(crate) fn after(wait: Duration) -> Deadline {
        Deadline { started: Instant::now(), wait }
    }

    /// What is left of the time.
    pub(crate) fn left(&self) -> Duration {
        self.wait.saturating_sub(self.started.elapsed())
    }

    /// Lets others run before the next look, or says that the time is over.
    pub(crate) fn pause(&self, api: &'static str) -> Result<(), MoveError> {
        if self.left().is_zero() {
            return Err(self.over(api));
        }
        std::thread::yield_now();
        Ok(())
    }

    /// The error of a wait that was too long.
    pub(crate) fn over(&self, api: &'static str) -> MoveError {
        let waited_ms = u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX);
        MoveError::new(api, None, Cause::Timeout { waited_ms })
    }
}

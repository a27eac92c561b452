//! What the command itself times: the engine has its own clock for what it runs.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Wall time from here on.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "this is the room of the command's clock")]
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// CPU time of all threads of this process so far, in the kernel too.
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

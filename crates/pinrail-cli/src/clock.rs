//! What the command itself times: the engine has its own clock for what it runs.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What some work answers, and the wall time it took.
#[expect(clippy::disallowed_methods, reason = "this is the room of the command's clock")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

/// Time as it passes, for the simulated registrar, which has no clock.
pub(crate) struct RealTime {
    start: Instant,
}

#[expect(clippy::disallowed_methods, reason = "this is the room of the command's clock; a simulated call is a wait")]
impl RealTime {
    pub(crate) fn start() -> RealTime {
        RealTime { start: Instant::now() }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the room of the command's clock; a simulated call is a wait")]
impl pinrail_sim::Clock for RealTime {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait_until(&self, then: Duration) {
        thread::sleep(then.saturating_sub(self.start.elapsed()));
    }
}

/// CPU time of all threads of this process so far, in the kernel too.
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

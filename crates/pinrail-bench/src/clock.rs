//! The bench's clock: wall time, and the CPU time of the process.

use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the room of the bench's clock")]
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Seconds of CPU that all threads of this process have used so far, in the kernel too.
pub(crate) fn cpu_s() -> f64 {
    // The clock of a process never runs backwards and begins at zero.
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default().as_secs_f64()
}

/// Seconds since 1970: when a run was made.
#[expect(clippy::disallowed_methods, reason = "this is the room of the bench's clock")]
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

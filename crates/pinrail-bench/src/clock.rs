//! The bench's clocks: what trials are timed by, and the CPU time of the process.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// What the times of a run are read from: wall time, or the time of a backend that has one of its own.
///
/// A simulated fabric charges milliseconds that nobody waits for. Read from its own clock a run on it measures what it
/// charges; the fixed task between trials is read from the same clock, which stands still meanwhile.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    is_wall: bool,
}

impl Clock {
    /// The host's monotonic clock.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the room of the bench's clock")]
    pub fn wall() -> Clock {
        let origin = Instant::now();
        Clock { is_wall: true, ..Clock::new(move || origin.elapsed()) }
    }

    /// Any clock: `now` is the time since some moment, the same for all threads, and never runs backwards.
    #[must_use]
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Clock {
        Clock { now: Arc::new(now), is_wall: false }
    }

    /// False where a backend charges time instead of taking it.
    pub(crate) fn is_wall(&self) -> bool {
        self.is_wall
    }

    /// Begins to count.
    pub(crate) fn start(&self) -> Stopwatch {
        Stopwatch { since: (self.now)(), clock: self.clone() }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", (self.now)())
    }
}

/// The time since it was started.
#[derive(Clone, Debug)]
pub(crate) struct Stopwatch {
    clock: Clock,
    since: Duration,
}

impl Stopwatch {
    fn elapsed(&self) -> Duration {
        (self.clock.now)().saturating_sub(self.since)
    }

    pub(crate) fn ns(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
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

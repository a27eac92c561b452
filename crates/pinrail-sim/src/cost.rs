//! The formulas of [`Profile`](crate::Profile): what a call costs among others.

use crate::profile::{CallCost, LockCost, TouchCost};

/// What a call is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    pub(crate) bytes: u64,
    /// Its pages, counted in 4 KiB whatever their size.
    pub(crate) pages_4kib: u64,
    pub(crate) huge: bool,
    /// Bytes that the process has registered on the rail.
    pub(crate) registered_bytes: u64,
}

/// Who else is at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Calls in flight in the process, this one included.
    pub(crate) process: u32,
    /// Those of them on the same pages.
    pub(crate) same_pages: u32,
    /// Calls in flight on the node.
    pub(crate) node: u32,
    pub(crate) cores: u32,
}

impl CallCost {
    /// Core time of the call by itself, where pages are slower for their crowd.
    pub(crate) fn work_ns(&self, piece: &Piece, crowd: &Crowd) -> f64 {
        let by_page = if piece.huge { self.huge_ns_per_4kib.unwrap_or(self.ns_per_4kib) } else { self.ns_per_4kib };
        let pages = self.ns_per_gib * gib(piece.bytes) + by_page * float(piece.pages_4kib);
        let same = doublings(crowd.same_pages);
        let others = doublings(crowd.process) - same;
        let slowdown = 1.0 + self.same_pages_slowdown * same + self.other_pages_slowdown * others;
        pages * slowdown + self.ns_per_gib_registered * gib(piece.registered_bytes)
    }

    /// What of it is done outside the lock.
    pub(crate) fn outside_ns(&self, work_ns: f64, crowd: &Crowd) -> f64 {
        let share = self.lock.map_or(0.0, |lock| lock.share);
        (1.0 - share) * work_ns * (1.0 + self.slowdown_per_thread * others(crowd.process))
    }
}

impl LockCost {
    /// How long the lock is held.
    pub(crate) fn inside_ns(&self, work_ns: f64, crowd: &Crowd) -> f64 {
        let crowded = (1.0 - f64::from(crowd.cores) / f64::from(crowd.node.max(1))).max(0.0);
        let slowdown = 1.0
            + self.slowdown_per_doubling * doublings(crowd.process)
            + self.slowdown_per_thread * others(crowd.process)
            + self.slowdown_oversubscribed * crowded;
        (self.share * work_ns + self.ns) * slowdown
    }
}

impl TouchCost {
    /// How much faster so many threads are than one, on pages of their own.
    pub(crate) fn speed_up(&self, threads: u32) -> f64 {
        let threads = f64::from(threads);
        let useful = 1.0 + self.efficiency * (threads.min(self.knee_threads) - 1.0).max(0.0);
        if threads > self.knee_threads { useful * self.past_knee } else { useful }
    }

    /// The first touch of so many pages by one of so many threads.
    pub(crate) fn among_ns(&self, pages_4kib: u64, threads: u32) -> f64 {
        self.ns_per_4kib * float(pages_4kib) * f64::from(threads.max(1)) / self.speed_up(threads.max(1))
    }

    /// The share of a core that each of so many threads keeps busy: what does not make it faster is waiting.
    pub(crate) fn busy(&self, threads: u32) -> f64 {
        (self.speed_up(threads.max(1)) / f64::from(threads.max(1))).min(1.0)
    }
}

/// The same on every machine: the logarithm is not the platform's.
fn doublings(n: u32) -> f64 {
    if n <= 1 { 0.0 } else { libm::log2(f64::from(n)) }
}

fn others(n: u32) -> f64 {
    f64::from(n.saturating_sub(1))
}

pub(crate) fn gib(bytes: u64) -> f64 {
    float(bytes) / 1_073_741_824.0
}

#[expect(clippy::cast_precision_loss, reason = "bytes and pages of memory, and nanoseconds of a run, are below 2^53")]
pub(crate) fn float(n: u64) -> f64 {
    n as f64
}

/// Whole nanoseconds; time that no clock counts is its end.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, which is what is meant")]
pub(crate) fn whole_ns(ns: f64) -> u64 {
    (ns + 0.5) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    fn ms(profile: &str, piece: Piece, process: u32, same_pages: u32) -> f64 {
        let cost = Profile::named(profile).unwrap().register;
        let crowd = Crowd { process, same_pages, node: process, cores: 192 };
        let work = cost.work_ns(&piece, &crowd);
        (cost.outside_ns(work, &crowd) + cost.lock.map_or(0.0, |lock| lock.inside_ns(work, &crowd))) / 1e6
    }

    #[test]
    fn one_call_alone_costs_what_was_measured() {
        let piece = Piece { bytes: 2_925_527, registered_bytes: 0, ..Piece::default() };
        for profile in ["efa-p5/joint", "efa-p5/flat"] {
            assert!((ms(profile, piece, 1, 1) * 32.0 - 66.0).abs() < 0.1, "{profile}");
            let full = Piece { registered_bytes: 1 << 30, ..piece };
            assert!((ms(profile, full, 1, 1) - ms(profile, piece, 1, 1) - 8.35).abs() < 1e-9, "{profile}");
        }
    }

    #[test]
    fn a_doubling_of_calls_on_the_same_pages_costs_what_the_profile_says() {
        let piece = Piece { pages_4kib: 1_000_000, ..Piece::default() };
        assert!((ms("rdma-host", piece, 8, 8) / ms("rdma-host", piece, 1, 1) - 1.9).abs() < 1e-9);
        assert!((ms("rdma-host", piece, 8, 1) / ms("rdma-host", piece, 1, 1) - 1.36).abs() < 1e-9);
    }

    #[test]
    fn threads_help_first_touch_up_to_the_knee() {
        let touch = Profile::named("uring-32core").unwrap().touch.unwrap();
        let touch = TouchCost { efficiency: 1.0, ..touch };
        assert_eq!([1, 2, 4].map(|n| touch.speed_up(n)), [1.0, 2.0, 4.0]);
        assert!((touch.speed_up(5) - 2.8).abs() < 1e-9 && (touch.busy(28) - 0.1).abs() < 1e-9);
        assert!((touch.among_ns(1000, 8) - 1600.0 * 1000.0 * 8.0 / 2.8).abs() < 1e-3);
    }

    #[test]
    fn nanoseconds_are_whole_and_saturate() {
        assert_eq!([0.0, 0.5, 1.4, f64::INFINITY, f64::NAN].map(whole_ns), [0, 1, 1, u64::MAX, 0]);
    }
}

use std::collections::VecDeque;

/// Steps that are remembered; older ones were of other sizes, and of a machine in another state.
const STEPS_MAX: usize = 64;

/// Steps that began and ended at one level.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Bytes, and nanoseconds of service.
    steps: VecDeque<(f64, f64)>,
    /// How many there were, the forgotten ones too.
    pub(super) count: u32,
    /// Most that were in flight together.
    in_flight: u32,
}

impl Seen {
    pub(super) fn add(&mut self, bytes: u64, service_ns: u64, in_flight: u32) {
        if self.steps.len() == STEPS_MAX {
            self.steps.pop_front();
        }
        #[allow(clippy::cast_precision_loss, reason = "a measurement: 53 bits are plenty")]
        self.steps.push_back((bytes as f64, service_ns.max(1) as f64));
        self.count = self.count.saturating_add(1);
        self.in_flight = self.in_flight.max(in_flight);
    }

    /// Work done in a nanosecond, by Little's law: steps in flight times the mean of work over service. One in flight at
    /// the level that `cost` was fitted to does 1.
    pub(super) fn throughput(&self, cost: Cost, level: u32) -> f64 {
        let mean = self.mean(|bytes, service_ns| cost.of(bytes) / service_ns);
        // The level may be one that the rails do not let the run reach.
        f64::from(level.min(self.in_flight)) * mean
    }

    /// The mean work of a step.
    pub(super) fn work(&self, cost: Cost) -> f64 {
        self.mean(|bytes, _| cost.of(bytes))
    }

    fn mean(&self, of: impl Fn(f64, f64) -> f64) -> f64 {
        let sum: f64 = self.steps.iter().map(|&(bytes, service_ns)| of(bytes, service_ns)).sum();
        sum / f64::from(u32::try_from(self.steps.len().max(1)).unwrap_or(u32::MAX))
    }
}

/// What a step costs: so much for being one, and so much for each of its bytes. Neither is negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    each_ns: f64,
    byte_ns: f64,
}

impl Cost {
    /// Fitted to steps so that the relative errors are least, or a large step would drown all small ones.
    pub(super) fn fit(seen: &Seen) -> Cost {
        // The squares of (each + byte * bytes) / service - 1, summed.
        let (mut aa, mut ac, mut cc, mut a, mut c) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(bytes, service_ns) in &seen.steps {
            let (one, size) = (1.0 / service_ns, bytes / service_ns);
            aa += one * one;
            ac += one * size;
            cc += size * size;
            a += one;
            c += size;
        }
        let alone = |by: f64, sum: f64| if by > 0.0 { sum / by } else { 0.0 };
        let (only_each, only_bytes) =
            (Cost { each_ns: alone(aa, a), byte_ns: 0.0 }, Cost { each_ns: 0.0, byte_ns: alone(cc, c) });
        let determinant = aa * cc - ac * ac;
        // Steps of one size do not tell the two apart: by the byte then, as most of the cost of the large ones is.
        if determinant <= DISTINCT_MIN * aa * cc {
            return if cc > 0.0 { only_bytes } else { only_each };
        }
        let both = Cost { each_ns: (a * cc - c * ac) / determinant, byte_ns: (c * aa - a * ac) / determinant };
        if both.each_ns < 0.0 {
            only_bytes
        } else if both.byte_ns < 0.0 {
            only_each
        } else {
            both
        }
    }

    fn of(self, bytes: f64) -> f64 {
        self.each_ns + self.byte_ns * bytes
    }

    /// The work of so many steps of so many bytes together.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn of_all(self, steps: u64, bytes: u64) -> f64 {
        self.each_ns * steps as f64 + self.byte_ns * bytes as f64
    }
}

/// How unlike steps must be, as the share of the determinant that unlikeness makes up, before two costs are told apart.
const DISTINCT_MIN: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(steps: &[(u64, u64)]) -> Seen {
        let mut seen = Seen::default();
        steps.iter().for_each(|&(bytes, service_ns)| seen.add(bytes, service_ns, 4));
        seen
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs().max(1.0)
    }

    #[test]
    fn both_costs_are_found() {
        let cost = Cost::fit(&seen(&[(1000, 700), (10_000, 2500), (500, 600), (100_000, 20_500)]));
        assert!(near(cost.each_ns, 500.0) && near(cost.byte_ns, 0.2), "{cost:?}");
        assert!(near(cost.of_all(3, 1000), 1700.0));
    }

    #[test]
    fn no_cost_is_negative() {
        let falls = Cost::fit(&seen(&[(1000, 900), (2000, 500), (4000, 300)]));
        assert!(falls.byte_ns == 0.0 && falls.each_ns > 0.0, "{falls:?}");
        let steep = Cost::fit(&seen(&[(1000, 10), (2000, 1000), (4000, 9000)]));
        assert!(steep.each_ns == 0.0 && steep.byte_ns > 0.0, "{steep:?}");
    }

    #[test]
    fn steps_of_one_size_cost_by_the_byte_and_those_without_bytes_each() {
        assert_eq!(Cost::fit(&seen(&[(100, 50); 5])), Cost { each_ns: 0.0, byte_ns: 0.5 });
        assert_eq!(Cost::fit(&seen(&[(0, 50); 5])), Cost { each_ns: 50.0, byte_ns: 0.0 });
        assert_eq!(Cost::fit(&seen(&[])), Cost { each_ns: 0.0, byte_ns: 0.0 });
    }

    #[test]
    fn old_steps_are_forgotten() {
        let mut seen = seen(&[(0, 1); 64]);
        (0..64).for_each(|_| seen.add(0, 100, 4));
        assert!(near(Cost::fit(&seen).each_ns, 100.0));
        assert_eq!(seen.count, 128);
    }

    #[test]
    fn a_level_that_is_not_reached_does_not_count() {
        let seen = seen(&[(100, 50); 5]);
        let cost = Cost::fit(&seen);
        assert!(near(seen.throughput(cost, 2), 2.0) && near(seen.throughput(cost, 9), 4.0) && near(seen.work(cost), 50.0));
    }
}

//! Statistics without a clock: numbers in, numbers out, the same for the same seed.

use crate::rng::SplitMix;

/// Resamples of a bootstrap: with many trials the ends of a 99 % interval are then the 50th smallest and largest.
const RESAMPLES: usize = 10_000;

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A ratio with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) ratio: f64,
    pub(crate) interval: Interval,
}

/// The middle value, or the mean of the middle two; zero without samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    median_in(&mut samples.to_vec())
}

fn median_in(samples: &mut [f64]) -> f64 {
    let middle = samples.len() / 2;
    if samples.is_empty() {
        return 0.0;
    }
    let odd = samples.len() % 2 == 1;
    let (below, &mut upper, _) = samples.select_nth_unstable_by(middle, f64::total_cmp);
    if odd { upper } else { (below.iter().copied().fold(f64::MIN, f64::max) + upper) / 2.0 }
}

/// Where the median lies, by the expanded percentile bootstrap.
pub(crate) fn median_interval(samples: &[f64], confidence: f64, rng: &mut SplitMix) -> Interval {
    let mut scratch = Vec::with_capacity(samples.len());
    let medians = (0..RESAMPLES).map(|_| resampled_median(samples, &mut scratch, rng)).collect();
    between(medians, beyond_each_end(samples.len(), confidence))
}

/// How many times as long `a` takes as `b`: the median of the ratios of each block, with a bootstrap over blocks.
///
/// Paired, because what disturbs a machine for seconds disturbs all trials of a block; a median, because disturbances come
/// as single trials that take ten times as long.
pub(crate) fn paired_ratio(a: &[f64], b: &[f64], confidence: f64, rng: &mut SplitMix) -> Ratio {
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    Ratio { ratio: median(&ratios), interval: median_interval(&ratios, confidence, rng) }
}

/// The ratio of the medians of samples that no block pairs, each resampled by itself.
pub(crate) fn unpaired_ratio(a: &[f64], b: &[f64], confidence: f64, rng: &mut SplitMix) -> Ratio {
    let mut scratch = Vec::with_capacity(a.len().max(b.len()));
    let beyond = beyond_each_end(a.len().min(b.len()), confidence);
    let ratio = |_| resampled_median(a, &mut scratch, rng) / resampled_median(b, &mut scratch, rng);
    Ratio { ratio: median(a) / median(b), interval: between((0..RESAMPLES).map(ratio).collect(), beyond) }
}

fn resampled_median(samples: &[f64], scratch: &mut Vec<f64>, rng: &mut SplitMix) -> f64 {
    scratch.clear();
    scratch.extend((0..samples.len()).map(|_| samples[rng.below(samples.len())]));
    median_in(scratch)
}

/// The share of resamples that lies beyond each end of an interval: with many trials half of what the confidence leaves
/// out, with few of them less.
///
/// Resamples of few trials scatter less than the trials do: of 100 runs of 10 trials, plain percentiles called the same
/// variant different in up to 6. So the ends lie where Student's distribution has them (Hesterberg, "What Teachers Should
/// Know About the Bootstrap", 2015: the expanded percentile interval).
fn beyond_each_end(trials: usize, confidence: f64) -> f64 {
    if trials < 2 {
        return 0.0;
    }
    let n = f64::from(u32::try_from(trials).unwrap_or(u32::MAX));
    let z = (n / (n - 1.0)).sqrt() * student(confidence, n - 1.0);
    (1.0 - normal_within(z.min(8.0))) / 2.0
}

/// The interval that leaves out that share of the values below it, and as many above.
fn between(mut values: Vec<f64>, beyond: f64) -> Interval {
    values.sort_unstable_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a small count")]
    let outside = (beyond * values.len() as f64) as usize;
    Interval { low: values[outside], high: values[values.len() - 1 - outside] }
}

/// The fewest trials of which an interval of that confidence can be made: with fewer, also when all of them agree, chance
/// alone would make them agree more often than the confidence allows (the sign test's bound, 8 for 99 %).
pub(crate) fn trials_min(confidence: f64) -> u32 {
    (1..64).find(|&trials| 2.0 * 0.5f64.powi(trials) <= 1.0 - confidence).map_or(64, i32::unsigned_abs)
}

/// Most trials that [`trials_for`] asks for: beyond it the machine is too noisy, and not the run too short.
pub(crate) const TRIALS_MAX: u32 = 10_000;

/// How many trials it takes to tell `effect` (0.1 is 10 %) from nothing in 9 of 10 runs, by what was seen so far.
///
/// Of the ratios as they are, moved to that effect, some lie on its wrong side; `wrong` is their share (with two more on each
/// side, as Agresti and Coull add them, since a few trials that all agree prove little). It is a guess from few trials, so
/// the aim is higher: 99 of 100. The interval's low end is about the ratio of rank
/// `n/2 - z*sqrt(n)/2`, so it lies on the right side if no more than so many lie on the wrong one.
pub(crate) fn trials_for(a: &[f64], b: &[f64], effect: f64, confidence: f64) -> u32 {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
    let middle = median(&logs);
    let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    let wrong = count(logs.iter().filter(|log| **log - middle + effect.ln_1p() < 0.0).count());
    let wrong = (wrong + 2.0) / (count(logs.len()) + 4.0);
    let z = rising_to(confidence, 10.0, normal_within);
    let enough = |&trials: &u32| {
        let n = f64::from(trials);
        let allowed = n / 2.0 - z * n.sqrt() / 2.0 - 0.5;
        // 2.326: 99 of 100, one side of the normal distribution.
        allowed - n * wrong >= 2.326 * (n * wrong * (1.0 - wrong)).sqrt()
    };
    (trials_min(confidence)..TRIALS_MAX).find(enough).unwrap_or(TRIALS_MAX)
}

/// The share of a normal distribution within `z` of its middle, by integration: no table, no package.
fn normal_within(z: f64) -> f64 {
    2.0 * integral(z, |x| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt())
}

/// How far from its middle that share of Student's distribution lies. By the tangent of an angle the distribution is a power
/// of its cosine.
fn student(share: f64, degrees: f64) -> f64 {
    let up_to = |angle| integral(angle, |angle| angle.cos().powf(degrees - 1.0));
    let all = up_to(std::f64::consts::FRAC_PI_2);
    degrees.sqrt() * rising_to(share, std::f64::consts::FRAC_PI_2, |angle| up_to(angle) / all).tan()
}

/// From zero on, by Simpson's rule.
fn integral(to: f64, of: impl Fn(f64) -> f64) -> f64 {
    let h = to / 200.0;
    let pairs = (0..100).map(|i| f64::from(i) * 2.0);
    pairs.map(|i| of(i * h) + 4.0 * of((i + 1.0) * h) + of((i + 2.0) * h)).sum::<f64>() * h / 3.0
}

/// Where between zero and `most` a rising function reaches a value, by bisection.
fn rising_to(value: f64, most: f64, of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if of(middle) < value { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The samples that lie far outside: beyond three times the distance between the quartiles (Tukey's far fence).
pub(crate) fn outliers(samples: &[f64]) -> Vec<usize> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let (q1, q3) = (median(&sorted[..half]), median(&sorted[sorted.len() - half..]));
    let fence = 3.0 * (q3 - q1);
    (0..samples.len()).filter(|&at| samples[at] < q1 - fence || samples[at] > q3 + fence).collect()
}

/// How far a measure that should stand still has moved, as a share of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Drift {
    /// The largest of the medians of its quarters over the smallest, less one.
    pub(crate) seen: f64,
    /// What of that is no scatter: the same by the near end of the ratio's interval.
    pub(crate) at_least: f64,
}

/// The drift of a measure that was taken again and again.
pub(crate) fn drift(samples: &[f64], confidence: f64, rng: &mut SplitMix) -> Drift {
    let quarter = samples.len().div_ceil(4).max(1);
    let mut quarters: Vec<&[f64]> = samples.chunks(quarter).collect();
    quarters.sort_by(|a, b| median(a).total_cmp(&median(b)));
    match quarters.as_slice() {
        [low, .., high] if median(low) > 0.0 => {
            let ratio = unpaired_ratio(high, low, confidence, rng);
            Drift { seen: ratio.ratio - 1.0, at_least: ratio.at_least() }
        }
        _ => Drift::default(),
    }
}

impl Ratio {
    /// The smallest difference in the interval, as a share: 0.1 is a tenth more, or a tenth more the other way round.
    pub(crate) fn at_least(&self) -> f64 {
        (self.interval.low.max(1.0 / self.interval.high) - 1.0).max(0.0)
    }
}

/// The slope of a straight line through points: the median of all slopes between two of them (Theil and Sen). `None` where
/// all points have the same `x`.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (at, a) in points.iter().enumerate() {
        slopes.extend(points[at + 1..].iter().filter(|b| b.0 != a.0).map(|b| (b.1 - a.1) / (b.0 - a.0)));
    }
    (!slopes.is_empty()).then(|| median_in(&mut slopes))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A number from the standard normal distribution (Box and Muller).
    pub(crate) fn normal(rng: &mut SplitMix) -> f64 {
        let mut unit = || (rng.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64;
        (-2.0 * unit().ln()).sqrt() * (2.0 * std::f64::consts::PI * unit()).cos()
    }

    /// Trials of one variant on a machine with this scatter, a tenth of them disturbed.
    pub(crate) fn trials(count: usize, seconds: f64, scatter: f64, rng: &mut SplitMix) -> Vec<f64> {
        let mut trial = || {
            let disturbed = rng.below(10) == 0;
            seconds * (scatter * normal(rng)).exp() * if disturbed { 2.0 } else { 1.0 }
        };
        (0..count).map(|_| trial()).collect()
    }

    #[test]
    fn medians() {
        assert_eq!((median(&[]), median(&[3.0]), median(&[4.0, 1.0])), (0.0, 3.0, 2.5));
        assert_eq!(median(&[9.0, 1.0, 2.0, 100.0, 3.0]), 3.0);
    }

    #[test]
    fn identical_samples_have_a_ratio_of_one_without_width() {
        let ratio = paired_ratio(&[2.0; 10], &[2.0; 10], 0.99, &mut SplitMix::new(1));
        assert_eq!(ratio, Ratio { ratio: 1.0, interval: Interval { low: 1.0, high: 1.0 } });
    }

    #[test]
    fn a_disturbance_of_a_whole_block_is_not_a_difference() {
        let b: Vec<f64> = (0..10).map(|block| 1.0 + f64::from(block)).collect();
        let a: Vec<f64> = b.iter().map(|b| b * 1.2).collect();
        let ratio = paired_ratio(&a, &b, 0.99, &mut SplitMix::new(1));
        assert!(ratio.interval.low > 1.19 && ratio.interval.high < 1.21, "{ratio:?}");
        let unpaired = unpaired_ratio(&a, &b, 0.99, &mut SplitMix::new(1));
        assert!(unpaired.interval.low < 1.0, "without blocks the same numbers tell nothing: {unpaired:?}");
    }

    #[test]
    fn the_least_trials_are_those_of_the_sign_test() {
        assert_eq!((trials_min(0.99), trials_min(0.95)), (8, 6));
    }

    #[test]
    fn noise_asks_for_trials() {
        let mut rng = SplitMix::new(5);
        let mut asked = |scatter| {
            let wanted = || trials_for(&trials(40, 1.0, scatter, &mut rng), &trials(40, 1.0, scatter, &mut rng), 0.1, 0.99);
            let mut all: Vec<u32> = std::iter::repeat_with(wanted).take(9).collect();
            all.sort_unstable();
            all[4]
        };
        let (quiet, noisy, hopeless) = (asked(0.01), asked(0.15), asked(3.0));
        assert!(quiet < 40 && (60..400).contains(&noisy) && hopeless > 1000, "{quiet} {noisy} {hopeless}");
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let normal = |share| rising_to(share, 10.0, normal_within);
        assert!((normal(0.99) - 2.5758).abs() < 1e-3 && (normal(0.95) - 1.95996).abs() < 1e-3);
        let close = |degrees, table: f64| (student(0.99, degrees) - table).abs() < 1e-3 * table;
        assert!(close(1.0, 63.657) && close(9.0, 3.2498) && close(99.0, 2.6264));
    }

    #[test]
    fn few_trials_have_wider_intervals_and_many_the_plain_ones() {
        let beyond = |trials| beyond_each_end(trials, 0.99);
        assert!(
            (0.0002..0.0005).contains(&beyond(10)) && (0.0044..0.005).contains(&beyond(400)),
            "{} {}",
            beyond(10),
            beyond(400)
        );
        assert_eq!((beyond(0), beyond(1)), (0.0, 0.0));
    }

    #[test]
    fn an_outlier_is_far_outside() {
        assert_eq!(outliers(&[1.0, 1.1, 0.9, 1.05, 0.95, 10.0, 1.0, 1.02]), [5]);
        assert!(outliers(&[1.0, 1.1, 0.9, 1.05, 1.2, 1.3, 1.0, 1.02]).is_empty());
    }

    #[test]
    fn drift_is_seen_wherever_it_happens_and_single_spikes_are_not() {
        let still = [1.0; 40];
        let mut late = still;
        late[30..].fill(1.3);
        let mut between = still;
        between[10..20].fill(1.3);
        let mut spike = still;
        spike[7] = 50.0;
        let moved = |samples: &[f64]| drift(samples, 0.99, &mut SplitMix::new(1));
        let by = |share: f64, of: Drift| (of.seen - share).abs() < 1e-9 && (of.at_least - share).abs() < 1e-9;
        assert!(by(0.3, moved(&late)) && by(0.3, moved(&between)));
        assert!(by(0.0, moved(&still)) && by(0.0, moved(&spike)) && by(0.0, moved(&[])) && by(0.0, moved(&[0.0; 9])));
        // Medians of a few scattered numbers differ; that is no drift.
        let scattered = moved(&trials(21, 1.0, 0.2, &mut SplitMix::new(2)));
        assert!(scattered.seen > 0.1 && scattered.at_least < 0.1, "{scattered:?}");
    }

    #[test]
    fn a_slope_is_found_among_outliers_and_flat_is_flat() {
        let mut rng = SplitMix::new(3);
        let line = |slope: f64, rng: &mut SplitMix| -> Vec<(f64, f64)> {
            (0..40)
                .map(|at| f64::from(at % 8))
                .map(|x| (x, 5.0 + slope * x + 0.1 * normal(rng) + if rng.below(10) == 0 { 9.0 } else { 0.0 }))
                .collect()
        };
        let (steep, flat) = (slope(&line(8.0, &mut rng)).unwrap(), slope(&line(0.0, &mut rng)).unwrap());
        assert!((steep - 8.0).abs() < 0.2 && flat.abs() < 0.2, "{steep} {flat}");
        assert_eq!(slope(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }
}

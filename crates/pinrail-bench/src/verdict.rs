//! From samples and findings to what can be said.

use crate::check::{self, Check, Checks, Slicing};
use crate::results::{Comparison, Finding, Verdict};
use crate::rng::SplitMix;
use crate::stats;

/// The confidence of intervals: chance alone calls two equal variants different in 1 to 4 of 100 runs of 10 trials.
pub(crate) const CONFIDENCE: f64 = 0.99;

/// The difference that a run should be able to see: 10 %.
pub(crate) const EFFECT: f64 = 0.1;

/// What one variant brings to a comparison.
pub(crate) struct Side<'s> {
    pub(crate) name: &'s str,
    pub(crate) samples: &'s [f64],
    pub(crate) slicing: Slicing,
}

/// What concerns every comparison.
pub(crate) struct Ground<'g> {
    pub(crate) findings: &'g [Finding],
    pub(crate) drift: f64,
    pub(crate) seed: u64,
    pub(crate) checks: &'g Checks,
}

impl Ground<'_> {
    /// Compares two variants whose trials are paired by block.
    pub(crate) fn compare(&self, a: &Side<'_>, b: &Side<'_>) -> Comparison {
        let ratio = stats::paired_ratio(a.samples, b.samples, CONFIDENCE, &mut SplitMix::new(self.seed));
        let wanted = stats::trials_for(a.samples, b.samples, EFFECT, CONFIDENCE);
        let (a_name, b_name) = (a.name.to_owned(), b.name.to_owned());
        let mut comparison = judged(a_name, b_name, ratio, wanted);
        if let Some(reason) = self.stands_in_the_way(a, b, &comparison) {
            withhold(&mut comparison, reason, a.samples.len());
        }
        comparison
    }

    fn stands_in_the_way(&self, a: &Side<'_>, b: &Side<'_>, comparison: &Comparison) -> Option<String> {
        let concerns = |finding: &&Finding| finding.variant.as_deref().is_none_or(|name| name == a.name || name == b.name);
        if let Some(finding) = self.findings.iter().find(concerns) {
            let of = finding.variant.as_deref().map_or_else(String::new, |name| format!("{name}: "));
            return Some(format!("{of}{}", finding.what));
        }
        let differs = matches!(comparison.verdict, Verdict::Faster | Verdict::Slower);
        let found = [
            check::slices(a.slicing, b.slicing),
            check::trials(u32::try_from(a.samples.len()).unwrap_or(u32::MAX), CONFIDENCE),
            check::drift(self.drift, comparison.ratio).filter(|_| differs),
        ];
        let in_force = |(check, _): &(Check, String)| self.checks.contains(check);
        found.into_iter().flatten().find(in_force).map(|(_, what)| what)
    }
}

/// Says nothing for that reason; where there were too few trials, how many are needed.
pub(crate) fn withhold(comparison: &mut Comparison, reason: String, trials: usize) {
    let least = stats::trials_min(CONFIDENCE);
    comparison.verdict = Verdict::Withheld;
    comparison.reason = Some(reason);
    comparison.trials_wanted = (trials < least as usize).then_some(least);
}

/// What an interval says by itself.
pub(crate) fn judged(a: String, b: String, ratio: stats::Ratio, trials_wanted: u32) -> Comparison {
    let stats::Ratio { ratio, interval: stats::Interval { low, high } } = ratio;
    let (verdict, reason) = if high < 1.0 {
        (Verdict::Faster, None)
    } else if low > 1.0 {
        (Verdict::Slower, None)
    } else {
        // An interval that is wide has not shown that there is nothing.
        let wide = high > 1.0 + EFFECT || low < 1.0 / (1.0 + EFFECT);
        let more = if trials_wanted < stats::TRIALS_MAX { "about" } else { "more than" };
        let reason = wide.then(|| format!("{more} {trials_wanted} trials would tell a difference of {:.0} %", EFFECT * 100.0));
        (Verdict::NoDifference, reason)
    };
    let trials_wanted = reason.is_some().then_some(trials_wanted);
    Comparison { a, b, ratio, low, high, verdict, reason, trials_wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::trials;

    fn verdict(a: &[f64], b: &[f64]) -> Comparison {
        let checks = Check::ALL.into();
        let ground = Ground { findings: &[], drift: 0.0, seed: 1, checks: &checks };
        let side = |name, samples| Side { name, samples, slicing: (0, 0) };
        ground.compare(&side("a", a), &side("b", b))
    }

    /// Gives the trials of two equal variants.
    type Noise = Box<dyn FnMut(usize) -> [Vec<f64>; 2]>;

    /// Noise that was made up, with little and with much scatter; and noise that was recorded, from anywhere on.
    fn noises() -> Vec<(String, Noise)> {
        let made_up = |scatter: f64| -> (String, Noise) {
            let mut rng = SplitMix::new(1);
            let noise = move |count| [0; 2].map(|_| trials(count, 1.0, scatter, &mut rng));
            (format!("scatter {scatter}"), Box::new(noise))
        };
        let numbers = include_str!("noise.txt").lines().filter(|line| !line.starts_with('#'));
        let seconds: Vec<f64> = numbers.map(|line| line.parse().unwrap()).collect();
        let mut rng = SplitMix::new(1);
        let recorded = move |count: usize| {
            let start = rng.below(seconds.len());
            let at = |nth: usize| seconds[(start + nth) % seconds.len()];
            // Every second block runs backwards.
            [0, 1].map(|side| (0..count).map(|block| at(2 * block + (side + block) % 2)).collect())
        };
        vec![made_up(0.01), made_up(0.1), ("recorded".to_owned(), Box::new(recorded))]
    }

    /// As a user would: ten trials; where the bench then asks for more, as many as it asks for.
    fn as_asked(slower: f64, noise: &mut Noise) -> Verdict {
        let mut run = |count| {
            let [a, b] = noise(count);
            verdict(&a.iter().map(|seconds| seconds * (1.0 + slower)).collect::<Vec<_>>(), &b)
        };
        let first = run(10);
        first.trials_wanted.map_or(first.verdict, |wanted| run(wanted.min(400) as usize).verdict)
    }

    #[test]
    fn the_same_twice_is_called_different_in_at_most_5_of_100_runs() {
        for (name, mut noise) in noises() {
            let different = (0..100).filter(|_| as_asked(0.0, &mut noise) != Verdict::NoDifference).count();
            assert!(different <= 5, "{name}: {different} of 100");
        }
    }

    #[test]
    fn ten_percent_slower_is_found_in_at_least_9_of_10_runs() {
        for (name, mut noise) in noises() {
            let found = (0..100).filter(|_| as_asked(0.1, &mut noise) == Verdict::Slower).count();
            assert!(found >= 90, "{name}: found in {found} of 100");
        }
    }

    #[test]
    fn too_few_trials_and_drift_withhold_what_they_could_explain() {
        let (a, b): (Vec<f64>, Vec<f64>) = (vec![1.2; 10], vec![1.0; 10]);
        assert_eq!(verdict(&a, &b).verdict, Verdict::Slower);
        let few = verdict(&a[..7], &b[..7]);
        assert_eq!(
            (few.verdict, few.reason.unwrap().as_str()),
            (Verdict::Withheld, "7 trials are too few for an interval of 99 %: at least 8 are needed")
        );
        let checks = Check::ALL.into();
        let side = |name, samples| Side { name, samples, slicing: (0, 0) };
        let drifted =
            |drift| Ground { findings: &[], drift, seed: 1, checks: &checks }.compare(&side("a", &a), &side("b", &b)).verdict;
        assert_eq!((drifted(0.1), drifted(0.25)), (Verdict::Slower, Verdict::Withheld));
    }

    #[test]
    fn a_wide_interval_asks_for_trials() {
        let mut rng = SplitMix::new(9);
        let noisy = verdict(&trials(10, 1.0, 0.3, &mut rng), &trials(10, 1.0, 0.3, &mut rng));
        assert_eq!(noisy.verdict, Verdict::NoDifference);
        assert!(noisy.reason.unwrap().ends_with("trials would tell a difference of 10 %"));
        assert_eq!(verdict(&[1.0; 10], &[1.0; 10]).reason, None);
    }
}

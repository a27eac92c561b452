use crate::Run;

/// What is noise: repeats of one cell of the published tables span 99 to 128 s.
pub(crate) const NOISE: f64 = 0.13;

/// Which policies win, under each profile, and whether that decides it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// By profile.
    pub best: Vec<Best>,
    /// True where every profile says the same.
    pub decided: bool,
    /// Policies that are among the best under every profile.
    pub safe: Vec<String>,
    /// What to measure where it is not decided.
    pub decides: Option<Decides>,
}

/// The best policies under a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The profile.
    pub profile: String,
    /// Policies no slower than the fastest by more than the noise of the record.
    pub policies: Vec<String>,
    /// The fastest's seconds, from the start to the last key.
    pub total_s: f64,
}

/// The measurement on which profiles differ most.
#[derive(Clone, Debug, PartialEq)]
pub struct Decides {
    /// Run this policy.
    pub policy: String,
    /// Look at this.
    pub what: &'static str,
    /// By profile: what it says you will see.
    pub says: Vec<(String, f64)>,
}

/// Who wins among the runs of one scenario; `None` where there is nothing to compare.
#[must_use]
pub fn verdict(runs: &[Run]) -> Option<Verdict> {
    let profiles = distinct(runs.iter().map(|run| &run.profile));
    let policies = distinct(runs.iter().map(|run| &run.name));
    if policies.len() < 2 {
        return None;
    }
    let of = |profile: &str| runs.iter().filter(move |run| run.profile == profile).collect::<Vec<_>>();
    let best: Vec<Best> = profiles.iter().map(|profile| best(profile, &of(profile))).collect();
    let decided = best.iter().all(|of| same(&of.policies, &best[0].policies));
    let safe = best[0].policies.iter().filter(|policy| best.iter().all(|of| of.policies.contains(policy)));
    let safe = safe.cloned().collect();
    let decides = if decided { None } else { decides(&profiles, &policies, runs) };
    Some(Verdict { best, decided, safe, decides })
}

fn best(profile: &str, runs: &[&Run]) -> Best {
    // Where nothing else ran, what is not trusted is all there is.
    let trusted = |run: &&&Run| run.trusted || runs.iter().all(|run| !run.trusted);
    let total_s = runs.iter().filter(trusted).map(|run| run.total_s).fold(f64::INFINITY, f64::min);
    let near = runs.iter().filter(trusted).filter(|run| run.total_s <= total_s * (1.0 + NOISE));
    Best { profile: profile.to_owned(), policies: distinct(near.map(|run| &run.name)), total_s }
}

fn decides(profiles: &[String], policies: &[String], runs: &[Run]) -> Option<Decides> {
    let looks = [("seconds until the last key", (|run| run.total_s) as fn(&Run) -> f64), ("CPU seconds", |run| run.cpu_s)];
    let all = policies.iter().flat_map(|policy| {
        looks.iter().map(move |&(what, look)| {
            let find = |profile: &String| runs.iter().find(|run| run.profile == *profile && run.name == *policy);
            let says = profiles.iter().filter_map(|profile| Some((profile.clone(), look(find(profile)?)))).collect();
            Decides { policy: policy.clone(), what, says }
        })
    });
    all.max_by(|a, b| a.spread().total_cmp(&b.spread()))
}

impl Decides {
    /// The largest answer over the smallest.
    fn spread(&self) -> f64 {
        let (low, high) = self.says.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), (_, s)| (low.min(*s), high.max(*s)));
        if low > 0.0 && low.is_finite() { high / low } else { 0.0 }
    }
}

fn same(a: &[String], b: &[String]) -> bool {
    a.len() == b.len() && a.iter().all(|policy| b.contains(policy))
}

fn distinct<'t>(texts: impl Iterator<Item = &'t String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for text in texts {
        if !seen.contains(text) {
            seen.push(text.clone());
        }
    }
    seen
}

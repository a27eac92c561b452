//! Tries a grid of policies on a scenario.

use std::num::NonZeroU32;

use pinrail_policy::Policy;

use crate::scenario::{Built, MemoryState, Read};
use crate::{Error, Run, Scenario};

/// What a grid of policies came to under one profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The scenario.
    pub scenario: String,
    /// The profile.
    pub profile: String,
    /// Policies tried.
    pub tried: usize,
    /// The fastest, as the buffers lie; where the profile is not trusted about a policy, not that one.
    pub best: Run,
    /// Each named policy, the default and what thread-per-buffer engines do, with how much slower than the best it is.
    pub regrets: Vec<Regret>,
    /// The fastest if the buffers lay in fewer allocations, for `coalesce` to join: how many, and the run.
    pub assuming: Vec<Run>,
}

/// What a policy loses.
#[derive(Clone, Debug, PartialEq)]
pub struct Regret {
    /// Its run.
    pub run: Run,
    /// How much longer than the best it takes: 0.1 is a tenth.
    pub regret: f64,
}

/// What engines do that start a thread for each buffer: the yardstick of any default.
pub const THREAD_PER_BUFFER: &str = "all-rails+rails-in-series+unbounded";

impl Scenario {
    /// Tries every combination of rails, fan-out, order, limit and preparation that could make a difference here, and of
    /// coalescing under the assumption that it could join something.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn search(&self, named: &[(String, Policy)], seed: u64, read: &Read<'_>) -> Result<Vec<Found>, Error> {
        let built = self.build(seed, read)?;
        let grid = self.policies(&self.grid(&built))?;
        let runs = self.run(&grid, seed, read)?;
        let mut yardsticks = named.to_vec();
        for spec in ["", THREAD_PER_BUFFER] {
            let policy = self.default_policy().with(spec)?;
            if yardsticks.iter().all(|(_, known)| known.spec() != policy.spec()) {
                yardsticks.push((if spec.is_empty() { "default" } else { spec }.to_owned(), policy));
            }
        }
        let beside = self.run(&yardsticks, seed, read)?;
        let mut assuming = Vec::new();
        for allocations in self.fewer_allocations(&built) {
            let fewer = self.clone().set(&format!("allocations={allocations}"))?;
            assuming.push(fewer.run(&grid, seed, read)?);
        }
        let found = built.profiles.iter().filter_map(|(profile, _)| {
            let best = fastest(runs.iter().chain(&beside), profile)?;
            let of = beside.iter().filter(|run| run.profile == *profile);
            let regrets = of.map(|run| Regret { run: run.clone(), regret: run.total_s / best.total_s - 1.0 }).collect();
            Some(Found {
                scenario: self.name.clone(),
                profile: profile.clone(),
                tried: grid.len(),
                best: best.clone(),
                regrets,
                assuming: assuming.iter().filter_map(|runs| fastest(runs.iter(), profile).cloned()).collect(),
            })
        });
        Ok(found.collect())
    }

    fn grid(&self, built: &Built) -> Vec<String> {
        let is_device = self.keys.memory == MemoryState::Device;
        let one_size = built.batch.buffers.iter().all(|buffer| buffer.len == built.batch.buffers[0].len);
        let rails = if is_device { &["all-rails", "rail-local"][..] } else { &["all-rails"] };
        let fan_out =
            if built.machine.rails.len() > 1 { &["rails-in-series", "rails-in-parallel"][..] } else { &["rails-in-series"] };
        let order = if one_size { &["caller-order"][..] } else { &["caller-order", "ascending", "descending"] };
        let untouched = self.keys.memory == MemoryState::Untouched;
        let preparation = if untouched { &["prefault", "no-prefault"][..] } else { &["prefault"] };
        let cores = self.keys.cores.get();
        let share = cores / self.keys.processes.map_or(1, NonZeroU32::get);
        let mut caps = vec![1, 2, 4, 8, 16, 32, 64, share.max(1), cores];
        caps.sort_unstable();
        caps.dedup();
        let limits: Vec<String> = caps.iter().map(|cap| format!("capped={cap}")).chain(["unbounded".to_owned()]).collect();
        let mut grid = Vec::new();
        for rails in rails {
            for fan_out in fan_out {
                for order in order {
                    for preparation in preparation {
                        grid.extend(limits.iter().map(|limit| [*rails, *fan_out, *order, limit, *preparation].join("+")));
                    }
                }
            }
        }
        grid
    }

    /// How few allocations are assumed, where the batch says nothing of them.
    fn fewer_allocations(&self, built: &Built) -> Vec<usize> {
        let buffers = &built.batch.buffers;
        let says = self.keys.allocations.is_some() || buffers.iter().any(|buffer| buffer.allocation.is_some());
        if says || buffers.len() < 20 { Vec::new() } else { vec![buffers.len() / 4, buffers.len() / 10] }
    }
}

fn fastest<'r>(runs: impl Iterator<Item = &'r Run>, profile: &str) -> Option<&'r Run> {
    runs.filter(|run| run.profile == *profile && run.trusted).min_by(|a, b| a.total_s.total_cmp(&b.total_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "a grid of runs takes an interpreter an hour")]
    fn the_best_is_no_slower_than_any_that_is_named() {
        let scenario = Scenario::named("host32-rails").unwrap().set("batch=1x64MiB").unwrap().set("rails=4").unwrap();
        let named = scenario.policies(&["capped=3".to_owned()]).unwrap();
        let found = scenario.search(&named, 1, &|_| Err(String::new())).unwrap();
        let [found] = found.as_slice() else { panic!("one profile") };
        let names: Vec<&str> = found.regrets.iter().map(|regret| regret.run.name.as_str()).collect();
        assert_eq!(names, ["capped=3", "default", THREAD_PER_BUFFER]);
        assert!(found.regrets.iter().all(|regret| regret.regret >= 0.0) && found.tried > 20);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a grid of runs takes an interpreter an hour")]
    fn a_profile_that_is_wrong_about_unbounded_does_not_choose_it() {
        let scenario = Scenario::named("p5-k3").unwrap().set("batch=4x1MiB").unwrap().set("cores=8").unwrap();
        for found in scenario.search(&[], 1, &|_| Err(String::new())).unwrap() {
            assert!(found.best.trusted && (found.profile != "efa-p5/joint" || !found.best.name.contains("unbounded")));
        }
    }
}

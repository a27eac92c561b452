//! `auto`: begins at cores divided by processes, and looks for better only where looking costs little.

mod cost;
#[cfg(test)]
mod curves;
mod search;

use std::num::NonZeroU32;

use pinrail_core::{Kind, Limits};

use crate::{Concurrency, Control, Controller, ControllerReport, Finished, RunShape, Tick};
use search::Search;

/// A limit for each kind of work, that follows what is seen.
///
/// An accurate prior, the cores this process may use divided by the processes that share them, is worth more than any
/// search: short runs keep it. Where much is left, half of it is tried, and then half as many again for as long as that
/// is faster. Levels are compared by the work done in a second, not by bytes: small registrations have costs of their
/// own, and come at other times than large ones. Where memory or descriptors run out, one step runs alone and the level
/// doubles again, up to what had failed.
///
/// Refused: additive increase from one (40 to 234 % over the best fixed cap on short runs), gradients of latency (up to
/// 642 %), doubling (38 % for three rounds of being wrong).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auto {
    prior: NonZeroU32,
    learned: Learned,
}

/// The levels that an earlier run ended with: a value to be saved, for the same host, provider and number of processes,
/// and not for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Learned {
    /// Of preparations.
    pub prepare: Option<NonZeroU32>,
    /// Of registrations.
    pub register: Option<NonZeroU32>,
    /// Of deregistrations.
    pub deregister: Option<NonZeroU32>,
}

/// No level is higher than so many times the prior.
const PRIORS_MAX: u32 = 4;

impl Auto {
    /// From `cores` that this process may use and the `processes` that share them.
    #[must_use]
    pub fn new(cores: NonZeroU32, processes: NonZeroU32) -> Auto {
        let prior = NonZeroU32::new(cores.get() / processes).unwrap_or(NonZeroU32::MIN);
        Auto { prior, learned: Learned::default() }
    }

    /// Begins where an earlier run ended.
    #[must_use]
    pub fn remembering(self, learned: Learned) -> Auto {
        Auto { learned, ..self }
    }

    fn search(&self, kind: Kind, steps: u64, bytes: u64) -> Search {
        let most = self.prior.saturating_mul(NonZeroU32::MIN.saturating_add(PRIORS_MAX - 1));
        let level = self.learned.of(kind).unwrap_or(self.prior).min(most);
        Search::new(level.get(), most.get(), steps, bytes)
    }
}

impl Learned {
    fn of(&self, kind: Kind) -> Option<NonZeroU32> {
        match kind {
            Kind::Prepare => self.prepare,
            Kind::Register => self.register,
            Kind::Deregister => self.deregister,
        }
    }

    /// With what a run has found since.
    #[must_use]
    pub fn after(self, report: &ControllerReport) -> Learned {
        let Some((_, limits, _)) = report.levels.last() else { return self };
        let found = |kind| Some(limits.of(kind)).filter(|&level| level != NonZeroU32::MAX).or(self.of(kind));
        Learned { prepare: found(Kind::Prepare), register: found(Kind::Register), deregister: found(Kind::Deregister) }
    }
}

impl Concurrency for Auto {
    fn begin(&self, run: &RunShape) -> Control {
        let prepares = (run.prepares > 0).then(|| self.search(Kind::Prepare, run.prepares, 0));
        let tasks = self.search(run.tasks_do, run.tasks, run.task_bytes);
        let why = if self.learned.of(run.tasks_do).is_some() { "an earlier run's" } else { "cores divided by processes" };
        let mut controller = Searching { tasks_do: run.tasks_do, prepares, tasks, levels: Vec::new() };
        controller.levels.push((Tick(0), controller.limits(), why));
        Control::Adaptive(Box::new(controller))
    }

    fn spec(&self) -> String {
        "auto".to_owned()
    }
}

/// The controller of one run.
struct Searching {
    tasks_do: Kind,
    /// While there are any.
    prepares: Option<Search>,
    tasks: Search,
    levels: Vec<(Tick, Limits, &'static str)>,
}

impl Controller for Searching {
    fn limits(&self) -> Limits {
        let tasks = self.tasks.level();
        let mut limits = Limits::total(tasks);
        match self.tasks_do {
            Kind::Deregister => limits.deregister = tasks,
            Kind::Register | Kind::Prepare => limits.register = tasks,
        }
        if let Some(prepares) = &self.prepares {
            limits.prepare = prepares.level();
            limits.total = tasks.max(limits.prepare);
        }
        limits
    }

    fn finished(&mut self, now: Tick, seen: &Finished) -> Option<Limits> {
        // Workers report in the order of the lock, which is not quite that of their clocks.
        let now = self.levels.last().map_or(now, |(last, ..)| now.max(*last));
        let why = match (seen.kind, &mut self.prepares) {
            // All bytes of the chunk are told for each of its slices, which are cut alike.
            (Kind::Prepare, Some(prepares)) => prepares.finished(now, &Finished { bytes: 0, ..*seen }, true),
            (Kind::Prepare, None) => None,
            // What runs beside preparations is no measure of what runs alone.
            (_, prepares) => self.tasks.finished(now, seen, prepares.as_ref().is_none_or(Search::is_done)),
        }?;
        let limits = self.limits();
        self.levels.push((now, limits, why));
        Some(limits)
    }

    fn report(&self) -> ControllerReport {
        ControllerReport { levels: self.levels.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_concurrency, for_all, strategies};
    use pinrail_core::{RailId, StepId};

    fn auto(cores: u32, processes: u32) -> Auto {
        Auto::new(NonZeroU32::new(cores).unwrap(), NonZeroU32::new(processes).unwrap())
    }

    fn begin(auto: Auto, run: &RunShape) -> Box<dyn Controller> {
        let Control::Adaptive(controller) = auto.begin(run) else { panic!("auto adapts") };
        controller
    }

    const RUN: RunShape =
        RunShape { tasks_do: Kind::Register, tasks: 10_000, prepares: 0, bytes: 1 << 40, task_bytes: 1 << 40, rails: 1 };

    #[test]
    fn it_keeps_what_every_limit_promises() {
        check_concurrency(&auto(16, 1));
        check_concurrency(&auto(1, 8).remembering(Learned { register: NonZeroU32::new(99), ..Learned::default() }));
    }

    /// Whatever is seen, no level is zero or more than four times the prior, and there is an end to trying.
    #[test]
    fn levels_stay_in_bounds_and_searches_end() {
        for_all(&(strategies::runs(), strategies::finishes()), |(run, steps)| {
            let mut controller = begin(auto(16, 2), run);
            for (now, finished) in steps {
                controller.finished(*now, finished);
                let limits = controller.limits();
                let bounded = |limit: NonZeroU32| limit.get() <= 32 || limit == NonZeroU32::MAX;
                if ![limits.prepare, limits.register, limits.deregister].into_iter().all(bounded) || limits.total.get() > 32 {
                    return Err(format!("{limits:?} from 16 cores and 2 processes"));
                }
            }
            // A half and its end, four steps up and their ends, and a recovery from each of few levels, twice.
            let levels = controller.report().levels.len();
            if levels <= 100 { Ok(()) } else { Err(format!("{levels} levels")) }
        });
    }

    /// A step of 1 ms that began when the last level did, at the earliest.
    fn step(now_ms: u64, exhausted: bool) -> (Tick, Finished) {
        let (step, started) = (StepId(0), Tick((now_ms - 1) * 1_000_000 + 1));
        let (kind, rail) = (Kind::Register, Some(RailId(0)));
        let ok = !exhausted;
        (Tick(now_ms * 1_000_000), Finished { step, kind, rail, bytes: 1 << 20, started, in_flight: 8, ok, exhausted })
    }

    #[test]
    fn where_something_runs_out_one_runs_alone_and_then_more_below_that() {
        let mut controller = begin(auto(8, 1), &RUN);
        let mut levels = Vec::new();
        let mut end = |controller: &mut Box<dyn Controller>, now_ms, exhausted| {
            let (now, finished) = step(now_ms, exhausted);
            if let Some(limits) = controller.finished(now, &finished) {
                levels.push(limits.register.get());
            }
        };
        end(&mut controller, 1, true);
        // Those that began before it are no news.
        end(&mut controller, 1, true);
        (2..40).for_each(|now_ms| end(&mut controller, now_ms, false));
        end(&mut controller, 40, true);
        (41..80).for_each(|now_ms| end(&mut controller, now_ms, false));
        assert_eq!(levels, [1, 2, 4, 7, 1, 2, 4, 6]);
        assert_eq!(controller.report().levels[1].2, "something ran out: one alone");
    }

    #[test]
    fn preparations_and_tasks_have_levels_of_their_own() {
        let learned = Learned { prepare: NonZeroU32::new(4), ..Learned::default() };
        let run = RunShape { prepares: 100, ..RUN };
        let limits = begin(auto(16, 1).remembering(learned), &run).limits();
        assert_eq!([limits.prepare, limits.register, limits.total].map(NonZeroU32::get), [4, 16, 16]);
        assert_eq!(limits.deregister, NonZeroU32::MAX);
        let run = RunShape { tasks_do: Kind::Deregister, ..RUN };
        let limits = begin(auto(16, 4), &run).limits();
        assert_eq!((limits.deregister.get(), limits.register, limits.prepare), (4, NonZeroU32::MAX, NonZeroU32::MAX));
    }

    #[test]
    fn what_one_kind_of_run_learned_is_kept_by_the_next() {
        let of = |kind| begin(auto(16, 2), &RunShape { tasks_do: kind, prepares: 0, ..RUN }).report();
        let learned = Learned { prepare: NonZeroU32::new(3), ..Learned::default() };
        let learned = learned.after(&of(Kind::Register)).after(&of(Kind::Deregister));
        let all = [learned.prepare, learned.register, learned.deregister].map(|level| level.map(NonZeroU32::get));
        assert_eq!(all, [Some(3), Some(8), Some(8)]);
        assert_eq!(learned.after(&ControllerReport::default()), learned);
    }
}

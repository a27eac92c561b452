use super::{Verdict, check_spec, for_all, strategies};
use crate::{Concurrency, Control, Controller, Finished, RunShape, Tick};

/// Checks that limits can be asked for any run; that fixed ones are the same each time; and that a controller's answers
/// agree with each other whatever ends when: [`Controller::limits`] is what [`Controller::finished`] answered last, and
/// the report's moments ascend.
///
/// # Panics
/// With the smallest case in which a promise is broken.
pub fn check_concurrency(concurrency: &dyn Concurrency) {
    check_spec(&concurrency.spec());
    for_all(&(strategies::runs(), strategies::finishes()), |(run, steps)| case(concurrency, run, steps));
}

fn case(concurrency: &dyn Concurrency, run: &RunShape, steps: &[(Tick, Finished)]) -> Verdict {
    let spec = concurrency.spec();
    match (concurrency.begin(run), concurrency.begin(run)) {
        (Control::Fixed(one), Control::Fixed(other)) if one == other => Ok(()),
        (Control::Adaptive(one), Control::Adaptive(other)) if one.limits() == other.limits() => follow(one, steps, &spec),
        _ => Err(format!("{spec} begins two equal runs differently")),
    }
}

fn follow(mut controller: Box<dyn Controller>, steps: &[(Tick, Finished)], spec: &str) -> Verdict {
    let mut in_force = controller.limits();
    for (now, finished) in steps {
        in_force = controller.finished(*now, finished).unwrap_or(in_force);
        if controller.limits() != in_force {
            return Err(format!("{spec} says {:?} and had set {in_force:?}", controller.limits()));
        }
    }
    let levels = controller.report().levels;
    if levels.is_sorted_by_key(|(at, ..)| *at) { Ok(()) } else { Err(format!("{spec} reports moments that go back")) }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::{AtomicU32, Ordering};

    use pinrail_core::Limits;

    use super::super::finds;
    use super::*;
    use crate::{Capped, ControllerReport, Unbounded};

    #[test]
    fn the_crates_own_limits_keep_every_promise() {
        check_concurrency(&Unbounded);
        check_concurrency(&Capped(NonZeroU32::MIN));
        check_concurrency(&Steps { lies: false, goes_back: false });
    }

    /// One more after each step that went well, one after one that did not.
    #[derive(Clone, Copy)]
    struct Steps {
        lies: bool,
        goes_back: bool,
    }

    struct Stepping {
        policy: Steps,
        now: NonZeroU32,
        levels: Vec<(Tick, Limits, &'static str)>,
    }

    impl Concurrency for Steps {
        fn begin(&self, _: &RunShape) -> Control {
            Control::Adaptive(Box::new(Stepping { policy: *self, now: NonZeroU32::MIN, levels: Vec::new() }))
        }
        fn spec(&self) -> String {
            "steps".to_owned()
        }
    }

    impl Controller for Stepping {
        fn limits(&self) -> Limits {
            Limits::total(self.now)
        }
        fn finished(&mut self, now: Tick, seen: &Finished) -> Option<Limits> {
            self.now = if seen.ok { self.now.saturating_add(1) } else { NonZeroU32::MIN };
            let limits = Limits::total(self.now);
            self.levels.push((if self.policy.goes_back { seen.started } else { now }, limits, "stepped"));
            // Whoever keeps a change to itself is asked and believed later.
            (!self.policy.lies || seen.ok).then_some(limits)
        }
        fn report(&self) -> ControllerReport {
            let mut levels = self.levels.clone();
            if self.policy.goes_back {
                levels.reverse();
            }
            ControllerReport { levels }
        }
    }

    #[test]
    fn a_change_that_is_not_told_is_found() {
        finds(|| check_concurrency(&Steps { lies: true, goes_back: false }), "and had set");
    }

    #[test]
    fn a_report_that_goes_back_is_found() {
        finds(|| check_concurrency(&Steps { lies: false, goes_back: true }), "moments that go back");
    }

    struct Moody(AtomicU32);

    impl Concurrency for Moody {
        fn begin(&self, _: &RunShape) -> Control {
            Control::Fixed(Limits::total(NonZeroU32::MIN.saturating_add(self.0.fetch_add(1, Ordering::Relaxed))))
        }
        fn spec(&self) -> String {
            "moody".to_owned()
        }
    }

    #[test]
    fn a_mood_is_found() {
        finds(AssertUnwindSafe(|| check_concurrency(&Moody(AtomicU32::new(0)))), "begins two equal runs differently");
    }

    struct Panics;

    impl Concurrency for Panics {
        fn begin(&self, run: &RunShape) -> Control {
            // A division that nobody thought about.
            let each = run.bytes / run.tasks;
            Control::Fixed(Limits::total(NonZeroU32::MIN.saturating_add(u32::try_from(each % 2).unwrap_or(0))))
        }
        fn spec(&self) -> String {
            "panics".to_owned()
        }
    }

    #[test]
    fn a_panic_is_found() {
        finds(|| check_concurrency(&Panics), "divide by zero");
    }
}

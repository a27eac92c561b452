//! Policies of somebody else's that have a bug, and what an order policy may not change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use std::num::NonZeroU32;

use pinrail_core::{BufferId, Cause, ErrorKind, Kind, Limits, RailId};
use pinrail_engine::{Options, Reason, Refusal};
use pinrail_plan::Plan;
use pinrail_policy::{Auto, Concurrency, Control, Controller, ControllerReport, Finished, Policy, RunShape, Tick};
use proptest::prelude::*;

use crate::fake::{Fake, Fault, engine, machine, plan, planted_panic, tasks};

/// Where a policy panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    Begin(Kind),
    Limits,
    Finished(u32),
    Report,
}

struct Buggy(Bug);

impl Concurrency for Buggy {
    fn begin(&self, run: &RunShape) -> Control {
        if self.0 == Bug::Begin(run.tasks_do) {
            planted_panic();
        }
        Control::Adaptive(Box::new(BuggyController { bug: self.0, steps: AtomicU32::new(0) }))
    }

    fn spec(&self) -> String {
        "buggy".into()
    }
}

struct BuggyController {
    bug: Bug,
    steps: AtomicU32,
}

impl Controller for BuggyController {
    fn limits(&self) -> Limits {
        if self.bug == Bug::Limits {
            planted_panic();
        }
        Limits::total(NonZeroU32::MIN)
    }

    fn finished(&mut self, _: Tick, _: &Finished) -> Option<Limits> {
        let nth = self.steps.fetch_add(1, Ordering::Relaxed);
        if self.bug == Bug::Finished(nth) {
            planted_panic();
        }
        Some(Limits::total(NonZeroU32::MIN.saturating_add(nth % 3)))
    }

    fn report(&self) -> ControllerReport {
        if self.bug == Bug::Report {
            planted_panic();
        }
        ControllerReport::default()
    }
}

fn by(bug: Bug, pages: &[u64]) -> Plan {
    let machine = machine(2, 2);
    let good = plan(&machine, pages, "");
    let policy = Policy { concurrency: Arc::new(Buggy(bug)), ..good.policy().clone() };
    Plan::new(good.buffers().to_vec(), &machine, &policy).unwrap()
}

#[test]
fn a_policy_that_panics_before_the_run_is_refused_and_named() {
    let fake = Fake::new(&machine(2, 2));
    for result in [
        engine(&fake).register(by(Bug::Begin(Kind::Register), &[1, 2]), &Options::default()),
        engine(&fake).start(by(Bug::Begin(Kind::Register), &[1, 2]), &Options::default()).and_then(|handle| handle.wait()),
    ] {
        let failure = result.unwrap_err();
        assert!(matches!(&failure.reason, Reason::Refused(Refusal::Policy { policy, .. }) if policy == "buggy"), "{failure}");
        assert!(failure.to_string().contains("a planted panic"), "{failure}");
        assert_eq!((failure.diagnosis().kind, failure.not_attempted, fake.calls()), (ErrorKind::Policy, 4, 0));
    }
}

#[test]
fn a_policy_that_panics_later_loses_no_mr_and_no_step() {
    let late = [Bug::Begin(Kind::Deregister), Bug::Limits, Bug::Report].into_iter();
    for bug in late.chain((0..8).map(Bug::Finished)) {
        let fake = Fake::new(&machine(2, 2));
        let registration = engine(&fake).register(by(bug, &[1, 2, 1]), &Options::default()).unwrap();
        assert_eq!((registration.live(), registration.report().record.len()), (6, 9), "{bug:?}");
        let report = registration.deregister().unwrap();
        assert_eq!((report.record.len(), fake.live()), (6, 0), "{bug:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn results_are_in_the_callers_order_whatever_the_policys(
        pages in prop::collection::vec(1u64..20, 1..8),
        order in prop_oneof![Just("caller-order"), Just("ascending"), Just("descending")],
        limit in prop_oneof![Just("capped=1"), Just("unbounded")],
        cut in prop::option::of(1u64..6),
    ) {
        let mut machine = machine(2, 2);
        machine.rails.iter_mut().for_each(|rail| rail.limits.max_mr_size = cut.map(|pages| pages * crate::fake::PAGE));
        let fake = Fake::new(&machine);
        let plan = plan(&machine, &pages, &format!("{order}+{limit}"));
        let wanted = tasks(&plan);
        let registration = engine(&fake).register(plan, &Options::default()).unwrap();
        let seen: Vec<_> = registration.mrs().map(|(_, mr)| (mr.rail().0, mr.extent().start())).collect();
        prop_assert_eq!(seen, wanted);
        for (at, buffer) in (0..).map(BufferId).zip(registration.plan().buffers()) {
            for rail in [RailId(0), RailId(1)] {
                let mut next = buffer.extent().start();
                for piece in registration.buffer(at, rail).unwrap() {
                    prop_assert_eq!((piece.extent.start(), piece.mr.rail(), piece.mr.extent().start() + piece.at), (next, rail, next));
                    next = piece.extent.end();
                }
                prop_assert_eq!(next, buffer.extent().end());
            }
        }
        registration.deregister().unwrap();
    }
}

#[test]
fn a_controller_is_told_what_ran_out_and_what_failed_otherwise() {
    let machine = machine(1, 4);
    let ran_out = Cause::Exhausted { what: "planted".into() };
    let other = Cause::Other { what: "planted".into() };
    for (cause, is_told) in [(ran_out, true), (other, false)] {
        let four = NonZeroU32::new(4).unwrap();
        let policy = Policy { concurrency: Arc::new(Auto::new(four, NonZeroU32::MIN)), ..Policy::new(four) };
        let buffers = plan(&machine, &[1; 8], "").buffers().to_vec();
        let plan = Plan::new(buffers, &machine, &policy).unwrap();
        let fake = Fake::new(&machine);
        fake.fail_register(tasks(&plan)[0], Fault::Fails(cause, u32::MAX));
        let failure = engine(&fake).register(plan, &Options::default()).unwrap_err();
        let levels = failure.report.as_ref().unwrap().controller.as_ref().unwrap().levels.clone();
        assert_eq!(levels[0].1.register, four);
        let one_alone = |(_, limits, why): &(Tick, Limits, &'static str)| limits.register.get() == 1 && why.contains("ran out");
        assert_eq!(levels.iter().any(one_alone), is_told, "{levels:?}");
        assert_eq!(fake.live(), 0);
    }
}

//! How many threads work.

use std::num::NonZeroU32;
use std::sync::Arc;

use pinrail_core::Limits;
use pinrail_engine::Options;
use pinrail_plan::Plan;
use pinrail_policy::{Concurrency, Control, Controller, ControllerReport, Finished, Policy, RunShape, Tick};

use crate::fake::{Fake, engine, machine, plan};

/// One step at a time, until one has ended; then this many.
struct Rising(u32);

impl Concurrency for Rising {
    fn begin(&self, _: &RunShape) -> Control {
        Control::Adaptive(Box::new(Rising(self.0)))
    }
    fn spec(&self) -> String {
        "rising".to_owned()
    }
}

impl Controller for Rising {
    fn limits(&self) -> Limits {
        Limits::total(NonZeroU32::MIN)
    }
    fn finished(&mut self, _: Tick, _: &Finished) -> Option<Limits> {
        NonZeroU32::new(self.0).map(Limits::total)
    }
    fn report(&self) -> ControllerReport {
        ControllerReport::default()
    }
}

#[test]
fn a_limit_that_rises_brings_more_threads_and_no_more_than_it_lets_work() {
    let machine = machine(1, 8);
    let fake = Fake::new(&machine);
    let on_paper = plan(&machine, &[1; 8], "prefault+no-coalesce");
    let policy = Policy { concurrency: Arc::new(Rising(4)), ..on_paper.policy().clone() };
    let plan = Plan::new(on_paper.buffers().to_vec(), &machine, &policy).unwrap();
    // The run begins with a slice and one thread; registrations return only once four of them are in flight.
    fake.meet(4);
    let registration = engine(&fake).register(plan, &Options::default()).unwrap();
    assert_eq!((registration.report().threads, registration.report().peak_in_flight), (4, 4));
    registration.deregister().unwrap();
}

use std::time::Duration;

use pinrail_core::{Kind, StepId, StepWhat, Steps, WorkerId};
use pinrail_policy::{ControllerReport, Tick};

/// One step as it was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handout {
    /// Its place in the order of hand-outs.
    pub seq: u64,
    /// The step.
    pub step: StepId,
    /// Who did it.
    pub worker: WorkerId,
    /// When its call began.
    pub start: Tick,
    /// When its call returned.
    pub end: Tick,
    /// False when it failed.
    pub ok: bool,
}

/// What a run did and where its time went.
#[derive(Clone, Debug)]
pub struct Report {
    /// The steps of the run; [`Handout::step`] is one of them.
    pub steps: Steps,
    /// Every hand-out, in order.
    pub record: Vec<Handout>,
    /// From the first call of a preparation to the last return; zero without one.
    pub prepare: Duration,
    /// From the first call of a task to the last return; may overlap with preparation.
    pub tasks: Duration,
    /// From the start of the run to its end: every key usable, or everything deregistered.
    pub total: Duration,
    /// Threads that worked, the caller's among them.
    pub threads: u32,
    /// The most steps in flight at once.
    pub peak_in_flight: u32,
    /// What an adaptive limit did; `None` where limits were fixed.
    pub controller: Option<ControllerReport>,
}

impl Report {
    pub(crate) fn new(
        steps: &Steps,
        record: Vec<Handout>,
        threads: u32,
        peak_in_flight: u32,
        controller: Option<ControllerReport>,
        total: Tick,
    ) -> Report {
        let span = |is_task: bool| {
            let of = || record.iter().filter(move |h| matches!(steps.what(h.step), StepWhat::Task { .. }) == is_task);
            let first = of().map(|handout| handout.start.0).min().unwrap_or(0);
            let last = of().map(|handout| handout.end.0).max().unwrap_or(0);
            Duration::from_nanos(last - first)
        };
        let (prepare, tasks, total) = (span(false), span(true), Duration::from_nanos(total.0));
        Report { steps: steps.clone(), prepare, tasks, total, threads, peak_in_flight, controller, record }
    }

    /// The kind of a step of this run.
    #[must_use]
    pub fn kind(&self, step: StepId) -> Kind {
        match self.steps.what(step) {
            StepWhat::Prepare { .. } => Kind::Prepare,
            StepWhat::Task { .. } => self.steps.tasks(),
        }
    }
}

//! A policy, run as the product runs it.

use std::sync::Arc;

use pinrail_core::{Kind, Mr, PrepareStep, StepWhat};
use pinrail_engine::{Engine, Options, Registration, Report};
use pinrail_plan::Plan;
use pinrail_policy::Policy;

use crate::contestant::{Contestant, Dispatched, Handout, Live, Ran, Ready, Setting, Undone};
use crate::error::BenchError;

/// A policy through plan, dispatch and engine.
#[derive(Clone, Debug)]
pub(crate) struct ThroughEngine(pub(crate) Policy);

struct Planned {
    plan: Plan,
    engine: Engine,
}

struct Registered(Registration);

impl Contestant for ThroughEngine {
    fn ready(&self, Setting { batch, machine, registrar, prepare }: Setting) -> Result<Box<dyn Ready>, BenchError> {
        let plan = Plan::new(batch, &machine, &self.0)?;
        Ok(Box::new(Planned { plan, engine: Engine::new(registrar, prepare) }))
    }
}

impl Ready for Planned {
    fn register(self: Box<Self>) -> Result<Box<dyn Live>, BenchError> {
        let registration = self.engine.register(self.plan, &Options::default()).map_err(BenchError::Register)?;
        Ok(Box::new(Registered(registration)))
    }
}

impl Live for Registered {
    fn ran(&self) -> Ran {
        let report = self.0.report();
        Ran {
            threads: report.threads,
            peak_in_flight: Some(report.peak_in_flight),
            dispatched: vec![dispatched(self.0.plan(), report)],
        }
    }

    fn mrs(&mut self) -> Vec<&Mr> {
        self.0.mrs().map(|(_, mr)| mr).collect()
    }

    fn deregister(self: Box<Self>) -> Result<Undone, BenchError> {
        let report = self.0.deregister().map_err(BenchError::Deregister)?;
        Ok(Undone { threads: report.threads })
    }
}

/// The engine's record, in terms of buffers: what a [`Contestant`] that calls the engine tells in [`Ran::dispatched`].
#[must_use]
pub fn dispatched(plan: &Plan, report: &Report) -> Dispatched {
    let handout = |handout: &pinrail_engine::Handout| {
        let (chunk, rail, slice) = match report.steps.what(handout.step) {
            StepWhat::Prepare { chunk, slice } => (chunk, None, Some(slice)),
            StepWhat::Task { chunk, rail, .. } => (chunk, Some(rail.0), None),
        };
        let range = match slice.map(|slice| plan.prepare_step(chunk, slice)) {
            Some(PrepareStep::Populate { range, .. } | PrepareStep::Export { range, .. }) => range,
            _ => plan.chunks()[chunk.index()].range.clone(),
        };
        Handout {
            kind: if rail.is_some() { Kind::Register } else { Kind::Prepare },
            chunk: chunk.0,
            start: plan.memory(chunk).extent().start() + range.start,
            len: range.end - range.start,
            rail,
            worker: handout.worker,
            start_ns: handout.start.0,
            end_ns: handout.end.0,
        }
    };
    Dispatched {
        buffers: plan.buffers().iter().map(|buffer| Arc::clone(&buffer.name)).collect(),
        handouts: report.record.iter().map(handout).collect(),
        levels: report.controller.iter().flat_map(|of| &of.levels).map(|(at, limits, _)| (at.0, limits.total.get())).collect(),
    }
}

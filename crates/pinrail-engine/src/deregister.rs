//! Deregisters what is live: everything is tried, whatever fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use pinrail_core::{ChunkId, Group, Kind, Limits, Mr, RailId, Registrar, StepWhat, Steps, StepsError};
use pinrail_dispatch::{Dispatch, Outcome};
use pinrail_plan::Plan;
use pinrail_policy::Control as Limiting;

use crate::calls;
use crate::failure::{StepError, StepFailure, Stuck};
use crate::quarantine::Quarantine;
use crate::register;
use crate::registration::Registration;
use crate::report::Report;
use crate::run::{self, Control, Patience, Then, Work};
use crate::sync::{Mutex, lock};
use crate::table::{Mrs, SharedMrs};

struct Deregistering {
    plan: Arc<Plan>,
    registrar: Arc<dyn Registrar>,
    mrs: SharedMrs,
    failed: Mutex<Vec<StepFailure>>,
}

impl Work for Deregistering {
    type Call = (ChunkId, RailId, Mr);
    type Got = ();

    fn begin(&self, what: StepWhat) -> Option<Self::Call> {
        let StepWhat::Task { chunk, rail, .. } = what else { return None };
        Some((chunk, rail, self.mrs.take(&self.plan, chunk, rail)?))
    }

    fn call(&self, (_, _, mr): &mut Self::Call) -> Result<(), StepError> {
        Ok(calls::deregister(self.registrar.as_ref(), mr)?)
    }

    fn returned(
        &self,
        _: StepWhat,
        seq: u64,
        (chunk, rail, mr): Self::Call,
        answer: Result<(), StepError>,
        _: &Control,
    ) -> Then<Self::Call> {
        let Err(error) = answer else { return Then::End(Outcome::Done) };
        // Where nobody waited for this call, the MR is leaked with its memory.
        drop(self.mrs.put(&self.plan, chunk, rail, mr));
        let buffer = self.plan.buffer_of(chunk).name.to_string();
        let rail = Some((rail, self.plan.rails()[rail.index()].name.clone()));
        lock(&self.failed).push(StepFailure { seq, chunk, buffer, rail, error });
        Then::End(Outcome::Failed)
    }
}

/// In which order MRs are deregistered.
pub(crate) trait DeregisterOrder {
    fn steps(&self, plan: &Plan, mrs: &Mrs) -> Result<Steps, StepsError>;
}

/// In the caller's order, a chunk's rails as the plan's fan-out says.
pub(crate) struct InCallersOrder;

impl DeregisterOrder for InCallersOrder {
    fn steps(&self, plan: &Plan, mrs: &Mrs) -> Result<Steps, StepsError> {
        let live = mrs.live(plan);
        if live.len() as u64 == plan.tasks() { plan.steps(Kind::Deregister) } else { one_by_one(plan, live.into_iter()) }
    }
}

/// In the reverse order of a run's hand-outs.
pub(crate) struct InReverse<'r>(pub(crate) &'r Report);

impl DeregisterOrder for InReverse<'_> {
    fn steps(&self, plan: &Plan, mrs: &Mrs) -> Result<Steps, StepsError> {
        let mut handed_out: BTreeMap<(ChunkId, RailId), u64> = BTreeMap::new();
        for handout in &self.0.record {
            if let StepWhat::Task { chunk, rail, .. } = self.0.steps.what(handout.step) {
                handed_out.insert((chunk, rail), handout.seq);
            }
        }
        let mut live = mrs.live(plan);
        live.sort_by_key(|task| std::cmp::Reverse(handed_out.get(task).copied()));
        if planted!(RollbackSkipped) {
            live.pop();
        }
        one_by_one(plan, live.into_iter())
    }
}

/// Steps for single tasks, in the order given.
fn one_by_one(plan: &Plan, tasks: impl Iterator<Item = (ChunkId, RailId)>) -> Result<Steps, StepsError> {
    let each_rail: Vec<Box<[RailId]>> = plan.machine().ids().map(|rail| Box::from([rail])).collect();
    let mut steps = Steps::new(Kind::Deregister, false, plan.lanes(), each_rail.into())?;
    for (chunk, rail) in tasks {
        let bytes = plan.chunks()[chunk.index()].len();
        steps.push(Group { chunk, set: rail.0.into(), prepares: 0, bytes })?;
    }
    Ok(steps)
}

/// Some MRs could not be deregistered. They are live, with their memory; a retry touches only them.
#[derive(Debug)]
pub struct StillRegistered {
    /// What is left.
    pub left: Quarantine,
    /// Why, in dispatch order.
    pub failed: Vec<StepFailure>,
    /// Calls that were not waited for; their MRs and memory are with them.
    pub stuck: Vec<Stuck>,
    /// Where the time went.
    pub report: Report,
}

impl std::fmt::Display for StillRegistered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} registrations could not be undone and stay pinned with their memory", self.left.live())?;
        self.failed.first().map_or(Ok(()), |first| write!(f, "; first: {first}"))
    }
}

impl std::error::Error for StillRegistered {}

/// Tries everything, under the policy's limits.
pub(crate) fn run(
    registration: Registration,
    order: impl DeregisterOrder,
    patience: Option<&Arc<Patience>>,
) -> Result<Report, Box<StillRegistered>> {
    let (plan, registrar, mrs, crew, registered) = registration.into_parts();
    let steps = order.steps(&plan, &mrs).unwrap_or_else(|_| unreachable!("no more steps than the plan has counted"));
    // A policy that panics now must not keep anything registered: what the rails and the ceiling allow is limit enough.
    let limits = calls::begin(&plan, Kind::Deregister).unwrap_or(Limiting::Fixed(Limits::NONE));
    let control = Arc::new(Control::new(Dispatch::new(steps, plan.policy().ceiling(), limits), crew.clone(), None));
    let work =
        Deregistering { plan: Arc::clone(&plan), registrar: Arc::clone(&registrar), mrs: mrs.shared(), failed: Mutex::default() };
    let work = Arc::new(work);
    let ended = run::run(&control, &work, patience);
    let (dispatch, counts) = (&control.dispatch, control.dispatch.counts());
    let report =
        Report::new(dispatch.steps(), ended.record, ended.threads, counts.peak_running, dispatch.report(), control.tick());
    let mut failed = std::mem::take(&mut *lock(&work.failed));
    let mrs = work.mrs.close();
    // Who does not wait any more leaves steps behind that nobody has begun, too.
    let is_left_behind = patience.is_some_and(|patience| patience.is_over()) && !mrs.live(&plan).is_empty();
    if failed.is_empty() && ended.stuck.is_empty() && !is_left_behind {
        return Ok(report);
    }
    failed.sort_by_key(|failure| failure.seq);
    let registration = Registration::new(plan, registrar, mrs, crew, registered);
    let stuck = register::stuck(&registration, &ended.stuck);
    Err(Box::new(StillRegistered { left: Quarantine(registration), failed, stuck, report }))
}

//! Registers the tasks of a plan, and undoes them when that is asked for.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pinrail_core::{BufferId, ChunkId, Kind, Prepare, Prepared, RailId, Registrar, Source, StepWhat, Steps};
use pinrail_dispatch::{Dispatch, Outcome, Stop};
use pinrail_plan::Plan;

use crate::clock::Clock;
use crate::deregister::{self, InReverse};
use crate::failure::{Failure, Reason, Refusal, StepError, StepFailure, Stuck};
use crate::registration::Registration;
use crate::report::Report;
use crate::run::{self, Control, InFlight, Patience, Work};
use crate::sync::{Mutex, lock};
use crate::table::{Mrs, SharedMrs};
use crate::{Attempts, OnFailure, Options, calls};

struct Registering {
    plan: Arc<Plan>,
    registrar: Arc<dyn Registrar>,
    prepare: Arc<dyn Prepare>,
    attempts: Attempts,
    /// By chunk: what its rails register, where a preparation exported something.
    sources: Box<[OnceLock<Source>]>,
    mrs: SharedMrs,
    failed: Mutex<Vec<StepFailure>>,
}

impl Work for Registering {
    fn step(&self, what: StepWhat, seq: u64, control: &Control) -> Outcome {
        let (chunk, rail, result) = match what {
            StepWhat::Prepare { chunk, slice } => (chunk, None, self.prepare(chunk, slice)),
            StepWhat::Task { chunk, rail, .. } => (chunk, Some(rail), self.register(chunk, rail, control)),
        };
        let Err(error) = result else { return Outcome::Done };
        lock(&self.failed).push(self.failure(seq, chunk, rail, error));
        if self.attempts == Attempts::StopEarly {
            control.stop(Stop::Failure);
        }
        if rail.is_none() { Outcome::Skip } else { Outcome::Failed }
    }
}

impl Registering {
    fn prepare(&self, chunk: ChunkId, slice: u32) -> Result<(), StepError> {
        if let Prepared::Exported(source) = calls::prepare(self.prepare.as_ref(), &self.plan.prepare_step(chunk, slice))? {
            // A chunk has one export; a second one would be closed here and not used.
            drop(self.sources[chunk.index()].set(source));
        }
        Ok(())
    }

    fn register(&self, chunk: ChunkId, rail: RailId, control: &Control) -> Result<(), StepError> {
        let source = self.sources[chunk.index()].get().unwrap_or(&Source::Address);
        let mr = calls::register(self.registrar.as_ref(), rail, &self.plan.chunk(chunk, source), control)?;
        if let Err(mut late) = self.mrs.put(&self.plan, chunk, rail, mr) {
            // Nobody waited for this call. What cannot be undone either is leaked with its memory.
            calls::deregister(self.registrar.as_ref(), &mut late, control)?;
        }
        Ok(())
    }

    fn failure(&self, seq: u64, chunk: ChunkId, rail: Option<RailId>, error: StepError) -> StepFailure {
        let buffer = self.plan.buffer_of(chunk).name.to_string();
        let rail = rail.map(|rail| (rail, self.plan.rails()[rail.index()].name.clone()));
        StepFailure { seq, chunk, buffer, rail, error }
    }
}

/// The control of a registration's run: made before it starts, so that others can stop it.
pub(crate) fn control(plan: &Plan, deadline: Option<Instant>) -> Result<Control, Refusal> {
    let steps = plan.steps(Kind::Register)?;
    let limits = calls::begin(plan, Kind::Register)
        .map_err(|cause| Refusal::Policy { policy: plan.policy().concurrency.spec(), what: cause.to_string() })?;
    Ok(Control::new(Dispatch::new(steps, plan.policy().ceiling(), limits), deadline))
}

/// Registers everything, or undoes what was done: on the caller's thread and as many others as are useful.
pub(crate) fn register(
    plan: Arc<Plan>,
    registrar: Arc<dyn Registrar>,
    prepare: Arc<dyn Prepare>,
    control: Arc<Control>,
    options: &Options,
    patience: Option<&Arc<Patience>>,
) -> Result<Registration, Box<Failure>> {
    let clock = Clock::start();
    let work = Arc::new(Registering {
        sources: plan.chunk_ids().map(|_| OnceLock::new()).collect(),
        mrs: Mrs::empty(&plan).shared(),
        plan: Arc::clone(&plan),
        registrar: Arc::clone(&registrar),
        prepare,
        attempts: options.attempts,
        failed: Mutex::default(),
    });
    let ended = run::run(&control, &work, clock, options.threads_max, patience);
    let (dispatch, counts) = (&control.dispatch, control.dispatch.counts());
    let total = clock.tick();
    let report = Report::new(dispatch.steps(), ended.record, ended.threads, counts.peak_running, dispatch.report(), total);
    let registration = Registration::new(plan, registrar, work.mrs.close(), options.threads_max, report);
    let stuck = stuck(&registration, &ended.stuck);
    let mut failed = std::mem::take(&mut *lock(&work.failed));
    failed.sort_by_key(|failure| failure.seq);
    if patience.is_some_and(|patience| patience.is_over()) {
        let is_whole = failed.is_empty() && registration.live() == registration.plan().tasks();
        return if is_whole { Ok(registration) } else { Err(left_behind(registration, failed, stuck)) };
    }
    let reason = match dispatch.stopped() {
        Some(Stop::Cancelled) => Reason::Cancelled,
        Some(Stop::Deadline) => Reason::Deadline,
        Some(Stop::Failure) | None => match failed.first() {
            None => return Ok(registration),
            Some(first) => Reason::Step(first.clone()),
        },
    };
    // A stop that came when everything was already registered undoes it all the same: the caller was told so.
    Err(undo(registration, reason, failed, options.on_failure, patience))
}

/// Deregisters in reverse dispatch order what the caller does not keep.
fn undo(
    registration: Registration,
    reason: Reason,
    failed: Vec<StepFailure>,
    on_failure: OnFailure,
    patience: Option<&Arc<Patience>>,
) -> Box<Failure> {
    let report = registration.report().clone();
    let kept_buffers: BTreeSet<BufferId> = match (on_failure, &reason) {
        (OnFailure::KeepComplete, Reason::Step(_)) => registration.complete_buffers().collect(),
        _ => BTreeSet::new(),
    };
    let attempted = attempted(&report.record, &report.steps);
    let not_attempted = registration.plan().tasks() - attempted;
    let plan = registration.plan_arc();
    let (kept, rest) = registration.split(|chunk| plan.buffers_of(chunk).iter().any(|buffer| kept_buffers.contains(buffer)));
    let before = rest.live();
    let (left, stuck) = match deregister::run(rest, InReverse(&report), patience) {
        Ok(_) => (None, Vec::new()),
        Err(still) => (Some(still.registration).filter(|left| left.live() > 0), still.stuck),
    };
    let rolled_back = before - left.as_ref().map_or(0, |left| left.live()) - stuck.len() as u64;
    let kept = (kept.live() > 0).then_some(kept);
    Box::new(Failure { reason, failed, not_attempted, rolled_back, quarantine: left, kept, stuck, report: Some(report) })
}

/// Somebody did not wait for the calls in flight: what is registered is his, and nothing is undone.
fn left_behind(registration: Registration, failed: Vec<StepFailure>, stuck: Vec<Stuck>) -> Box<Failure> {
    let report = registration.report().clone();
    let in_flight = stuck.iter().filter(|stuck| stuck.rail.is_some()).fold(0, |tasks, _| tasks + 1);
    let not_attempted = registration.plan().tasks() - attempted(&report.record, &report.steps) - in_flight;
    let kept = (registration.live() > 0).then_some(registration);
    let (quarantine, report) = (None, Some(report));
    Box::new(Failure { reason: Reason::Detached, failed, not_attempted, rolled_back: 0, quarantine, kept, stuck, report })
}

/// The steps that were not waited for, by their names; not those whose MR came back just in time.
pub(crate) fn stuck(rest: &Registration, in_flight: &[InFlight]) -> Vec<Stuck> {
    let plan = rest.plan();
    let stuck = |step: &InFlight| {
        let (chunk, rail) = match step.what {
            StepWhat::Prepare { chunk, .. } => (chunk, None),
            StepWhat::Task { chunk, rail, .. } => (chunk, Some((rail, plan.rails()[rail.index()].name.clone()))),
        };
        let buffer = plan.buffer_of(chunk).name.to_string();
        let is_back = rail.as_ref().is_some_and(|&(rail, _)| rest.mr(chunk, rail).is_some());
        let since = Duration::from_nanos(step.since.0);
        (!is_back).then_some(Stuck { seq: step.seq, chunk, buffer, rail, since })
    };
    in_flight.iter().filter_map(stuck).collect()
}

fn attempted(record: &[crate::Handout], steps: &Steps) -> u64 {
    record.iter().filter(|handout| matches!(steps.what(handout.step), StepWhat::Task { .. })).fold(0, |tasks, _| tasks + 1)
}

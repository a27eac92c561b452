//! Registers the tasks of a plan, and undoes them when that is asked for.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pinrail_core::{BufferId, ChunkId, Kind, Mr, Prepare, Prepared, RailId, Registrar, Source, StepWhat, Steps};
use pinrail_dispatch::{Dispatch, Outcome, Stop};
use pinrail_plan::Plan;

use crate::crew::Crew;
use crate::deregister::{self, InCallersOrder, InReverse};
use crate::failure::{Failure, Reason, Refusal, StepError, StepFailure, Stuck};
use crate::registration::Registration;
use crate::report::Report;
use crate::run::{self, Control, InFlight, Patience, Then, Work};
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
    type Call = Call;
    type Got = Got;

    fn begin(&self, what: StepWhat) -> Option<Call> {
        Some(match what {
            StepWhat::Prepare { chunk, slice } => Call::Prepare(chunk, slice),
            StepWhat::Task { chunk, rail, .. } => Call::Register(chunk, rail),
        })
    }

    fn call(&self, call: &mut Call) -> Result<Got, StepError> {
        match *call {
            Call::Prepare(chunk, slice) => {
                Ok(Got::Prepared(calls::prepare(self.prepare.as_ref(), &self.plan.prepare_step(chunk, slice))?))
            }
            Call::Register(chunk, rail) => {
                let rail = if planted!(WrongRail) { RailId(0) } else { rail };
                let source = self.sources[chunk.index()].get().unwrap_or(&Source::Address);
                Ok(Got::Registered(calls::register(self.registrar.as_ref(), rail, &self.plan.chunk(chunk, source))?))
            }
            Call::Deregister(ref mut mr) => {
                calls::deregister(self.registrar.as_ref(), mr)?;
                Ok(Got::Deregistered)
            }
        }
    }

    fn returned(&self, what: StepWhat, seq: u64, _: Call, answer: Result<Got, StepError>, control: &Control) -> Then<Call> {
        match (what, answer) {
            (StepWhat::Prepare { chunk, .. }, Ok(Got::Prepared(Prepared::Exported(source)))) => {
                // A chunk has one export; a second one would be closed here and not used.
                drop(self.sources[chunk.index()].set(source));
            }
            (StepWhat::Task { chunk, rail, .. }, Ok(Got::Registered(mr))) => {
                if let Err(late) = self.mrs.put(&self.plan, chunk, rail, mr) {
                    // Nobody waited for this call. What cannot be undone either is leaked with its memory.
                    return Then::Call(Call::Deregister(late));
                }
            }
            (_, Ok(_)) => {}
            (what, Err(error)) => return Then::End(self.failed(what, seq, error, control)),
        }
        Then::End(Outcome::Done)
    }
}

enum Call {
    Prepare(ChunkId, u32),
    Register(ChunkId, RailId),
    /// What nobody waited for.
    Deregister(Mr),
}

enum Got {
    Prepared(Prepared),
    Registered(Mr),
    Deregistered,
}

impl Registering {
    fn failed(&self, what: StepWhat, seq: u64, error: StepError, control: &Control) -> Outcome {
        let (chunk, rail, outcome) = match what {
            StepWhat::Prepare { chunk, .. } => (chunk, None, Outcome::Skip),
            StepWhat::Task { chunk, rail, .. } if error.ran_out() => (chunk, Some(rail), Outcome::Exhausted),
            StepWhat::Task { chunk, rail, .. } => (chunk, Some(rail), Outcome::Failed),
        };
        let buffer = self.plan.buffer_of(chunk).name.to_string();
        let rail = rail.map(|rail| (rail, self.plan.rails()[rail.index()].name.clone()));
        lock(&self.failed).push(StepFailure { seq, chunk, buffer, rail, error });
        if self.attempts == Attempts::StopEarly {
            control.stop(Stop::Failure);
        }
        outcome
    }
}

/// The control of a registration's run: made before it starts, so that others can stop it.
pub(crate) fn control(plan: &Plan, crew: Crew, deadline: Option<Instant>) -> Result<Control, Refusal> {
    let steps = plan.steps(Kind::Register)?;
    let limits = calls::begin(plan, Kind::Register)
        .map_err(|cause| Refusal::Policy { policy: plan.policy().concurrency.spec(), what: cause.to_string() })?;
    Ok(Control::new(Dispatch::new(steps, plan.policy().ceiling(), limits), crew, deadline))
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
    let work = Arc::new(Registering {
        sources: plan.chunk_ids().map(|_| OnceLock::new()).collect(),
        mrs: Mrs::empty(&plan).shared(),
        plan: Arc::clone(&plan),
        registrar: Arc::clone(&registrar),
        prepare,
        attempts: options.attempts,
        failed: Mutex::default(),
    });
    let ended = run::run(&control, &work, patience);
    let (dispatch, counts) = (&control.dispatch, control.dispatch.counts());
    let total = control.tick();
    let report = Report::new(dispatch.steps(), ended.record, ended.threads, counts.peak_running, dispatch.report(), total);
    let registration = Registration::new(plan, registrar, work.mrs.close(), control.crew.clone(), report);
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
        Err(still) => (Some(still.left).filter(|left| left.live() > 0), still.stuck),
    };
    let rolled_back = before - left.as_ref().map_or(0, |left| left.live()) - stuck.len() as u64;
    let kept = (kept.live() > 0).then_some(kept);
    Box::new(Failure { reason, failed, not_attempted, rolled_back, quarantine: left, kept, stuck, report: Some(report) })
}

/// Deregisters what was kept after all; false where some of it cannot be, which is quarantined then.
pub(crate) fn undo_kept(failure: &mut Failure, patience: Option<&Arc<Patience>>) -> bool {
    let Some(kept) = failure.kept.take() else { return true };
    let before = kept.live();
    let Err(still) = deregister::run(kept, InCallersOrder, patience) else { return true };
    failure.rolled_back += before - still.left.live() - still.stuck.len() as u64;
    failure.stuck.extend(still.stuck);
    failure.quarantine = Some(still.left).filter(|left| left.live() > 0);
    false
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

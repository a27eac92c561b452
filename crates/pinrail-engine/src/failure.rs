use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::time::Duration;

use pinrail_core::{
    BufferId, Cause, ChunkId, DeregisterError, Diagnosis, ErrorKind, PrepareError, RailId, RegisterError, StepsError,
};

use pinrail_plan::Plan;

use crate::{Quarantine, Registration, Report};

/// A batch that was not registered as asked. Nothing of it is live but what [`Failure::kept`] and
/// [`Failure::quarantine`] hold.
#[derive(Debug)]
pub struct Failure {
    /// Why, in one sentence's worth: the first error in dispatch order, or what stopped the run.
    pub reason: Reason,
    /// Every step that failed, in dispatch order.
    pub failed: Vec<StepFailure>,
    /// Tasks that were not attempted.
    pub not_attempted: u64,
    /// MRs that were registered and deregistered again.
    pub rolled_back: u64,
    /// MRs that could not be deregistered.
    pub quarantine: Option<Quarantine>,
    /// With [`OnFailure::KeepComplete`](crate::OnFailure::KeepComplete): the buffers that are wholly registered. After
    /// [`Handle::detach`](crate::Handle::detach): all that is registered.
    pub kept: Option<Registration>,
    /// Calls that had not returned when the handle was detached, in dispatch order. Their memory is kept; what they still
    /// register is deregistered at once.
    pub stuck: Vec<Stuck>,
    /// Where the time went; `None` when nothing was begun.
    pub report: Option<Report>,
}

/// Why a batch was not registered.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// Refused before any call.
    Refused(Refusal),
    /// A step failed.
    Step(StepFailure),
    /// The caller cancelled.
    Cancelled,
    /// The deadline passed.
    Deadline,
    /// The caller did not wait for calls that were stuck.
    Detached,
}

/// Why a plan was not begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The pages certainly cannot be pinned.
    #[error("the batch does not fit: {0}")]
    Memlock(Cause),
    /// The plan was made for other rails than the registrar has.
    #[error("the plan's rails are {plan} and the registrar's are {registrar}: make the plan from the registrar's rails")]
    OtherRails {
        /// Names in the plan.
        plan: String,
        /// Names of the registrar.
        registrar: String,
    },
    /// The policy has a bug.
    #[error("policy {policy:?} cannot say its limits: {what}")]
    Policy {
        /// The policy's term.
        policy: String,
        /// Its panic.
        what: String,
    },
    /// The host's own facts could not be read.
    #[error("reading this process's limits failed: {0}")]
    Host(#[from] io::Error),
    /// Not even one thread could be had.
    #[error("no thread could be started: {0}")]
    NoThread(io::Error),
    /// More steps than can be counted.
    #[error(transparent)]
    Steps(#[from] StepsError),
}

/// A step whose call had not returned when nobody waited for it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The place of the step in the order of hand-outs.
    pub seq: u64,
    /// The chunk.
    pub chunk: ChunkId,
    /// The buffer's name.
    pub buffer: String,
    /// The rail and its name; `None` for a preparation.
    pub rail: Option<(RailId, String)>,
    /// When the call began, from the start of its run.
    pub since: Duration,
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    /// The place of the step in the order of hand-outs.
    pub seq: u64,
    /// The chunk.
    pub chunk: ChunkId,
    /// The buffer's name.
    pub buffer: String,
    /// The rail and its name; `None` for a preparation.
    pub rail: Option<(RailId, String)>,
    /// What the call reported.
    pub error: StepError,
}

/// What a failed call reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A preparation.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A registration.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A deregistration.
    #[error(transparent)]
    Deregister(#[from] DeregisterError),
}

impl StepError {
    /// True when trying again may help.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            StepError::Prepare(_) => false,
            StepError::Register(error) => error.may_pass(),
            StepError::Deregister(error) => error.may_pass(),
        }
    }

    /// True if fewer registrations at once might have let it through.
    pub(crate) fn ran_out(&self) -> bool {
        let StepError::Register(error) = self else { return false };
        error.may_pass() || error.diagnosis().kind == ErrorKind::Exhausted
    }

    /// The failure as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        match self {
            StepError::Prepare(error) => error.diagnosis(),
            StepError::Register(error) => error.diagnosis(),
            StepError::Deregister(error) => error.diagnosis(),
        }
    }
}

impl StepFailure {
    /// The failure as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let diagnosis = self.error.diagnosis().buffer(&self.buffer);
        let diagnosis = Diagnosis { message: self.to_string(), ..diagnosis };
        match &self.rail {
            Some((_, rail)) => diagnosis.rail(rail),
            None => diagnosis,
        }
    }
}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buffer {:?}, {}", self.buffer, self.chunk)?;
        if let Some((_, rail)) = &self.rail {
            write!(f, " on rail {rail:?}")?;
        }
        write!(f, ": {}", self.error)
    }
}

impl Refusal {
    fn diagnosis(&self) -> Diagnosis {
        let message = self.to_string();
        match self {
            Refusal::Memlock(cause) => {
                let (limit, need) = cause.limit_and_need();
                Diagnosis { limit, need, hint: cause.hint().map(str::to_owned), ..Diagnosis::new(cause.kind(), message) }
            }
            Refusal::OtherRails { .. } => Diagnosis::new(ErrorKind::UnknownRail, message),
            Refusal::Policy { .. } => Diagnosis::new(ErrorKind::Policy, message),
            Refusal::Host(error) => {
                let out_of_files = [Some(24), Some(23)].contains(&error.raw_os_error());
                let kind = if out_of_files { ErrorKind::Exhausted } else { ErrorKind::Io };
                Diagnosis { errno: error.raw_os_error(), ..Diagnosis::new(kind, message) }
            }
            Refusal::NoThread(error) => {
                Diagnosis { errno: error.raw_os_error(), ..Diagnosis::new(ErrorKind::Exhausted, message) }
                    .hint("raise the limit of processes (ulimit -u, or the pids control group's)")
            }
            Refusal::Steps(_) => Diagnosis::new(ErrorKind::Batch, message),
        }
    }
}

impl Failure {
    pub(crate) fn refused(refusal: Refusal, tasks: u64) -> Box<Failure> {
        Box::new(Failure {
            reason: Reason::Refused(refusal),
            failed: Vec::new(),
            not_attempted: tasks,
            rolled_back: 0,
            quarantine: None,
            kept: None,
            stuck: Vec::new(),
            report: None,
        })
    }

    /// The plan to try next: with the buffers apart whose shared registration was refused as such. `None` where sharing is
    /// not what failed, or where more registrations would not be accepted either.
    pub(crate) fn with_refused_apart(&self, plan: &Plan) -> Option<Plan> {
        let of_sharing = |failed: &&StepFailure| match &failed.error {
            StepError::Register(error) => matches!(
                error.cause,
                Cause::MrSize { .. }
                    | Cause::Alignment { .. }
                    | Cause::Unmapped { .. }
                    | Cause::Protection { .. }
                    | Cause::Other { .. }
            ),
            StepError::Prepare(_) | StepError::Deregister(_) => false,
        };
        let shared = |failed: &StepFailure| plan.buffers_of(failed.chunk).len() > 1;
        let all_of_sharing = self.failed.iter().all(|failed| of_sharing(&failed) && shared(failed));
        if !matches!(self.reason, Reason::Step(_)) || self.quarantine.is_some() || !all_of_sharing {
            return None;
        }
        let refused: BTreeSet<BufferId> = self.failed.iter().flat_map(|failed| plan.buffers_of(failed.chunk)).copied().collect();
        // Who is alone already stays so, or two refusals could take turns for ever.
        let is_alone = |buffer| plan.chunks_of(buffer).all(|chunk| plan.buffers_of(ChunkId(chunk)).len() == 1);
        plan.without_coalescing(&|buffer| refused.contains(&buffer) || is_alone(buffer)).ok()
    }

    /// The failure as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let after = match &self.quarantine {
            None => format!("{} registrations were undone, {} not attempted", self.rolled_back, self.not_attempted),
            Some(left) => format!(
                "{} registrations were undone, {} could not be and stay pinned with their memory, {} not attempted",
                self.rolled_back,
                left.live(),
                self.not_attempted
            ),
        };
        match &self.reason {
            Reason::Refused(refusal) => refusal.diagnosis(),
            Reason::Step(failure) => {
                let diagnosis = failure.diagnosis();
                let more = match self.failed.len() {
                    0 | 1 => String::new(),
                    all => format!(" (and {} more failures)", all - 1),
                };
                Diagnosis { message: format!("{}{more}; {after}", diagnosis.message), ..diagnosis }
            }
            Reason::Detached => Diagnosis::new(
                ErrorKind::Busy,
                format!("{} calls have not returned and were left behind with their memory; {after}", self.stuck.len()),
            ),
            Reason::Cancelled => Diagnosis::new(ErrorKind::Cancelled, format!("cancelled; {after}")),
            Reason::Deadline => Diagnosis::new(ErrorKind::Deadline, format!("the deadline passed; {after}"))
                .hint("give it more time, fewer rails or a smaller batch"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnosis().message)
    }
}

impl std::error::Error for Failure {}

use pinrail_core::batch::BatchError;
use pinrail_core::{Diagnosis, ErrorKind, StepsError};
use pinrail_policy::PolicyError;

use crate::Budget;
use crate::fits::Fits;

/// A batch that cannot be planned. Nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Two buffers share a byte.
    #[error("buffers {first:?} and {second:?} overlap at {address:#x}")]
    Overlap {
        /// The buffer at the lower address.
        first: String,
        /// The other.
        second: String,
        /// The first shared byte.
        address: u64,
    },
    /// A buffer's own numbers are impossible.
    #[error("buffer {buffer:?}: {what}")]
    Buffer {
        /// The buffer.
        buffer: String,
        /// What is wrong.
        what: String,
    },
    /// A GPU that the machine does not have.
    #[error("buffer {buffer:?} lies on GPU {gpu}; this machine has {have}")]
    UnknownDevice {
        /// The buffer.
        buffer: String,
        /// The GPU asked for.
        gpu: String,
        /// The GPUs there are.
        have: String,
    },
    /// A rail that cannot reach device memory.
    #[error("buffer {buffer:?} is device memory, which rail {rail:?} cannot reach")]
    NoDevicePath {
        /// The buffer.
        buffer: String,
        /// The rail.
        rail: String,
    },
    /// A rail that does not grant the access.
    #[error("buffer {buffer:?} asks for access {asked} and rail {rail:?} grants {granted}")]
    Access {
        /// The buffer.
        buffer: String,
        /// The rail.
        rail: String,
        /// What was asked for.
        asked: String,
        /// What the rail grants.
        granted: String,
    },
    /// Not even one page fits into a registration.
    #[error("rail {rail:?} takes {limit} bytes a registration, less than one page of {page_size} bytes of buffer {buffer:?}")]
    MrSize {
        /// The buffer.
        buffer: String,
        /// The rail.
        rail: String,
        /// The rail's limit in bytes.
        limit: u64,
        /// The buffer's page size in bytes.
        page_size: u64,
    },
    /// Not even one unit fits into a registration.
    #[error("rail {rail:?} takes {limit} bytes a registration, less than one unit of {unit} bytes of buffer {buffer:?}")]
    Unit {
        /// The buffer.
        buffer: String,
        /// The rail.
        rail: String,
        /// The rail's limit in bytes.
        limit: u64,
        /// The buffer's unit in bytes.
        unit: u64,
    },
    /// More than a rail has for everything on it together.
    #[error("rail {rail:?} has {limit} {budget}{} and {need} are needed", beside(*.live))]
    Budget {
        /// The rail.
        rail: String,
        /// What there is too little of.
        budget: Budget,
        /// The rail's limit.
        limit: u64,
        /// How much is needed.
        need: u64,
        /// How much of the limit is live already.
        live: u64,
        /// What would fit.
        fits: Box<Fits>,
    },
    /// Not even a share of the batch on each rail fits.
    #[error("even in disjoint shares the {rails} rails of buffer {buffer:?} run out of {budget}; in full, {over}")]
    Shares {
        /// The first buffer that finds no place.
        buffer: String,
        /// Its rails.
        rails: usize,
        /// What ran out.
        budget: Budget,
        /// What did not fit in full.
        over: Box<PlanError>,
    },
    /// More chunks than a plan has.
    #[error("with buffer {buffer:?} the batch is cut into more than {max} chunks")]
    TooManyChunks {
        /// The first buffer beyond.
        buffer: String,
        /// The most there may be.
        max: usize,
    },
    /// The plan was made for other rails.
    #[error("the plan is for {plan} and this machine has {here}")]
    OtherMachine {
        /// What the plan was made for.
        plan: String,
        /// What there is instead.
        here: String,
        /// The rail, where it is one.
        rail: Option<String>,
    },
    /// A chunk of a plan made elsewhere is longer than this machine's rail takes.
    #[error("rail {rail:?} takes {limit} bytes a registration here, and the plan registers {need} of buffer {buffer:?} at once")]
    ChunkTooLong {
        /// The buffer.
        buffer: String,
        /// The rail.
        rail: String,
        /// The rail's limit in bytes.
        limit: u64,
        /// The chunk's bytes.
        need: u64,
    },
    /// The policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// More steps than can be counted.
    #[error(transparent)]
    Steps(#[from] StepsError),
    /// The batch on paper.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl PlanError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let of = |kind| Diagnosis::new(kind, self.to_string());
        match self {
            PlanError::Overlap { second, .. } => {
                of(ErrorKind::Overlap).buffer(second).hint("register the union once and look ranges up in it")
            }
            PlanError::Buffer { buffer, .. } => of(ErrorKind::Batch).buffer(buffer),
            PlanError::UnknownDevice { buffer, .. } => of(ErrorKind::UnknownDevice).buffer(buffer),
            PlanError::NoDevicePath { buffer, rail } => of(ErrorKind::NoDevicePath)
                .buffer(buffer)
                .rail(rail)
                .hint("choose rails that reach device memory with rails=NAME,NAME, or register host memory"),
            PlanError::Access { buffer, rail, .. } => of(ErrorKind::Access).buffer(buffer).rail(rail),
            PlanError::MrSize { buffer, rail, limit, page_size } => of(ErrorKind::MrSize)
                .buffer(buffer)
                .rail(rail)
                .limit(*limit, *page_size)
                .hint("use smaller pages, other rails, or a larger rail_limits.max_mr_size where that is what limits it"),
            PlanError::Unit { buffer, rail, limit, unit } => {
                of(ErrorKind::Unit).buffer(buffer).rail(rail).limit(*limit, *unit).hint("make the unit smaller, or drop it")
            }
            PlanError::Budget { rail, budget, limit, need, live, fits } => {
                of(budget.kind()).rail(rail).limit(*limit, need.saturating_add(*live)).hint(fits.hint(*budget))
            }
            PlanError::Shares { buffer, over, .. } => Diagnosis { message: self.to_string(), ..over.diagnosis() }.buffer(buffer),
            PlanError::Policy(error) => error.diagnosis(),
            PlanError::Batch(error) => error.diagnosis(),
            PlanError::Steps(_) => of(ErrorKind::Batch).hint("register the batch in parts"),
            PlanError::TooManyChunks { buffer, .. } => of(ErrorKind::MrCount)
                .buffer(buffer)
                .hint("allow longer registrations (max_mr_size), or register the batch in parts"),
            PlanError::OtherMachine { rail, .. } => {
                let diagnosis = of(ErrorKind::UnknownRail).hint("make a plan on this machine: pinrail plan --json");
                Diagnosis { rail: rail.clone(), ..diagnosis }
            }
            PlanError::ChunkTooLong { buffer, rail, limit, need } => {
                of(ErrorKind::MrSize).buffer(buffer).rail(rail).limit(*limit, *need).hint(format!(
                    "make the plan with rail_limits {{\"{rail}\":{{\"max_mr_size\":{limit}}}}}, or for this machine"
                ))
            }
        }
    }
}

fn beside(live: u64) -> String {
    if live == 0 { String::new() } else { format!(", of which {live} are live already,") }
}

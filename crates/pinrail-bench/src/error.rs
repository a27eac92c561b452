use std::io;

use pinrail_conformance::VerifyError;
use pinrail_core::batch::BatchError;
use pinrail_core::{Cause, DeregisterError, Diagnosis, ErrorKind, PrepareError, RegisterError};
use pinrail_engine::{Failure, StillRegistered};
use pinrail_memory::MapError;
use pinrail_plan::PlanError;

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The run was asked for wrongly.
    #[error("{what}")]
    Usage {
        /// What is wrong.
        what: String,
    },
    /// No such reference.
    #[error("reference {name:?}: {why}")]
    Reference {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The batch on paper.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The batch cannot be planned under one of the policies.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The backend could not be opened.
    #[error("{}", .0.message)]
    Open(Box<Diagnosis>),
    /// Device memory, which is not made here.
    #[error("a buffer lies on GPU {gpu}, and memory of the command's own is host memory")]
    DeviceMemory {
        /// The GPU.
        gpu: String,
    },
    /// Memory could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Memory could not be made resident.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The pages certainly cannot be pinned.
    #[error("the batch does not fit: {0}")]
    Memlock(Cause),
    /// The batch does not fit into free memory.
    #[error("the bench needs {need} bytes of memory and {available} are available")]
    Memory {
        /// Bytes needed.
        need: u64,
        /// Bytes that are free or can be made free.
        available: u64,
    },
    /// A policy's registration failed.
    #[error(transparent)]
    Register(Box<Failure>),
    /// A policy's deregistration failed.
    #[error(transparent)]
    Deregister(Box<StillRegistered>),
    /// A reference's registration failed.
    #[error("{reference}: {error}")]
    ReferenceRegister {
        /// The reference.
        reference: String,
        /// What the call reported.
        error: RegisterError,
    },
    /// A reference's deregistration failed.
    #[error("{reference}: {error}")]
    ReferenceDeregister {
        /// The reference.
        reference: String,
        /// What the call reported.
        error: DeregisterError,
    },
    /// Bytes moved through a registration did not arrive where they should.
    #[error(transparent)]
    Verify(Box<VerifyError>),
    /// A process of several failed.
    #[error("process {process}: {what}")]
    Process {
        /// The process, counted from 0.
        process: u32,
        /// What it said, or what became of it.
        what: String,
    },
    /// Two runs that cannot be compared, or a document that is none.
    #[error("{what}")]
    Compare {
        /// What is wrong.
        what: String,
    },
    /// What ran is not what was to be measured.
    #[error("refused: {what}")]
    Refused {
        /// What was found.
        what: String,
    },
    /// Somebody stopped it.
    #[error("cancelled; everything that was registered has been deregistered")]
    Cancelled,
    /// The host's facts could not be read.
    #[error("reading this host's facts failed: {0}")]
    Host(#[source] io::Error),
}

impl BenchError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let of = |kind| Diagnosis::new(kind, self.to_string());
        match self {
            BenchError::Usage { .. } => of(ErrorKind::Usage),
            BenchError::Reference { .. } => of(ErrorKind::Usage).hint(crate::reference::choices()),
            BenchError::Batch(error) => error.diagnosis(),
            BenchError::Plan(error) => error.diagnosis(),
            BenchError::Open(diagnosis) => (**diagnosis).clone(),
            BenchError::DeviceMemory { .. } => of(ErrorKind::NotSupported),
            BenchError::Map(error) => error.diagnosis(),
            BenchError::Prepare(error) => error.diagnosis(),
            BenchError::Memlock(cause) => {
                let (limit, need) = cause.limit_and_need();
                Diagnosis { limit, need, hint: cause.hint().map(str::to_owned), ..of(cause.kind()) }
            }
            BenchError::Memory { need, available } => of(ErrorKind::Exhausted)
                .limit(*available, *need)
                .hint("take a smaller batch (kimi-k3/N with a larger N), or fewer processes"),
            BenchError::Register(failure) => failure.diagnosis(),
            BenchError::Deregister(still) => {
                let first = still.failed.first().map(|failure| failure.diagnosis());
                Diagnosis { message: self.to_string(), ..first.unwrap_or_else(|| of(ErrorKind::Backend)) }
            }
            BenchError::ReferenceRegister { error, .. } => Diagnosis { message: self.to_string(), ..error.diagnosis() },
            BenchError::ReferenceDeregister { error, .. } => Diagnosis { message: self.to_string(), ..error.diagnosis() },
            BenchError::Verify(error) => error.diagnosis(),
            BenchError::Process { .. } | BenchError::Refused { .. } => of(ErrorKind::Backend),
            BenchError::Compare { .. } => of(ErrorKind::Usage),
            BenchError::Cancelled => of(ErrorKind::Cancelled),
            BenchError::Host(error) => Diagnosis { errno: error.raw_os_error(), ..of(ErrorKind::Io) },
        }
    }
}

//! How a command fails: a diagnosis and an exit code.

use std::io;

use pinrail_core::batch::BatchError;
use pinrail_core::files::batch::BatchFileError;
use pinrail_core::files::machine::MachineFileError;
use pinrail_core::{Diagnosis, ErrorKind, PrepareError};
use pinrail_engine::{Failure, StillRegistered};
use pinrail_memory::MapError;
use pinrail_plan::{PlanError, PlanFileError};
use pinrail_policy::PolicyError;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) diagnosis: Box<Diagnosis>,
    /// The process's exit code.
    pub(crate) exit: u8,
}

/// The user wrote something that cannot be meant.
const WRONG: u8 = 2;
/// It was meant and cannot be had.
const FAILED: u8 = 1;
/// 128 + SIGINT, as a shell reports it.
const INTERRUPTED: u8 = 130;

impl Error {
    /// A failure about an argument or a file named by one.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Diagnosis::new(ErrorKind::Usage, message).into()
    }

    /// A call on the host, of the sort that does not fail, failed.
    pub(crate) fn io(what: &str, error: &io::Error) -> Error {
        Diagnosis { errno: error.raw_os_error(), ..Diagnosis::new(ErrorKind::Io, format!("{what}: {error}")) }.into()
    }

    /// This build lacks a feature.
    #[cfg(not(all(feature = "libfabric", feature = "topology", feature = "verbs")))]
    pub(crate) fn feature_off(what: &str, feature: &str) -> Error {
        let message = format!("{what} needs feature `{feature}` of pinrail-cli, which this build does not have");
        let hint = format!("cargo build --release -p pinrail-cli --features {feature}");
        Diagnosis::new(ErrorKind::NotSupported, message).hint(hint).into()
    }
}

impl From<Diagnosis> for Error {
    fn from(diagnosis: Diagnosis) -> Error {
        let exit = match diagnosis.kind {
            ErrorKind::Usage | ErrorKind::Policy | ErrorKind::Batch => WRONG,
            ErrorKind::Cancelled => INTERRUPTED,
            _ => FAILED,
        };
        Error { diagnosis: Box::new(diagnosis), exit }
    }
}

impl From<PolicyError> for Error {
    fn from(error: PolicyError) -> Error {
        let typed = matches!(error, PolicyError::UnknownRail { .. });
        let error = Error::from(error.diagnosis());
        // A rail that `rails=` names was typed; other rails that are missing are a fact about the machine.
        if typed { Error { exit: WRONG, ..error } } else { error }
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Error {
        match error {
            PlanError::Policy(error) => error.into(),
            error => error.diagnosis().into(),
        }
    }
}

impl From<Box<StillRegistered>> for Error {
    fn from(still: Box<StillRegistered>) -> Error {
        let message = still.to_string();
        let first = still.failed.first().map(|failure| failure.diagnosis());
        let diagnosis = first.unwrap_or_else(|| Diagnosis::new(ErrorKind::Backend, ""));
        Diagnosis { message, ..diagnosis }.into()
    }
}

macro_rules! by_diagnosis {
    ($($error:ty),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                error.diagnosis().into()
            }
        })*
    };
}

by_diagnosis!(
    PlanFileError,
    BatchError,
    BatchFileError,
    MachineFileError,
    MapError,
    PrepareError,
    Box<Failure>,
    pinrail_uring::OpenError
);

impl From<pinrail_sim::Error> for Error {
    fn from(error: pinrail_sim::Error) -> Error {
        match error {
            pinrail_sim::Error::Plan(error) => error.into(),
            pinrail_sim::Error::Policy(error) => error.into(),
            error => error.diagnosis().into(),
        }
    }
}

#[cfg(feature = "libfabric")]
by_diagnosis!(pinrail_libfabric::OpenError);
#[cfg(feature = "topology")]
by_diagnosis!(pinrail_topology::TopologyError);
#[cfg(feature = "verbs")]
by_diagnosis!(pinrail_verbs::OpenError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_wrongly_is_told_from_what_cannot_be_had() {
        let exit = |kind| Error::from(Diagnosis::new(kind, "")).exit;
        assert_eq!([ErrorKind::Usage, ErrorKind::Policy, ErrorKind::Batch].map(exit), [2; 3]);
        assert_eq!([ErrorKind::EmptyBatch, ErrorKind::UnknownRail, ErrorKind::Memlock, ErrorKind::Io].map(exit), [1; 4]);
        assert_eq!(exit(ErrorKind::Cancelled), 130);
        let typed = PolicyError::UnknownRail { policy: "rails=x".into(), rail: "x".into(), have: "rail0".into() };
        let down = PolicyError::NoRail { policy: "all-rails".into(), buffer: "b".into(), why: "all are down".into() };
        assert_eq!((Error::from(PlanError::from(typed)).exit, Error::from(PlanError::from(down)).exit), (2, 1));
    }
}

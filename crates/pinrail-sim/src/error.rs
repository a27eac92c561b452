use pinrail_core::batch::BatchError;
use pinrail_core::files::batch::BatchFileError;
use pinrail_core::files::machine::MachineFileError;
use pinrail_core::{Diagnosis, ErrorKind, StepsError};
use pinrail_plan::PlanError;
use pinrail_policy::PolicyError;

use crate::{Profile, Scenario};

/// Why something cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A profile or scenario that cannot be read, or says what cannot be.
    #[error("{what} {name}{}: {message}", line.map_or_else(String::new, |line| format!(", line {line}")))]
    File {
        /// `profile` or `scenario`.
        what: &'static str,
        /// Which.
        name: String,
        /// The line, counted from 1, where one is to blame.
        line: Option<usize>,
        /// What is wrong with it, naming the key.
        message: String,
    },
    /// No profile has this name.
    #[error("there is no profile {name:?}: there are {}", Profile::names().collect::<Vec<_>>().join(", "))]
    UnknownProfile {
        /// The name.
        name: String,
    },
    /// No scenario has this name.
    #[error("there is no scenario {name:?}: there are {}", Scenario::names().collect::<Vec<_>>().join(", "))]
    UnknownScenario {
        /// The name.
        name: String,
    },
    /// A setting that does not exist, or has no such value.
    #[error("{setting:?}: {why}")]
    Setting {
        /// What was typed.
        setting: String,
        /// What is wrong with it.
        why: String,
    },
    /// A profile does not know what this scenario needs.
    #[error("profile {profile} {why}")]
    NotMeasured {
        /// The profile.
        profile: String,
        /// What it lacks.
        why: String,
    },
    /// The batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A file that holds the batch.
    #[error(transparent)]
    BatchFile(#[from] BatchFileError),
    /// A file that holds the machine.
    #[error(transparent)]
    Machine(#[from] MachineFileError),
    /// A policy spec.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// More steps than can be counted.
    #[error(transparent)]
    Steps(#[from] StepsError),
}

impl Error {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        match self {
            Error::Batch(error) => error.diagnosis(),
            Error::BatchFile(error) => error.diagnosis(),
            Error::Machine(error) => error.diagnosis(),
            Error::Policy(error) => error.diagnosis(),
            Error::Plan(error) => error.diagnosis(),
            Error::NotMeasured { .. } => Diagnosis::new(ErrorKind::NotSupported, self.to_string()),
            _ => Diagnosis::new(ErrorKind::Usage, self.to_string()),
        }
    }
}

use pinrail_core::{Diagnosis, ErrorKind, PciAddress};

/// A spec that is none, or a policy that answered nonsense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A term that no policy has.
    #[error("unknown policy term {term:?}")]
    UnknownTerm {
        /// The term as typed.
        term: String,
    },
    /// Two terms of one kind.
    #[error("policy terms {first:?} and {second:?} are both a {kind}: give at most one")]
    Doubled {
        /// The kind of term.
        kind: &'static str,
        /// The term met first.
        first: String,
        /// The term met second.
        second: String,
    },
    /// A term with a missing, superfluous or wrong value.
    #[error("policy term {term:?}: {why}")]
    Value {
        /// The term as typed.
        term: String,
        /// What its value may be.
        why: &'static str,
    },
    /// A rail was named that the machine does not have.
    #[error("policy {policy:?} names rail {rail:?}; this machine has {have}")]
    UnknownRail {
        /// The policy.
        policy: String,
        /// The name.
        rail: String,
        /// The names there are.
        have: String,
    },
    /// A buffer lies in a GPU that the machine does not have.
    #[error("buffer {buffer:?} lies in GPU {gpu}; this machine has {have}")]
    UnknownDevice {
        /// The buffer.
        buffer: String,
        /// The GPU's address.
        gpu: PciAddress,
        /// The addresses there are.
        have: String,
    },
    /// Nothing to choose from.
    #[error("policy {policy:?} chose no rail for buffer {buffer:?}: {why}")]
    NoRail {
        /// The policy.
        policy: String,
        /// The buffer.
        buffer: String,
        /// Why.
        why: String,
    },
    /// An order that skips, repeats or invents chunks.
    #[error("policy {policy:?} answered no permutation of {chunks} chunks: {what}")]
    NotAPermutation {
        /// The policy.
        policy: String,
        /// Chunks given.
        chunks: usize,
        /// What is wrong with the answer.
        what: String,
    },
    /// A rail set that names a rail twice or one the machine does not have.
    #[error("policy {policy:?} answered a wrong rail set for buffer {buffer:?}: {what}")]
    BadSelection {
        /// The policy.
        policy: String,
        /// The buffer.
        buffer: String,
        /// What is wrong with the answer.
        what: String,
    },
}

impl PolicyError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let message = self.to_string();
        match self {
            PolicyError::UnknownTerm { .. } | PolicyError::Value { .. } | PolicyError::Doubled { .. } => {
                Diagnosis::new(ErrorKind::Policy, message)
                    .hint(format!("terms, at most one of each kind: {}", crate::spec::choices()))
            }
            PolicyError::UnknownRail { rail, .. } => Diagnosis::new(ErrorKind::UnknownRail, message).rail(rail),
            PolicyError::UnknownDevice { buffer, .. } => Diagnosis::new(ErrorKind::UnknownDevice, message).buffer(buffer),
            PolicyError::NoRail { buffer, .. } => Diagnosis::new(ErrorKind::UnknownRail, message)
                .buffer(buffer)
                .hint("bring a port up, or name rails with rails=NAME,NAME"),
            PolicyError::BadSelection { buffer, .. } => Diagnosis::new(ErrorKind::Policy, message).buffer(buffer),
            PolicyError::NotAPermutation { .. } => Diagnosis::new(ErrorKind::Policy, message),
        }
    }
}

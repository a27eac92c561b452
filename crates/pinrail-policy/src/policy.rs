use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use pinrail_core::Limits;

use crate::spec::Term;
use crate::{
    CallerOrder, Capped, Coalescing, Concurrency, Coverage, DeviceLocal, FanOut, Order, PerRail, PolicyError, Preparation,
    SelectRails,
};

/// A whole policy: one part of each kind.
///
/// Take [`Policy::new`] and replace parts (`Policy { order: Arc::new(Ascending), ..Policy::new(cores) }`), or write a spec.
#[derive(Clone)]
pub struct Policy {
    /// Which rails a buffer is registered on.
    pub rails: Arc<dyn SelectRails>,
    /// Whether a chunk's rails may be registered at once.
    pub fan_out: FanOut,
    /// In which order chunks are registered.
    pub order: Arc<dyn Order>,
    /// How many steps may be in flight in the process.
    pub concurrency: Arc<dyn Concurrency>,
    /// How many registrations may be in flight on one rail.
    pub per_rail: Option<PerRail>,
    /// What is done to memory beforehand.
    pub preparation: Preparation,
    /// Which buffers share a registration.
    pub coalescing: Coalescing,
    /// What becomes of a batch that does not fit on every chosen rail.
    pub coverage: Coverage,
}

impl Policy {
    /// The default on a machine where this process may use `cores` cores.
    #[must_use]
    pub fn new(cores: NonZeroU32) -> Policy {
        Policy {
            rails: Arc::new(DeviceLocal::default()),
            fan_out: FanOut::InParallel,
            order: Arc::new(CallerOrder),
            concurrency: Arc::new(Capped(cores)),
            per_rail: None,
            preparation: Preparation::Prefault,
            coalescing: Coalescing::Adjacent,
            coverage: Coverage::Full,
        }
    }

    /// This policy with the parts that `spec` names replaced.
    ///
    /// # Errors
    /// [`PolicyError::UnknownTerm`], [`PolicyError::Doubled`], [`PolicyError::Value`].
    pub fn with(self, spec: &str) -> Result<Policy, PolicyError> {
        let mut terms = crate::spec::parse(spec)?;
        // How local rails are shared is a part of the choice of rails, whichever was typed first.
        terms.sort_by_key(|term| matches!(term, Term::LocalMax(_) | Term::Share(_)));
        terms.into_iter().try_fold(self, |policy, term| term.apply(policy))
    }

    /// The limits that do not change while a run goes on.
    #[must_use]
    pub fn ceiling(&self) -> Limits {
        self.per_rail.map_or(Limits::NONE, PerRail::limits)
    }

    /// The whole policy as a spec: every part named, parsed back to the same policy.
    #[must_use]
    pub fn spec(&self) -> String {
        let mut terms = vec![self.rails.spec(), self.fan_out.spec().to_owned(), self.order.spec(), self.concurrency.spec()];
        terms.extend(self.per_rail.map(|part| part.spec()));
        terms.extend([self.preparation.spec(), self.coalescing.spec(), self.coverage.spec()].map(str::to_owned));
        terms.join("+")
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy({})", self.spec())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spec())
    }
}

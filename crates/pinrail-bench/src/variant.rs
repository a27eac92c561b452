use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use pinrail_policy::spec::{self, Term};
use pinrail_policy::{Policy, PolicyError};

use crate::contestant::Contestant;
use crate::error::BenchError;
use crate::reference::Reference;
use crate::through_engine::ThroughEngine;

/// One thing that is compared.
#[derive(Clone)]
pub struct Variant {
    name: String,
    claims: Option<Claims>,
    contestant: Arc<dyn Contestant>,
}

/// What a policy says it does, which the record must bear out.
#[derive(Clone, Debug)]
pub struct Claims {
    /// The terms that somebody typed: defaults are not judged.
    pub typed: Vec<Term>,
    /// The whole policy.
    pub policy: Policy,
}

impl Variant {
    /// A policy by its spec, as typed; what it does not name is the default for so many cores.
    ///
    /// # Errors
    /// What is wrong with the spec.
    pub fn policy(spec: &str, cores: NonZeroU32) -> Result<Variant, PolicyError> {
        let policy = Policy::new(cores).with(spec)?;
        Ok(Variant::claiming(spec, spec::parse(spec)?, policy.clone(), Arc::new(ThroughEngine(policy))))
    }

    /// A reference by its name: `bounded-pool=16`.
    ///
    /// # Errors
    /// [`BenchError::Reference`] lists the references.
    pub fn reference(name: &str) -> Result<Variant, BenchError> {
        let reference: Reference = name.parse()?;
        Ok(Variant::other(name, Arc::new(reference)))
    }

    /// Somebody's own way of registering, of which nothing is claimed but that it registers the batch on all rails.
    #[must_use]
    pub fn other(name: &str, contestant: Arc<dyn Contestant>) -> Variant {
        Variant { name: name.to_owned(), claims: None, contestant }
    }

    /// Somebody's own way of registering that claims to do what a policy does.
    #[must_use]
    pub fn claiming(name: &str, typed: Vec<Term>, policy: Policy, contestant: Arc<dyn Contestant>) -> Variant {
        let name = if name.is_empty() { "default".to_owned() } else { name.to_owned() };
        Variant { name, claims: Some(Claims { typed, policy }), contestant }
    }

    /// The spec or reference as typed.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it claims, where it is a policy.
    #[must_use]
    pub fn claims(&self) -> Option<&Claims> {
        self.claims.as_ref()
    }

    /// What runs: for whoever wraps it.
    #[must_use]
    pub fn contestant(&self) -> &dyn Contestant {
        self.contestant.as_ref()
    }

    /// Its name among others: a repeated one gets `#2`, `#3`, ….
    pub(crate) fn names(variants: &[Variant]) -> Vec<String> {
        let nth = |at: usize| variants[..=at].iter().filter(|other| other.name == variants[at].name).count();
        let name = |at: usize| match nth(at) {
            1 => variants[at].name.clone(),
            nth => format!("{}#{nth}", variants[at].name),
        };
        (0..variants.len()).map(name).collect()
    }
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variant({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_name_is_told_apart() {
        let of = |spec| Variant::policy(spec, NonZeroU32::MIN).unwrap();
        let variants = [of("capped=2"), of(""), of("capped=2"), of("capped=2")];
        assert_eq!(Variant::names(&variants), ["capped=2", "default", "capped=2#2", "capped=2#3"]);
    }
}

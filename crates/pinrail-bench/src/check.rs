//! The rules that a run is held to. Each check is a function of what was seen, in a file of its own.

mod backend;
mod batch;
mod coverage;
mod fan_out;
mod fresh;
mod joining;
mod limits;
mod order;
mod preparation;
mod rails;
mod tried;

use std::collections::BTreeSet;

use pinrail_policy::Selection;
use pinrail_policy::spec::Term;
use serde::{Deserialize, Serialize};

use crate::spec::Spec;
use crate::trial::Evidence;
use crate::variant::{Claims, Variant};

pub(crate) use backend::{may_be_cached, other_backend, pins_nothing};
pub(crate) use tried::{Slicing, drift, interleaved, slices, slicing, trials};

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Check {
    /// The backend and provider that ran are those that were named.
    Backend,
    /// They pin.
    Pins,
    /// No cache answers for them.
    Cache,
    /// Every trial has rails of its own, with nothing registered.
    FreshRails,
    /// Memory was in the state that was asked for when the clock started.
    FreshMemory,
    /// Variants are given the same buffers in the same order.
    SameBatch,
    /// Dispatch is given the whole batch at once.
    WholeBatch,
    /// Every byte is registered once on each rail that was chosen, and deregistered.
    Coverage,
    /// The choice of rails chose.
    Rails,
    /// The order is what the policy says, and is not the caller's.
    Order,
    /// `capped=N` held and was reached; `unbounded` had more than one in flight.
    ProcessLimit,
    /// `per-rail=N` held and was reached.
    RailLimit,
    /// A chunk's rails ran in series, or in parallel.
    FanOut,
    /// Coalescing joined something, or nothing.
    Coalescing,
    /// Preparation, and not registration, touched the memory first.
    Preparation,
    /// Variants that prepare cut the memory alike.
    Slices,
    /// Trials were interleaved.
    Interleaved,
    /// There were enough for the interval.
    Trials,
    /// The machine stood still.
    Drift,
}

impl Check {
    pub(crate) const ALL: [Check; 19] = [
        Check::Backend,
        Check::Pins,
        Check::Cache,
        Check::FreshRails,
        Check::FreshMemory,
        Check::SameBatch,
        Check::WholeBatch,
        Check::Coverage,
        Check::Rails,
        Check::Order,
        Check::ProcessLimit,
        Check::RailLimit,
        Check::FanOut,
        Check::Coalescing,
        Check::Preparation,
        Check::Slices,
        Check::Interleaved,
        Check::Trials,
        Check::Drift,
    ];

    /// Its name in results.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Check::Backend => "backend",
            Check::Pins => "pins",
            Check::Cache => "cache",
            Check::FreshRails => "fresh-rails",
            Check::FreshMemory => "fresh-memory",
            Check::SameBatch => "same-batch",
            Check::WholeBatch => "whole-batch",
            Check::Coverage => "coverage",
            Check::Rails => "rails",
            Check::Order => "order",
            Check::ProcessLimit => "process-limit",
            Check::RailLimit => "rail-limit",
            Check::FanOut => "fan-out",
            Check::Coalescing => "coalescing",
            Check::Preparation => "preparation",
            Check::Slices => "slices",
            Check::Interleaved => "interleaved",
            Check::Trials => "trials",
            Check::Drift => "drift",
        }
    }
}

/// The checks in force: all of them, except where a test shows what becomes of a run without one.
pub(crate) type Checks = BTreeSet<Check>;

/// How a trial met a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// It broke it.
    Broken(String),
    /// What was typed did nothing in this trial; if it does nothing in any, there is nothing to judge. The sentence begins
    /// with the term; the rest may differ from trial to trial.
    Idle(String),
}

/// What checks see of a trial.
pub(crate) struct Seen<'s> {
    pub(crate) spec: &'s Spec,
    pub(crate) evidence: &'s Evidence,
    pub(crate) claims: Option<&'s Claims>,
    /// By buffer, what the policy chooses; all usable rails where there is no policy.
    pub(crate) selections: Vec<Selection>,
}

impl Seen<'_> {
    /// The terms that somebody typed.
    fn typed(&self) -> &[Term] {
        self.claims.map_or(&[], |claims| &claims.typed)
    }

    /// The usable rails.
    fn usable(&self) -> usize {
        self.evidence.machine.usable().count()
    }
}

/// Holds a trial against every check in force.
pub(crate) fn trial(spec: &Spec, variant: &Variant, evidence: &Evidence, checks: &Checks) -> Vec<(Check, Fault)> {
    let seen = Seen { spec, evidence, claims: variant.claims(), selections: rails::selections(variant, evidence) };
    let mut faults = Vec::new();
    for &check in checks {
        let found: Vec<Fault> = match check {
            Check::Backend => backend::named(&seen).into_iter().collect(),
            Check::Pins => backend::pins(&seen).into_iter().collect(),
            Check::Cache => backend::cache(&seen).into_iter().collect(),
            Check::FreshRails => fresh::rails(&seen).into_iter().collect(),
            Check::FreshMemory => fresh::memory(&seen).into_iter().collect(),
            Check::SameBatch => batch::same(&seen).into_iter().collect(),
            Check::WholeBatch => batch::whole(&seen).into_iter().collect(),
            Check::Coverage => coverage::coverage(&seen).into_iter().collect(),
            Check::Rails => rails::chosen(&seen),
            Check::Order => order::order(&seen).into_iter().collect(),
            Check::ProcessLimit => limits::process(&seen).or_else(|| limits::unbounded(&seen)).into_iter().collect(),
            Check::RailLimit => limits::rail(&seen).into_iter().collect(),
            Check::FanOut => fan_out::fan_out(&seen).into_iter().collect(),
            Check::Coalescing => joining::joining(&seen).into_iter().collect(),
            Check::Preparation => preparation::preparation(&seen).into_iter().collect(),
            // These look at all trials together.
            Check::Slices | Check::Interleaved | Check::Trials | Check::Drift => Vec::new(),
        };
        faults.extend(found.into_iter().map(|fault| (check, fault)));
    }
    faults
}

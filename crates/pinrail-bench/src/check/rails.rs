use std::borrow::Cow;
use std::num::NonZeroU32;

use pinrail_policy::spec::Term;
use pinrail_policy::{Policy, Selection, Share};

use super::{Fault, Seen};
use crate::trial::Evidence;
use crate::variant::Variant;

/// By buffer, the rails that the policy chooses; all usable ones for what claims no policy. A policy that cannot choose
/// has failed before anything ran.
pub(super) fn selections(variant: &Variant, evidence: &Evidence) -> Vec<Selection> {
    let all = || Selection { rails: evidence.machine.usable().collect(), path: None, why: Cow::Borrowed(""), fallback: None };
    let select = |buffer| variant.claims().and_then(|claims| claims.policy.rails.select(buffer, &evidence.machine).ok());
    evidence.batch.iter().map(|buffer| select(buffer).unwrap_or_else(all)).collect()
}

/// A choice of rails that was typed chooses.
pub(super) fn chosen(seen: &Seen<'_>) -> Vec<Fault> {
    seen.typed().iter().filter_map(|term| idle(seen, term)).map(Fault::Idle).collect()
}

fn idle(seen: &Seen<'_>, term: &Term) -> Option<String> {
    match term {
        Term::RailLocal | Term::DeviceLocal | Term::Rails(_) => {
            let usable = seen.usable();
            if seen.selections.iter().any(|selection| selection.rails.len() < usable) {
                return None;
            }
            let why = seen.selections.iter().find_map(|selection| selection.fallback.clone());
            let why = why.or_else(|| seen.selections.first().map(|selection| selection.why.to_string())).unwrap_or_default();
            Some(format!("{term} chose all {usable} rails for every buffer ({why})"))
        }
        Term::LocalMax(_) => same_without(seen, term, None).then(|| format!("{term} left no rail out")),
        Term::Share(share) => {
            let other = if *share == Share::Fair { Share::All } else { Share::Fair };
            let same = same_without(seen, term, Some(&Term::Share(other)));
            same.then(|| format!("{term} chose as {} does", Term::Share(other)))
        }
        _ => None,
    }
}

/// True if the choice is the same with one typed term left out or replaced.
fn same_without(seen: &Seen<'_>, term: &Term, instead: Option<&Term>) -> bool {
    let terms = seen.typed().iter().filter(|other| *other != term).chain(instead);
    let spec = terms.map(Term::to_string).collect::<Vec<_>>().join("+");
    let Ok(policy) = Policy::new(NonZeroU32::MIN).with(&spec) else { return false };
    seen.evidence.batch.iter().zip(&seen.selections).all(|(buffer, selection)| {
        policy.rails.select(buffer, &seen.evidence.machine).is_ok_and(|other| other.rails == selection.rails)
    })
}

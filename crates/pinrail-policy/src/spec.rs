//! Policy specs: terms joined by `+`, at most one of each kind, without shell metacharacters.
//!
//! A spec names parts; what it does not name keeps its default. [`parse`] answers the terms as typed, because a bench
//! has to judge whether a policy did what the *user* asked for.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::{
    AllRails, Ascending, CallerOrder, Capped, Coalescing, Coverage, Descending, DeviceLocal, FanOut, NamedRails, PerRail, Policy,
    PolicyError, Preparation, RailLocal, SelectRails, Share, Unbounded,
};

/// One term of a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Term {
    /// `all-rails`
    AllRails,
    /// `rail-local`
    RailLocal,
    /// `device-local`
    DeviceLocal,
    /// `rails=NAME,NAME`
    Rails(Vec<String>),
    /// `local-max=N`
    LocalMax(NonZeroU32),
    /// `share=fair` and `share=all`
    Share(Share),
    /// `rails-in-parallel` and `rails-in-series`
    FanOut(FanOut),
    /// `caller-order`
    CallerOrder,
    /// `ascending`
    Ascending,
    /// `descending`
    Descending,
    /// `unbounded`
    Unbounded,
    /// `capped=N`
    Capped(NonZeroU32),
    /// `per-rail=N`
    PerRail(NonZeroU32),
    /// `prefault` and `no-prefault`
    Preparation(Preparation),
    /// `coalesce`, `no-coalesce` and `coalesce=gaps`
    Coalescing(Coalescing),
    /// `coverage=full` and `coverage=disjoint`
    Coverage(Coverage),
}

/// The longest spec that is read, in bytes.
pub const SPEC_BYTES_MAX: usize = 64 * 1024;

/// Every term there is, by kind, as a hint shows them.
const KINDS: [(&str, &[&str]); 10] = [
    ("choice of rails", &["device-local", "rail-local", "all-rails", "rails=NAME,NAME"]),
    ("local count", &["local-max=N"]),
    ("sharing", &["share=fair", "share=all"]),
    ("fan-out", &["rails-in-parallel", "rails-in-series"]),
    ("order", &["caller-order", "ascending", "descending"]),
    ("process limit", &["capped=N", "unbounded"]),
    ("rail limit", &["per-rail=N"]),
    ("preparation", &["prefault", "no-prefault"]),
    ("coalescing", &["coalesce", "no-coalesce", "coalesce=gaps"]),
    ("coverage", &["coverage=full", "coverage=disjoint"]),
];

/// The terms a user may choose from, in one line.
#[must_use]
pub fn choices() -> String {
    let kinds: Vec<String> = KINDS.iter().map(|(kind, terms)| format!("{kind}: {}", terms.join(" | "))).collect();
    kinds.join("; ")
}

/// The terms of a spec, in the order they were typed. An empty spec has none.
///
/// # Errors
/// [`PolicyError::UnknownTerm`], [`PolicyError::Doubled`], [`PolicyError::Value`].
pub fn parse(spec: &str) -> Result<Vec<Term>, PolicyError> {
    if spec.len() > SPEC_BYTES_MAX {
        let term = spec.chars().take(40).collect();
        return Err(PolicyError::Value { term, why: "a spec has at most 65536 bytes" });
    }
    let mut terms: Vec<Term> = Vec::new();
    if spec.is_empty() {
        return Ok(terms);
    }
    for text in spec.split('+') {
        let term = Term::parse(text)?;
        if let Some(first) = terms.iter().find(|other| other.kind() == term.kind()) {
            return Err(PolicyError::Doubled {
                kind: KINDS[term.kind()].0,
                first: shown(&first.to_string()),
                second: shown(text),
            });
        }
        terms.push(term);
    }
    Ok(terms)
}

impl Term {
    fn parse(text: &str) -> Result<Term, PolicyError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let plain = match name {
            "all-rails" => Term::AllRails,
            "rail-local" => Term::RailLocal,
            "device-local" => Term::DeviceLocal,
            "rails-in-parallel" => Term::FanOut(FanOut::InParallel),
            "rails-in-series" => Term::FanOut(FanOut::InSeries),
            "caller-order" => Term::CallerOrder,
            "ascending" => Term::Ascending,
            "descending" => Term::Descending,
            "unbounded" => Term::Unbounded,
            "prefault" => Term::Preparation(Preparation::Prefault),
            "no-prefault" => Term::Preparation(Preparation::NoPrefault),
            "no-coalesce" => Term::Coalescing(Coalescing::None),
            "coalesce" => return coalescing(text, value).map(Term::Coalescing),
            "coverage" => return coverage(text, value).map(Term::Coverage),
            "rails" => return names(text, value).map(Term::Rails),
            "capped" => return count(text, value).map(Term::Capped),
            "local-max" => return count(text, value).map(Term::LocalMax),
            "share" => {
                return match value {
                    Some("fair") => Ok(Term::Share(Share::Fair)),
                    Some("all") => Ok(Term::Share(Share::All)),
                    _ => Err(PolicyError::Value { term: shown(text), why: "is share=fair or share=all" }),
                };
            }
            "per-rail" => return count(text, value).map(Term::PerRail),
            _ => return Err(PolicyError::UnknownTerm { term: shown(text) }),
        };
        match value {
            None => Ok(plain),
            Some(_) => Err(PolicyError::Value { term: shown(text), why: "takes no value" }),
        }
    }

    /// The kind, as an index into [`KINDS`].
    fn kind(&self) -> usize {
        match self {
            Term::AllRails | Term::RailLocal | Term::DeviceLocal | Term::Rails(_) => 0,
            Term::LocalMax(_) => 1,
            Term::Share(_) => 2,
            Term::FanOut(_) => 3,
            Term::CallerOrder | Term::Ascending | Term::Descending => 4,
            Term::Unbounded | Term::Capped(_) => 5,
            Term::PerRail(_) => 6,
            Term::Preparation(_) => 7,
            Term::Coalescing(_) => 8,
            Term::Coverage(_) => 9,
        }
    }

    /// The policy with this term's part replaced.
    pub(crate) fn apply(self, policy: Policy) -> Result<Policy, PolicyError> {
        Ok(match self {
            Term::AllRails => Policy { rails: Arc::new(AllRails), ..policy },
            Term::RailLocal => Policy { rails: Arc::new(RailLocal::default()), ..policy },
            Term::DeviceLocal => Policy { rails: Arc::new(DeviceLocal::default()), ..policy },
            Term::LocalMax(max) => Policy { rails: self.share_of(policy.rails.with_local(None, Some(max)))?, ..policy },
            Term::Share(share) => Policy { rails: self.share_of(policy.rails.with_local(Some(share), None))?, ..policy },
            Term::Rails(names) => Policy { rails: Arc::new(NamedRails(names)), ..policy },
            Term::FanOut(fan_out) => Policy { fan_out, ..policy },
            Term::CallerOrder => Policy { order: Arc::new(CallerOrder), ..policy },
            Term::Ascending => Policy { order: Arc::new(Ascending), ..policy },
            Term::Descending => Policy { order: Arc::new(Descending), ..policy },
            Term::Unbounded => Policy { concurrency: Arc::new(Unbounded), ..policy },
            Term::Capped(n) => Policy { concurrency: Arc::new(Capped(n)), ..policy },
            Term::PerRail(n) => Policy { per_rail: Some(PerRail(n)), ..policy },
            Term::Preparation(preparation) => Policy { preparation, ..policy },
            Term::Coalescing(coalescing) => Policy { coalescing, ..policy },
            Term::Coverage(coverage) => Policy { coverage, ..policy },
        })
    }

    fn share_of(&self, rails: Option<Arc<dyn SelectRails>>) -> Result<Arc<dyn SelectRails>, PolicyError> {
        let why = "goes with device-local and rail-local, which choose rails by nearness";
        rails.ok_or_else(|| PolicyError::Value { term: self.to_string(), why })
    }
}

impl std::fmt::Display for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Term::AllRails => f.write_str("all-rails"),
            Term::RailLocal => f.write_str("rail-local"),
            Term::DeviceLocal => f.write_str("device-local"),
            Term::Rails(names) => write!(f, "rails={}", names.join(",")),
            Term::LocalMax(n) => write!(f, "local-max={n}"),
            Term::Share(share) => f.write_str(share.spec()),
            Term::FanOut(part) => f.write_str(part.spec()),
            Term::CallerOrder => f.write_str("caller-order"),
            Term::Ascending => f.write_str("ascending"),
            Term::Descending => f.write_str("descending"),
            Term::Unbounded => f.write_str("unbounded"),
            Term::Capped(n) => write!(f, "capped={n}"),
            Term::PerRail(n) => write!(f, "per-rail={n}"),
            Term::Preparation(part) => f.write_str(part.spec()),
            Term::Coalescing(part) => f.write_str(part.spec()),
            Term::Coverage(part) => f.write_str(part.spec()),
        }
    }
}

fn count(text: &str, value: Option<&str>) -> Result<NonZeroU32, PolicyError> {
    let why = "needs a whole number from 1 to 4294967295, as in capped=8";
    // A sign cannot come here: a plus ends the term, and what is read is unsigned.
    value.and_then(|value| value.parse().ok()).ok_or_else(|| PolicyError::Value { term: shown(text), why })
}

fn coalescing(text: &str, value: Option<&str>) -> Result<Coalescing, PolicyError> {
    match value {
        None => Ok(Coalescing::Adjacent),
        Some("gaps") => Ok(Coalescing::Gaps),
        Some(_) => Err(PolicyError::Value { term: shown(text), why: "takes no value, or gaps" }),
    }
}

fn coverage(text: &str, value: Option<&str>) -> Result<Coverage, PolicyError> {
    match value {
        Some("full") => Ok(Coverage::Full),
        Some("disjoint") => Ok(Coverage::Disjoint),
        _ => Err(PolicyError::Value { term: shown(text), why: "needs full or disjoint" }),
    }
}

fn names(text: &str, value: Option<&str>) -> Result<Vec<String>, PolicyError> {
    let wrong = |why| PolicyError::Value { term: shown(text), why };
    let names: Vec<String> = value.unwrap_or_default().split(',').map(str::to_owned).collect();
    if names.iter().any(String::is_empty) {
        return Err(wrong("needs rail names or PCI addresses separated by commas, as in rails=mlx5_0,mlx5_1"));
    }
    let mut seen = std::collections::BTreeSet::new();
    if !names.iter().all(|name| seen.insert(name)) {
        return Err(wrong("names a rail twice"));
    }
    Ok(names)
}

/// What an error shows of a term: enough to recognise it, however long it is.
fn shown(text: &str) -> String {
    if text.chars().count() <= 80 { text.to_owned() } else { text.chars().take(80).chain("…".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn base() -> Policy {
        Policy::new(NonZeroU32::new(2).unwrap())
    }

    #[test]
    fn what_is_not_named_keeps_its_default() {
        assert_eq!(
            base().with("").unwrap().spec(),
            "device-local+share=fair+rails-in-parallel+caller-order+capped=2+prefault+coalesce+coverage=full"
        );
        assert_eq!(
            base().with("rail-local+ascending+capped=16").unwrap().spec(),
            "rail-local+share=fair+rails-in-parallel+ascending+capped=16+prefault+coalesce+coverage=full"
        );
        assert_eq!(
            base().with("no-prefault+per-rail=3+unbounded+rails=a,b+rails-in-series+descending").unwrap().spec(),
            "rails=a,b+rails-in-series+descending+unbounded+per-rail=3+no-prefault+coalesce+coverage=full"
        );
    }

    #[test]
    fn sharing_is_a_part_of_the_choice_of_rails_wherever_it_is_typed() {
        for spec in ["local-max=2+share=all+rail-local", "rail-local+share=all+local-max=2"] {
            assert!(base().with(spec).unwrap().spec().starts_with("rail-local+local-max=2+share=all+rails-in"), "{spec}");
        }
        let all = base().with("share=all").unwrap();
        assert!(all.spec().starts_with("device-local+share=all+"), "the base's choice is kept");
        assert!(all.with("local-max=3").unwrap().spec().starts_with("device-local+local-max=3+share=all+"));
    }

    #[test]
    fn a_term_takes_the_place_of_what_was_set_before() {
        let set = "rails=a+rails-in-series+descending+unbounded+no-prefault+no-coalesce+coverage=disjoint";
        let back = "all-rails+rails-in-parallel+caller-order+capped=2+prefault+coalesce+coverage=full";
        assert_eq!(base().with(set).unwrap().spec(), set);
        assert_eq!(base().with(set).unwrap().with(back).unwrap().spec(), back);
    }

    #[test]
    fn a_spec_has_a_greatest_length() {
        let of_bytes = |bytes: usize| format!("rails={}", "a".repeat(bytes - "rails=".len()));
        assert!(base().with(&of_bytes(65_536)).is_ok());
        for bytes in [65_537, 65_538] {
            let error = base().with(&of_bytes(bytes)).unwrap_err().to_string();
            assert!(error.contains("at most 65536 bytes"), "{error}");
        }
    }

    #[test]
    fn a_resolved_spec_reads_back_to_itself() {
        for spec in [
            "",
            "device-local",
            "local-max=3+share=all",
            "unbounded+descending",
            "rails=x+per-rail=1",
            "rails-in-series+no-prefault",
        ] {
            let resolved = base().with(spec).unwrap().spec();
            assert_eq!(base().with(&resolved).unwrap().spec(), resolved);
        }
    }

    #[test]
    fn wrong_terms_are_errors_that_list_the_choices() {
        for spec in [
            "fastest",
            "capped",
            "capped=",
            "capped=0",
            "capped=-1",
            "capped=+1",
            "capped=1.5",
            "capped=4294967296",
            "+",
            "ascending+",
            "+ascending",
            "Ascending",
            " ascending",
            "ascending=1",
            "rails=",
            "rails=a,",
            "rails=a,a",
            "per-rail=0",
            "capped=2+capped=3",
            "ascending+descending",
            "all-rails+rails=a",
            "unbounded+capped=1",
            "prefault+no-prefault",
            "coalesce=",
            "coalesce=some",
            "no-coalesce=gaps",
            "coalesce+coalesce=gaps",
            "coverage",
            "coverage=half",
            "rails-in-series+rails-in-parallel",
            "share",
            "share=some",
            "local-max=0",
            "share=fair+share=all",
            "all-rails+share=all",
            "local-max=1+rails=a",
        ] {
            let error = base().with(spec).unwrap_err().diagnosis();
            assert_eq!(error.kind.as_str(), "policy", "{spec}");
            assert!(spec.split('+').any(|term| error.message.contains(&format!("{term:?}"))), "{spec}: {}", error.message);
            assert!(error.hint.unwrap().contains("ascending"), "{spec}");
        }
    }

    #[test]
    fn an_error_does_not_repeat_a_long_text() {
        let long = "x".repeat(5000);
        for spec in [format!("rails=a{long}+rails={long}"), long.clone(), format!("capped={long}"), format!("rails={long},")] {
            let message = base().with(&spec).unwrap_err().to_string();
            assert!(message.len() < 400, "{message}");
        }
    }

    proptest! {
        #[test]
        fn every_combination_of_terms_is_read_and_names_every_part(spec in crate::testing::strategies::specs()) {
            let policy = base().with(&spec).unwrap();
            let resolved = policy.spec();
            prop_assert!(spec.split('+').all(|term| term.is_empty() || resolved.split('+').any(|other| other == term)), "{}", resolved);
            prop_assert_eq!(base().with(&resolved).unwrap().spec(), resolved);
        }

        #[test]
        fn no_text_panics_and_what_is_read_prints_and_reads_back(spec in "(rails=|capped=|per-rail=|ascending|unbounded|prefault|\\+|,|[a-z0-9=]){0,8}") {
            if let Ok(policy) = base().with(&spec) {
                prop_assert_eq!(base().with(&policy.spec()).unwrap().spec(), policy.spec());
            }
        }
    }
}

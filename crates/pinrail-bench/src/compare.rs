//! Two runs on one machine, of one batch: what has become faster.

use pinrail_core::Machine;
use serde::Deserialize;

use crate::error::BenchError;
use crate::results::{Comparison, Results, VERSION, VariantResults, Verdict};
use crate::rng::SplitMix;
use crate::stats;
use crate::verdict::{CONFIDENCE, EFFECT, judged, withhold};

/// Reads the document of a run.
///
/// # Errors
/// [`BenchError::Compare`] for what is none, or is one of another version.
pub fn read(text: &str) -> Result<Results, BenchError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: Option<u32>,
    }
    let none = |error: serde_json::Error| BenchError::Compare { what: format!("it is no record of a bench: {error}") };
    match serde_json::from_str::<Versioned>(text).map_err(none)?.version {
        Some(VERSION) => serde_json::from_str(text).map_err(none),
        Some(other) => Err(BenchError::Compare { what: format!("it has version {other} and this release reads {VERSION}") }),
        None => Err(BenchError::Compare { what: "it is no record of a bench: it has no version".to_owned() }),
    }
}

/// Compares the variants that both runs have by the same name: `ratio` is the second run's total over the first's, so
/// `faster` says that the second run is.
///
/// The two runs are not interleaved, so the fixed task is what tells whether the machine was the same: where it differs by
/// as much as the variant, the verdict is withheld.
///
/// # Errors
/// [`BenchError::Compare`] where machine, rail limits, batch, memory, backend or processes differ, or no variant is in both.
pub fn compare(before: &Results, after: &Results) -> Result<Vec<Comparison>, BenchError> {
    if let Some(what) = differs(before, after) {
        return Err(BenchError::Compare { what: format!("the runs cannot be compared: {what}") });
    }
    let canary = stats::unpaired_ratio(&after.canary_s, &before.canary_s, CONFIDENCE, &mut SplitMix::new(after.seed));
    let pair = |b: &VariantResults| {
        let a = after.variants.iter().find(|a| a.name == b.name && a.policy == b.policy)?;
        let ratio = stats::unpaired_ratio(&a.samples, &b.samples, CONFIDENCE, &mut SplitMix::new(after.seed));
        let wanted = stats::trials_for(&a.samples, &b.samples, EFFECT, CONFIDENCE);
        let mut comparison = judged(a.name.clone(), b.name.clone(), ratio, wanted);
        if let Some(reason) = stands_in_the_way(before, after, &comparison, canary.at_least()) {
            withhold(&mut comparison, reason, a.samples.len().min(b.samples.len()));
        }
        Some(comparison)
    };
    let comparisons: Vec<Comparison> = before.variants.iter().filter_map(pair).collect();
    if comparisons.is_empty() {
        return Err(BenchError::Compare { what: "the runs have no variant in common".to_owned() });
    }
    Ok(comparisons)
}

/// What makes two runs incomparable.
fn differs(a: &Results, b: &Results) -> Option<String> {
    if let Some(what) = a.environment.differs(&b.environment) {
        return Some(format!("they are of two machines ({what})"));
    }
    let facts = |of: &Results| {
        [
            ("backend", format!("{} ({})", of.backend, of.provider)),
            ("rails", of.rails.join(", ")),
            ("memory", format!("{}, {} pages", of.memory, of.pages)),
            ("processes", format!("{} {}", of.processes, of.skew.map_or_else(String::new, |skew| skew.to_string()))),
        ]
    };
    let differ = facts(a).into_iter().zip(facts(b)).find(|(a, b)| a != b);
    let differ = differ.map(|((what, a), (_, b))| format!("{what}: {} and {}", a.trim(), b.trim()));
    differ.or_else(|| rails_differ(&a.machine, &b.machine)).or_else(|| {
        (a.batch.file != b.batch.file).then(|| format!("they are of two batches, {} and {}", a.batch.name, b.batch.name))
    })
}

/// What differs between the rails of two machine files of which each rail has the same name.
fn rails_differ(a: &str, b: &str) -> Option<String> {
    let (Ok(a), Ok(b)) = (Machine::from_toml(a), Machine::from_toml(b)) else {
        return Some("a machine file in a record cannot be read".to_owned());
    };
    let (a, b) = a.rails.iter().zip(&b.rails).find(|(a, b)| a != b)?;
    let shown = |limit: Option<u64>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    let limits = a.limits.named().into_iter().zip(b.limits.named()).find(|(a, b)| a != b);
    let limits = limits.map(|((limit, of_a), (_, of_b))| format!("{limit} of {}: {} and {}", a.name, shown(of_a), shown(of_b)));
    Some(limits.unwrap_or_else(|| format!("{} is not the same rail: its place, speed or access differs", a.name)))
}

fn stands_in_the_way(before: &Results, after: &Results, comparison: &Comparison, canary: f64) -> Option<String> {
    let concerns = |variant: &Option<String>| variant.as_ref().is_none_or(|name| *name == comparison.a);
    let found = [before, after].into_iter().flat_map(|run| &run.findings).find(|finding| concerns(&finding.variant));
    if let Some(finding) = found {
        return Some(finding.what.clone());
    }
    let trials = before.trials.min(after.trials);
    if trials < stats::trials_min(CONFIDENCE) {
        return Some(format!("{trials} trials are too few: at least {} are needed", stats::trials_min(CONFIDENCE)));
    }
    let effect = comparison.ratio.max(1.0 / comparison.ratio) - 1.0;
    let differs = matches!(comparison.verdict, Verdict::Faster | Verdict::Slower);
    (differs && canary >= effect).then(|| {
        let (canary, effect) = (canary * 100.0, effect * 100.0);
        format!("the machine was not the same: a fixed task differs by at least {canary:.1} % and this by {effect:.1} %")
    })
}

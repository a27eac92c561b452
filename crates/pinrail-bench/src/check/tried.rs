//! Checks that look at all trials of a run together.

use pinrail_core::Kind;

use super::Check;
use crate::schedule;
use crate::stats;
use crate::trial::Evidence;

/// How a variant's preparation cuts memory: how many slices, and the longest.
pub(crate) type Slicing = (usize, u64);

/// A trial's slicing.
pub(crate) fn slicing(evidence: &Evidence) -> Slicing {
    let slices = evidence.calls.iter().filter(|call| call.kind == Kind::Prepare);
    slices.fold((0, 0), |(count, longest), call| (count + 1, call.len.max(longest)))
}

/// Two variants that prepare cut the memory alike: else slices are compared and not what the variants are called.
pub(crate) fn slices(a: Slicing, b: Slicing) -> Option<(Check, String)> {
    let differ = a.0 > 0 && b.0 > 0 && a != b;
    let text = |(count, longest): Slicing| format!("{count} slices of at most {longest} bytes");
    differ.then(|| (Check::Slices, format!("one prepares {} and the other {}: slices are compared", text(a), text(b))))
}

/// Trials were interleaved in an order that favours nobody.
pub(crate) fn interleaved(schedule: &[Vec<usize>], names: &[String]) -> Option<(Check, String)> {
    schedule::fault(schedule, names).map(|what| (Check::Interleaved, format!("trials were not interleaved: {what}")))
}

/// There are enough trials for the interval.
pub(crate) fn trials(trials: u32, confidence: f64) -> Option<(Check, String)> {
    let least = stats::trials_min(confidence);
    (trials < least).then(|| {
        let percent = confidence * 100.0;
        (Check::Trials, format!("{trials} trials are too few for an interval of {percent} %: at least {least} are needed"))
    })
}

/// The machine stood still by more than what was found.
pub(crate) fn drift(at_least: f64, ratio: f64) -> Option<(Check, String)> {
    let effect = if ratio > 1.0 { ratio - 1.0 } else { 1.0 / ratio - 1.0 };
    (at_least >= effect).then(|| {
        let (drift, effect) = (at_least * 100.0, effect * 100.0);
        (
            Check::Drift,
            format!("the machine drifted: a fixed task moved by at least {drift:.1} % during the run and this differs by {effect:.1} %"),
        )
    })
}

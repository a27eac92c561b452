use std::collections::{BTreeMap, BTreeSet};

use pinrail_core::Kind;
use pinrail_policy::FanOut;
use pinrail_policy::spec::Term;

use super::{Fault, Seen};
use crate::contestant::Handout;

/// The hand-outs follow the order that was typed, sorted here once more by other code; and the order is not the one the
/// caller had anyway.
pub(super) fn order(seen: &Seen<'_>) -> Option<Fault> {
    let term = seen.typed().iter().find(|term| matches!(term, Term::Ascending | Term::Descending | Term::CallerOrder))?;
    let run = match seen.evidence.ran.dispatched.as_slice() {
        [] => return Some(Fault::Broken(format!("{term}: there is no record of hand-outs to see it in"))),
        [run] => run,
        // Another check's: no order can be seen in lists of one.
        _ => return None,
    };
    let registers = run.handouts.iter().filter(|handout| handout.kind == Kind::Register);
    // Chunks are numbered in the caller's order.
    let lens: BTreeMap<u32, u64> = registers.map(|handout| (handout.chunk, handout.len)).collect();
    let callers: Vec<u32> = lens.keys().copied().collect();
    let mut wanted = callers.clone();
    match term {
        Term::Ascending => wanted.sort_by_key(|chunk| lens[chunk]),
        Term::Descending => wanted.sort_by_key(|chunk| std::cmp::Reverse(lens[chunk])),
        _ => {}
    }
    let places: BTreeMap<u32, usize> = wanted.iter().enumerate().map(|(at, chunk)| (*chunk, at)).collect();
    let in_series = seen.claims.is_some_and(|claims| claims.policy.fan_out == FanOut::InSeries);
    if let Some(chunk) = out_of_order(&run.handouts, in_series, &places) {
        let len = lens.get(&chunk).copied().unwrap_or(0);
        return Some(Fault::Broken(format!("{term}: a chunk of {len} bytes was handed out after one that it comes before")));
    }
    (wanted == callers && *term != Term::CallerOrder).then(|| {
        let what = if callers.len() < 2 { "it saw a single chunk" } else { "the batch is in that order already" };
        Fault::Idle(format!("{term} changed nothing: {what}"))
    })
}

/// A chunk that came too late. Where there are preparations they all lie in one lane, and tell; else each rail is a lane
/// (in series only a chunk's first rail can start by itself).
fn out_of_order(handouts: &[Handout], in_series: bool, places: &BTreeMap<u32, usize>) -> Option<u32> {
    let prepared = handouts.iter().any(|handout| handout.kind == Kind::Prepare);
    let mut begun = BTreeSet::new();
    let mut last: BTreeMap<Option<u16>, usize> = BTreeMap::new();
    for handout in handouts.iter().filter(|handout| (handout.kind == Kind::Prepare) == prepared) {
        if !prepared && in_series && !begun.insert(handout.chunk) {
            continue;
        }
        let place = places.get(&handout.chunk).copied().unwrap_or(0);
        if last.insert(handout.rail, place).is_some_and(|before| before > place) {
            return Some(handout.chunk);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use pinrail_core::WorkerId;

    use super::*;

    fn handouts(steps: &[(Kind, u32, u16)]) -> Vec<Handout> {
        let handout = |&(kind, chunk, rail): &(Kind, u32, u16)| Handout {
            kind,
            chunk,
            start: 0,
            len: 1,
            rail: (kind == Kind::Register).then_some(rail),
            worker: WorkerId(0),
            start_ns: 0,
            end_ns: 0,
        };
        steps.iter().map(handout).collect()
    }

    #[test]
    fn each_lane_has_its_order() {
        let places: BTreeMap<u32, usize> = [(0, 0), (1, 1)].into();
        let late = |steps: &[(Kind, u32, u16)], in_series| out_of_order(&handouts(steps), in_series, &places);
        use Kind::{Prepare, Register};
        assert_eq!(late(&[(Register, 0, 0), (Register, 1, 0), (Register, 0, 1), (Register, 1, 1)], false), None);
        assert_eq!(late(&[(Register, 1, 0), (Register, 0, 0)], false), Some(0));
        // A chunk whose slices took longer may be registered later.
        assert_eq!(late(&[(Prepare, 0, 0), (Prepare, 1, 0), (Register, 1, 0), (Register, 0, 0)], false), None);
        assert_eq!(late(&[(Prepare, 1, 0), (Prepare, 0, 0), (Register, 0, 0), (Register, 1, 0)], false), Some(0));
        // In series the second rail of the first chunk waits for its first.
        assert_eq!(late(&[(Register, 0, 0), (Register, 1, 1), (Register, 0, 1)], true), None);
    }
}

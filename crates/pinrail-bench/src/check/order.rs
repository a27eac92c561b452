use std::collections::{BTreeMap, BTreeSet};

use pinrail_core::Kind;
use pinrail_policy::FanOut;
use pinrail_policy::spec::Term;

use super::{Fault, Seen};
use crate::contestant::Handout;

/// A chunk: its buffer, its first byte in it, its bytes.
type Chunk = (u32, u64, u64);

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
    let chunks: BTreeSet<Chunk> = registers(&run.handouts).map(|of| (of.buffer, of.offset, of.len)).collect();
    let callers: Vec<Chunk> = chunks.iter().copied().collect();
    let mut wanted = callers.clone();
    match term {
        Term::Ascending => wanted.sort_by_key(|chunk| chunk.2),
        Term::Descending => wanted.sort_by_key(|chunk| std::cmp::Reverse(chunk.2)),
        _ => {}
    }
    let places: BTreeMap<Chunk, usize> = wanted.iter().enumerate().map(|(at, chunk)| (*chunk, at)).collect();
    if let Some(name) = out_of_order(seen, &run.handouts, &chunks, &places) {
        return Some(Fault::Broken(format!("{term}: buffer {name} was handed out before one that comes first")));
    }
    (wanted == callers && *term != Term::CallerOrder).then(|| {
        let what = if callers.len() < 2 { "it saw a single chunk" } else { "the batch is in that order already" };
        Fault::Idle(format!("{term} changed nothing: {what}"))
    })
}

fn registers(handouts: &[Handout]) -> impl Iterator<Item = &Handout> {
    handouts.iter().filter(|handout| handout.kind == Kind::Register)
}

/// The name of a buffer that came too early. Where there are preparations they all lie in one lane, and tell; else each
/// rail is a lane (in series only a chunk's first rail can start by itself).
fn out_of_order<'s>(
    seen: &'s Seen<'_>,
    handouts: &[Handout],
    chunks: &BTreeSet<Chunk>,
    places: &BTreeMap<Chunk, usize>,
) -> Option<&'s str> {
    let in_series = seen.claims.is_some_and(|claims| claims.policy.fan_out == FanOut::InSeries);
    let prepared = handouts.iter().any(|handout| handout.kind == Kind::Prepare);
    let mut begun = BTreeSet::new();
    let mut last: BTreeMap<Option<u16>, usize> = BTreeMap::new();
    for handout in handouts.iter().filter(|handout| (handout.kind == Kind::Prepare) == prepared) {
        let chunk = match handout.kind {
            Kind::Prepare => chunks.range(..=(handout.buffer, handout.offset, u64::MAX)).next_back().copied()?,
            _ => (handout.buffer, handout.offset, handout.len),
        };
        if !prepared && in_series && !begun.insert(chunk) {
            continue;
        }
        let place = places.get(&chunk).copied().unwrap_or(0);
        if let Some(before) = last.insert(handout.rail, place)
            && before > place
        {
            return seen.evidence.batch.get(chunk.0 as usize).map(|buffer| &*buffer.name);
        }
    }
    None
}

use std::collections::BTreeMap;

use pinrail_core::Kind;
use pinrail_policy::FanOut;
use pinrail_policy::spec::Term;

use super::{Fault, Seen};
use crate::trial;
use crate::watch::Call;

/// `rails-in-series` that was typed: no two rails of a chunk at once. `rails-in-parallel`: somewhere two at once.
pub(super) fn fan_out(seen: &Seen<'_>) -> Option<Fault> {
    let fan_out = seen.typed().iter().find_map(|term| if let Term::FanOut(of) = term { Some(*of) } else { None })?;
    let mut by_chunk: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
    for call in seen.evidence.calls.iter().filter(|call| call.kind == Kind::Register) {
        by_chunk.entry(call.start).or_default().push(*call);
    }
    let name = fan_out.spec();
    if by_chunk.values().all(|calls| calls.len() < 2) {
        return Some(Fault::Idle(format!("{name} changed nothing: every chunk is registered on one rail")));
    }
    let together = by_chunk.values().any(|calls| trial::in_flight(calls) > 1);
    match (fan_out, together) {
        (FanOut::InSeries, true) => Some(Fault::Broken(format!("{name}: two rails of a chunk were registered at once"))),
        (FanOut::InParallel, false) => {
            Some(Fault::Idle(format!("{name} changed nothing: no two rails of a chunk were ever registered at once")))
        }
        _ => None,
    }
}

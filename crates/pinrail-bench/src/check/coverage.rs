use std::collections::BTreeMap;

use pinrail_core::{Kind, RailId};

use super::{Fault, Seen};
use crate::watch::Call;

/// Every byte of every buffer is registered once on each rail that was chosen for it and on no other, and all of it is
/// deregistered: seen from the calls.
pub(super) fn coverage(seen: &Seen<'_>) -> Option<Fault> {
    let evidence = seen.evidence;
    if evidence.lost > 0 {
        return Some(Fault::Broken(format!("{} calls more than the batch needs", evidence.lost)));
    }
    let made = by_rail(&evidence.calls, Kind::Register);
    let mut wanted: BTreeMap<RailId, Vec<(u64, u64)>> = BTreeMap::new();
    for (buffer, selection) in evidence.batch.iter().zip(&seen.selections) {
        for &rail in &selection.rails {
            wanted.entry(rail).or_default().push((buffer.extent().start(), buffer.extent().end()));
        }
    }
    for (rail, buffers) in &mut wanted {
        buffers.sort_unstable();
        let name = &evidence.machine.rails[rail.index()].name;
        let calls = made.get(rail).map_or(&[][..], Vec::as_slice);
        if joined(calls, buffers) != *buffers {
            let (of, all) = (sum(calls), sum(buffers));
            return Some(Fault::Broken(format!("not every byte was registered once on {name}: {of} bytes instead of {all}")));
        }
    }
    if let Some(rail) = made.keys().find(|rail| !wanted.contains_key(rail)) {
        let name = &evidence.machine.rails[rail.index()].name;
        return Some(Fault::Broken(format!("{name} was registered on, and the policy does not choose it")));
    }
    let undone = by_rail(&evidence.undone, Kind::Deregister);
    (undone != made).then(|| Fault::Broken("what was registered is not what was deregistered".to_owned()))
}

/// The ranges of successful calls by rail, ascending.
fn by_rail(calls: &[Call], kind: Kind) -> BTreeMap<RailId, Vec<(u64, u64)>> {
    let mut by_rail: BTreeMap<RailId, Vec<(u64, u64)>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.kind == kind && call.ok) {
        if let Some(rail) = call.rail {
            by_rail.entry(rail).or_default().push((call.start, call.start + call.len));
        }
    }
    by_rail.values_mut().for_each(|ranges| ranges.sort_unstable());
    by_rail
}

/// Pieces joined to the buffers they tile; what tiles none stays as it is.
fn joined(pieces: &[(u64, u64)], buffers: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(buffers.len());
    for &(start, end) in pieces {
        // A piece goes on where the last one ended, unless a buffer begins right there.
        let begins = buffers.binary_search_by_key(&start, |buffer| buffer.0).is_ok();
        match joined.last_mut() {
            Some(last) if last.1 == start && !begins => last.1 = end,
            _ => joined.push((start, end)),
        }
    }
    joined
}

fn sum(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_to_buffers_and_to_nothing_else() {
        let buffers = [(0, 10), (10, 20), (30, 40)];
        assert_eq!(joined(&[(0, 4), (4, 10), (10, 20), (30, 40)], &buffers), buffers);
        for wrong in [&[(0, 10), (10, 20)][..], &[(0, 10), (10, 20), (30, 39)], &[(0, 10), (10, 20), (30, 40), (30, 40)]] {
            assert_ne!(joined(wrong, &buffers), buffers);
        }
        assert_ne!(joined(&[(0, 4), (5, 10), (10, 20), (30, 40)], &buffers), buffers);
    }
}

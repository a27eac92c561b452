use std::collections::{BTreeMap, BTreeSet};

use pinrail_core::{Buffer, Kind, RailId};
use pinrail_policy::spec::Term;
use pinrail_policy::{Coverage, Selection};

use super::{Fault, Seen};
use crate::watch::Call;

/// Every byte of every buffer is registered once on each rail that was chosen for it (or once on one of them, where the
/// policy shares buffers out), on no other, and all of it is deregistered: seen from the calls.
pub(super) fn coverage(seen: &Seen<'_>) -> Option<Fault> {
    let evidence = seen.evidence;
    let broken = |what: String| Some(Fault::Broken(what));
    if evidence.lost > 0 {
        return broken(format!("{} calls more than the batch needs were made", evidence.lost));
    }
    let name = |rail: RailId| evidence.machine.rails.get(rail.index()).map_or("an unknown rail", |rail| &rail.name);
    let made = ranges(&evidence.calls, Kind::Register);
    if let Some((rail, at)) = made.iter().find_map(|(rail, ranges)| Some((*rail, twice(ranges)?))) {
        return broken(format!("address {at:#x} was registered twice on {}", name(rail)));
    }
    let may_share = seen.claims.is_some_and(|claims| claims.policy.coverage == Coverage::Disjoint);
    let mut shared = false;
    let mut touched: BTreeMap<RailId, BTreeSet<u64>> = BTreeMap::new();
    for (buffer, Selection { rails, .. }) in evidence.batch.iter().zip(&seen.selections) {
        let covers: Vec<(RailId, u64)> = made
            .iter()
            .filter_map(|(rail, ranges)| {
                let over = overlapping(ranges, buffer);
                touched.entry(*rail).or_default().extend(over.iter().map(|range| range.0));
                let bytes = over.iter().map(|range| within(*range, buffer)).sum();
                (bytes > 0).then_some((*rail, bytes))
            })
            .collect();
        let full = rails.iter().all(|rail| covers.contains(&(*rail, buffer.len())));
        let once = may_share && covers.iter().map(|(_, bytes)| bytes).sum::<u64>() == buffer.len();
        shared |= once && !full;
        if let Some((rail, _)) = covers.iter().find(|(rail, _)| !rails.contains(rail)) {
            return broken(format!("buffer {} was registered on {}, which is not chosen for it", buffer.name, name(*rail)));
        }
        if !full && !once {
            let rail = rails.iter().find(|rail| !covers.contains(&(**rail, buffer.len()))).copied();
            let bytes = covers.iter().find(|(of, _)| Some(*of) == rail).map_or(0, |(_, bytes)| *bytes);
            let (all, rail) = (buffer.len(), rail.map_or("its rails", name));
            return broken(format!("{bytes} of {all} bytes of buffer {} were registered on {rail}", buffer.name));
        }
    }
    for (rail, ranges) in &made {
        if ranges.len() != touched.get(rail).map_or(0, BTreeSet::len) {
            return broken(format!("something that is no buffer was registered on {}", name(*rail)));
        }
    }
    if ranges(&evidence.undone, Kind::Deregister) != made {
        return broken("what was registered is not what was deregistered".to_owned());
    }
    let typed = seen.typed().contains(&Term::Coverage(Coverage::Disjoint));
    (typed && !shared).then(|| Fault::Idle("coverage=disjoint changed nothing: every rail holds the whole batch".to_owned()))
}

/// The ranges of successful calls by rail, ascending.
fn ranges(calls: &[Call], kind: Kind) -> BTreeMap<RailId, Vec<(u64, u64)>> {
    let mut by_rail: BTreeMap<RailId, Vec<(u64, u64)>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.kind == kind && call.ok) {
        if let Some(rail) = call.rail {
            by_rail.entry(rail).or_default().push((call.start, call.start + call.len));
        }
    }
    by_rail.values_mut().for_each(|ranges| ranges.sort_unstable());
    by_rail
}

/// The first address in two of the ranges.
fn twice(ranges: &[(u64, u64)]) -> Option<u64> {
    ranges.windows(2).find(|pair| pair[1].0 < pair[0].1).map(|pair| pair[1].0)
}

/// Those of disjoint ascending ranges that a buffer has bytes in.
pub(super) fn overlapping<'r>(ranges: &'r [(u64, u64)], buffer: &Buffer) -> &'r [(u64, u64)] {
    let extent = buffer.extent();
    let first = ranges.partition_point(|range| range.1 <= extent.start());
    let end = ranges.partition_point(|range| range.0 < extent.end());
    &ranges[first..end.max(first)]
}

fn within((start, end): (u64, u64), buffer: &Buffer) -> u64 {
    end.min(buffer.extent().end()) - start.max(buffer.extent().start())
}

#[cfg(test)]
mod tests {
    use pinrail_core::Memory;

    use super::*;

    #[test]
    fn ranges_are_told_from_neighbours() {
        let memory = Memory::imagined(0x1000, 0x1000).unwrap();
        let buffer = Buffer::new("b", memory, 0x100..0x200).unwrap();
        let ranges = [(0x1000, 0x1100), (0x1100, 0x1180), (0x1180, 0x1300), (0x1300, 0x1400)];
        assert_eq!(overlapping(&ranges, &buffer), &ranges[1..3]);
        assert_eq!(within(ranges[2], &buffer), 0x80);
        assert!(overlapping(&[], &buffer).is_empty());
        assert_eq!((twice(&ranges), twice(&[(0, 10), (9, 12)])), (None, Some(9)));
    }
}

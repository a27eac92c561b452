//! Which buffers share registrations: a run is one buffer, or neighbours of one allocation.

use std::ops::Range;

use pinrail_core::{Access, Buffer, BufferId, Place};
use pinrail_policy::Coalescing;

/// Buffers that share registrations.
pub(crate) struct Run {
    /// In ascending addresses.
    pub(crate) members: Vec<BufferId>,
    /// What is registered, as addresses: the members, the gaps between them that may be bridged, and where huge pages lie
    /// behind them the rest of the pages at both ends that nobody else uses.
    pub(crate) extent: Range<u64>,
    pub(crate) terms: Terms,
}

/// What buffers must have in common to share a registration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Their rails.
    pub(crate) set: u32,
    pub(crate) access: Access,
    pub(crate) page_size: u64,
    pub(crate) unit: Option<u64>,
    pub(crate) place: Place,
}

/// Groups buffers whose order by address is `by_address`; `alone` are kept apart. Runs come in the caller's order of
/// their first member.
pub(crate) fn group(
    buffers: &[Buffer],
    sets: &[u32],
    by_address: &[BufferId],
    coalescing: Coalescing,
    alone: &dyn Fn(BufferId) -> bool,
) -> Vec<Run> {
    let terms = |id: BufferId| {
        let Buffer { access, page_size, unit, place, .. } = buffers[id.index()];
        Terms { set: sets[id.index()], access: access.effective(), page_size, unit, place }
    };
    let mut runs: Vec<Run> = Vec::new();
    for &id in by_address {
        let buffer = &buffers[id.index()];
        let extent = buffer.extent();
        if let Some(run) = runs.last_mut() {
            let last = *run.members.last().expect("a run has a member");
            let gap = extent.start() - run.extent.end;
            // Units are counted from where a run begins: a member that ends inside a unit would shift its successor's.
            let unit_fits = buffer.unit.is_none_or(|unit| (extent.start() - run.extent.start).is_multiple_of(unit));
            let joins = coalescing.bridges(gap)
                && buffer.memory.same(&buffers[last.index()].memory)
                && run.terms == terms(id)
                && unit_fits
                && !alone(id)
                && !alone(last);
            if joins {
                run.extent.end = extent.end();
                run.members.push(id);
                continue;
            }
        }
        runs.push(Run { members: vec![id], extent: extent.range(), terms: terms(id) });
    }
    round_out(&mut runs, buffers);
    runs.sort_by_key(|run| run.members.iter().min().copied());
    runs
}

/// Huge pages are registered whole, as some drivers demand: out to the page's ends, inside the allocation and where no
/// other run lies. On small pages a run is exactly its bytes.
fn round_out(runs: &mut [Run], buffers: &[Buffer]) {
    for at in 0..runs.len() {
        let page = runs[at].terms.page_size;
        if page <= pinrail_core::batch::PAGE_SIZE_DEFAULT {
            continue;
        }
        let memory = buffers[runs[at].members[0].index()].memory.extent();
        let below = at.checked_sub(1).map_or(0, |below| runs[below].extent.end);
        let above = runs.get(at + 1).map_or(u64::MAX, |above| above.extent.start);
        let extent = runs[at].extent.clone();
        let start = extent.start / page * page;
        let end = extent.end.checked_next_multiple_of(page).unwrap_or(u64::MAX);
        // A unit is counted from the buffer's first byte, so the start of such a run stays.
        let start_is_free = start >= below && start >= memory.start() && runs[at].terms.unit.is_none();
        let start = if start_is_free { start } else { extent.start };
        let end = if end <= above && end <= memory.end() { end } else { extent.end };
        runs[at].extent = start..end;
    }
}

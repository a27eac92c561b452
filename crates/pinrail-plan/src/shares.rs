//! Disjoint shares: every piece of a run on one of its rails, so that no rail holds more than it can.

use std::cmp::Reverse;
use std::ops::Range;

use pinrail_core::{Access, Rail, RailId};

use crate::needs::{Budget, RailNeeds};
use crate::plan::CHUNKS_MAX;
use crate::runs::Run;
use crate::seams::{self, CannotCut};

/// What each rail can still take.
pub(crate) struct Left {
    rails: Vec<LeftOn>,
}

struct LeftOn {
    mrs: u64,
    pages: u64,
    pages_remote_write: u64,
    bytes: u64,
    max_mr_size: u64,
}

/// Why no rail takes the next piece.
pub(crate) enum NoShare {
    Cut(CannotCut, RailId),
    /// This has run out on every rail.
    Exhausted(Budget),
    TooMany,
}

impl Left {
    pub(crate) fn of(rails: &[Rail], live: &[RailNeeds]) -> Left {
        let left = |(at, rail): (usize, &Rail)| {
            let held = live.get(at).copied().unwrap_or_default();
            let left = |budget: Budget| budget.left(rail, &held).unwrap_or(u64::MAX);
            LeftOn {
                mrs: left(Budget::Mrs),
                pages: left(Budget::Pages),
                pages_remote_write: left(Budget::PagesRemoteWrite),
                bytes: left(Budget::Bytes),
                max_mr_size: rail.limits.max_mr_size.unwrap_or(u64::MAX),
            }
        };
        Left { rails: rails.iter().enumerate().map(left).collect() }
    }

    /// Shares a run out: each piece goes to the rail with the most room left, as long as that rail takes. A rail without
    /// limits would take everything, so pieces also stay below an equal share.
    pub(crate) fn share(&mut self, run: &Run, rails: &[RailId]) -> Result<Vec<(Range<u64>, RailId)>, NoShare> {
        let (page, unit, access) = (run.terms.page_size, run.terms.unit, run.terms.access);
        let rails_count = rails.iter().fold(0, |n, _| n + 1u64);
        let equal = (run.extent.end - run.extent.start).div_ceil(rails_count).max(page).max(unit.unwrap_or(0));
        let equal = equal.checked_next_multiple_of(page).unwrap_or(equal);
        let mut pieces = Vec::new();
        let mut given = vec![0u64; rails.len()];
        let mut at = run.extent.start;
        while at < run.extent.end {
            // Ties go to the rail with the fewer pieces so far, then to the first of the selection.
            let room = |rail: RailId| self.on(rail).room(page, access, at % page);
            let free = rails.iter().copied().enumerate().filter(|&(_, rail)| room(rail) > 0);
            let Some((nth, rail)) = free.min_by_key(|&(nth, rail)| (Reverse(room(rail)), given[nth])) else {
                return Err(NoShare::Exhausted(self.exhausted(rails, access)));
            };
            let max = self.on(rail).max_mr_size.min(room(rail)).min(equal);
            let rest = run.extent.end - at;
            // Only the rail's limit of one registration is a reason of its own; the rest is its budget running out.
            let step = seams::step(at, rest, page, unit, max).map_err(|cannot| match max == self.on(rail).max_mr_size {
                true => NoShare::Cut(cannot, rail),
                false => NoShare::Exhausted(self.on(rail).tightest(page, access)),
            })?;
            let piece = seams::cut(at..run.extent.end, max, step).next().unwrap_or(at..run.extent.end);
            self.rails[rail.index()].take(&piece, page, access);
            given[nth] += 1;
            at = piece.end;
            pieces.push((piece, rail));
            if pieces.len() > CHUNKS_MAX {
                return Err(NoShare::TooMany);
            }
        }
        Ok(pieces)
    }

    /// What none of these rails has any more.
    fn exhausted(&self, rails: &[RailId], access: Access) -> Budget {
        let all = |none: fn(&LeftOn) -> bool| rails.iter().all(|&rail| none(self.on(rail)));
        match () {
            () if all(|on| on.mrs == 0) => Budget::Mrs,
            () if all(|on| on.bytes == 0) => Budget::Bytes,
            () if all(|on| on.pages == 0) || !access.contains(Access::REMOTE_WRITE) => Budget::Pages,
            () => Budget::PagesRemoteWrite,
        }
    }

    fn on(&self, rail: RailId) -> &LeftOn {
        &self.rails[rail.index()]
    }
}

impl LeftOn {
    /// Bytes of the next piece, which begins so many bytes into a page: it shares that page's entry with nobody.
    fn room(&self, page: u64, access: Access, into_page: u64) -> u64 {
        let entries = self.entries(access).saturating_mul(page).saturating_sub(into_page);
        if self.mrs == 0 { 0 } else { entries.min(self.bytes) }
    }

    fn entries(&self, access: Access) -> u64 {
        if access.contains(Access::REMOTE_WRITE) { self.pages.min(self.pages_remote_write) } else { self.pages }
    }

    /// What bounds the room.
    fn tightest(&self, page: u64, access: Access) -> Budget {
        match () {
            () if self.bytes <= self.entries(access).saturating_mul(page) => Budget::Bytes,
            () if self.entries(access) == self.pages => Budget::Pages,
            () => Budget::PagesRemoteWrite,
        }
    }

    fn take(&mut self, piece: &Range<u64>, page: u64, access: Access) {
        let pages = (piece.end - 1) / page - piece.start / page + 1;
        self.mrs -= 1;
        self.pages = self.pages.saturating_sub(pages);
        if access.contains(Access::REMOTE_WRITE) {
            self.pages_remote_write = self.pages_remote_write.saturating_sub(pages);
        }
        self.bytes = self.bytes.saturating_sub(piece.end - piece.start);
    }
}

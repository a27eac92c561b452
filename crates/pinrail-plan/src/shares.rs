//! Disjoint shares: every piece of a run on one of its rails, so that no rail holds more than it can.

use std::ops::Range;

use pinrail_core::{Rail, RailId};

use crate::needs::RailNeeds;
use crate::runs::Run;
use crate::seams::{self, CannotCut};

/// What each rail can still take.
pub(crate) struct Left {
    rails: Vec<LeftOn>,
}

struct LeftOn {
    mrs: u64,
    pages: u64,
    max_mr_size: u64,
}

/// Why no rail takes the next piece.
pub(crate) enum NoShare {
    Cut(CannotCut, RailId),
    /// Pieces, or pages where false, have run out on every rail.
    Exhausted {
        by_mrs: bool,
    },
}

impl Left {
    pub(crate) fn of(rails: &[Rail], live: &[RailNeeds]) -> Left {
        let left = |(at, rail): (usize, &Rail)| {
            let held = live.get(at).copied().unwrap_or_default();
            LeftOn {
                mrs: rail.limits.max_mrs.unwrap_or(u64::MAX).saturating_sub(held.mrs),
                pages: rail.limits.max_pages.unwrap_or(u64::MAX).saturating_sub(held.pages),
                max_mr_size: rail.limits.max_mr_size.unwrap_or(u64::MAX),
            }
        };
        Left { rails: rails.iter().enumerate().map(left).collect() }
    }

    /// Shares a run out: each piece goes to the rail with the most pages left, as long as that rail takes. A rail without
    /// limits would take everything, so pieces also stay below an equal share.
    pub(crate) fn share(&mut self, run: &Run, rails: &[RailId]) -> Result<Vec<(Range<u64>, RailId)>, NoShare> {
        let (page, unit) = (run.terms.page_size, run.terms.unit);
        let rails_count = rails.iter().fold(0, |n, _| n + 1u64);
        let equal = (run.extent.end - run.extent.start).div_ceil(rails_count).max(page).max(unit.unwrap_or(0));
        let equal = equal.checked_next_multiple_of(page).unwrap_or(equal);
        let mut pieces = Vec::new();
        let mut at = run.extent.start;
        while at < run.extent.end {
            // Ties go to the rail with the fewer pieces so far, then to the first of the selection.
            let free = rails.iter().copied().filter(|&rail| self.on(rail).mrs > 0 && self.on(rail).pages > 0);
            let given = |rail: RailId| pieces.iter().filter(|(_, to)| *to == rail).count();
            let Some(rail) = free.min_by_key(|&rail| (std::cmp::Reverse(self.on(rail).pages), given(rail))) else {
                return Err(NoShare::Exhausted { by_mrs: rails.iter().all(|&rail| self.on(rail).mrs == 0) });
            };
            let to = self.on(rail);
            // A piece that begins inside a page shares that page's entry with nobody: one page less fits.
            let fits = to.pages.saturating_mul(page).saturating_sub(at % page);
            let max = to.max_mr_size.min(fits).min(equal);
            let rest = run.extent.end - at;
            // Only the rail's limit of one registration is a reason of its own; the rest is its budget running out.
            let step = seams::step(at, rest, page, unit, max).map_err(|cannot| match max == to.max_mr_size {
                true => NoShare::Cut(cannot, rail),
                false => NoShare::Exhausted { by_mrs: false },
            })?;
            let piece = seams::cut(at..run.extent.end, max, step).next().unwrap_or(at..run.extent.end);
            let pages = (piece.end - 1) / page - piece.start / page + 1;
            let to = &mut self.rails[rail.index()];
            to.mrs -= 1;
            to.pages = to.pages.saturating_sub(pages);
            at = piece.end;
            pieces.push((piece, rail));
        }
        Ok(pieces)
    }

    fn on(&self, rail: RailId) -> &LeftOn {
        &self.rails[rail.index()]
    }
}

//! What of a batch would fit, where all of it does not.

use pinrail_core::size::Bytes;
use pinrail_core::{BufferId, Rail, RailId};

use crate::needs::{Budget, Over, RailNeeds};
use crate::{PlanError, PlannedChunk};

/// What would fit within a budget that does not suffice. Each is a fact about the batch, none a guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fits {
    /// So many of the batch's buffers, from the first on.
    pub buffers: u64,
    /// The buffers of the batch.
    pub of_buffers: u64,
    /// So many bytes, on the batch's smallest pages.
    pub bytes: Option<u64>,
    /// The batch on pages of so many bytes, and the page entries that takes.
    pub huge: Option<(u64, u64)>,
    /// How many rails have enough of it together, where each of these chunks is on several.
    pub shared_by: Option<u64>,
}

/// What was planned and does not fit.
pub(crate) struct Planned<'p> {
    pub(crate) chunks: &'p [PlannedChunk],
    pub(crate) members: &'p [BufferId],
    pub(crate) sets: &'p [Box<[RailId]>],
    pub(crate) rails: &'p [Rail],
    pub(crate) live: &'p [RailNeeds],
    pub(crate) buffers: usize,
}

impl Planned<'_> {
    /// The error of a budget that does not suffice, with what would fit.
    pub(crate) fn error(&self, over: Over, may_be_shared: bool) -> PlanError {
        let Over { rail, budget, limit, need, live } = over;
        let fits = Fits {
            buffers: self.first_buffers(over),
            of_buffers: self.buffers as u64,
            bytes: self.bytes(over),
            huge: self.on_huge_pages(over),
            shared_by: if may_be_shared { self.shared_by(over) } else { None },
        };
        PlanError::Budget { rail: self.rails[rail.index()].name.clone(), budget, limit, need, live, fits: Box::new(fits) }
    }

    fn on(&self, rail: RailId) -> impl Iterator<Item = &PlannedChunk> {
        self.chunks.iter().filter(move |chunk| self.sets[chunk.set as usize].contains(&rail))
    }

    /// The buffers before the first that has a chunk beyond the budget. Chunks come in the caller's order of their runs,
    /// so what is left of that run and all after it are asked.
    fn first_buffers(&self, over: Over) -> u64 {
        let mut used = over.live;
        let is_beyond = |chunk: &PlannedChunk| {
            if self.sets[chunk.set as usize].contains(&over.rail) {
                used = used.saturating_add(over.budget.of(&RailNeeds::of(chunk)));
            }
            used > over.limit
        };
        let beyond = self.chunks.iter().position(is_beyond).unwrap_or(0);
        let members = |chunk: &PlannedChunk| &self.members[chunk.members.0 as usize..chunk.members.1 as usize];
        self.chunks[beyond..].iter().flat_map(members).min().map_or(0, |buffer| buffer.0.into())
    }

    fn bytes(&self, over: Over) -> Option<u64> {
        let page = self.on(over.rail).map(PlannedChunk::page_size).min()?;
        let left = over.limit.saturating_sub(over.live);
        match over.budget {
            Budget::Mrs => None,
            Budget::Bytes => Some(left),
            Budget::Pages | Budget::PagesRemoteWrite => Some(left.saturating_mul(page)),
        }
    }

    fn on_huge_pages(&self, over: Over) -> Option<(u64, u64)> {
        let counts = |chunk: &&PlannedChunk| over.budget.of(&RailNeeds::of(chunk)) > 0;
        let entries = |page: u64| {
            let of = |chunk: &PlannedChunk| chunk.len().div_ceil(page.max(chunk.page_size()));
            (page, self.on(over.rail).filter(counts).map(of).fold(0, u64::saturating_add))
        };
        let is_pages = matches!(over.budget, Budget::Pages | Budget::PagesRemoteWrite);
        let fits =
            |(_, entries): &(u64, u64)| is_pages && *entries < over.need && entries.saturating_add(over.live) <= over.limit;
        [2 << 20, 1 << 30].map(entries).into_iter().find(fits)
    }

    /// The rails that share the chunks of this one, if what is left of all of them is enough for one registration of each
    /// chunk.
    fn shared_by(&self, over: Over) -> Option<u64> {
        let mut rails: Vec<RailId> = self.on(over.rail).flat_map(|chunk| &self.sets[chunk.set as usize]).copied().collect();
        rails.sort_unstable();
        rails.dedup();
        let need = |chunk: &PlannedChunk| over.budget.of(&RailNeeds::of(chunk));
        let together = |chunk: &&PlannedChunk| self.sets[chunk.set as usize].iter().any(|rail| rails.binary_search(rail).is_ok());
        let needed = self.chunks.iter().filter(together).map(need).fold(0, u64::saturating_add);
        let left = |rail: &RailId| {
            let live = self.live.get(rail.index()).copied().unwrap_or_default();
            over.budget.left(&self.rails[rail.index()], &live).unwrap_or(u64::MAX)
        };
        let left = rails.iter().map(left).fold(0, u64::saturating_add);
        (rails.len() > 1 && needed <= left).then_some(rails.len() as u64)
    }
}

impl Fits {
    pub(crate) fn hint(&self, budget: Budget) -> String {
        let mut ways = Vec::new();
        if let Some((page, entries)) = self.huge {
            ways.push(format!("on pages of {} it takes at most {entries}", Bytes(page)));
        }
        match self.bytes {
            _ if self.buffers > 0 => ways.push(format!("the first {} of the {} buffers fit", self.buffers, self.of_buffers)),
            Some(bytes) if bytes > 0 => ways.push(format!("at most {} fit as it is", Bytes(bytes))),
            _ => {}
        }
        if let Some(rails) = self.shared_by {
            ways.push(format!("{rails} rails have enough together: share the batch out (coverage=disjoint)"));
            ways.push("or put each buffer on fewer rails (rail-local, local-max=N, rails=NAME)".to_owned());
        }
        if budget == Budget::Mrs {
            ways.push("neighbours may share registrations (coalesce, coalesce=gaps)".to_owned());
        }
        if ways.is_empty() {
            ways.push("register a smaller batch, or on rails that have more".to_owned());
        }
        ways.join("; ")
    }
}

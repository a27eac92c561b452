use std::fmt;

use pinrail_core::{Access, Buffer, ErrorKind, PinsCounted, Rail, RailId, RailLimits};

use crate::PlannedChunk;

/// What a plan needs of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// By rail.
    pub rails: Vec<RailNeeds>,
    /// Bytes pinned, each page counted once for every rail it is registered on.
    pub pinned_bytes: u64,
    /// Registrations.
    pub mrs: u64,
    /// Page entries.
    pub pages: u64,
    /// Bytes that become reachable though no buffer asked for them: bridged gaps, and the ends of huge pages.
    pub foreign_bytes: u64,
    /// Bytes that have to be locked in memory: those pinned, and what the open rails have pinned for themselves.
    pub memlock_bytes: u64,
    /// Those of them that count against this process's RLIMIT_MEMLOCK.
    pub memlock_process_bytes: u64,
    /// Those of them that count against this user's.
    pub memlock_user_bytes: u64,
}

/// What a plan needs of one rail, or what several plans hold on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(serde::Serialize, serde::Deserialize))]
pub struct RailNeeds {
    /// Registrations.
    pub mrs: u64,
    /// Bytes of the chunks.
    pub bytes: u64,
    /// Page entries.
    pub pages: u64,
    /// Those of chunks that peers may write to.
    pub pages_remote_write: u64,
    /// Bytes pinned.
    pub pinned_bytes: u64,
}

/// What a rail has for everything that is live on it together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// Registrations: [`RailLimits::max_mrs`].
    Mrs,
    /// Page entries: [`RailLimits::max_pages`].
    Pages,
    /// Page entries that peers may write to: [`RailLimits::max_pages_remote_write`].
    PagesRemoteWrite,
    /// Bytes: [`RailLimits::max_bytes`].
    Bytes,
}

/// A budget that does not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) rail: RailId,
    pub(crate) budget: Budget,
    pub(crate) limit: u64,
    pub(crate) need: u64,
    pub(crate) live: u64,
}

impl Budget {
    const ALL: [Budget; 4] = [Budget::Mrs, Budget::Pages, Budget::PagesRemoteWrite, Budget::Bytes];

    /// A rail's.
    #[must_use]
    pub fn limit(self, limits: &RailLimits) -> Option<u64> {
        match self {
            Budget::Mrs => limits.max_mrs,
            Budget::Pages => limits.max_pages,
            Budget::PagesRemoteWrite => limits.max_pages_remote_write,
            Budget::Bytes => limits.max_bytes,
        }
    }

    /// What is used of it.
    #[must_use]
    pub fn of(self, needs: &RailNeeds) -> u64 {
        match self {
            Budget::Mrs => needs.mrs,
            Budget::Pages => needs.pages,
            Budget::PagesRemoteWrite => needs.pages_remote_write,
            Budget::Bytes => needs.bytes,
        }
    }

    pub(crate) fn kind(self) -> ErrorKind {
        match self {
            Budget::Mrs => ErrorKind::MrCount,
            Budget::Pages | Budget::PagesRemoteWrite => ErrorKind::PageBudget,
            Budget::Bytes => ErrorKind::Exhausted,
        }
    }

    /// What is left of each rail's, beside what is live.
    pub(crate) fn left(self, rail: &Rail, live: &RailNeeds) -> Option<u64> {
        self.limit(&rail.limits).map(|limit| limit.saturating_sub(self.of(live)))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Budget::Mrs => "registrations",
            Budget::Pages => "page entries",
            Budget::PagesRemoteWrite => "page entries that peers may write to",
            Budget::Bytes => "bytes in all",
        })
    }
}

impl RailNeeds {
    /// What one registration of a chunk needs.
    #[must_use]
    pub fn of(chunk: &PlannedChunk) -> RailNeeds {
        let writable = chunk.access.contains(Access::REMOTE_WRITE);
        RailNeeds {
            mrs: 1,
            bytes: chunk.len(),
            pages: chunk.pages,
            pages_remote_write: if writable { chunk.pages } else { 0 },
            pinned_bytes: chunk.pinned_bytes(),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: RailNeeds) -> RailNeeds {
        self.with(other, u64::saturating_add)
    }

    /// Whichever is more, each by itself.
    #[must_use]
    pub fn most(self, other: RailNeeds) -> RailNeeds {
        self.with(other, u64::max)
    }

    /// What is left without the other; never below nothing.
    #[must_use]
    pub fn minus(self, other: RailNeeds) -> RailNeeds {
        self.with(other, u64::saturating_sub)
    }

    fn with(self, other: RailNeeds, each: impl Fn(u64, u64) -> u64) -> RailNeeds {
        RailNeeds {
            mrs: each(self.mrs, other.mrs),
            bytes: each(self.bytes, other.bytes),
            pages: each(self.pages, other.pages),
            pages_remote_write: each(self.pages_remote_write, other.pages_remote_write),
            pinned_bytes: each(self.pinned_bytes, other.pinned_bytes),
        }
    }
}

impl Needs {
    pub(crate) fn of(buffers: &[Buffer], chunks: &[PlannedChunk], sets: &[Box<[RailId]>], rails: &[Rail]) -> Needs {
        // Rail sets are few: what each needs is added up once, whatever the number of its rails.
        let mut by_set = vec![RailNeeds::default(); sets.len()];
        for chunk in chunks {
            let of = &mut by_set[chunk.set as usize];
            *of = of.plus(RailNeeds::of(chunk));
        }
        let asked = buffers.iter().map(|buffer| buffer.extent().len()).fold(0, u64::saturating_add);
        let registered = chunks.iter().map(PlannedChunk::len).fold(0, u64::saturating_add);
        let foreign_bytes = registered.saturating_sub(asked);
        let mut needs = Needs { foreign_bytes, rails: vec![RailNeeds::default(); rails.len()], ..Needs::default() };
        for (set, of_set) in sets.iter().zip(by_set) {
            for rail in set {
                let of = &mut needs.rails[rail.index()];
                *of = of.plus(of_set);
            }
        }
        for (of, rail) in needs.rails.iter().zip(rails) {
            needs.mrs = needs.mrs.saturating_add(of.mrs);
            needs.pages = needs.pages.saturating_add(of.pages);
            let counted = match rail.pins {
                PinsCounted::Nothing => continue,
                PinsCounted::Process => Some(&mut needs.memlock_process_bytes),
                PinsCounted::User => Some(&mut needs.memlock_user_bytes),
                PinsCounted::Unknown => None,
            };
            needs.pinned_bytes = needs.pinned_bytes.saturating_add(of.pinned_bytes);
            let locked = of.pinned_bytes.saturating_add(rail.own_pinned_bytes);
            needs.memlock_bytes = needs.memlock_bytes.saturating_add(locked);
            if let Some(counted) = counted {
                *counted = counted.saturating_add(locked);
            }
        }
        needs
    }

    /// No rail holds more than it can, together with what is live on it.
    pub(crate) fn fit(&self, rails: &[Rail], live: &[RailNeeds]) -> Result<(), Over> {
        for ((rail, of), at) in (0..).map(RailId).zip(&self.rails).zip(rails) {
            let held = live.get(rail.index()).copied().unwrap_or_default();
            for budget in Budget::ALL {
                let (need, live) = (budget.of(of), budget.of(&held));
                if let Some(limit) = budget.limit(&at.limits).filter(|&limit| need > 0 && need.saturating_add(live) > limit) {
                    return Err(Over { rail, budget, limit, need, live });
                }
            }
        }
        Ok(())
    }
}

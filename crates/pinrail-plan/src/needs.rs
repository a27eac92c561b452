use pinrail_core::{PinsCounted, Rail, RailId};

use crate::{PlanError, PlannedChunk};

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
    /// Bytes that count against this process's RLIMIT_MEMLOCK.
    pub memlock_process_bytes: u64,
    /// Bytes that count against this user's.
    pub memlock_user_bytes: u64,
}

/// What a plan needs of one rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailNeeds {
    /// Registrations.
    pub mrs: u64,
    /// Bytes of the chunks.
    pub bytes: u64,
    /// Page entries.
    pub pages: u64,
    /// Bytes pinned.
    pub pinned_bytes: u64,
}

impl Needs {
    pub(crate) fn of(chunks: &[PlannedChunk], sets: &[Box<[RailId]>], rails: &[Rail]) -> Needs {
        let mut needs = Needs { rails: vec![RailNeeds::default(); rails.len()], ..Needs::default() };
        for chunk in chunks {
            for rail in &sets[chunk.set as usize] {
                let of = &mut needs.rails[rail.index()];
                of.mrs += 1;
                of.bytes = of.bytes.saturating_add(chunk.len());
                of.pages = of.pages.saturating_add(chunk.pages);
                of.pinned_bytes = of.pinned_bytes.saturating_add(chunk.pinned_bytes());
            }
        }
        for (of, rail) in needs.rails.iter().zip(rails) {
            needs.mrs += of.mrs;
            needs.pages = needs.pages.saturating_add(of.pages);
            let counted = match rail.pins {
                PinsCounted::Nothing => continue,
                PinsCounted::Process => Some(&mut needs.memlock_process_bytes),
                PinsCounted::User => Some(&mut needs.memlock_user_bytes),
                PinsCounted::Unknown => None,
            };
            needs.pinned_bytes = needs.pinned_bytes.saturating_add(of.pinned_bytes);
            if let Some(counted) = counted {
                *counted = counted.saturating_add(of.pinned_bytes);
            }
        }
        needs
    }

    /// No rail holds more than it can, together with what is live on it.
    pub(crate) fn fit(&self, rails: &[Rail], live: &[RailNeeds]) -> Result<(), PlanError> {
        for (at, (of, rail)) in self.rails.iter().zip(rails).enumerate() {
            let held = live.get(at).copied().unwrap_or_default();
            if let Some(limit) = rail.limits.max_mrs.filter(|&limit| of.mrs.saturating_add(held.mrs) > limit) {
                return Err(PlanError::MrCount { rail: rail.name.clone(), limit, need: of.mrs, live: held.mrs });
            }
            if let Some(limit) = rail.limits.max_pages.filter(|&limit| of.pages.saturating_add(held.pages) > limit) {
                let (rail, bytes) = (rail.name.clone(), of.bytes);
                return Err(PlanError::PageBudget { rail, limit, need: of.pages, live: held.pages, bytes });
            }
        }
        Ok(())
    }
}

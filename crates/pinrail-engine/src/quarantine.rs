use std::fmt;

use pinrail_core::{ChunkId, RailId};
use pinrail_plan::Plan;

use crate::{Registration, Report, StillRegistered};

/// MRs that could not be deregistered: live, with their memory. A NIC may still reach that, so nobody is given their keys;
/// they can be listed and tried again. Dropping them tries once more, and leaks what then is left with its memory.
#[must_use = "what is dropped is tried once more, and nobody is told what is left"]
pub struct Quarantine(pub(crate) Registration);

impl Quarantine {
    /// How many they are.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.0.live()
    }

    /// Which they are, in the caller's order.
    #[must_use]
    pub fn tasks(&self) -> Vec<(ChunkId, RailId)> {
        self.0.tasks()
    }

    /// The plan that the chunks are of.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.0.plan()
    }

    /// Tries again to deregister these, and nothing else.
    ///
    /// # Errors
    /// [`StillRegistered`] with what is left.
    pub fn deregister(self) -> Result<Report, Box<StillRegistered>> {
        self.0.deregister()
    }
}

impl fmt::Debug for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tasks()).finish()
    }
}

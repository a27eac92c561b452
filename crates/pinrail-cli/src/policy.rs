//! `--policy`: a spec on top of this host's default.

use std::num::NonZeroU32;

use pinrail_memory::Cores;
use pinrail_policy::Policy;

use crate::args::PolicyArgs;
use crate::error::Error;

impl PolicyArgs {
    /// The whole policy, every part resolved.
    pub(crate) fn read(&self) -> Result<Policy, Error> {
        Ok(Policy::new(usable_cores()).with(&self.policy)?)
    }
}

/// The cores that this process may use; one where that cannot be told.
pub(crate) fn usable_cores() -> NonZeroU32 {
    Cores::read().map_or(NonZeroU32::MIN, |cores| cores.usable())
}

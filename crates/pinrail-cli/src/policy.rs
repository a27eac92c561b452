//! `--policy`: a spec on top of this host's default.

use std::num::NonZeroU32;
use std::thread::available_parallelism;

use pinrail_policy::Policy;

use crate::args::PolicyArgs;
use crate::error::Error;

impl PolicyArgs {
    /// The whole policy, every part resolved.
    pub(crate) fn read(&self) -> Result<Policy, Error> {
        Ok(Policy::new(usable_cores()).with(&self.policy)?)
    }
}

/// The cores that this process may use (affinity and control group counted); one where that cannot be told.
pub(crate) fn usable_cores() -> NonZeroU32 {
    available_parallelism().ok().and_then(|cores| cores.try_into().ok()).unwrap_or(NonZeroU32::MIN)
}

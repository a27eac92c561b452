//! The host that this runs on: hwloc for the tree of PCI functions and the NUMA nodes, then sysfs for the rest.

#[cfg(feature = "live")]
mod from_hwloc;
mod sysfs;

#[cfg(feature = "live")]
pub use discovery::discover;

#[cfg(feature = "live")]
mod discovery {
    use std::path::Path;

    use crate::{Source, Topology, TopologyError, judge};

    use super::{from_hwloc, sysfs};

    /// Discovers the host that this runs on. Opens no device and starts no driver: it reads sysfs, through libhwloc and
    /// by itself.
    ///
    /// # Errors
    /// [`TopologyError::Hwloc`] where hwloc fails, [`TopologyError::Contradiction`] where the host has more rails than a
    /// machine may have.
    pub fn discover() -> Result<Topology, TopologyError> {
        let mut tree = from_hwloc::this_host()?;
        sysfs::complete(&mut tree, Path::new("/sys"));
        Ok(Topology { machine: judge::machine(tree)?, source: Source::Host })
    }
}

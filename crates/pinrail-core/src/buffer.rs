use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Access, Extent, ExtentError, Memory, NodeId, PciAddress};

/// What the caller owns and wants reachable: a range of one allocation.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// How errors and plans call it.
    pub name: Arc<str>,
    /// The allocation it lies in; buffers with clones of one [`Memory`] share an allocation.
    pub memory: Memory,
    range: Range<u64>,
    /// What kind of memory it is, and where if the caller knows.
    pub place: Place,
    /// Bytes of the pages behind it: what a NIC's page entries and seams are counted in. A power of two.
    pub page_size: u64,
    /// Bytes that must not be divided between two registrations (a KV block), if any.
    pub unit: Option<u64>,
    /// What may be done through the registration.
    pub access: Access,
}

/// The kind of memory a buffer lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Host memory on a node the caller does not name.
    Host,
    /// Host memory that is, or shall be, on this NUMA node.
    HostNode(NodeId),
    /// Host memory whose pages lie on several nodes.
    HostMixed,
    /// Memory of the GPU at this PCI address.
    Gpu(PciAddress),
}

impl Buffer {
    /// A host buffer of 4 KiB pages with full access over `range` of `memory`.
    ///
    /// # Errors
    /// [`ExtentError::ZeroLength`] for an empty range, [`ExtentError::Outside`] for one outside `memory`.
    pub fn new(name: impl Into<Arc<str>>, memory: Memory, range: Range<u64>) -> Result<Buffer, ExtentError> {
        if range.start >= range.end {
            return Err(ExtentError::ZeroLength);
        }
        if range.end > memory.len() {
            return Err(ExtentError::Outside { start: range.start, end: range.end, len: memory.len() });
        }
        Ok(Buffer { name: name.into(), memory, range, place: Place::Host, page_size: 4096, unit: None, access: Access::FULL })
    }

    /// The same buffer with other access.
    #[must_use]
    pub fn with_access(self, access: Access) -> Buffer {
        Buffer { access, ..self }
    }

    /// The same buffer in another place.
    #[must_use]
    pub fn with_place(self, place: Place) -> Buffer {
        Buffer { place, ..self }
    }

    /// Its bytes, as offsets into its memory.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Bytes; never zero.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Its addresses.
    #[must_use]
    pub fn extent(&self) -> Extent {
        Extent::new(self.memory.extent().start() + self.range.start, self.len()).expect("checked by Buffer::new")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("host"),
            Place::HostNode(node) => write!(f, "host:{}", node.0),
            Place::HostMixed => f.write_str("host:mixed"),
            Place::Gpu(pci) => write!(f, "gpu:{pci}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_lies_inside_its_memory() {
        let memory = Memory::imagined(0x1000, 100).unwrap();
        assert_eq!(Buffer::new("empty", memory.clone(), 5..5).unwrap_err(), ExtentError::ZeroLength);
        assert_eq!(
            Buffer::new("long", memory.clone(), 0..101).unwrap_err(),
            ExtentError::Outside { start: 0, end: 101, len: 100 }
        );
        assert_eq!(Buffer::new("tail", memory, 90..100).unwrap().extent().range(), 0x105a..0x1064);
    }
}

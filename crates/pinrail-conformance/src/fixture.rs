use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use pinrail_core::{Keys, Memory, MoveError, Mr, RailId, Registrar};
use pinrail_memory::{Mapping, Pages};

/// What a registrar's author gives the suite: a registrar as often as it is asked for, and what only the author can make.
///
/// What is left at `None` makes its checks end in [`Outcome::Skip`](crate::Outcome::Skip), which has to be expected too.
pub trait Fixture: Send + Sync + 'static {
    /// A fresh registrar with at least one rail. Rails of one kind: a check demands the same of each.
    fn registrar(&self) -> Box<dyn Registrar>;

    /// Fresh memory of `len` bytes at least, mapped, readable and writable.
    ///
    /// # Panics
    /// By default where the system maps no more.
    fn memory(&self, len: u64) -> Memory {
        Memory::new(Mapping::anonymous(len, Pages::Small, None).unwrap_or_else(|error| panic!("{error}")))
    }

    /// A fresh registrar, and a peer that reaches its registrations by their bare keys.
    fn peer(&self) -> Option<Peered> {
        None
    }

    /// Memory that is not mapped in some place, and the offset of the first byte that is not. The suite copies neither
    /// from nor to it.
    fn unmapped(&self) -> Option<(Memory, u64)> {
        None
    }

    /// Memory that is mapped readable and not writable. The suite only copies from it.
    fn read_only(&self) -> Option<Memory> {
        None
    }

    /// Memory that a dma-buf stands for.
    fn dma_buf(&self) -> Option<DmaBuf> {
        None
    }

    /// A deregistration that the provider refuses for now.
    fn failing_deregistration(&self) -> Option<Failing> {
        None
    }

    /// How long a transfer may take that should succeed.
    fn wait(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// How long a transfer is waited for that should be refused.
    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// A registrar, and a peer of its registrations. The peer is dropped first.
pub struct Peered {
    /// The peer.
    pub peer: Box<dyn Peer>,
    /// The registrar.
    pub registrar: Box<dyn Registrar>,
}

/// Moves bytes by bare keys, as a program on another machine does that was told them: also wrong ones, and for too long.
///
/// Unlike a [`MoveBytes`](pinrail_core::MoveBytes) it has no MR that could keep it from that. The suite keeps all memory
/// mapped that it names, for as long as the peer lives.
pub trait Peer {
    /// What the owner of a live MR tells its peers.
    fn told(&self, mr: &Mr) -> Told;

    /// The same with a key of the same form that belongs to no live MR.
    fn wrong(&self, told: &Told) -> Told;

    /// Writes to the byte `at` bytes after the MR's first.
    ///
    /// # Errors
    /// What the transfer reported; [`MoveError::is_timeout`] when nothing came within `wait`.
    fn write(&self, told: &Told, at: u64, from: &[u8], wait: Duration) -> Result<(), MoveError>;

    /// Reads likewise.
    ///
    /// # Errors
    /// As [`Peer::write`].
    fn read(&self, told: &Told, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError>;
}

/// What a peer knows of an MR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The rail.
    pub rail: RailId,
    /// The keys.
    pub keys: Keys,
    /// What a peer calls the MR's first byte.
    pub base: u64,
}

/// Memory with a dma-buf that stands for it.
pub struct DmaBuf {
    /// The memory.
    pub memory: Memory,
    /// Its export.
    pub fd: Arc<OwnedFd>,
    /// The memory's first byte within the export.
    pub offset: u64,
}

/// A live MR that cannot be deregistered until it is made possible again.
pub struct Failing {
    /// The MR.
    pub mr: Mr,
    /// Makes it possible.
    pub repair: Box<dyn FnOnce()>,
    /// The MR's registrar.
    pub registrar: Box<dyn Registrar>,
}

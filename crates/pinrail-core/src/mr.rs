use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{Access, Extent, ExtentError, Memory, RailId};

/// What one MR per rail covers, as a [`Registrar`](crate::Registrar) sees it.
#[derive(Clone, Debug)]
pub struct Chunk<'p> {
    /// The allocation.
    pub memory: &'p Memory,
    /// The bytes of it to register; not empty, inside the memory.
    pub range: Range<u64>,
    /// What may be done through the registration.
    pub access: Access,
    /// By what the provider reaches the bytes.
    pub source: &'p Source,
}

impl Chunk<'_> {
    /// The addresses to register, checked: a backend asks this first, because safe code can write any range here and
    /// a provider would take one outside the memory.
    ///
    /// # Errors
    /// [`ExtentError::ZeroLength`] for an empty range, [`ExtentError::Outside`] for one outside the memory.
    pub fn check(&self) -> Result<Extent, ExtentError> {
        let (Range { start, end }, len) = (self.range.clone(), self.memory.len());
        if start >= end {
            return Err(ExtentError::ZeroLength);
        }
        if end > len {
            return Err(ExtentError::Outside { start, end, len });
        }
        Extent::new(self.memory.extent().start() + start, end - start)
    }

    /// The addresses to register.
    ///
    /// # Panics
    /// Where [`Chunk::check`] fails.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.check().expect("a chunk is not empty and lies inside its memory")
    }
}

/// By what a provider reaches a chunk's bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Source {
    /// By its address.
    Address,
    /// By a dma-buf: one export per chunk, shared by its rails and closed after the last MR.
    DmaBuf {
        /// The export.
        fd: Arc<OwnedFd>,
        /// The chunk's first byte within it.
        offset: u64,
    },
}

/// The keys of one MR.
///
/// `Debug` shows neither: whoever knows a remote key can read or write the memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// What local operations name: verbs' lkey, libfabric's descriptor as an integer, a slot's index.
    pub local: u64,
    /// What a peer names, in the fabric's own bytes; empty where the fabric has no peers.
    pub remote: SmallVec<[u8; 16]>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} bytes)", self.remote.len())
    }
}

/// One memory registration on one rail.
///
/// It keeps the memory, the source and the backend's own state alive until the backend takes that state back with
/// [`Mr::retire`]. **An `Mr` dropped before that leaks all three on purpose**: the NIC may still write there.
pub struct Mr {
    rail: RailId,
    keys: Keys,
    extent: Extent,
    held: ManuallyDrop<Option<Held>>,
}

struct Held {
    token: Box<dyn Any + Send + Sync>,
    _memory: Memory,
    _source: Source,
}

impl Mr {
    /// Called by a backend whose provider has just registered `chunk`. `token` is the backend's own state for it, of a
    /// type nobody else can name; it keeps the domain open.
    #[must_use]
    pub fn new<T: Any + Send + Sync>(rail: RailId, keys: Keys, token: T, chunk: &Chunk<'_>) -> Mr {
        let held = Held { token: Box::new(token), _memory: chunk.memory.clone(), _source: chunk.source.clone() };
        Mr { rail, keys, extent: chunk.extent(), held: ManuallyDrop::new(Some(held)) }
    }

    /// The rail it is registered on.
    #[must_use]
    pub fn rail(&self) -> RailId {
        self.rail
    }

    /// Its keys.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The addresses it covers.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// True until the backend has retired it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.held.is_some()
    }

    /// The backend's state; `None` for another backend's MR and after [`Mr::retire`].
    #[must_use]
    pub fn token<T: Any>(&self) -> Option<&T> {
        self.held.as_ref()?.token.downcast_ref()
    }

    /// Called by the backend after its provider has deregistered: takes the state back and lets the memory go.
    /// `None`, changing nothing, for another backend's MR and the second time.
    pub fn retire<T: Any>(&mut self) -> Option<T> {
        if !self.held.as_ref()?.token.is::<T>() {
            return None;
        }
        let held = self.held.take()?;
        held.token.downcast().ok().map(|token| *token)
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({} on {}{})", self.extent, self.rail, if self.is_live() { "" } else { ", retired" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Token(u32);

    fn mr(memory: &Memory) -> Mr {
        let source = Source::Address;
        let keys = Keys { local: 1, remote: SmallVec::from_slice(&[0xde, 0xad]) };
        Mr::new(RailId(3), keys, Token(7), &Chunk { memory, range: 16..32, access: Access::FULL, source: &source })
    }

    #[test]
    fn only_who_can_name_the_token_retires_it_and_once() {
        let mut mr = mr(&Memory::imagined(0x1000, 64).unwrap());
        assert_eq!(mr.retire::<u32>(), None);
        assert!(mr.is_live());
        assert_eq!(mr.token::<Token>(), Some(&Token(7)));
        assert_eq!(mr.retire::<Token>(), Some(Token(7)));
        assert_eq!(mr.retire::<Token>(), None);
        assert_eq!(mr.token::<Token>(), None);
        assert_eq!(mr.extent().range(), 0x1010..0x1020);
    }

    #[test]
    fn a_range_outside_its_memory_is_no_chunk() {
        let memory = Memory::imagined(0x1000, 64).unwrap();
        let check = |range| Chunk { memory: &memory, range, access: Access::FULL, source: &Source::Address }.check();
        assert_eq!(check(8..8), Err(ExtentError::ZeroLength));
        assert_eq!(check(0..65), Err(ExtentError::Outside { start: 0, end: 65, len: 64 }));
        assert_eq!(check(u64::MAX - 1..u64::MAX), Err(ExtentError::Outside { start: u64::MAX - 1, end: u64::MAX, len: 64 }));
        assert_eq!(check(60..64), Extent::new(0x103c, 4));
    }

    #[test]
    fn memory_is_let_go_by_retire_and_kept_by_a_dropped_mr() {
        let kept = Memory::imagined(0x1000, 64).unwrap();
        let (before, mut retired) = (kept.clones(), mr(&kept));
        assert_eq!(kept.clones(), before + 1);
        retired.retire::<Token>();
        assert_eq!(kept.clones(), before);
        drop(mr(&kept));
        assert_eq!(kept.clones(), before + 1, "a leaked MR must keep its memory mapped");
    }

    #[test]
    fn keys_do_not_reach_debug_output() {
        let text =
            format!("{:?} {:?}", mr(&Memory::imagined(0x1000, 64).unwrap()), mr(&Memory::imagined(0x1000, 64).unwrap()).keys());
        assert!(!text.contains("222") && !text.contains("de") && !text.contains("173"), "{text}");
    }
}

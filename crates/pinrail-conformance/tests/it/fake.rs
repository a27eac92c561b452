//! A fabric in memory that fulfils the contract, and breaks it in one chosen way: what the suite is tested on.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pinrail_conformance::{DmaBuf, Failing, Fixture, Peer, Peered, Told};
use pinrail_core::{
    Access, Cause, Chunk, DeregisterError, DevicePath, ExtentError, Identity, Keys, Memory, MoveBytes, MoveError, Mr, Rail,
    RailId, RegisterError, Registrar, Source,
};

use crate::support::{PAGE, bytes, chunk};

/// One way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Calls the provider for a chunk of no bytes.
    AsksForZeroLength,
    /// Calls the provider for bytes outside the memory.
    AsksForOutside,
    /// Registers memory without bytes.
    TakesImagined,
    /// Looks a rail up without looking whether it is there.
    PanicsOnRail,
    /// Knows a limit of one MR and does not hold to it.
    TakesTooLarge,
    /// States another limit than the one it holds to.
    MisstatesLimit,
    /// Registers other bytes than it was asked to.
    Shifts,
    /// The second rail's MRs reach nothing.
    OneRailOnly,
    /// Registers whole words.
    RoundsToWords,
    /// Has one MR for one address, whatever the length.
    KeyedByAddress,
    /// Writes one byte more.
    WritesOneMore,
    /// Moves bytes outside the MR.
    MovesOutside,
    /// Writes through an MR that grants no writes.
    IgnoresAccess,
    /// Hands a key out twice.
    RepeatsKeys,
    /// Takes every key for one of its own.
    TakesAnyKey,
    /// Reports a transfer by a wrong key as done.
    DropsSilently,
    /// Never answers a transfer by a wrong key.
    NeverAnswers,
    /// Lets a peer use a key after the deregistration.
    KeepsKeys,
    /// Lets a peer go over the end.
    PeersGoOver,
    /// Takes a hole for memory.
    TakesHole,
    /// Names the memory's first byte where the hole should be.
    MisplacesHole,
    /// Takes memory that cannot be written for memory that can.
    TakesReadOnly,
    /// Refuses memory that cannot be written even for reading.
    RefusesReading,
    /// Takes any descriptor for a dma-buf.
    TakesAnyDescriptor,
    /// Refuses a dma-buf as if something had failed.
    FailsOnDmaBuf,
    /// Forgets the errno.
    DropsErrno,
    /// Deregisters twice.
    RetiresTwice,
    /// Moves through another registrar's MRs.
    MovesForeign,
    /// Deregisters another registrar's MRs.
    TakesForeign,
    /// Gives the MR up although the provider has refused.
    LosesFailed,
    /// Keeps refusing.
    StaysBroken,
    /// Makes MRs that keep no memory.
    LetsMemoryGo,
    /// Loses an MR when two threads register at once.
    Races,
    /// Stops long before the limit it states.
    FullEarly,
    /// Goes on beyond the limit it states.
    NeverFull,
    /// A slot that was freed stays taken.
    LosesSlots,
    /// A call does not return.
    Hangs,
}

const MAX_MR_SIZE: u64 = 1 << 20;
const MAX_MRS: u64 = 500;

struct Fake {
    rails: Vec<Rail>,
    fabric: Arc<Fabric>,
}

/// What the fake's driver and its peers share.
struct Fabric {
    fault: Option<Fault>,
    /// By rail and key.
    live: Mutex<BTreeMap<(RailId, u64), Entry>>,
    next: AtomicU64,
    refusing: AtomicBool,
    special: Special,
}

/// What the fake's driver knows of some memory and descriptors: by address, and by number.
#[derive(Clone)]
struct Special {
    hole: Option<(u64, u64)>,
    read_only: Option<u64>,
    dma_buf: Option<i32>,
}

#[derive(Clone)]
struct Entry {
    memory: Memory,
    range: Range<u64>,
    access: Access,
    /// Deregistered, and still reachable by who has the key.
    stale: bool,
}

struct Token {
    key: u64,
    fabric: Arc<Fabric>,
}

impl Fabric {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<(RailId, u64), Entry>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, errno: i32, cause: Cause) -> RegisterError {
        RegisterError::new("fake_reg", (!self.has(Fault::DropsErrno)).then_some(errno), cause)
    }

    fn check(&self, chunk: &Chunk<'_>) -> Result<(), RegisterError> {
        let before = |cause| RegisterError::new("fake_reg", None, cause);
        match chunk.check() {
            Err(ExtentError::ZeroLength) if self.has(Fault::AsksForZeroLength) => {
                return Err(self.refuse(libc::EINVAL, Cause::Extent(ExtentError::ZeroLength)));
            }
            Err(outside @ ExtentError::Outside { .. }) if self.has(Fault::AsksForOutside) => {
                return Err(self.refuse(libc::EFAULT, Cause::Extent(outside)));
            }
            checked => checked.map_err(|wrong| before(wrong.into()))?,
        };
        let len = chunk.range.end - chunk.range.start;
        if chunk.memory.is_imagined() && !self.has(Fault::TakesImagined) {
            return Err(before(Cause::NotSupported { what: "imagined memory has no bytes".into() }));
        }
        if len > MAX_MR_SIZE && !self.has(Fault::TakesTooLarge) {
            let limit = if self.has(Fault::MisstatesLimit) { MAX_MR_SIZE - 1 } else { MAX_MR_SIZE };
            return Err(before(Cause::MrSize { limit, need: len }));
        }
        if let Source::DmaBuf { fd, .. } = chunk.source
            && (self.special.dma_buf != Some(fd.as_raw_fd()) || self.has(Fault::FailsOnDmaBuf))
            && !self.has(Fault::TakesAnyDescriptor)
        {
            let what = "the fake knows no such dma-buf".to_owned();
            let failed = self.has(Fault::FailsOnDmaBuf);
            return Err(if failed {
                self.refuse(libc::EIO, Cause::Other { what })
            } else {
                before(Cause::NotSupported { what })
            });
        }
        let start = chunk.memory.extent().start();
        if let Some((_, hole)) = self.special.hole.filter(|(of, _)| *of == start && !self.has(Fault::TakesHole)) {
            let address = if self.has(Fault::MisplacesHole) { start } else { hole };
            return Err(self.refuse(libc::EFAULT, Cause::Unmapped { address }));
        }
        let for_writing = chunk.access.writes() && !self.has(Fault::TakesReadOnly);
        if self.special.read_only == Some(start) && (for_writing || self.has(Fault::RefusesReading)) {
            let protection = "r--p".to_owned();
            return Err(self.refuse(libc::EACCES, Cause::Protection { address: start, protection, needs: "write".into() }));
        }
        Ok(())
    }

    fn key(&self, rail: RailId, chunk: &Chunk<'_>) -> u64 {
        match self.fault {
            Some(Fault::KeyedByAddress) => chunk.extent().start(),
            Some(Fault::RepeatsKeys) => self.next.fetch_add(1, Ordering::Relaxed) % 60,
            // Between the look and the step another thread can take the same.
            Some(Fault::Races) => {
                let key = self.next.load(Ordering::Relaxed);
                (0..64).for_each(|_| std::thread::yield_now());
                self.next.store(key + 1, Ordering::Relaxed);
                key
            }
            _ => u64::from(rail.0) << 32 | self.next.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// What a key reaches: the entry, where `len` bytes at `at` are inside it.
    fn find(&self, rail: RailId, key: u64, at: u64, len: usize, may_leave: bool) -> Result<Entry, MoveError> {
        let refused = |what: &str| Err(MoveError::new("fake_move", Some(libc::EACCES), Cause::Other { what: what.into() }));
        let Some(entry) = self.live().get(&(rail, key)).cloned() else { return refused("no such key") };
        let len_max = entry.range.end - entry.range.start;
        let memory_max = entry.memory.len().saturating_sub(entry.range.start);
        match at.checked_add(len as u64) {
            Some(end) if end <= len_max || may_leave && end <= memory_max => Ok(entry),
            _ => refused("outside the MR"),
        }
    }
}

impl Fake {
    fn over(fault: Option<Fault>, special: Special) -> Fake {
        let device = if special.dma_buf.is_some() { DevicePath::DmaBuf } else { DevicePath::None };
        let rail = |nth| {
            let mut rail = Rail::named(format!("fake{nth}"));
            rail.limits.max_mr_size = Some(MAX_MR_SIZE);
            rail.limits.max_mrs = Some(MAX_MRS);
            rail.device = device;
            // More than one, so that what races is seen.
            rail.calls_in_parallel = NonZeroU32::new(8).unwrap();
            rail
        };
        let fabric = Fabric { fault, live: Mutex::default(), next: AtomicU64::new(1), refusing: AtomicBool::new(false), special };
        Fake { rails: [0, 1].map(rail).into(), fabric: Arc::new(fabric) }
    }

    fn token<'m>(&self, mr: &'m Mr) -> Option<&'m Token> {
        mr.token::<Token>().filter(|token| Arc::ptr_eq(&token.fabric, &self.fabric))
    }

    fn room(&self, rail: RailId) -> Result<(), RegisterError> {
        let taken = self.fabric.live().keys().filter(|(of, _)| *of == rail).count() as u64;
        let limit = if self.fabric.has(Fault::FullEarly) { 400 } else { MAX_MRS };
        if taken >= limit && !self.fabric.has(Fault::NeverFull) {
            return Err(RegisterError::new("fake_reg", None, Cause::MrCount { limit }));
        }
        Ok(())
    }
}

impl Registrar for Fake {
    fn identity(&self) -> Identity {
        Identity { backend: "fake".into(), provider: "memory".into(), library: "none".into() }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        let fabric = &self.fabric;
        if rail.index() >= self.rails.len() {
            assert!(!fabric.has(Fault::PanicsOnRail), "index out of bounds");
            return Err(RegisterError::no_such_rail("fake_reg", rail, self.rails.len()));
        }
        while fabric.has(Fault::Hangs) {
            std::thread::park();
        }
        fabric.check(chunk)?;
        self.room(rail)?;
        let Range { start, end } = chunk.range.clone();
        let range = match fabric.fault {
            Some(Fault::Shifts) => start + 1..end,
            Some(Fault::OneRailOnly) if rail.0 == 1 => start..start,
            Some(Fault::RoundsToWords) => start / 8 * 8..end.next_multiple_of(8),
            _ => start..end,
        };
        let key = fabric.key(rail, chunk);
        if fabric.has(Fault::LetsMemoryGo) {
            let addresses = chunk.memory.extent();
            let nothing = Memory::imagined(addresses.start(), addresses.len()).unwrap();
            let chunk = Chunk { memory: &nothing, ..chunk.clone() };
            return Ok(Mr::new(rail, Keys::default(), Token { key, fabric: Arc::clone(fabric) }, &chunk));
        }
        let entry = Entry { memory: chunk.memory.clone(), range, access: chunk.access.effective(), stale: false };
        fabric.live().entry((rail, key)).or_insert(entry);
        let keys = Keys { local: key, remote: key.to_ne_bytes().as_slice().into() };
        Ok(Mr::new(rail, keys, Token { key, fabric: Arc::clone(fabric) }, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        let fabric = &self.fabric;
        let not_ours = || Err(DeregisterError::new("fake_dereg", None, Cause::NotOurs));
        if fabric.has(Fault::RetiresTwice) && !mr.is_live() {
            return Ok(());
        }
        if fabric.has(Fault::TakesForeign) && mr.retire::<Token>().is_some() {
            return Ok(());
        }
        let Some(key) = self.token(mr).map(|token| token.key) else { return not_ours() };
        if fabric.refusing.load(Ordering::Relaxed) {
            if fabric.has(Fault::LosesFailed) {
                mr.retire::<Token>();
            }
            let what = "the fake was told to".to_owned();
            return Err(DeregisterError::new("fake_dereg", Some(libc::EBUSY), Cause::Busy { what }));
        }
        match fabric.fault {
            Some(Fault::LosesSlots) => {}
            Some(Fault::KeepsKeys) => {
                if let Some(entry) = fabric.live().get_mut(&(mr.rail(), key)) {
                    entry.stale = true;
                }
            }
            _ => drop(fabric.live().remove(&(mr.rail(), key))),
        }
        mr.retire::<Token>();
        Ok(())
    }

    fn mover(&self) -> Option<&dyn MoveBytes> {
        Some(self)
    }
}

impl Fake {
    /// Where a transfer goes: the memory and the offset in it.
    fn aim(&self, mr: &Mr, at: u64, len: usize, access: Access) -> Result<(Memory, u64), MoveError> {
        let fabric = &self.fabric;
        let foreign = mr.token::<Token>().filter(|_| fabric.has(Fault::MovesForeign));
        let Some(token) = self.token(mr).or(foreign) else {
            return Err(MoveError::new("fake_move", None, Cause::NotOurs));
        };
        let entry = token.fabric.find(mr.rail(), token.key, at, len, fabric.has(Fault::MovesOutside))?;
        if entry.stale || !entry.access.contains(access) && !fabric.has(Fault::IgnoresAccess) {
            let why = "the MR does not grant it".to_owned();
            return Err(MoveError::new("fake_move", None, Cause::Access { asked: access.to_string(), why }));
        }
        Ok((entry.memory, entry.range.start + at))
    }
}

impl MoveBytes for Fake {
    fn write(&self, mr: &Mr, at: u64, from: &[u8], _: Duration) -> Result<(), MoveError> {
        let (memory, at) = self.aim(mr, at, from.len(), Access::REMOTE_WRITE)?;
        let mut from = from.to_vec();
        if self.fabric.has(Fault::WritesOneMore) {
            from.push(0);
        }
        memory.write_at(at, &from).map_err(failed)
    }

    fn read(&self, mr: &Mr, at: u64, into: &mut [u8], _: Duration) -> Result<(), MoveError> {
        let (memory, at) = self.aim(mr, at, into.len(), Access::REMOTE_READ)?;
        memory.read_at(at, into).map_err(failed)
    }
}

fn failed(error: std::io::Error) -> MoveError {
    MoveError::new("fake_move", error.raw_os_error(), Cause::Other { what: error.to_string() })
}

struct FakePeer(Arc<Fabric>);

impl FakePeer {
    /// `None` where the transfer is to be reported as done without being.
    fn aim(&self, told: &Told, at: u64, len: usize, wait: Duration) -> Result<Option<(Memory, u64)>, MoveError> {
        let fabric = &self.0;
        let key = u64::from_ne_bytes(told.keys.remote.as_slice().try_into().unwrap());
        let found = fabric.find(told.rail, key, at, len, fabric.has(Fault::PeersGoOver));
        match (found, fabric.fault) {
            (Ok(entry), _) => Ok(Some((entry.memory, entry.range.start + at))),
            (Err(_), Some(Fault::TakesAnyKey)) => {
                Ok(fabric.live().values().next().map(|entry| (entry.memory.clone(), entry.range.start + at)))
            }
            (Err(_), Some(Fault::DropsSilently)) => Ok(None),
            (Err(_), Some(Fault::NeverAnswers)) => {
                let waited_ms = u64::try_from(wait.as_millis()).unwrap();
                Err(MoveError::new("fake_move", None, Cause::Timeout { waited_ms }))
            }
            (Err(error), _) => Err(error),
        }
    }
}

impl Peer for FakePeer {
    fn told(&self, mr: &Mr) -> Told {
        Told { rail: mr.rail(), keys: mr.keys().clone(), base: 0 }
    }

    fn wrong(&self, told: &Told) -> Told {
        let remote = told.keys.remote.iter().map(|byte| !byte).collect();
        Told { keys: Keys { remote, ..told.keys.clone() }, ..told.clone() }
    }

    fn write(&self, told: &Told, at: u64, from: &[u8], wait: Duration) -> Result<(), MoveError> {
        match self.aim(told, at, from.len(), wait)? {
            Some((memory, at)) => memory.write_at(at, from).map_err(failed),
            None => Ok(()),
        }
    }

    fn read(&self, told: &Told, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError> {
        match self.aim(told, at, into.len(), wait)? {
            Some((memory, at)) => memory.read_at(at, into).map_err(failed),
            None => Ok(()),
        }
    }
}

/// Makes fakes with one fault, or with none.
pub(crate) struct Fakes {
    fault: Option<Fault>,
    special: Special,
    hole: Memory,
    read_only: Memory,
    dma_buf: Option<Arc<OwnedFd>>,
}

impl Fakes {
    pub(crate) fn with(fault: Option<Fault>) -> Fakes {
        let (hole, read_only) = (bytes(3 * PAGE), bytes(PAGE));
        // Any descriptor is as good as another; who takes any is asked without there being one.
        let any = || Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let dma_buf = (fault != Some(Fault::TakesAnyDescriptor)).then(any);
        let start = hole.extent().start();
        let special = Special {
            hole: Some((start, start + PAGE)),
            read_only: Some(read_only.extent().start()),
            dma_buf: dma_buf.as_ref().map(|fd| fd.as_raw_fd()),
        };
        Fakes { fault, special, hole, read_only, dma_buf }
    }

    fn fake(&self) -> Fake {
        Fake::over(self.fault, self.special.clone())
    }
}

impl Fixture for Fakes {
    fn registrar(&self) -> Box<dyn Registrar> {
        Box::new(self.fake())
    }

    fn peer(&self) -> Option<Peered> {
        let fake = self.fake();
        Some(Peered { peer: Box::new(FakePeer(Arc::clone(&fake.fabric))), registrar: Box::new(fake) })
    }

    fn unmapped(&self) -> Option<(Memory, u64)> {
        Some((self.hole.clone(), PAGE))
    }

    fn read_only(&self) -> Option<Memory> {
        Some(self.read_only.clone())
    }

    fn dma_buf(&self) -> Option<DmaBuf> {
        let fd = Arc::clone(self.dma_buf.as_ref()?);
        Some(DmaBuf { memory: bytes(PAGE), fd, offset: 0 })
    }

    fn failing_deregistration(&self) -> Option<Failing> {
        let (fake, memory) = (self.fake(), bytes(PAGE));
        let mr = fake.register(RailId(0), &chunk(&memory, 0..PAGE)).unwrap();
        let fabric = Arc::clone(&fake.fabric);
        fabric.refusing.store(true, Ordering::Relaxed);
        let repair = move || fabric.refusing.store(fabric.has(Fault::StaysBroken), Ordering::Relaxed);
        Some(Failing { mr, repair: Box::new(repair), registrar: Box::new(fake) })
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(1)
    }
}

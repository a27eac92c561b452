//! The live registry: what is registered by all batches of one engine, and a look-up that never waits.
//!
//! ```
//! # use std::num::NonZeroU32;
//! # use std::sync::Arc;
//! # use pinrail_core::{Buffer, Chunk, DeregisterError, Extent, Identity, Keys, Machine, Memory, Mr, Rail, RailId};
//! # use pinrail_core::{RegisterError, Registrar};
//! # use pinrail_engine::{Engine, Options};
//! # use pinrail_memory::Populate;
//! # use pinrail_plan::Plan;
//! # use pinrail_policy::Policy;
//! # struct Counting(Vec<Rail>);
//! # struct Token;
//! # impl Registrar for Counting {
//! #     fn identity(&self) -> Identity { Identity { backend: String::new(), provider: String::new(), library: String::new() } }
//! #     fn rails(&self) -> &[Rail] { &self.0 }
//! #     fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
//! #         Ok(Mr::new(rail, Keys { local: 7, ..Keys::default() }, Token, chunk))
//! #     }
//! #     fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> { mr.retire::<Token>(); Ok(()) }
//! # }
//! use pinrail_engine::registry::{Overlap, Registry};
//!
//! # let machine = Machine::of_rails(2);
//! # let policy = Policy::new(NonZeroU32::MIN).with("no-prefault")?;
//! # let engine = Engine::new(Arc::new(Counting(machine.rails.clone())), Arc::new(Populate::new()));
//! let registry = Registry::new(engine)?;
//! let memory = Memory::imagined(0x10000, 8192)?;
//! let plan = Plan::new(vec![Buffer::new("kv", memory, 0..8192)?], &machine, &policy)?;
//! let held = registry.register(plan, Overlap::Refuse, &Options::default())?;
//!
//! let mut reader = registry.reader();
//! let pieces = reader.range(Extent::new(0x11000, 64)?, RailId(1))?;
//! assert_eq!((pieces.len(), pieces[0].local_key, pieces[0].at), (1, 7, 4096));
//!
//! drop(pieces);
//! held.release()?;
//! assert!(reader.range(Extent::new(0x11000, 64)?, RailId(1)).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Decisions
//!
//! - **Readers see immutable versions.** A version is a tree, one atomic pointer leads to the newest, and a
//!   [`Reader`] compares it with the one it used last (`arc-swap`'s cache): no lock, no fence, no write. A new version
//!   copies the nodes on the paths to what changed, about 24 KiB of keys at most for each chunk of the batch and the fewer the
//!   nearer they lie, so that publishing costs what the batch is long and not what is live. A version that no reader uses
//!   any more is dropped by the next writer, never by a look-up.
//! - **A look-up waits for memory once.** With 100,000 chunks on 4 rails nothing holds all keys but the last cache or
//!   memory, and comparing is nothing beside a line and a page that are not at hand. So what is searched on the way is
//!   little: four bytes for each four chunks, which stay in a near cache and are compared 64 at a time, without a guess.
//!   Then the four chunks' addresses and keys, a few lines next to each other, are read at once. Integers are as wide as
//!   their leaf needs: a chunk takes about 45 bytes with verbs' keys on 4 rails, 78 with keys of eight bytes. Refused: a
//!   pointer to a record for each chunk, leaves with full first addresses or in nodes of their own, `imbl`'s map, and
//!   merged sorted runs; each is one more wait. `benches/registry.rs` has the figures.
//! - **Look-ups hold nothing.** What a look-up returned is good until the range is released or invalidated. An operation
//!   in flight keeps it registered by a clone of the [`Held`] (a reference more), not by a lock on the data path.
//! - **Buffers are the same only if their `Memory` is**: clones of one value. Another `Memory` over the same addresses may
//!   be another mapping, and the old registration's pages with it; that is an overlap, which must be allowed by name.
//! - **Numbers, not addresses, tell old from new.** Releasing an invalidated batch never touches what was registered at
//!   the same address since.
//!
//! Writers (claim, publish, release, invalidate) share one mutex, which nobody holds during a provider call.

mod books;
mod index;
mod layers;
#[cfg(all(test, loom))]
mod model;
mod rows;
mod tree;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use pinrail_core::descriptor::{Descriptor, DescriptorError};
use pinrail_core::{Buffer, Diagnosis, ErrorKind, Extent, RailId};
use pinrail_plan::{Plan, PlanError, RailNeeds};

use crate::sync::{ArcSwap, Mutex, Newest, lock};
use crate::{Engine, Failure, LookupError, Options, Registration, StepFailure, descriptor};
use books::{BatchId, Books, Member, Opened, Place};
use index::Index;
use rows::{RAILS_MAX, REMOTE_KEY_BYTES_MAX, Rows};
use tree::Edit;

pub use index::{KeyPiece, KeyPieces};

/// What is registered by all batches of one engine. Clones are one registry.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    newest: Arc<ArcSwap<Index>>,
    writing: Mutex<Writing>,
}

#[derive(Default)]
struct Writing {
    books: Books,
    /// Versions that a reader may still use.
    old: Vec<Arc<Index>>,
}

/// Whether a buffer may share bytes with one that is registered already and is not the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// It is an error.
    #[default]
    Refuse,
    /// It is registered all the same; a look-up takes the key that reaches furthest. How a buffer grows: the new one
    /// first, then the old one's release.
    Allow,
}

/// What a registry holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches that are registered.
    pub batches: u64,
    /// Batches that are being registered.
    pub in_flight: u64,
    /// Their live MRs.
    pub mrs: u64,
    /// MRs that could not be deregistered.
    pub quarantined: u64,
}

/// Why a batch cannot be registered here and now. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Another batch is registering the same range.
    #[error("buffer {buffer:?} ({extent}) is being registered: wait until that is done")]
    Busy {
        /// The buffer.
        buffer: String,
        /// Its addresses.
        extent: Extent,
    },
    /// It shares bytes with another.
    #[error(
        "buffer {buffer:?} ({extent}) overlaps with {registered}, which is registered: release or invalidate that, register clones of one Memory, or allow overlaps"
    )]
    Overlap {
        /// The buffer.
        buffer: String,
        /// Its addresses.
        extent: Extent,
        /// The addresses that are registered.
        registered: Extent,
    },
    /// What is left of the batch cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The registry was closed.
    #[error("the registry is closed")]
    Closed,
}

/// A batch that was not registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// It could not begin.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The engine failed; `held` is what it kept.
    #[error("{failure}")]
    Failed {
        /// The failure, without what it kept.
        failure: Box<Failure>,
        /// With [`OnFailure::KeepComplete`](crate::OnFailure::KeepComplete): the buffers that are wholly registered.
        held: Option<Held>,
    },
    /// A key cannot be kept; everything was undone.
    #[error("a remote key has {bytes} bytes and a registry keeps at most {}", REMOTE_KEY_BYTES_MAX)]
    KeyTooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// More rails than a registry serves.
    #[error("the registrar has {have} rails and a registry serves at most {}", RAILS_MAX)]
    TooManyRails {
        /// Rails of the registrar.
        have: usize,
    },
}

/// MRs that could not be deregistered. They are in the registry's quarantine: live with their memory, their keys
/// unreadable; [`Registry::retry`] tries them again, and only them.
#[derive(Debug, thiserror::Error)]
#[error("{left} registrations could not be undone and are in quarantine{}", .failed.first().map_or_else(String::new, |first| format!("; first: {first}")))]
pub struct Quarantined {
    /// MRs left.
    pub left: u64,
    /// Why, batch by batch in dispatch order.
    pub failed: Vec<StepFailure>,
}

/// A registry that cannot be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} batches are registered, {} are being registered and {} registrations are in quarantine", .open.batches, .open.in_flight, .open.quarantined)]
pub struct StillOpen {
    /// What is open.
    pub open: Counts,
}

/// One reference on each buffer of a batch. Clones are further references; the last one that is released or dropped
/// deregisters.
#[must_use = "what is held is released when this is dropped"]
pub struct Held {
    shared: Arc<Shared>,
    members: Vec<Member>,
}

/// The ranges of a batch, taken so that nobody else registers them meanwhile. Dropped, they are free again.
#[must_use = "a claim that is dropped is given up"]
pub struct Claim {
    shared: Arc<Shared>,
    batch: Option<BatchId>,
    plan: Arc<Plan>,
    shared_members: Vec<Member>,
}

/// What became of a claim.
pub enum Claimed {
    /// Every buffer was registered already and is referenced once more.
    Held(Held),
    /// The plan of a claim must be registered.
    New(Claim),
}

/// Looks addresses up. One a thread; each look-up sees all that was published before it began.
#[derive(Clone)]
pub struct Reader {
    newest: Newest<Index>,
}

impl Registry {
    /// An empty registry for what `engine` registers.
    ///
    /// # Errors
    /// [`RegistryError::TooManyRails`].
    pub fn new(engine: Engine) -> Result<Registry, RegistryError> {
        let have = engine.registrar().rails().len();
        if have > RAILS_MAX {
            return Err(RegistryError::TooManyRails { have });
        }
        let newest = Arc::new(ArcSwap::from_pointee(Index::default()));
        Ok(Registry { shared: Arc::new(Shared { engine, newest, writing: Mutex::default() }) })
    }

    /// Registers a batch: what is registered already, with the same rails and access, is referenced once more and not
    /// registered again.
    ///
    /// # Errors
    /// [`RegistryError`]; nothing of the batch stays registered but what [`RegistryError::Failed`] holds.
    pub fn register(&self, plan: impl Into<Arc<Plan>>, overlap: Overlap, options: &Options) -> Result<Held, RegistryError> {
        let claim = match self.claim(plan, overlap)? {
            Claimed::Held(held) => return Ok(held),
            Claimed::New(claim) => claim,
        };
        match self.shared.engine.register(Arc::clone(claim.plan()), options) {
            Ok(registration) => claim.publish(registration),
            Err(mut failure) => {
                let held = failure.kept.take().map(|kept| claim.publish(kept)).transpose()?;
                Err(RegistryError::Failed { failure, held })
            }
        }
    }

    /// Takes the ranges of a batch, for whoever registers it himself (in the background, say).
    ///
    /// What other batches hold counts against the rails' limits: a plan that does not fit beside them is made anew, which may
    /// put it into disjoint shares where its policy allows that ([`Plan::shared_out`] of [`Claim::plan`] says so).
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn claim(&self, plan: impl Into<Arc<Plan>>, overlap: Overlap) -> Result<Claimed, ClaimError> {
        let plan = plan.into();
        let mut writing = lock(&self.shared.writing);
        let books = &mut writing.books;
        let found = books.look(&plan, overlap)?;
        let shared = Arc::clone(&self.shared);
        if found.fresh.is_empty() {
            books.reference(&found.shared);
            return Ok(Claimed::Held(Held { shared, members: found.shared }));
        }
        // Limits hold for all batches together, whatever was live when this one was planned.
        let live = books.live_beside(plan.live());
        let plan = if found.shared.is_empty() && plan.fits_beside(&live) {
            plan
        } else {
            let fresh = found.fresh.iter().map(|&buffer| plan.buffers()[buffer.index()].clone()).collect();
            Arc::new(Plan::beside(fresh, plan.machine(), plan.policy(), &live)?)
        };
        books.reference(&found.shared);
        let batch = Some(books.open(&plan));
        Ok(Claimed::New(Claim { shared, batch, plan, shared_members: found.shared }))
    }

    /// A reader of its own for a thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader { newest: Newest::new(Arc::clone(&self.shared.newest)) }
    }

    /// Forgets what is registered in a range, with all that shares a registration with it, because its memory is or will
    /// be another: no look-up that begins after this returns its keys, and the range can be registered anew. The MRs live
    /// until their [`Held`] is released. Answers how many chunks were forgotten.
    ///
    /// Memory that keeps itself mapped needs no such call: nothing else can be mapped there while it is registered.
    pub fn invalidate(&self, extent: Extent) -> usize {
        let mut writing = lock(&self.shared.writing);
        let unseen = writing.books.invalidate(extent);
        self.shared.unsee(&mut writing, &unseen);
        unseen.len()
    }

    /// What the rails hold for all batches: what [`Plan::beside`] takes to keep budgets over batches.
    #[must_use]
    pub fn used(&self) -> Vec<RailNeeds> {
        lock(&self.shared.writing).books.used.clone()
    }

    /// What is registered.
    #[must_use]
    pub fn counts(&self) -> Counts {
        lock(&self.shared.writing).books.counts()
    }

    /// Tries to deregister what is in quarantine, and nothing else; answers how many MRs are gone.
    ///
    /// # Errors
    /// [`Quarantined`] with what is still left.
    pub fn retry(&self) -> Result<u64, Quarantined> {
        let taken = std::mem::take(&mut lock(&self.shared.writing).books.quarantine);
        self.shared.deregister(taken)
    }

    /// No batch is taken any more. The registrar's domains may be closed then.
    ///
    /// # Errors
    /// [`StillOpen`] where something is registered, being registered or in quarantine; nothing is changed then.
    pub fn close(&self) -> Result<(), StillOpen> {
        let books = &mut lock(&self.shared.writing).books;
        if !books.is_empty() {
            return Err(StillOpen { open: books.counts() });
        }
        books.closed = true;
        Ok(())
    }
}

impl Shared {
    /// Makes a version the newest. Nobody waits: readers of older ones go on.
    fn publish(&self, writing: &mut Writing, index: Index) {
        writing.old.push(self.newest.swap(Arc::new(index)));
        // A version that only we hold is dropped here, so that no reader ever does.
        writing.old.retain(|version| Arc::strong_count(version) > 1);
    }

    fn unsee(&self, writing: &mut Writing, places: &[Place]) {
        if places.is_empty() || planted!(StaleKey) {
            return;
        }
        let mut edits: Vec<Vec<Edit<'_>>> = Vec::new();
        let mut places = places.to_vec();
        places.sort_unstable();
        for (layer, start) in places {
            edits.resize_with(edits.len().max(layer + 1), Vec::new);
            edits[layer].push(Edit::Remove(start));
        }
        let index = self.newest.load().with(&edits);
        self.publish(writing, index);
    }

    fn release(&self, members: &[Member]) -> Result<u64, Quarantined> {
        let mut writing = lock(&self.writing);
        let (unseen, over) = writing.books.release(members);
        self.unsee(&mut writing, &unseen);
        drop(writing);
        self.deregister(over)
    }

    /// Deregisters, without any lock; what cannot be is quarantined.
    fn deregister(&self, registrations: Vec<Registration>) -> Result<u64, Quarantined> {
        let (mut gone, mut left, mut failed) = (0, 0, Vec::new());
        for registration in registrations {
            let plan = registration.plan_arc();
            let tasks: Vec<_> = registration.tasks();
            let still = registration.deregister().err();
            let mut writing = lock(&self.writing);
            let still_live: BTreeSet<_> = still.iter().flat_map(|still| still.left.tasks()).collect();
            let over: Vec<_> = tasks.into_iter().filter(|task| !still_live.contains(task)).collect();
            gone += over.len() as u64;
            writing.books.freed(&plan, over.into_iter());
            if let Some(mut still) = still {
                left += still.left.live();
                failed.append(&mut still.failed);
                writing.books.quarantine(still.left.0);
            }
        }
        if failed.is_empty() { Ok(gone) } else { Err(Quarantined { left, failed }) }
    }
}

impl Claim {
    /// What is to be registered: the whole batch, or what of it is not registered already.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Shows readers what was registered. Buffers that are not wholly registered are not held.
    ///
    /// # Errors
    /// [`RegistryError::KeyTooLong`]; the registration is undone then.
    ///
    /// # Panics
    /// If the registration is of other buffers than [`Claim::plan`].
    pub fn publish(mut self, registration: Registration) -> Result<Held, RegistryError> {
        let plan = registration.plan_arc();
        let extents = |plan: &Plan| plan.buffers().iter().map(Buffer::extent).collect::<Vec<_>>();
        // The engine may have made another plan of the same buffers, where sharing a registration was refused.
        assert!(
            Arc::ptr_eq(&self.plan, &plan) || extents(&self.plan) == extents(&plan),
            "the registration is of other buffers than its claim"
        );
        let row = |chunk| {
            let mrs = plan.rails_of(chunk).iter().filter_map(|&rail| Some((rail, registration.mr(chunk, rail)?.keys())));
            let keys: Vec<_> = mrs.collect();
            Rows::one(plan.extent(chunk), &keys)
        };
        // By chunk, before the lock is taken. An error drops the registration, which deregisters it, and then the claim.
        let rows: Vec<Rows> = plan
            .chunk_ids()
            .map(row)
            .collect::<Result<_, _>>()
            .map_err(|long| RegistryError::KeyTooLong { bytes: long.bytes })?;
        let mut writing = lock(&self.shared.writing);
        let Some(batch) = self.batch.take() else { unreachable!("a claim is published once") };
        let Opened { held: mut members, lost, mut seen } = writing.books.opened(batch, registration);
        seen.sort_unstable_by_key(|&(chunk, _)| plan.extent(chunk).start());
        let mut edits: Vec<Vec<Edit<'_>>> = Vec::new();
        for (chunk, layer) in seen {
            edits.resize_with(edits.len().max(layer + 1), Vec::new);
            let row = rows[chunk.index()].get(0).expect("one row was made for each chunk");
            edits[layer].push(Edit::Put(row));
        }
        let index = self.shared.newest.load().with(&edits);
        self.shared.publish(&mut writing, index);
        drop(writing);
        // Their registrations were undone; their ranges are free again.
        self.shared.release(&lost).ok();
        members.append(&mut self.shared_members);
        Ok(Held { shared: Arc::clone(&self.shared), members })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            lock(&self.shared.writing).books.abandon(batch);
        }
        let members = std::mem::take(&mut self.shared_members);
        // What cannot be undone is in quarantine, where it is listed and can be tried again.
        self.shared.release(&members).ok();
    }
}

impl Held {
    /// Gives the references up; what nobody references any more is no longer seen by readers and then deregistered.
    /// Answers how many MRs are gone.
    ///
    /// # Errors
    /// [`Quarantined`] for what could not be deregistered. All was tried.
    pub fn release(mut self) -> Result<u64, Quarantined> {
        let members = std::mem::take(&mut self.members);
        self.shared.release(&members)
    }

    /// What a peer must know to reach the buffers, but for those that were invalidated. It is good until they are released,
    /// and whoever has it can reach them: it is for the peer alone.
    ///
    /// # Errors
    /// [`DescriptorError`] where buffers overlap, or are more than a descriptor takes.
    pub fn descriptor(&self) -> Result<Descriptor, DescriptorError> {
        let writing = lock(&self.shared.writing);
        descriptor::of(self.shared.engine.registrar().rails(), writing.books.current(&self.members))
    }

    /// How many buffers are held.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.members.len()
    }
}

impl Clone for Held {
    fn clone(&self) -> Held {
        lock(&self.shared.writing).books.reference(&self.members);
        Held { shared: Arc::clone(&self.shared), members: self.members.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let members = std::mem::take(&mut self.members);
        // As in Claim::drop.
        self.shared.release(&members).ok();
    }
}

impl Reader {
    /// The keys of a range of addresses on a rail: one piece for each MR it touches, in order, together the whole range.
    ///
    /// # Errors
    /// [`LookupError::NotRegistered`] and [`LookupError::NotOnRail`] with the first address that has no key.
    pub fn range(&mut self, extent: Extent, rail: RailId) -> Result<KeyPieces<'_>, LookupError> {
        self.newest.load().pieces(extent, rail)
    }
}

impl ClaimError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        match self {
            ClaimError::Busy { buffer, .. } => Diagnosis::new(ErrorKind::Busy, self.to_string()).buffer(buffer),
            ClaimError::Overlap { buffer, .. } => Diagnosis::new(ErrorKind::Overlap, self.to_string()).buffer(buffer),
            ClaimError::Plan(error) => error.diagnosis(),
            ClaimError::Closed => Diagnosis::new(ErrorKind::Busy, self.to_string()),
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({} buffers)", self.members.len())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry({:?})", self.counts())
    }
}

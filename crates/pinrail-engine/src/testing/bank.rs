//! A registrar that keeps books, fails as a seed says, and notes what no registrar should see.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pinrail_core::{
    Cause, Chunk, DeregisterError, Extent, Identity, Keys, Mr, Prepare, PrepareError, PrepareStep, Prepared, Rail, RailId,
    RegisterError, Registrar, StepWhat,
};

use super::rng::Rng;
use super::stage::Stage;

/// How often calls fail, in times of a thousand. A kind that is switched off is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) register_fails: u32,
    pub(crate) register_panics: u32,
    /// EAGAIN, each time anew.
    pub(crate) again: u32,
    /// EAGAIN for ever, by task.
    pub(crate) again_for_ever: u32,
    pub(crate) deregister_fails: u32,
    /// Until faults stop, by MR.
    pub(crate) deregister_stays: u32,
    pub(crate) deregister_panics: u32,
    /// It says it is done and keeps the MR.
    pub(crate) deregister_lies: u32,
    pub(crate) prepare_fails: u32,
    pub(crate) prepare_panics: u32,
    /// Registrations that the provider takes in all, ENOMEM after that.
    pub(crate) live_max: Option<usize>,
}

pub(crate) struct Bank {
    rails: Vec<Rail>,
    stage: Stage,
    books: Mutex<Books>,
}

struct Books {
    rng: Rng,
    faults: Faults,
    next: u64,
    live: BTreeMap<u64, Entry>,
    /// Keys that no look-up may give any more.
    forgotten: BTreeSet<u64>,
    /// Tasks and keys whose fault lasts.
    for_ever: BTreeSet<(u16, u64)>,
    stays: BTreeSet<u64>,
    calls: u64,
}

struct Entry {
    rail: RailId,
    extent: Extent,
    /// Gone as soon as the MR lets go of its memory.
    held: Weak<()>,
}

struct Token {
    key: u64,
    /// It lies beside the MR's memory and is let go of with it.
    _held: Arc<()>,
}

/// errno and its cause, as backends give them.
fn any_failure(rng: &mut Rng) -> (i32, Cause) {
    let text = || "planted".to_owned();
    let all = [
        (12, Cause::Exhausted { what: text() }),
        (12, Cause::Memlock { limit: 1, held: 1, need: 1, others_unknown: false }),
        (14, Cause::Unmapped { address: 4096 }),
        (13, Cause::Protection { address: 4096, protection: "r--p".to_owned(), needs: text() }),
        (22, Cause::Alignment { address: 1, align: 4096 }),
        (22, Cause::MrSize { limit: 4096, need: 8192 }),
        (28, Cause::MrCount { limit: 1 }),
        (16, Cause::Busy { what: text() }),
        (95, Cause::NotSupported { what: text() }),
        (5, Cause::Other { what: text() }),
    ];
    rng.pick(&all).clone()
}

impl Bank {
    pub(crate) fn new(rails: Vec<Rail>, stage: Stage, rng: Rng, faults: Faults) -> Arc<Bank> {
        let books = Books {
            rng,
            faults,
            next: 0,
            live: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            for_ever: BTreeSet::new(),
            stays: BTreeSet::new(),
            calls: 0,
        };
        Arc::new(Bank { rails, stage, books: Mutex::new(books) })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No call fails any more.
    pub(crate) fn heal(&self) {
        let mut books = self.books();
        books.faults = Faults::default();
        books.for_ever.clear();
        books.stays.clear();
    }

    pub(crate) fn live(&self) -> u64 {
        self.books().live.len() as u64
    }

    pub(crate) fn calls(&self) -> u64 {
        self.books().calls
    }

    /// Whether this MR is live here as it says.
    pub(crate) fn knows(&self, mr: &Mr) -> bool {
        let books = self.books();
        books.live.get(&mr.keys().local).is_some_and(|entry| entry.rail == mr.rail() && entry.extent == mr.extent())
    }

    /// What is live has its memory.
    pub(crate) fn all_have_their_memory(&self) -> bool {
        self.books().live.values().all(|entry| entry.held.upgrade().is_some())
    }

    /// No look-up may give a key of this range any more.
    pub(crate) fn forget(&self, range: Extent) {
        let mut books = self.books();
        let keys: Vec<u64> = books.live.iter().filter(|(_, entry)| entry.extent.overlaps(range)).map(|(key, _)| *key).collect();
        books.forgotten.extend(keys);
    }

    /// What is wrong with a key that a look-up gave for an address on a rail.
    pub(crate) fn fault_of(&self, key: u64, rail: RailId, piece: Extent) -> Option<String> {
        let books = self.books();
        if books.forgotten.contains(&key) {
            return Some(format!("a look-up of {piece} on {rail} gives key {key}, which was released or invalidated"));
        }
        match books.live.get(&key) {
            Some(entry) if entry.rail == rail && entry.extent.start() <= piece.start() && piece.end() <= entry.extent.end() => {
                None
            }
            _ => Some(format!("a look-up of {piece} on {rail} gives key {key}, which is not live there")),
        }
    }
}

impl Registrar for Bank {
    fn identity(&self) -> Identity {
        Identity { backend: "bank".into(), provider: "seeded".into(), library: "none".into() }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        match self.stage.calling() {
            Some(StepWhat::Task { rail: wanted, .. }) if wanted == rail => {}
            other => self.stage.rules().wrong(format!("a registration on {rail}, and what was handed out is {other:?}")),
        }
        let extent = chunk.extent();
        let mut books = self.books();
        books.calls += 1;
        let Faults { register_fails, register_panics, again, again_for_ever, live_max, .. } = books.faults;
        let task = (rail.0, extent.start());
        if books.rng.chance(again_for_ever) {
            books.for_ever.insert(task);
        }
        if books.for_ever.contains(&task) || books.rng.chance(again) {
            return Err(RegisterError::new("bank_register", Some(11), Cause::Again));
        }
        if books.rng.chance(register_panics) {
            drop(books);
            planted_panic();
        }
        if live_max.is_some_and(|max| books.live.len() >= max) {
            return Err(RegisterError::new("bank_register", Some(12), Cause::Exhausted { what: "it is full".into() }));
        }
        if books.rng.chance(register_fails) {
            let (errno, cause) = any_failure(&mut books.rng);
            return Err(RegisterError::new("bank_register", Some(errno), cause));
        }
        books.next += 1;
        let (key, held) = (books.next, Arc::new(()));
        books.live.insert(key, Entry { rail, extent, held: Arc::downgrade(&held) });
        let keys = Keys { local: key, remote: key.to_be_bytes()[..].into() };
        Ok(Mr::new(rail, keys, Token { key, _held: held }, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        let failed = |errno, cause| Err(DeregisterError::new("bank_deregister", Some(errno), cause));
        let Some(&Token { key, .. }) = mr.token::<Token>() else { return failed(22, Cause::NotOurs) };
        let mut books = self.books();
        books.calls += 1;
        books.forgotten.insert(key);
        if !books.live.contains_key(&key) {
            self.stage.rules().wrong(format!("key {key} is deregistered twice"));
        }
        let Faults { again, deregister_fails, deregister_stays, deregister_panics, deregister_lies, .. } = books.faults;
        if books.rng.chance(deregister_stays) {
            books.stays.insert(key);
        }
        if books.stays.contains(&key) || books.rng.chance(deregister_fails) {
            let (errno, cause) = any_failure(&mut books.rng);
            return failed(errno, cause);
        }
        if books.rng.chance(again) {
            return failed(11, Cause::Again);
        }
        if books.rng.chance(deregister_lies) {
            return Ok(());
        }
        let panics = books.rng.chance(deregister_panics);
        if panics && books.rng.chance(500) {
            drop(books);
            planted_panic();
        }
        books.live.remove(&key);
        drop(books);
        mr.retire::<Token>();
        if panics {
            planted_panic();
        }
        Ok(())
    }
}

impl Prepare for Bank {
    fn prepare(&self, step: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        if !matches!(self.stage.calling(), Some(StepWhat::Prepare { .. })) {
            self.stage.rules().wrong("a preparation that was not handed out".to_owned());
        }
        let mut books = self.books();
        books.calls += 1;
        let Faults { prepare_fails, prepare_panics, .. } = books.faults;
        if books.rng.chance(prepare_panics) {
            drop(books);
            planted_panic();
        }
        if books.rng.chance(prepare_fails) {
            let (errno, cause) = any_failure(&mut books.rng);
            return Err(PrepareError::new("bank_prepare", Some(errno), cause));
        }
        match step {
            PrepareStep::Populate { range, .. } => Ok(Prepared::Resident { bytes: range.end - range.start }),
            _ => Ok(Prepared::Skipped),
        }
    }
}

/// A panic without a message on standard error: thousands are planted.
pub(crate) fn planted_panic() -> ! {
    resume_unwind(Box::new("a planted panic"))
}

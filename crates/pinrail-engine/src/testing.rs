//! The registry beside a plain list of what is registered: whatever is done, every look-up agrees.
//!
//! [`registry`] takes any bytes as a list of operations, so that property tests and fuzzing share it.

mod bank;
mod policies;
mod rng;
pub mod seeds;
pub(crate) mod stage;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pinrail_core::{
    Buffer, Cause, Chunk, DeregisterError, Extent, Identity, Keys, Machine, Memory, Mr, Prepare, PrepareError, PrepareStep,
    Prepared, Rail, RailId, RegisterError, Registrar,
};
use pinrail_plan::Plan;
use pinrail_policy::Policy;

use crate::registry::{Claim, ClaimError, Claimed, Held, Overlap, Reader, Registry, RegistryError};
use crate::{Attempts, Engine, LookupError, OnFailure, Options};

const RAILS: u16 = 2;
const SLOT: u64 = 4096;
const OPTIONS: Options = Options { on_failure: OnFailure::RollBack, attempts: Attempts::All, deadline: None, threads_max: 1 };
/// Addresses that operations are about: few, so that they meet.
const SLOTS: u64 = 24;

/// Runs operations that the bytes spell.
///
/// # Panics
/// Where the registry and the list disagree, or where something is live in the end.
pub fn registry(bytes: &[u8]) {
    let mut model = Model::new();
    for operation in bytes.chunks_exact(3) {
        model.apply(operation[0], u64::from(operation[1]) % SLOTS, operation[2]);
        model.agrees();
    }
    model.end();
}

/// One range that is registered.
struct Known {
    extent: Extent,
    references: u32,
    /// False once it was invalidated.
    seen: bool,
    /// The local key on each rail.
    keys: Vec<u64>,
}

struct Model {
    books: Arc<Books>,
    registry: Registry,
    reader: Reader,
    machine: Machine,
    memory: Memory,
    known: Vec<Known>,
    held: Vec<(usize, Held)>,
    /// Ranges that are being registered.
    claimed: Vec<(Range, Claim)>,
}

#[derive(Clone, Copy)]
struct Range {
    extent: Extent,
    /// False once it was invalidated.
    seen: bool,
}

/// What must come of a range that somebody wants to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Busy,
    /// This one is referenced once more.
    Same(usize),
    Overlap,
    New,
}

impl Model {
    fn new() -> Model {
        let machine = Machine::of_rails(RAILS);
        let books = Arc::new(Books { rails: machine.rails.clone(), written: Mutex::default() });
        let registry = Registry::new(Engine::new(books.clone(), books.clone())).expect("two rails are few");
        let memory = Memory::imagined(SLOT, SLOT * (SLOTS + 8)).expect("it does not wrap");
        Model {
            reader: registry.reader(),
            books,
            registry,
            machine,
            memory,
            known: Vec::new(),
            held: Vec::new(),
            claimed: Vec::new(),
        }
    }

    fn apply(&mut self, operation: u8, slot: u64, more: u8) {
        let len = SLOT * u64::from(1 + more % 8);
        let overlap = if more >= 128 { Overlap::Allow } else { Overlap::Refuse };
        match operation % 9 {
            0 | 1 => self.register(slot, len, overlap),
            2 if !self.held.is_empty() => self.release(usize::from(more) % self.held.len()),
            3 => {
                let extent = Extent::new(SLOT + slot * SLOT, len).expect("small numbers");
                self.registry.invalidate(extent);
                self.known.iter_mut().filter(|known| known.extent.overlaps(extent)).for_each(|known| known.seen = false);
                let claimed = self.claimed.iter_mut().map(|(range, _)| range);
                claimed.filter(|range| range.extent.overlaps(extent)).for_each(|range| range.seen = false);
            }
            4 if !self.held.is_empty() => {
                let at = usize::from(more) % self.held.len();
                let (known, clone) = (self.held[at].0, self.held[at].1.clone());
                self.known[known].references += 1;
                self.held.push((known, clone));
            }
            5 => self.claim(slot, len, overlap),
            6 if !self.claimed.is_empty() => self.publish(usize::from(more) % self.claimed.len()),
            7 if !self.claimed.is_empty() => drop(self.claimed.swap_remove(usize::from(more) % self.claimed.len())),
            8 => assert_eq!(self.registry.retry().is_err(), {
                let written = self.books.written();
                written.stuck && self.registry.counts().quarantined > 0
            }),
            _ => self.books.written().stuck = more >= 128,
        }
    }

    fn plan(&self, slot: u64, len: u64) -> Plan {
        let buffer = Buffer::new("buffer", self.memory.clone(), slot * SLOT..slot * SLOT + len).expect("inside the memory");
        let policy = Policy::new(NonZeroU32::MIN).with("no-prefault").expect("a known term");
        Plan::new(vec![buffer], &self.machine, &policy).expect("no limits")
    }

    fn expected(&self, extent: Extent, overlap: Overlap) -> Expected {
        let is_live = |known: &Known| known.references > 0 && known.seen;
        let mut claimed = self.claimed.iter().map(|(range, _)| range).filter(|range| range.seen);
        if claimed.clone().any(|range| range.extent == extent) {
            return Expected::Busy;
        }
        if let Some(at) = self.known.iter().position(|known| is_live(known) && known.extent == extent) {
            return Expected::Same(at);
        }
        let overlaps = claimed.any(|range| range.extent.overlaps(extent))
            || self.known.iter().any(|known| is_live(known) && known.extent.overlaps(extent));
        if overlaps && overlap == Overlap::Refuse { Expected::Overlap } else { Expected::New }
    }

    fn register(&mut self, slot: u64, len: u64, overlap: Overlap) {
        let plan = self.plan(slot, len);
        let extent = plan.buffers()[0].extent();
        let (expected, calls) = (self.expected(extent, overlap), self.books.written().next);
        match (self.registry.register(plan, overlap, &OPTIONS), expected) {
            (Ok(held), Expected::Same(at)) => self.reference(at, held, calls),
            (Ok(held), Expected::New) => self.know(Range { extent, seen: true }, held, calls),
            (Err(RegistryError::Claim(ClaimError::Overlap { .. })), Expected::Overlap)
            | (Err(RegistryError::Claim(ClaimError::Busy { .. })), Expected::Busy) => {}
            (result, expected) => panic!("{extent}: {result:?}, not {expected:?}"),
        }
    }

    fn claim(&mut self, slot: u64, len: u64, overlap: Overlap) {
        let plan = self.plan(slot, len);
        let extent = plan.buffers()[0].extent();
        let (expected, calls) = (self.expected(extent, overlap), self.books.written().next);
        match (self.registry.claim(plan, overlap), expected) {
            (Ok(Claimed::Held(held)), Expected::Same(at)) => self.reference(at, held, calls),
            (Ok(Claimed::New(claim)), Expected::New) => self.claimed.push((Range { extent, seen: true }, claim)),
            (Err(ClaimError::Overlap { .. }), Expected::Overlap) | (Err(ClaimError::Busy { .. }), Expected::Busy) => {}
            (result, expected) => panic!("{extent}: {:?}, not {expected:?}", result.map(|_| ())),
        }
    }

    fn publish(&mut self, at: usize) {
        let (range, claim) = self.claimed.swap_remove(at);
        let calls = self.books.written().next;
        let engine = Engine::new(self.books.clone(), self.books.clone());
        let registration = engine.register(Arc::clone(claim.plan()), &OPTIONS).expect("nothing fails to register");
        let held = claim.publish(registration).expect("keys are short");
        self.know(range, held, calls);
    }

    fn reference(&mut self, at: usize, held: Held, calls: u64) {
        assert_eq!(self.books.written().next, calls, "what is registered is not registered again");
        self.known[at].references += 1;
        self.held.push((at, held));
    }

    fn know(&mut self, range: Range, held: Held, calls: u64) {
        let keys = (1..=u64::from(RAILS)).map(|nth| calls + nth).collect();
        self.held.push((self.known.len(), held));
        self.known.push(Known { extent: range.extent, references: 1, seen: range.seen, keys });
    }

    fn release(&mut self, at: usize) {
        let (known, held) = self.held.swap_remove(at);
        self.known[known].references -= 1;
        let is_over = self.known[known].references == 0;
        let stuck = self.books.written().stuck;
        let released = held.release();
        assert_eq!(released.is_err(), is_over && stuck);
    }

    /// Every slot, on every rail and one that does not exist.
    fn agrees(&mut self) {
        for slot in 0..SLOTS + 8 {
            let address = SLOT + slot * SLOT;
            let covers = |known: &&Known| known.references > 0 && known.seen && known.extent.range().contains(&address);
            let found: Vec<&Known> = self.known.iter().filter(covers).collect();
            let furthest = found.iter().map(|known| known.extent.end()).max();
            let ask = Extent::new(address, 1).expect("small numbers");
            for rail in 0..RAILS {
                match (self.reader.range(ask, RailId(rail)), furthest) {
                    (Ok(pieces), Some(end)) => {
                        let key = pieces[0].local_key;
                        let of_key = found.iter().find(|known| known.keys.contains(&key)).expect("a key of what is live here");
                        assert_eq!(of_key.extent.end(), end, "the key that reaches furthest");
                        assert_eq!(pieces[0].at, address - of_key.extent.start());
                        assert_eq!(self.books.written().live.get(&key), Some(&(RailId(rail), of_key.extent)));
                    }
                    (Err(LookupError::NotRegistered { address: at }), None) => assert_eq!(at, address),
                    (answer, _) => panic!("{address:#x}: {answer:?}, and {} cover it", found.len()),
                }
            }
            let nowhere = self.reader.range(ask, RailId(RAILS)).map(|_| ()).expect_err("there is no such rail");
            assert_eq!(matches!(nowhere, LookupError::NotOnRail { .. }), furthest.is_some());
        }
        self.tiles();
    }

    /// The whole of the addresses: pieces without a gap, or the first address without a key.
    fn tiles(&mut self) {
        let (start, end) = (SLOT, SLOT * (SLOTS + 9));
        let mut at = start;
        while at < end {
            match self.reader.range(Extent::new(at, end - at).expect("small numbers"), RailId(0)) {
                Ok(pieces) => {
                    assert_eq!(pieces[0].extent.start(), at);
                    assert!(pieces.windows(2).all(|pair| pair[0].extent.end() == pair[1].extent.start()));
                    at = pieces[pieces.len() - 1].extent.end();
                }
                Err(LookupError::NotRegistered { address }) => {
                    assert!(address >= at);
                    at = address + SLOT;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn end(mut self) {
        self.books.written().stuck = false;
        self.claimed.clear();
        while let Some((_, held)) = self.held.pop() {
            held.release().expect("nothing is stuck any more");
        }
        assert_eq!(self.registry.counts().quarantined, self.books.written().live.len() as u64);
        self.registry.retry().expect("nothing is stuck any more");
        assert!(self.books.written().live.is_empty() && self.registry.used().iter().all(|used| *used == Default::default()));
        self.registry.close().expect("nothing is open");
    }
}

/// A registrar that writes down what is live and numbers its keys.
struct Books {
    rails: Vec<Rail>,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    next: u64,
    live: BTreeMap<u64, (RailId, Extent)>,
    /// Deregistration fails.
    stuck: bool,
}

struct Token(u64);

impl Books {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrar for Books {
    fn identity(&self) -> Identity {
        Identity { backend: "books".into(), provider: "none".into(), library: "none".into() }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        let mut written = self.written();
        written.next += 1;
        let key = written.next;
        written.live.insert(key, (rail, chunk.extent()));
        let remote = key.to_be_bytes()[..].into();
        Ok(Mr::new(rail, Keys { local: key, remote }, Token(key), chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        let mut written = self.written();
        if written.stuck {
            return Err(DeregisterError::new("books_deregister", Some(16), Cause::Busy { what: "planted".into() }));
        }
        if let Some(Token(key)) = mr.retire() {
            written.live.remove(&key);
        }
        Ok(())
    }
}

impl Prepare for Books {
    fn prepare(&self, _: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        Ok(Prepared::Skipped)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn whatever_is_done_the_registry_agrees_with_a_plain_list(bytes in prop::collection::vec(any::<u8>(), 0..150)) {
            super::registry(&bytes);
        }
    }
}

//! The registry under a model checker: look-ups beside publication, release and invalidation, every interleaving of their
//! locks and of the moment a version is replaced, up to a few preemptions.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use pinrail_core::{
    Buffer, Chunk, DeregisterError, Extent, Identity, Keys, Machine, Memory, Mr, Prepare, PrepareError, PrepareStep, Prepared,
    Rail, RailId, RegisterError, Registrar,
};
use pinrail_plan::Plan;
use pinrail_policy::Policy;

use super::{ClaimError, Held, Overlap, Reader, Registry, RegistryError};
use crate::model::check;
use crate::sync::{Mutex, lock};
use crate::{Engine, Options};

const LEN: u64 = 4096;

/// Writes down which keys are live.
struct Noted {
    rails: Vec<Rail>,
    noted: Mutex<Keyring>,
}

#[derive(Default)]
struct Keyring {
    last: u64,
    live: BTreeSet<u64>,
}

struct Token;

impl Registrar for Noted {
    fn identity(&self) -> Identity {
        Identity { backend: "noted".into(), provider: "none".into(), library: "none".into() }
    }
    fn rails(&self) -> &[Rail] {
        &self.rails
    }
    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        let mut noted = lock(&self.noted);
        noted.last += 1;
        let local = noted.last;
        noted.live.insert(local);
        Ok(Mr::new(rail, Keys { local, ..Keys::default() }, Token, chunk))
    }
    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        lock(&self.noted).live.remove(&mr.keys().local);
        mr.retire::<Token>();
        Ok(())
    }
}

impl Prepare for Noted {
    fn prepare(&self, _: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        Ok(Prepared::Skipped)
    }
}

struct World {
    noted: Arc<Noted>,
    registry: Registry,
    memory: Memory,
}

impl World {
    fn new() -> World {
        let noted = Arc::new(Noted { rails: Machine::of_rails(1).rails, noted: Mutex::default() });
        let registry = Registry::new(Engine::new(noted.clone(), noted.clone())).unwrap();
        World { noted, registry, memory: Memory::imagined(LEN, LEN).unwrap() }
    }

    fn register(&self) -> Result<Held, RegistryError> {
        let buffer = Buffer::new("buffer", self.memory.clone(), 0..LEN).unwrap();
        let policy = Policy::new(NonZeroU32::MIN).with("no-prefault").unwrap();
        let plan = Plan::new(vec![buffer], &Machine::of_rails(1), &policy).unwrap();
        self.registry.register(plan, Overlap::Refuse, &Options { threads_max: 1, ..Options::default() })
    }

    fn live(&self) -> BTreeSet<u64> {
        lock(&self.noted.noted).live.clone()
    }
}

fn extent() -> Extent {
    Extent::new(LEN, LEN).unwrap()
}

/// The key that a look-up finds.
fn find(reader: &mut Reader) -> Option<u64> {
    reader.range(extent(), RailId(0)).ok().map(|pieces| pieces[0].local_key)
}

/// A look-up beside whatever `release` does with the only holder.
fn look_up_beside(release: fn(Held)) {
    let world = World::new();
    let held = world.register().unwrap();
    let mut reader = world.registry.reader();
    let releasing = thread::spawn(move || release(held));
    let live = world.live();
    let found = find(&mut reader);
    assert!(found.is_none_or(|key| live.contains(&key)), "a key was found that was deregistered before the look-up began");
    releasing.join().unwrap();
    assert_eq!((find(&mut reader), world.live().len()), (None, 0));
}

#[test]
fn no_look_up_finds_what_was_deregistered_before_it() {
    check(|| look_up_beside(|held| assert_eq!(held.release().unwrap(), 1)));
}

/// The canary: deregistered first, and then no longer shown.
#[test]
#[should_panic(expected = "was deregistered before the look-up began")]
fn a_key_that_is_shown_too_long_is_found() {
    check(|| {
        look_up_beside(|mut held| {
            let members = std::mem::take(&mut held.members);
            let (unseen, over) = lock(&held.shared.writing).books.release(&members);
            held.shared.deregister(over).unwrap();
            held.shared.unsee(&mut lock(&held.shared.writing), &unseen);
        });
    });
}

#[test]
fn what_is_published_is_live_and_is_found_from_then_on() {
    check(|| {
        let world = Arc::new(World::new());
        let mut reader = world.registry.reader();
        let registering = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.register().unwrap())
        };
        let (early, live) = (find(&mut reader), world.live());
        assert!(early.is_none_or(|key| live.contains(&key)));
        let late = find(&mut reader);
        assert!(early.is_none() || early == late, "found once, then not");
        let held = registering.join().unwrap();
        assert_eq!(find(&mut reader), Some(1));
        held.release().unwrap();
    });
}

#[test]
fn no_look_up_finds_what_was_invalidated_before_it() {
    check(|| {
        let world = World::new();
        let held = world.register().unwrap();
        let (mut reader, told) = (world.registry.reader(), Arc::new(AtomicBool::new(false)));
        let invalidating = {
            let (registry, told) = (world.registry.clone(), Arc::clone(&told));
            thread::spawn(move || {
                assert_eq!(registry.invalidate(extent()), 1);
                told.store(true, Ordering::Release);
            })
        };
        let was_told = told.load(Ordering::Acquire);
        assert!(find(&mut reader).is_none() || !was_told);
        invalidating.join().unwrap();
        assert_eq!((find(&mut reader), world.live().len()), (None, 1), "it lives until it is released");
        held.release().unwrap();
    });
}

#[test]
fn the_same_range_at_once_is_registered_once_and_released_beside_a_new_one_leaves_the_new() {
    check(|| {
        let world = Arc::new(World::new());
        let first = world.register().unwrap();
        let releasing = thread::spawn(move || {
            first.release().unwrap();
        });
        match world.register() {
            Ok(held) => {
                let found = find(&mut world.registry.reader());
                assert!(found.is_some_and(|key| world.live().contains(&key)), "what is held is found");
                releasing.join().unwrap();
                assert_eq!(found, find(&mut world.registry.reader()));
                held.release().unwrap();
            }
            Err(RegistryError::Claim(ClaimError::Busy { .. })) => releasing.join().unwrap(),
            Err(other) => panic!("{other}"),
        }
        assert!(world.live().is_empty());
    });
}

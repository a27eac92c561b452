//! A registrar that keeps books and fails where it is told to.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of any #[test]")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{
    Cause, Chunk, DeregisterError, Identity, Keys, Machine, Mr, Prepare, PrepareError, PrepareStep, Prepared, Rail, RailId,
    RegisterError, Registrar,
};
use pinrail_engine::{Engine, Failure, Quarantine, Registration, Report, StillRegistered};
use pinrail_plan::Plan;
use pinrail_policy::Policy;

/// What a call does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Fails with this cause, as often as said, then works.
    Fails(Cause, u32),
    /// Panics.
    Panics,
    /// Says it is done and keeps the MR live; for deregistrations only.
    Lies,
}

/// A task as the fake names it: rail, first address.
pub(crate) type Task = (u16, u64);

#[derive(Default)]
struct Books {
    next: u64,
    live: BTreeMap<u64, Task>,
    registered: Vec<Task>,
    deregistered: Vec<Task>,
    register_faults: BTreeMap<Task, Fault>,
    deregister_faults: BTreeMap<Task, Fault>,
    in_flight: BTreeMap<u16, u32>,
    peak_per_rail: BTreeMap<u16, u32>,
    calls: u64,
    /// Tasks whose registration does not return until this many are in flight together.
    meet: Option<u32>,
    held: BTreeSet<Task>,
}

pub(crate) struct Fake {
    rails: Vec<Rail>,
    books: Mutex<Books>,
    changed: Condvar,
}

struct Token(u64);

impl Fake {
    pub(crate) fn new(machine: &Machine) -> Arc<Fake> {
        Arc::new(Fake { rails: machine.rails.clone(), books: Mutex::default(), changed: Condvar::new() })
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn fail_register(&self, task: Task, fault: Fault) {
        self.books().register_faults.insert(task, fault);
    }

    pub(crate) fn fail_deregister(&self, task: Task, fault: Fault) {
        self.books().deregister_faults.insert(task, fault);
    }

    pub(crate) fn heal(&self) {
        let mut books = self.books();
        books.register_faults.clear();
        books.deregister_faults.clear();
    }

    /// Registrations return only when `n` of them are in flight at the same time.
    pub(crate) fn meet(&self, n: u32) {
        self.books().meet = Some(n);
    }

    /// The task's registration does not return until [`Fake::release`].
    pub(crate) fn hold(&self, task: Task) {
        self.books().held.insert(task);
    }

    pub(crate) fn release(&self) {
        self.books().held.clear();
        self.changed.notify_all();
    }

    /// Waits until `n` registrations have been called.
    pub(crate) fn wait_for_calls(&self, n: u64) {
        let mut books = self.books();
        while books.calls < n {
            books = self.changed.wait(books).unwrap();
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.books().live.len()
    }

    pub(crate) fn registered(&self) -> Vec<Task> {
        self.books().registered.clone()
    }

    pub(crate) fn deregistered(&self) -> Vec<Task> {
        self.books().deregistered.clone()
    }

    pub(crate) fn calls(&self) -> u64 {
        self.books().calls
    }

    pub(crate) fn peak_on(&self, rail: u16) -> u32 {
        self.books().peak_per_rail.get(&rail).copied().unwrap_or(0)
    }

    fn fault(faults: &mut BTreeMap<Task, Fault>, task: Task) -> Option<Fault> {
        match faults.get_mut(&task)? {
            Fault::Fails(_, 0) => None,
            Fault::Fails(cause, left) => {
                *left -= 1;
                Some(Fault::Fails(cause.clone(), 0))
            }
            other => Some(other.clone()),
        }
    }
}

impl Registrar for Fake {
    fn identity(&self) -> Identity {
        Identity { backend: "fake".into(), provider: "books".into(), library: "test".into() }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        let task = (rail.0, chunk.extent().start());
        let mut books = self.books();
        books.calls += 1;
        let here = books.in_flight.entry(rail.0).or_default();
        *here += 1;
        let here = *here;
        let peak = books.peak_per_rail.entry(rail.0).or_default();
        *peak = (*peak).max(here);
        self.changed.notify_all();
        while books.held.contains(&task) || books.meet.is_some_and(|n| books.in_flight.values().sum::<u32>() < n) {
            books = self.changed.wait(books).unwrap();
        }
        // Who has met need not meet again.
        books.meet = None;
        self.changed.notify_all();
        *books.in_flight.get_mut(&rail.0).unwrap() -= 1;
        match Fake::fault(&mut books.register_faults, task) {
            Some(Fault::Panics) => {
                drop(books);
                planted_panic()
            }
            Some(Fault::Fails(cause, _)) => Err(RegisterError::new("fake_register", Some(12), cause)),
            Some(Fault::Lies) => unreachable!("for deregistrations only"),
            None => {
                books.next += 1;
                let id = books.next;
                books.live.insert(id, task);
                books.registered.push(task);
                Ok(Mr::new(rail, Keys { local: id, remote: id.to_be_bytes()[..].into() }, Token(id), chunk))
            }
        }
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        let Some(&Token(id)) = mr.token() else { return Err(DeregisterError::new("fake_deregister", None, Cause::NotOurs)) };
        let mut books = self.books();
        let task = books.live[&id];
        match Fake::fault(&mut books.deregister_faults, task) {
            Some(Fault::Panics) => {
                drop(books);
                planted_panic()
            }
            Some(Fault::Lies) => return Ok(()),
            Some(Fault::Fails(cause, _)) => return Err(DeregisterError::new("fake_deregister", Some(16), cause)),
            None => {}
        }
        books.live.remove(&id);
        books.deregistered.push(task);
        drop(books);
        mr.retire::<Token>();
        Ok(())
    }
}

/// A panic without a message on standard error: thousands are planted.
pub(crate) fn planted_panic() -> ! {
    std::panic::resume_unwind(Box::new("a planted panic"))
}

/// Preparation that counts, and fails or panics for slices that begin at the addresses it is told.
#[derive(Default)]
pub(crate) struct Slices {
    pub(crate) done: AtomicU64,
    pub(crate) fail_at: Mutex<BTreeSet<u64>>,
    pub(crate) panic_at: Mutex<BTreeSet<u64>>,
}

impl Prepare for Slices {
    fn prepare(&self, step: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        let PrepareStep::Populate { memory, range, .. } = step else { return Ok(Prepared::Skipped) };
        let address = memory.extent().start() + range.start;
        if self.panic_at.lock().unwrap().contains(&address) {
            planted_panic();
        }
        if self.fail_at.lock().unwrap().contains(&address) {
            return Err(PrepareError::new("fake_prepare", Some(14), Cause::Unmapped { address: 0 }));
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(Prepared::Resident { bytes: range.end - range.start })
    }
}

/// `rails` rails that take `parallel` calls at once.
pub(crate) fn machine(rails: u16, parallel: u32) -> Machine {
    let mut machine = Machine::of_rails(rails);
    machine.rails.iter_mut().for_each(|rail| rail.calls_in_parallel = NonZeroU32::new(parallel).unwrap());
    machine
}

pub(crate) const PAGE: u64 = 4096;

/// Buffers of so many pages.
pub(crate) fn plan(machine: &Machine, pages: &[u64], spec: &str) -> Plan {
    let buffers = pages.iter().enumerate().map(|(at, pages)| BufferSpec::new(BufferSpec::default_name(at), pages * PAGE));
    let buffers = BatchSpec::of(buffers).layout().unwrap().imagined().unwrap();
    Plan::new(buffers, machine, &Policy::new(NonZeroU32::new(4).unwrap()).with(spec).unwrap()).unwrap()
}

pub(crate) fn engine(fake: &Arc<Fake>) -> Engine {
    Engine::new(fake.clone(), Arc::new(Slices::default()))
}

/// The tasks of a plan, chunk by chunk.
pub(crate) fn tasks(plan: &Plan) -> Vec<Task> {
    let tasks = plan.chunk_ids().flat_map(|chunk| plan.rails_of(chunk).iter().map(move |rail| (rail.0, chunk)));
    tasks.map(|(rail, chunk)| (rail, plan.extent(chunk).start())).collect()
}

/// What is live after a run.
pub(crate) enum Held {
    Kept(Registration),
    Left(Quarantine),
}

impl Held {
    pub(crate) fn of(failure: Failure) -> Vec<Held> {
        failure.kept.map(Held::Kept).into_iter().chain(failure.quarantine.map(Held::Left)).collect()
    }

    pub(crate) fn live(&self) -> u64 {
        match self {
            Held::Kept(kept) => kept.live(),
            Held::Left(left) => left.live(),
        }
    }

    pub(crate) fn deregister(self) -> Result<Report, Box<StillRegistered>> {
        match self {
            Held::Kept(kept) => kept.deregister(),
            Held::Left(left) => left.deregister(),
        }
    }
}

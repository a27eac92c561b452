//! Conditions that others reported, each a test named after it: docs/FIELD-REPORTS.md.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use pinrail_core::batch::{BatchError, BatchSpec, BufferSpec};
use pinrail_core::{
    Buffer, Cause, Chunk, DeregisterError, ErrorKind, Extent, ExtentError, Identity, Keys, Machine, Memory, Mr, Rail, RailId,
    RegisterError, Registrar,
};
use pinrail_engine::registry::{ClaimError, Claimed, Held, Overlap, Registry, RegistryError};
use pinrail_engine::{Engine, LookupError, Options, Reason, Refusal};
use pinrail_memory::{Mapping, Maps, Pages, Populate};
use pinrail_plan::Plan;
use pinrail_policy::Policy;

use crate::fake::{Fake, Fault, PAGE, engine, machine, plan, tasks};

fn registry(fake: &Arc<Fake>) -> Registry {
    Registry::new(engine(fake)).unwrap()
}

fn plan_of(machine: &Machine, memory: &Memory, range: std::ops::Range<u64>) -> Plan {
    let buffer = Buffer::new("buffer", memory.clone(), range).unwrap();
    let policy = Policy::new(std::num::NonZeroU32::MIN).with("no-prefault").unwrap();
    Plan::new(vec![buffer], machine, &policy).unwrap()
}

fn memory(pages: u64) -> Memory {
    Memory::imagined(16 * PAGE, pages * PAGE).unwrap()
}

fn register(registry: &Registry, plan: Plan) -> Result<Held, RegistryError> {
    registry.register(plan, Overlap::Refuse, &Options::default())
}

fn busy() -> Fault {
    Fault::Fails(Cause::Busy { what: "planted".into() }, u32::MAX)
}

fn extent(start: u64, len: u64) -> Extent {
    Extent::new(start, len).unwrap()
}

/// Row 10: a transfer may cross a seam, and both sides cut differently.
#[test]
fn a_range_over_seams_is_ordered_pieces_that_sum_to_it_however_it_was_cut() {
    for cap in [2, 3, 16] {
        let mut machine = machine(1, 1);
        machine.rails[0].limits.max_mr_size = Some(cap * PAGE);
        let fake = Fake::new(&machine);
        let registry = registry(&fake);
        let held = register(&registry, plan_of(&machine, &memory(8), 0..8 * PAGE)).unwrap();
        let mut reader = registry.reader();
        for (first, len) in [(0, 8 * PAGE), (PAGE + 1, 4 * PAGE), (2 * PAGE - 1, 2), (3 * PAGE - 1, 3 * PAGE + 2)] {
            let asked = extent(16 * PAGE + first, len);
            let pieces = reader.range(asked, RailId(0)).unwrap();
            let seams = (first + len - 1) / (cap * PAGE) - first / (cap * PAGE);
            assert_eq!(pieces.len() as u64, seams + 1, "one key for each MR");
            assert_eq!(pieces.iter().map(|piece| piece.extent.len()).sum::<u64>(), len);
            assert_eq!(pieces[0].extent.start(), asked.start());
            assert!(pieces.windows(2).all(|pair| pair[0].extent.end() == pair[1].extent.start() && pair[1].at == 0));
            assert!(pieces.windows(2).all(|pair| pair[0].local_key != pair[1].local_key));
        }
        held.release().unwrap();
    }
}

/// Row 38: registering and deregistering in rounds slowed down and stopped.
#[test]
fn sixty_rounds_leave_nothing_and_cost_the_same_calls() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let registry = registry(&fake);
    for round in 1..=60 {
        let held = register(&registry, plan(&machine, &[1; 100], "no-prefault+no-coalesce")).unwrap();
        assert_eq!((fake.calls(), fake.live()), (round * 200, 200));
        assert_eq!(held.release().unwrap(), 200);
        assert_eq!((registry.counts(), fake.live()), (Default::default(), 0));
    }
}

/// Row 40: threads that register at once got a key twice, and the fix serialised them.
#[test]
fn threads_register_beside_each_other_and_the_same_range_once() {
    let machine = machine(1, 8);
    let fake = Fake::new(&machine);
    let (registry, memory) = (registry(&fake), memory(64));
    // No call returns before eight are in flight: a lock across calls would stop here for ever.
    fake.meet(8);
    let held: Vec<Held> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|nth| {
                let plan = plan_of(&machine, &memory, nth * 8 * PAGE..(nth * 8 + 4) * PAGE);
                scope.spawn(|| register(&registry, plan).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut reader = registry.reader();
    let keys: std::collections::BTreeSet<u64> =
        (0..8).map(|nth| reader.range(extent((16 + nth * 8) * PAGE, 1), RailId(0)).unwrap()[0].local_key).collect();
    assert_eq!((keys.len(), held.len(), fake.live()), (8, 8, 8), "no key twice");
    drop(held);

    let (started, same) = (Barrier::new(8), AtomicU64::new(0));
    let held: Vec<Held> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    started.wait();
                    match register(&registry, plan_of(&machine, &memory, 0..PAGE)) {
                        Ok(held) => Some(held),
                        Err(RegistryError::Claim(ClaimError::Busy { .. })) => {
                            same.fetch_add(1, Ordering::Relaxed);
                            None
                        }
                        Err(other) => panic!("{other}"),
                    }
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(held.len() as u64 + same.into_inner(), 8);
    assert_eq!(fake.live(), 1, "registered once, however many hold it");
    drop(held);
    assert_eq!(fake.live(), 0);
}

/// Row 53: the caller lets go of the memory first.
#[test]
fn memory_let_go_of_first_is_deregistered_from_our_own_table() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let (registry, memory) = (registry(&fake), memory(4));
    let held = register(&registry, plan_of(&machine, &memory, 0..PAGE)).unwrap();
    drop(memory);
    assert_eq!((held.release().unwrap(), fake.live()), (2, 0));
}

/// A registrar that gives every MR the same key, and whose domain notes when it is closed.
struct SameKey {
    rails: Vec<Rail>,
    domain: Arc<Domain>,
}

struct Domain {
    closed: Arc<Mutex<Vec<&'static str>>>,
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.closed.lock().unwrap().push("domain");
    }
}

struct Pinned(Arc<Domain>);

impl Registrar for SameKey {
    fn identity(&self) -> Identity {
        Identity { backend: "same-key".into(), provider: "test".into(), library: "test".into() }
    }
    fn rails(&self) -> &[Rail] {
        &self.rails
    }
    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        Ok(Mr::new(rail, Keys { local: 7, ..Keys::default() }, Pinned(Arc::clone(&self.domain)), chunk))
    }
    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        if let Some(Pinned(domain)) = mr.retire() {
            domain.closed.lock().unwrap().push("mr");
        }
        Ok(())
    }
}

fn same_key() -> (Registry, Machine, Arc<Mutex<Vec<&'static str>>>) {
    let (machine, closed) = (machine(1, 1), Arc::new(Mutex::new(Vec::new())));
    let domain = Arc::new(Domain { closed: Arc::clone(&closed) });
    let engine = Engine::new(Arc::new(SameKey { rails: machine.rails.clone(), domain }), Arc::new(Populate::new()));
    (Registry::new(engine).unwrap(), machine, closed)
}

/// Row 54: a range was freed, the provider uses its key again for the next.
#[test]
fn a_key_used_again_for_a_new_range_is_the_new_ones() {
    let (registry, machine, _) = same_key();
    let memory = memory(4);
    let old = register(&registry, plan_of(&machine, &memory, 0..PAGE)).unwrap();
    assert_eq!(registry.invalidate(extent(16 * PAGE, 1)), 1);
    let new = register(&registry, plan_of(&machine, &memory, 0..2 * PAGE)).unwrap();
    let mut reader = registry.reader();
    assert_eq!(reader.range(extent(16 * PAGE, 2 * PAGE), RailId(0)).unwrap()[0].local_key, 7);
    old.release().unwrap();
    assert!(reader.range(extent(16 * PAGE, 2 * PAGE), RailId(0)).is_ok(), "the dead entry's end is not the new one's");
    new.release().unwrap();
    assert!(reader.range(extent(16 * PAGE, 1), RailId(0)).is_err());
}

/// Row 55: the same again, an overlap, and the same while it is in flight.
#[test]
fn the_same_again_counts_references_an_overlap_is_an_error_and_in_flight_is_busy() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let (registry, memory) = (registry(&fake), memory(8));
    let again = || plan_of(&machine, &memory, 0..2 * PAGE);
    let Claimed::New(claim) = registry.claim(again(), Overlap::Refuse).unwrap_or_else(|why| panic!("{why}")) else { panic!() };
    let Err(RegistryError::Claim(while_in_flight)) = register(&registry, again()) else { panic!() };
    assert_eq!(while_in_flight.diagnosis().kind, ErrorKind::Busy);
    let registration = engine(&fake).register(Arc::clone(claim.plan()), &Options::default()).unwrap();
    let first = claim.publish(registration).unwrap();
    let second = register(&registry, again()).unwrap();
    assert_eq!((fake.live(), fake.calls()), (1, 1), "two references, one MR");
    let Err(RegistryError::Claim(overlap)) = register(&registry, plan_of(&machine, &memory, PAGE..3 * PAGE)) else { panic!() };
    assert_eq!(overlap.diagnosis().kind, ErrorKind::Overlap);
    let elsewhere = Memory::imagined(16 * PAGE, 8 * PAGE).unwrap();
    let other_memory = register(&registry, plan_of(&machine, &elsewhere, 0..2 * PAGE)).unwrap_err();
    assert!(matches!(other_memory, RegistryError::Claim(ClaimError::Overlap { .. })), "another mapping may lie there");
    assert_eq!((first.release().unwrap(), fake.live()), (0, 1));
    assert_eq!((second.release().unwrap(), fake.live()), (1, 0));
}

/// Row 56: whichever registration fails, nothing of the batch stays, and its ranges are free again.
#[test]
fn a_failure_at_any_buffer_and_rail_leaves_nothing_and_frees_the_ranges() {
    let machine = machine(2, 1);
    let all = tasks(&plan(&machine, &[2, 1, 3], "capped=1"));
    for &task in &all {
        let fake = Fake::new(&machine);
        let registry = registry(&fake);
        fake.fail_register(task, Fault::Fails(Cause::Exhausted { what: "planted".into() }, u32::MAX));
        let failed = register(&registry, plan(&machine, &[2, 1, 3], "capped=1")).unwrap_err();
        let RegistryError::Failed { failure, held: None } = failed else { panic!("{failed:?}") };
        assert!(matches!(&failure.reason, Reason::Step(step) if step.rail.as_ref().unwrap().0 == RailId(task.0)));
        assert_eq!((fake.live(), registry.counts()), (0, Default::default()));
        assert!(registry.used().iter().all(|used| used.mrs == 0));
        fake.heal();
        register(&registry, plan(&machine, &[2, 1, 3], "capped=1")).unwrap().release().unwrap();
    }
}

/// Row 57: one deregistration fails.
#[test]
fn one_failed_deregistration_stops_no_other_and_a_retry_touches_only_it() {
    let machine = machine(3, 1);
    let fake = Fake::new(&machine);
    let (registry, memory) = (registry(&fake), memory(4));
    let held = register(&registry, plan_of(&machine, &memory, 0..PAGE)).unwrap();
    fake.fail_deregister((1, 16 * PAGE), busy());
    let left = held.release().unwrap_err();
    assert_eq!((left.left, left.failed.len(), fake.live()), (1, 1, 1));
    assert_eq!(registry.counts().quarantined, 1);
    assert!(registry.reader().range(extent(16 * PAGE, 1), RailId(1)).is_err(), "its keys are unreadable");
    assert_eq!(registry.used()[1].mrs, 1, "it still counts against the rail's limits");
    assert_eq!(registry.retry().unwrap_err().left, 1);
    let undone = fake.deregistered().len();
    fake.heal();
    assert_eq!((registry.retry().unwrap(), fake.live(), fake.deregistered().len()), (1, 0, undone + 1));
    assert_eq!(registry.used()[1].mrs, 0);
}

/// Row 59: a failed registration was dropped and found out much later.
#[test]
fn a_failed_buffer_is_an_error_with_kind_call_and_errno() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1, 1], "no-prefault+no-coalesce");
    fake.fail_register(tasks(&plan)[1], Fault::Fails(Cause::Exhausted { what: "planted".into() }, u32::MAX));
    let RegistryError::Failed { failure, .. } = register(&registry(&fake), plan).unwrap_err() else { panic!() };
    let diagnosis = failure.diagnosis();
    assert_eq!((diagnosis.kind, diagnosis.errno, failure.failed.len()), (ErrorKind::Exhausted, Some(12), 1));
    assert_eq!((diagnosis.buffer.as_deref(), diagnosis.api.as_deref()), (Some("buffer1"), Some("fake_register")));
}

/// Row 60: a buffer without bytes.
#[test]
fn a_buffer_of_no_bytes_is_refused_by_name_before_anything_is_registered() {
    let batch = BatchSpec::of(
        [4096, 0, 4096].into_iter().enumerate().map(|(at, len)| BufferSpec::new(BufferSpec::default_name(at), len)),
    );
    let refused = batch.layout().unwrap_err();
    assert_eq!(refused, BatchError::Extent { buffer: "buffer1".into(), source: ExtentError::ZeroLength });
    assert_eq!(refused.diagnosis().kind, ErrorKind::ZeroLength);
    assert!(Buffer::new("empty", memory(1), 8..8).is_err());
}

/// Row 61: a buffer grows while an operation uses it.
#[test]
fn a_buffer_that_grows_is_registered_anew_and_the_old_one_goes_with_its_last_user() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let (registry, memory) = (registry(&fake), memory(8));
    let old = register(&registry, plan_of(&machine, &memory, 0..2 * PAGE)).unwrap();
    let in_flight = old.clone();
    let new = registry.register(plan_of(&machine, &memory, 0..4 * PAGE), Overlap::Allow, &Options::default()).unwrap();
    assert_eq!((old.release().unwrap(), fake.live()), (0, 2), "the operation still holds it");
    let mut reader = registry.reader();
    assert_eq!(reader.range(extent(16 * PAGE, 4 * PAGE), RailId(0)).unwrap().len(), 1, "the key that reaches furthest");
    assert_eq!((in_flight.release().unwrap(), fake.live()), (1, 1));
    assert_eq!(reader.range(extent(16 * PAGE, 4 * PAGE), RailId(0)).unwrap().len(), 1);
    new.release().unwrap();
}

/// Row 63: other memory is mapped at an address that was registered.
#[test]
fn a_remapped_address_is_registered_anew_and_has_a_new_key() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let registry = registry(&fake);
    let mut reader = registry.reader();
    let mut key = |held: &Held| (held.buffers(), reader.range(extent(16 * PAGE, PAGE), RailId(0)).unwrap()[0].local_key);
    let held = register(&registry, plan_of(&machine, &memory(4), 0..PAGE)).unwrap();
    let (_, first) = key(&held);
    held.release().unwrap();
    // Released, unmapped, mapped again: a `Memory` of its own.
    let held = register(&registry, plan_of(&machine, &memory(4), 0..PAGE)).unwrap();
    let (_, second) = key(&held);
    // Unmapped under a registration, as raw memory's owner must not, and told so.
    registry.invalidate(extent(16 * PAGE, PAGE));
    let again = register(&registry, plan_of(&machine, &memory(4), 0..PAGE)).unwrap();
    let (_, third) = key(&again);
    assert!(first != second && second != third && first != third);
    assert_eq!(fake.calls(), 3, "a call each");
    drop((held, again));
    assert_eq!(fake.live(), 0);
}

/// Row 63: memory that Pinrail owns stays mapped while it is registered, so that nothing else can lie there.
#[test]
fn owned_memory_cannot_be_remapped_while_it_is_registered() {
    let is_mapped = |memory: Extent| Maps::read().unwrap().overlapping(memory).next().is_some();
    let machine = machine(1, 1);
    let registry = registry(&Fake::new(&machine));
    let memory = Memory::new(Mapping::anonymous(8 * PAGE, Pages::Small, None).unwrap());
    let at = memory.extent();
    let held = register(&registry, plan_of(&machine, &memory, 0..8 * PAGE)).unwrap();
    drop(memory);
    assert!(is_mapped(at));
    held.release().unwrap();
}

/// Row 64: whatever is dropped first, the domain is closed last, and everything once.
#[test]
fn in_whatever_order_things_are_dropped_the_domain_is_closed_last() {
    for registry_first in [true, false] {
        let (registry, machine, closed) = same_key();
        let held = register(&registry, plan_of(&machine, &memory(1), 0..PAGE)).unwrap();
        if registry_first {
            drop(registry);
            assert!(closed.lock().unwrap().is_empty());
            drop(held);
        } else {
            drop(held);
            drop(registry);
        }
        assert_eq!(*closed.lock().unwrap(), ["mr", "domain"]);
    }
}

/// Row 65: closing with something registered.
#[test]
fn closing_with_one_registration_says_so_and_works_after_it_is_gone() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let (registry, memory) = (registry(&fake), memory(1));
    let held = register(&registry, plan_of(&machine, &memory, 0..PAGE)).unwrap();
    let open = registry.close().unwrap_err().open;
    assert_eq!((open.batches, open.mrs), (1, 1));
    held.release().unwrap();
    registry.close().unwrap();
    let closed = register(&registry, plan_of(&machine, &memory, 0..PAGE)).unwrap_err();
    assert!(matches!(closed, RegistryError::Claim(ClaimError::Closed)));
}

/// Row 93: what a peer is told is by the names of the rails, and of nothing but the buffers.
#[test]
fn a_peer_is_told_the_keys_of_the_buffers_by_rail_and_no_more() {
    let mut machine = machine(3, 1);
    machine.rails[0].limits.max_mr_size = Some(2 * PAGE);
    let fake = Fake::new(&machine);
    let (registry, memory) = (registry(&fake), memory(8));
    let policy = Policy::new(std::num::NonZeroU32::MIN).with("no-prefault+rails=rail0,rail2").unwrap();
    let buffers = vec![
        Buffer::new("first", memory.clone(), 64..PAGE).unwrap(),
        Buffer::new("next", memory.clone(), PAGE..5 * PAGE - 7).unwrap(),
    ];
    let held = registry.register(Plan::new(buffers, &machine, &policy).unwrap(), Overlap::Refuse, &Options::default()).unwrap();
    let descriptor = held.descriptor().unwrap();
    assert_eq!(descriptor.rails(), ["rail0", "rail1", "rail2"]);
    let all = extent(16 * PAGE + 64, 5 * PAGE - 71);
    let mut reader = registry.reader();
    for (rail, name) in [(RailId(0), "rail0"), (RailId(2), "rail2")] {
        let ours = reader.range(all, rail).unwrap();
        let theirs = descriptor.rail(name).unwrap().range(all).unwrap();
        assert_eq!(theirs.len(), descriptor.ranges().len(), "one range for each MR");
        let ours: Vec<_> = ours.iter().map(|piece| (piece.remote_key, piece.extent, piece.at)).collect();
        let theirs: Vec<_> = theirs.iter().map(|piece| (piece.key, piece.extent, piece.at)).collect();
        assert_eq!(ours, theirs);
    }
    assert!(descriptor.rail("rail1").unwrap().range(all).is_err(), "the plan did not choose it");
    for outside in [16 * PAGE + 63, all.end()] {
        assert!(descriptor.rail("rail0").unwrap().range(extent(outside, 1)).is_err(), "{outside:#x} is nobody's");
    }
    assert_eq!(descriptor.matches(&machine.rails[..2]).unwrap_err().only_theirs, ["rail2"]);
    registry.invalidate(extent(16 * PAGE, PAGE));
    let left = held.descriptor().unwrap();
    assert!(left.rail("rail0").unwrap().range(extent(16 * PAGE + 64, 1)).is_err(), "no peer is told a key of the old memory");
    held.release().unwrap();
}

/// Row 94: the plan names a NIC that could not be opened.
#[test]
fn a_rail_that_is_not_there_is_an_error_before_any_call_and_the_range_is_free() {
    let fake = Fake::new(&machine(2, 1));
    let registry = registry(&fake);
    let three = machine(3, 1);
    let RegistryError::Failed { failure, .. } = register(&registry, plan_of(&three, &memory(1), 0..PAGE)).unwrap_err() else {
        panic!()
    };
    assert!(matches!(failure.reason, Reason::Refused(Refusal::OtherRails { .. })), "{failure}");
    assert_eq!((fake.calls(), registry.counts()), (0, Default::default()));
}

/// Row 97: what fails is tried again and again.
#[test]
fn three_failures_hold_nothing() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let registry = registry(&fake);
    fake.fail_register((1, 16 * PAGE), Fault::Fails(Cause::Other { what: "no such device".into() }, 3));
    for _ in 0..3 {
        register(&registry, plan_of(&machine, &memory(1), 0..PAGE)).unwrap_err();
        assert_eq!((fake.live(), registry.counts()), (0, Default::default()));
    }
    let held = register(&registry, plan_of(&machine, &memory(1), 0..PAGE)).unwrap();
    assert_eq!(registry.reader().range(extent(0, 1), RailId(0)).unwrap_err(), LookupError::NotRegistered { address: 0 });
    held.release().unwrap();
}

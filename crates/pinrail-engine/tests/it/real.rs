//! The engine on io_uring: memory in every state that safe code can make, pinned, reached by its keys, and let go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pinrail_core::{Buffer, BufferId, ErrorKind, Machine, Memory, RailId, Registrar};
use pinrail_engine::{Engine, Options};
use pinrail_memory::{Mapping, Memlock, Pages, Populate};
use pinrail_plan::Plan;
use pinrail_policy::Policy;
use pinrail_uring::Uring;

/// Pins, descriptors and limits are the process's: whoever looks at them must be alone in it.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A test that shows nothing here says so.
#[allow(clippy::print_stderr, reason = "this is where it is said")]
pub(crate) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}

/// True, after saying so, where pinning that much is not allowed here.
pub(crate) fn memlock_forbids(bytes: u64) -> bool {
    let memlock = Memlock::read().unwrap();
    let forbids = !memlock.exempt && memlock.soft_bytes.is_some_and(|limit| limit < bytes);
    if forbids {
        skipped(&format!("RLIMIT_MEMLOCK is {:?} and {bytes} bytes would have to be pinned", memlock.soft_bytes));
    }
    forbids
}

pub(crate) fn pinned_bytes() -> u64 {
    Memlock::read().unwrap().pinned_bytes
}

pub(crate) fn uring(rails: u16) -> Arc<Uring> {
    Arc::new(Uring::open(&Machine::of_rails(rails).rails).unwrap())
}

pub(crate) fn engine(uring: &Arc<Uring>) -> Engine {
    Engine::new(uring.clone(), Arc::new(Populate::new()))
}

pub(crate) fn planned(uring: &Uring, buffers: Vec<Buffer>, spec: &str) -> Plan {
    let machine = Machine { rails: uring.rails().to_vec(), ..Machine::default() };
    let policy = Policy::new(std::num::NonZeroU32::new(2).unwrap()).with(spec).unwrap();
    Plan::new(buffers, &machine, &policy).unwrap()
}

const MIB: u64 = 1 << 20;

/// Registers the memory on two rails in two buffers that touch, reads it back by the keys of both, and lets it go.
fn goes_through(memory: &Memory, page_size: u64) {
    let (uring, before, len) = (uring(2), pinned_bytes(), memory.len());
    let buffer = |name: &str, range| {
        let mut buffer = Buffer::new(name, memory.clone(), range).unwrap();
        buffer.page_size = page_size;
        buffer
    };
    let buffers = vec![buffer("first", 0..len / 2), buffer("second", len / 2..len)];
    let registration = engine(&uring).register(planned(&uring, buffers, "no-coalesce"), &Options::default()).unwrap();
    assert_eq!((registration.live(), pinned_bytes() - before), (4, 2 * len), "each page is pinned once a rail");
    let mover = uring.mover().unwrap();
    for (nth, rail) in (0..2u8).zip([RailId(0), RailId(1)]) {
        let text = [b'a' + nth; 5];
        memory.write_at(len / 2 - 2, &text).unwrap();
        let mut seen = Vec::new();
        for buffer in [BufferId(0), BufferId(1)] {
            for piece in registration.buffer(buffer, rail).unwrap() {
                let mut bytes = vec![0; usize::try_from(piece.extent.len()).unwrap()];
                mover.read(piece.mr, piece.at, &mut bytes, Duration::from_secs(60)).unwrap();
                seen.extend(bytes);
            }
        }
        let middle = seen.len() / 2;
        assert_eq!((seen.len() as u64, &seen[middle - 2..middle + 3]), (len, &text[..]), "{rail}: across the seam");
    }
    registration.deregister().unwrap();
    assert_eq!(pinned_bytes(), before);
}

#[test]
fn untouched_pages_of_every_size() {
    let _alone = alone();
    if memlock_forbids(8 * MIB) {
        return;
    }
    for pages in [Pages::Small, Pages::Transparent, Pages::Huge2M] {
        match Mapping::anonymous(4 * MIB, pages, None) {
            Ok(mapping) => goes_through(&Memory::new(mapping), if pages == Pages::Huge2M { 2 * MIB } else { 4096 }),
            Err(error) => skipped(&format!("{pages}: {error}")),
        }
    }
}

#[test]
fn pages_partly_resident_and_the_shared_zero_page() {
    let _alone = alone();
    let partly = Memory::new(Mapping::anonymous(2 * MIB, Pages::Small, None).unwrap());
    (0..512).step_by(3).for_each(|page| partly.write_at(page * 4096, &[1]).unwrap());
    goes_through(&partly, 4096);
    let zero = Memory::new(Mapping::anonymous(2 * MIB, Pages::Small, None).unwrap());
    zero.read_at(0, &mut vec![1; 2 << 20]).unwrap();
    goes_through(&zero, 4096);
}

#[test]
fn a_pool_without_pages_is_an_error_before_any_pin() {
    let _alone = alone();
    let error = Mapping::anonymous(1 << 40, Pages::Huge2M, None).unwrap_err();
    assert!(matches!(error.diagnosis().kind, ErrorKind::Hugepages | ErrorKind::Cgroup | ErrorKind::NotSupported), "{error}");
}

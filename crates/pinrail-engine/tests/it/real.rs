//! The engine on io_uring, which pins real pages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pinrail_core::{Buffer, Machine, Registrar};
use pinrail_engine::Engine;
use pinrail_memory::{Memlock, Populate};
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

//! What several rooms share: one test at a time, memory, chunks, and what `/proc` says.

use std::ops::Range;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pinrail_core::{Access, Chunk, Machine, Memory, Mr, RailId, RegisterError, Registrar, Source};
use pinrail_memory::{Mapping, Memlock, Pages};
use pinrail_uring::Uring;

pub(crate) const PAGE: u64 = 4096;
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// `VmPin`, limits and mappings are the process's: whoever looks at them must be alone in it.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn rings(n: u16) -> Uring {
    Uring::open(&Machine::of_rails(n).rails).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn pages(n: u64) -> Memory {
    Memory::new(Mapping::anonymous(n * PAGE, Pages::Small, None).unwrap())
}

pub(crate) fn register(uring: &Uring, rail: u16, memory: &Memory, range: Range<u64>) -> Result<Mr, RegisterError> {
    uring.register(RailId(rail), &Chunk { memory, range, access: Access::FULL, source: &Source::Address })
}

pub(crate) fn pinned_bytes() -> u64 {
    Memlock::read().unwrap().pinned_bytes
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

/// Runs one ignored test of this binary as a process of its own, behind `wrapper`; `None`, after saying so, where the
/// wrapper itself does not work here.
pub(crate) fn in_a_process(wrapper: &[&str], test: &str) -> Option<Output> {
    let this = std::env::current_exe().unwrap();
    let mut command = wrapper.iter().map(|&word| word.to_owned()).chain([this.to_str().unwrap().to_owned()]);
    let output = Command::new(command.next().unwrap())
        .args(command)
        .args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"])
        .output();
    match output {
        // setpriv ends with 127 where it may not do it, 126 where the binary cannot be run as that user.
        Ok(output) if !matches!(output.status.code(), Some(126 | 127)) => Some(output),
        other => {
            skipped(&format!("{wrapper:?} does not work here: {other:?}"));
            None
        }
    }
}

/// Asserts that the child ran exactly its one test, and that it passed.
pub(crate) fn passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{all}");
}

//! What several rooms share: the rails, memory, chunks, and what the kernel says of this process.

use std::io::Write;
use std::ops::Range;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pinrail_core::{Access, Chunk, Memory, Mr, RailId, RegisterError, Registrar, Source};
use pinrail_memory::{Mapping, Memlock, Pages};
use pinrail_verbs::{Verbs, devices};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// `VmPin`, limits and mappings are the process's: whoever looks at them must be alone in it.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rail for every device, or `None`, after saying so.
pub(crate) fn every_rail() -> Option<Verbs> {
    let found = devices().unwrap_or_default();
    if found.is_empty() {
        skipped("no RDMA device");
        return None;
    }
    Some(Verbs::open(&found).unwrap_or_else(|error| panic!("{error}")))
}

pub(crate) fn ids(verbs: &Verbs) -> impl Iterator<Item = RailId> {
    (0..).map(RailId).take(verbs.rails().len())
}

/// The guest that `cargo xtask vm` has made: the NUMA node of each network card, by the last digit of the card's address.
/// `None` on other machines.
#[allow(clippy::disallowed_methods, reason = "how the command that made the guest tells what it made")]
pub(crate) fn guest_nodes() -> Option<Vec<u32>> {
    let nodes = std::env::var("PINRAIL_GUEST_NODES").ok()?;
    Some(nodes.split(',').filter(|node| !node.is_empty()).map(|node| node.parse().unwrap()).collect())
}

/// A test that shows nothing here says so, past the test runner, which keeps what passing tests print. In the guest there
/// is everything that the tests need.
pub(crate) fn skipped(why: &str) {
    assert!(guest_nodes().is_none(), "nothing may be skipped in the guest: {why}");
    std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes()).unwrap();
}

pub(crate) fn pages(n: u64) -> Memory {
    Memory::new(Mapping::anonymous(n * PAGE, Pages::Small, None).unwrap())
}

/// One page of it can only be read from now on.
pub(crate) fn forbid_writing(memory: &Memory, page: u64) {
    let at = std::ptr::with_exposed_provenance_mut(usize::try_from(memory.extent().start() + page * PAGE).unwrap());
    // SAFETY: a page of our mapping, to which nobody refers.
    assert_eq!(unsafe { libc::mprotect(at, 4096, libc::PROT_READ) }, 0);
}

pub(crate) fn chunk(memory: &Memory, range: Range<u64>) -> Chunk<'_> {
    Chunk { memory, range, access: Access::FULL, source: &Source::Address }
}

pub(crate) fn register(verbs: &Verbs, rail: RailId, memory: &Memory, range: Range<u64>) -> Result<Mr, RegisterError> {
    verbs.register(rail, &chunk(memory, range))
}

pub(crate) fn pinned_bytes() -> u64 {
    Memlock::read().unwrap().pinned_bytes
}

/// Runs one ignored test of this binary as a process of its own, behind `wrapper`. It is a copy that runs: other users
/// may not be allowed to where it lies.
pub(crate) fn in_a_process(wrapper: &[&str], test: &str) -> Output {
    let copy = std::env::temp_dir().join(format!("pinrail-verbs-{}-{}", std::process::id(), test.replace(':', "-")));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut words = wrapper.iter().copied().chain([copy.to_str().unwrap(), "--ignored", "--exact", test, "--test-threads=1"]);
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    std::fs::remove_file(copy).unwrap();
    output
}

/// Asserts that the child ran exactly its one test, and that it passed.
pub(crate) fn passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let all = format!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{all}");
}

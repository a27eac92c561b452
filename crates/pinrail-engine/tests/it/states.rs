//! Memory in every state, through the engine on io_uring: pinned, reached by its keys and let go, or refused with a reason
//! and with nothing left. Each test is named after the state.

use std::fs::File;
use std::time::Duration;

use pinrail_core::{Buffer, BufferId, Diagnosis, ErrorKind, Memory, RailId, Registrar};
use pinrail_engine::{Failure, Options, Registration};
use pinrail_memory::{Mapping, Pages, testing};

use crate::real::{alone, engine, memlock_forbids, pinned_bytes, planned, skipped, uring};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const WAIT: Duration = Duration::from_secs(60);

fn register(uring: &std::sync::Arc<pinrail_uring::Uring>, memory: &Memory, page_size: u64) -> Result<Registration, Box<Failure>> {
    let len = memory.len();
    let buffer = |name: &str, range| {
        let mut buffer = Buffer::new(name, memory.clone(), range).unwrap();
        buffer.page_size = page_size;
        buffer
    };
    let buffers = vec![buffer("first", 0..len / 2), buffer("second", len / 2..len)];
    engine(uring).register(planned(uring, buffers, "no-coalesce"), &Options::default())
}

/// Registers the memory on two rails in two buffers that touch, reads back over their seam by the keys of both, and lets it
/// go.
fn goes_through(memory: &Memory, page_size: u64) {
    let len = memory.len();
    if memlock_forbids(2 * len) {
        return;
    }
    let (uring, before) = (uring(2), pinned_bytes());
    let registration = register(&uring, memory, page_size).unwrap();
    assert_eq!((registration.live(), pinned_bytes() - before), (4, 2 * len), "each page is pinned once a rail");
    let mover = uring.mover().unwrap();
    for (nth, rail) in (0..2u8).zip([RailId(0), RailId(1)]) {
        let text = [b'a' + nth; 5];
        memory.write_at(len / 2 - 2, &text).unwrap();
        let (first, second) = (registration.buffer(BufferId(0), rail).unwrap(), registration.buffer(BufferId(1), rail).unwrap());
        let (last, next) = (first.last().unwrap(), &second[0]);
        let mut seen = [0; 5];
        mover.read(last.mr, last.at + last.extent.len() - 2, &mut seen[..2], WAIT).unwrap();
        mover.read(next.mr, next.at, &mut seen[2..], WAIT).unwrap();
        assert_eq!(seen, text, "{rail}: across the seam");
    }
    registration.deregister().unwrap();
    assert_eq!(pinned_bytes(), before);
}

/// Answers why it was refused; nothing is left, and the process lives.
fn is_refused(memory: &Memory, page_size: u64) -> Diagnosis {
    let (uring, before) = (uring(2), pinned_bytes());
    let failure = register(&uring, memory, page_size).unwrap_err();
    assert!(failure.quarantine.is_none() && failure.kept.is_none(), "{failure}");
    assert_eq!(pinned_bytes(), before, "{failure}");
    failure.diagnosis()
}

fn owned(len: u64, pages: Pages) -> Option<Memory> {
    match Mapping::anonymous(len, pages, None) {
        Ok(mapping) => Some(Memory::new(mapping)),
        Err(error) => {
            skipped(&format!("{pages} pages: {error}"));
            None
        }
    }
}

/// A file on a real file system: where tests are built there is one. It has no name any more.
fn disk_file(len: u64) -> File {
    let path = std::env::current_exe().unwrap().with_extension(format!("{len}.pages"));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.set_len(len).unwrap();
    file
}

#[test]
fn small_pages_untouched() {
    let _alone = alone();
    owned(4 * MIB, Pages::Small).iter().for_each(|memory| goes_through(memory, PAGE));
}

#[test]
fn transparent_huge_pages() {
    let _alone = alone();
    owned(4 * MIB, Pages::Transparent).iter().for_each(|memory| goes_through(memory, PAGE));
}

#[test]
fn huge_pages_of_2_mib() {
    let _alone = alone();
    owned(4 * MIB, Pages::Huge2M).iter().for_each(|memory| goes_through(memory, 2 * MIB));
}

#[test]
fn huge_pages_of_1_gib() {
    let _alone = alone();
    owned(2048 * MIB, Pages::Huge1G).iter().for_each(|memory| goes_through(memory, 1024 * MIB));
}

#[test]
fn small_pages_partly_resident() {
    let _alone = alone();
    let memory = owned(2 * MIB, Pages::Small).unwrap();
    (0..512).step_by(3).for_each(|page| memory.write_at(page * PAGE, &[1]).unwrap());
    goes_through(&memory, PAGE);
}

#[test]
fn the_shared_zero_page() {
    let _alone = alone();
    let memory = owned(2 * MIB, Pages::Small).unwrap();
    memory.read_at(0, &mut vec![1; 2 << 20]).unwrap();
    goes_through(&memory, PAGE);
}

#[test]
fn anonymous_memory_that_processes_share() {
    let _alone = alone();
    goes_through(&testing::shared(2 * MIB).unwrap(), PAGE);
}

#[test]
fn a_file_in_memory() {
    let _alone = alone();
    let file = testing::memory_file().unwrap();
    file.set_len(2 * MIB).unwrap();
    goes_through(&testing::of_file(&file, 2 * MIB, true).unwrap(), PAGE);
}

#[test]
fn a_file_in_dev_shm() {
    let _alone = alone();
    let path = format!("/dev/shm/pinrail-test-{}", std::process::id());
    let file = match File::options().read(true).write(true).create_new(true).open(&path) {
        Ok(file) => file,
        Err(error) => return skipped(&format!("{path}: {error}")),
    };
    std::fs::remove_file(path).unwrap();
    file.set_len(2 * MIB).unwrap();
    goes_through(&testing::of_file(&file, 2 * MIB, true).unwrap(), PAGE);
}

#[test]
fn a_private_mapping_of_a_file() {
    let _alone = alone();
    let file = disk_file(2 * MIB);
    goes_through(&testing::of_file(&file, 2 * MIB, false).unwrap(), PAGE);
}

#[test]
fn a_shared_mapping_of_a_file() {
    let _alone = alone();
    let file = disk_file(2 * MIB);
    let refused = is_refused(&testing::of_file(&file, 2 * MIB, true).unwrap(), PAGE);
    assert_eq!(refused.kind, ErrorKind::Protection);
    assert!(refused.message.contains("shared mapping of a file"), "{}", refused.message);
}

#[test]
fn a_mapping_beyond_the_end_of_its_file() {
    let _alone = alone();
    let file = disk_file(MIB);
    let refused = is_refused(&testing::of_file(&file, 2 * MIB, false).unwrap(), PAGE);
    assert_eq!(refused.buffer.as_deref(), Some("second"), "{}", refused.message);
}

#[test]
fn memory_that_may_not_be_touched() {
    let _alone = alone();
    let refused = is_refused(&testing::no_access(2 * MIB).unwrap(), PAGE);
    assert_eq!(refused.kind, ErrorKind::Protection, "{}", refused.message);
}

#[test]
fn memory_that_may_only_be_read() {
    let _alone = alone();
    let refused = is_refused(&testing::read_only(2 * MIB).unwrap(), PAGE);
    assert_eq!(refused.kind, ErrorKind::Protection, "{}", refused.message);
}

/// Row 27: mapping it works, the first touch is a SIGBUS.
#[test]
fn huge_pages_that_the_pool_does_not_have() {
    let _alone = alone();
    let pool = pinrail_memory::HugePool::read(2 * MIB);
    let pages = pool.map_or(0, |pool| pool.available()) + 2;
    match testing::huge_unreserved(2 * MIB * pages) {
        Ok(memory) => {
            let refused = is_refused(&memory, 2 * MIB);
            assert!(matches!(refused.kind, ErrorKind::Hugepages | ErrorKind::Cgroup), "{}", refused.message);
        }
        Err(error) => skipped(&format!("huge pages: {error}")),
    }
    let error = Mapping::anonymous(1 << 40, Pages::Huge2M, None).unwrap_err();
    assert!(matches!(error.diagnosis().kind, ErrorKind::Hugepages | ErrorKind::Cgroup | ErrorKind::NotSupported), "{error}");
}

/// A child of a fork has its own pages and none of the parent's registrations; the parent's go on.
#[test]
fn a_fork_with_live_registrations() {
    let _alone = alone();
    if memlock_forbids(2 * MIB) {
        return;
    }
    let (uring, before) = (uring(2), pinned_bytes());
    let memory = owned(MIB, Pages::Small).unwrap();
    memory.write_at(0, b"parent").unwrap();
    let registration = register(&uring, &memory, PAGE).unwrap();
    let (mr, mover) = (registration.buffer(BufferId(0), RailId(0)).unwrap()[0].mr, uring.mover().unwrap());
    let refused = testing::in_a_fork(|| mover.read(mr, 0, &mut [0; 6], WAIT).is_err() && memory.write_at(0, b"child!").is_ok());
    assert!(refused.unwrap(), "the child used what is its parent's");
    let mut seen = [0; 6];
    mover.read(mr, 0, &mut seen, WAIT).unwrap();
    assert_eq!(&seen, b"parent", "what the child wrote is the child's");
    registration.deregister().unwrap();
    assert_eq!(pinned_bytes(), before);
}

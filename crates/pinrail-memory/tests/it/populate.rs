//! Preparation of slices in every state.

use std::fs::{self, File};
use std::ops::Range;

use pinrail_core::{Access, Cause, ErrorKind, Memory, NodeId, Place, Prepare, PrepareError, PrepareStep, Prepared};
use pinrail_memory::{Mapping, Maps, Pages, Populate, Residency};

use crate::pool::Pool;
use crate::raw::{self, RW, Raw};
use crate::skip;

fn step(memory: &Memory, range: Range<u64>, access: Access) -> PrepareStep<'_> {
    PrepareStep::Populate { memory, range, access, place: Place::Host }
}

/// Bytes made resident; 0 for a slice that was skipped.
#[track_caller]
fn made(result: Result<Prepared, PrepareError>) -> u64 {
    match result.unwrap() {
        Prepared::Resident { bytes } => bytes,
        Prepared::Skipped => 0,
        other => panic!("{other:?}"),
    }
}

fn whole(populate: &Populate, memory: &Memory, access: Access) -> Result<Prepared, PrepareError> {
    populate.prepare(&step(memory, 0..memory.len(), access))
}

#[test]
fn what_is_untouched_becomes_resident_once() {
    let pool = Pool::with(2, 2 << 20);
    let huge = pool.is_some().then_some(Pages::Huge2M);
    for pages in [Pages::Small, Pages::Transparent].into_iter().chain(huge) {
        let memory = Memory::new(Mapping::anonymous(4 << 20, pages, None).unwrap());
        let populate = Populate::new();
        assert_eq!(made(whole(&populate, &memory, Access::FULL)), 4 << 20, "{pages}");
        assert_eq!(Residency::new().resident(memory.extent()).unwrap(), 4 << 20, "{pages}");
        assert!(matches!(whole(&populate, &memory, Access::FULL), Ok(Prepared::Skipped)), "{pages}");
        let report = populate.report();
        assert_eq!((report.populated, report.populated_bytes, report.resident, report.impossible), (1, 4 << 20, 1, 0));
    }
}

#[test]
fn only_what_is_absent_is_counted_and_contents_stay() {
    let memory = Memory::new(Mapping::anonymous(1 << 20, Pages::Small, None).unwrap());
    for page in (0..256).step_by(2) {
        memory.write_at(page * 4096, &page.to_le_bytes()).unwrap();
    }
    assert_eq!(made(whole(&Populate::new(), &memory, Access::FULL)), 512 << 10);
    for page in (0..256u64).step_by(2) {
        let mut seen = [0; 8];
        memory.read_at(page * 4096, &mut seen).unwrap();
        assert_eq!(u64::from_le_bytes(seen), page);
    }
}

#[test]
fn a_slice_is_populated_and_not_its_neighbours() {
    let memory = Memory::new(Mapping::anonymous(1 << 20, Pages::Small, None).unwrap());
    let bytes = made(Populate::new().prepare(&step(&memory, 8192..20_000, Access::FULL)));
    assert_eq!(bytes, 20_000 - 8192);
    assert_eq!(Residency::new().resident(memory.extent()).unwrap(), 3 * 4096);
}

#[test]
fn the_zero_page_is_replaced() {
    // Also for a registration that only reads: a pin does not keep the zero page.
    for access in [Access::FULL, Access::REMOTE_READ] {
        let memory = Memory::new(Mapping::anonymous(1 << 20, Pages::Small, None).unwrap());
        memory.read_at(0, &mut vec![1; 1 << 20]).unwrap();
        assert_eq!(made(whole(&Populate::new(), &memory, access)), 1 << 20);
        assert_eq!(Residency::new().resident(memory.extent()).unwrap(), 1 << 20);
    }
}

#[test]
fn a_shared_file_is_dirtied_only_for_a_registration_that_writes() {
    let path = format!("{}/pinrail-{}-dirty", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let raw = Raw::shared(&file, 1 << 20);
    if Maps::read().unwrap().shared_file(raw.extent()).is_none() {
        return skip("the target folder is on tmpfs, where pages are always dirty");
    }
    let populate = Populate::new();
    assert_eq!(made(whole(&populate, &raw.memory(), Access::REMOTE_READ)), 1 << 20);
    assert_eq!(dirty_kib(&raw), 0);
    drop(raw);
    let raw = Raw::shared(&file, 1 << 20);
    assert_eq!(made(whole(&populate, &raw.memory(), Access::FULL)), 1 << 20);
    assert_eq!(dirty_kib(&raw), 1024);
}

fn dirty_kib(raw: &Raw) -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", raw.extent().start());
    let lines =
        smaps.lines().skip_while(|line| !line.starts_with(&start)).skip(1).take_while(|line| !line.starts_with("VmFlags"));
    let figures = lines.filter(|line| line.starts_with("Shared_Dirty") || line.starts_with("Private_Dirty"));
    figures.map(|line| line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn shared_memory_is_mapped_here() {
    for access in [Access::FULL, Access::REMOTE_READ] {
        let file = raw::memfd(1 << 20, 0).unwrap();
        let raw = Raw::shared(&file, 1 << 20);
        assert_eq!(made(whole(&Populate::new(), &raw.memory(), access)), 1 << 20);
        assert_eq!(Residency::new().resident(raw.extent()).unwrap(), 1 << 20);
    }
}

#[test]
fn read_only_memory_is_populated_for_reading_and_refused_for_writing() {
    let raw = Raw::shared(&raw::memfd(1 << 20, 0).unwrap(), 1 << 20);
    raw.protect(0, 1 << 20, libc::PROT_READ);
    let error = whole(&Populate::new(), &raw.memory(), Access::FULL).unwrap_err();
    assert_eq!((error.diagnosis().kind, error.errno), (ErrorKind::Protection, Some(libc::EINVAL)), "{error}");
    assert_eq!(made(whole(&Populate::new(), &raw.memory(), Access::REMOTE_READ)), 1 << 20);
}

#[test]
fn what_no_registration_could_use_is_an_error_that_says_why() {
    let populate = Populate::new();
    let raw = Raw::anonymous(1 << 20);
    raw.protect(8192, 4096, libc::PROT_NONE);
    let error = whole(&populate, &raw.memory(), Access::FULL).unwrap_err();
    assert!(matches!(error.cause, Cause::Protection { address, .. } if address == raw.extent().start() + 8192), "{error}");

    let raw = Raw::anonymous(1 << 20);
    raw.punch(8192, 4096);
    let error = whole(&populate, &raw.memory(), Access::FULL).unwrap_err();
    assert_eq!(error.cause, Cause::Unmapped { address: raw.extent().start() + 8192 });

    let raw = Raw::shared(&raw::memfd(10_000, 0).unwrap(), 1 << 20);
    let error = whole(&populate, &raw.memory(), Access::FULL).unwrap_err();
    assert!(matches!(error.cause, Cause::Protection { address, .. } if address == raw.extent().start() + 12_288), "{error}");
    assert_eq!((error.api, error.errno), ("madvise", Some(libc::EFAULT)));
}

#[test]
fn an_exhausted_pool_is_an_error_and_no_signal() {
    let Some(_pool) = Pool::with(1, 2 << 20) else { return };
    let pool = pinrail_memory::HugePool::read(2 << 20).unwrap();
    let pages = pool.free + pool.growth + 1;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | libc::MAP_NORESERVE;
    let raw = Raw::map(usize::try_from(pages << 21).unwrap(), RW, flags, None).unwrap();
    let error = whole(&Populate::new(), &raw.memory(), Access::FULL).unwrap_err();
    // All but one could be had before the pool was empty.
    assert_eq!(error.cause, Cause::Hugepages { page_size: 2 << 20, need: 1, free: 0 });
    assert_eq!(error.errno, Some(libc::EFAULT));
}

#[test]
fn a_node_that_is_not_there_is_counted_and_the_slice_populated() {
    let populate = Populate::new();
    for (node, ignored) in [(NodeId(0), 0), (NodeId(1000), 1)] {
        let memory = Memory::new(Mapping::anonymous(1 << 20, Pages::Small, None).unwrap());
        let place = Place::HostNode(node);
        let step = PrepareStep::Populate { memory: &memory, range: 0..1 << 20, access: Access::FULL, place };
        assert_eq!(made(populate.prepare(&step)), 1 << 20);
        if node == NodeId(0) && populate.report().node_ignored == 1 {
            return skip("this container may not choose nodes");
        }
        assert_eq!(populate.report().node_ignored, ignored);
    }
}

#[test]
fn what_has_no_pages_of_ours_is_skipped_or_refused() {
    let populate = Populate::new();
    let imagined = Memory::imagined(0x1000, 8192).unwrap();
    let gpu = Place::Gpu("0000:53:00.0".parse().unwrap());
    let on_gpu =
        PrepareStep::Populate { memory: &Raw::anonymous(8192).memory(), range: 0..8192, access: Access::FULL, place: gpu };
    assert!(matches!(populate.prepare(&on_gpu), Ok(Prepared::Skipped)));
    assert_eq!(populate.report().device, 1);
    let export = PrepareStep::Export { memory: &imagined, range: 0..8192, place: gpu };
    for refused in [populate.prepare(&export), whole(&populate, &imagined, Access::FULL)] {
        assert_eq!(refused.unwrap_err().cause.kind(), ErrorKind::NotSupported);
    }
    let raw = Raw::anonymous(8192);
    for outside in [0..8193, 9000..9001, 5..5] {
        assert!(populate.prepare(&step(&raw.memory(), outside, Access::FULL)).is_err());
    }
}

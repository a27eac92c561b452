//! Why a registration would fail, for each kind of memory that makes it fail.

use std::fs::{self, File};

use pinrail_core::{Access, Cause, ErrorKind, Extent};
use pinrail_memory::{Backing, Maps};

use crate::pool::Pool;
use crate::raw::{self, RW, Raw};
use crate::{child, skip};

fn check(extent: Extent, access: Access) -> Result<(), Cause> {
    Maps::read().unwrap().check(extent, access)
}

fn within(raw: &Raw, at: u64, len: u64) -> Extent {
    Extent::new(raw.extent().start() + at, len).unwrap()
}

#[track_caller]
fn protection_at(result: Result<(), Cause>, expected: u64) -> String {
    match result {
        Err(Cause::Protection { address, needs, .. }) => {
            assert_eq!(address, expected, "{needs}");
            needs
        }
        other => panic!("{other:?}"),
    }
}

/// A file of the target folder, which has no name any more.
fn file(len: u64) -> File {
    let path = format!("{}/pinrail-{}-{len}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    fs::remove_file(path).unwrap();
    file.set_len(len).unwrap();
    file
}

#[test]
fn a_hole_is_named_by_its_first_address() {
    let raw = Raw::anonymous(64 << 10);
    assert_eq!(check(raw.extent(), Access::FULL), Ok(()));
    raw.punch(8192, 4096);
    assert_eq!(check(raw.extent(), Access::FULL), Err(Cause::Unmapped { address: raw.extent().start() + 8192 }));
    assert_eq!(check(within(&raw, 8200, 10), Access::FULL), Err(Cause::Unmapped { address: raw.extent().start() + 8200 }));
    assert_eq!(check(within(&raw, 0, 8192), Access::FULL), Ok(()));
}

#[test]
fn protection_is_held_against_the_access() {
    let raw = Raw::anonymous(64 << 10);
    raw.protect(4096, 4096, libc::PROT_READ);
    raw.protect(16384, 4096, libc::PROT_NONE);
    let at = |offset: u64| raw.extent().start() + offset;
    assert!(protection_at(check(raw.extent(), Access::FULL), at(4096)).contains("write"));
    assert!(protection_at(check(raw.extent(), Access::REMOTE_READ), at(16384)).contains("read"));
    assert_eq!(check(within(&raw, 0, 16384), Access::REMOTE_READ), Ok(()));
}

#[test]
fn a_file_that_ends_too_early_is_named_at_its_end() {
    for file in [raw::memfd(20_000, 0).unwrap(), file(20_000)] {
        let raw = Raw::shared(&file, 64 << 10);
        // The page with the last byte is whole.
        assert_eq!(check(within(&raw, 0, 20_480), Access::FULL), Ok(()));
        let needs = protection_at(check(raw.extent(), Access::FULL), raw.extent().start() + 20_480);
        assert!(needs.contains("ends before"), "{needs}");
        let inside = raw.extent().start() + 30_000;
        protection_at(check(within(&raw, 30_000, 10), Access::FULL), inside);
    }
}

#[test]
fn the_kernels_own_pages_are_refused() {
    let maps = Maps::read().unwrap();
    let everything = Extent::new(0, 1 << 47).unwrap();
    let Some(vvar) = maps.overlapping(everything).find(|region| region.name == "[vvar]") else {
        return skip("no [vvar] on this architecture");
    };
    assert_eq!(vvar.backing(), Backing::Special);
    let needs = protection_at(maps.check(vvar.extent, Access::REMOTE_READ), vvar.extent.start());
    assert!(needs.contains("device"), "{needs}");
}

#[test]
fn what_a_mapping_shows_is_told() {
    let (memory, file) = (raw::memfd(4096, 0).unwrap(), file(4096));
    let (anonymous, shared, mapped) = (Raw::anonymous(4096), Raw::shared(&memory, 4096), Raw::shared(&file, 4096));
    let private = Raw::map(4096, RW, libc::MAP_PRIVATE, Some(&file)).unwrap();
    let maps = Maps::read().unwrap();
    let backing = |raw: &Raw| maps.overlapping(raw.extent()).next().unwrap().backing();
    assert_eq!(backing(&anonymous), Backing::Anonymous);
    assert_eq!(backing(&shared), Backing::Shared);
    assert_eq!(backing(&mapped), Backing::File);
    assert!(maps.shared_file(mapped.extent()).is_some());
    for fine in [&anonymous, &shared, &private] {
        assert_eq!(maps.shared_file(fine.extent()), None);
    }
}

#[test]
fn a_huge_page_that_cannot_be_had_is_counted() {
    let Some(_pool) = Pool::with(2, 2 << 20) else { return };
    // Mapped without a promise, and more than there are: touching them would be SIGBUS.
    let pool = pinrail_memory::HugePool::read(2 << 20).unwrap();
    let pages = pool.free + pool.growth + 1;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | libc::MAP_NORESERVE;
    let raw = Raw::map(usize::try_from(pages << 21).unwrap(), RW, flags, None).unwrap();
    let memory = raw.memory();
    for page in 0..pages {
        // The last one fails; the copy goes through the kernel, so with an error.
        assert_eq!(memory.write_at(page << 21, &[1]).is_ok(), page + 1 < pages, "page {page} of {pages}");
    }
    assert_eq!(check(raw.extent(), Access::FULL), Err(Cause::Hugepages { page_size: 2 << 20, need: 1, free: 0 }));
}

#[test]
fn a_full_shm_is_named() {
    let wrapper = ["unshare", "--mount", "--map-root-user", "sh", "-c"];
    let line = r#"mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$0" "$@" || echo "SKIPPED: no mount" >&2"#;
    child::run_under("causes::child_has_a_small_shm", &[&wrapper[..], &[line]].concat());
}

#[test]
#[ignore = "started where /dev/shm has 64 KiB"]
fn child_has_a_small_shm() {
    let file = File::options().read(true).write(true).create_new(true).open("/dev/shm/pinrail-test").unwrap();
    file.set_len(1 << 20).unwrap();
    let raw = Raw::shared(&file, 1 << 20);
    let memory = raw.memory();
    assert!((0..256).any(|page| memory.write_at(page * 4096, &[1]).is_err()), "1 MiB in 64 KiB");
    let cause = check(raw.extent(), Access::FULL).unwrap_err();
    assert_eq!(cause.kind(), ErrorKind::Exhausted);
    assert!(cause.to_string().contains("/dev/shm/pinrail-test has 1048576 bytes, but its file system has 0 free"), "{cause}");
}

//! The suite for any registrar, on the running kernel.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use pinrail_conformance::{EXPECTED, Expected, Failing, Fixture, Peer, Peered, Told, run};
use pinrail_core::{Cause, Keys, Memory, MoveError, Mr, Rail, Registrar};
use pinrail_uring::{CallersRing, Uring};

use crate::causes::{mapped, protect, with_hole};
use crate::support::{PAGE, alone, memlock_forbids, pages, register, rings};

struct Rings;

/// Slots of a caller's ring: more than any check with a peer uses.
const SLOTS: u32 = 64;

fn callers() -> IoUring {
    let ring = IoUring::new(4).unwrap();
    ring.submitter().register_buffers_sparse(SLOTS).unwrap();
    ring
}

fn over(ring: &IoUring) -> Uring {
    let ring = CallersRing { rail: Rail::named("theirs"), ring: ring.as_fd(), slots: 0..SLOTS };
    // SAFETY: not kept: the suite's peers name slots without an MR, and a deregistration is made to fail by taking the
    // table away. Memory that they name is mapped for as long as they live.
    unsafe { Uring::over(&[ring]) }.unwrap()
}

impl Fixture for Rings {
    fn registrar(&self) -> Box<dyn Registrar> {
        Box::new(rings(2))
    }

    fn peer(&self) -> Option<Peered> {
        let ring = callers();
        let registrar = Box::new(over(&ring));
        Some(Peered { peer: Box::new(SlotPeer(Mutex::new(ring))), registrar })
    }

    fn unmapped(&self) -> Option<(Memory, u64)> {
        Some((with_hole(), 2 * PAGE))
    }

    fn read_only(&self) -> Option<Memory> {
        Some(mapped(1, |start| protect(start, PAGE, libc::PROT_READ)))
    }

    fn failing_deregistration(&self) -> Option<Failing> {
        let (ring, memory) = (callers(), pages(1));
        let uring = over(&ring);
        let mr = register(&uring, 0, &memory, 0..PAGE).unwrap();
        ring.submitter().unregister_buffers().unwrap();
        let repair = move || ring.submitter().register_buffers_sparse(SLOTS).unwrap();
        Some(Failing { mr, repair: Box::new(repair), registrar: Box::new(uring) })
    }
}

/// Names slots by number, on a ring whose slots Pinrail fills. A ring has no peers on other machines: its keys are local.
struct SlotPeer(Mutex<IoUring>);

impl SlotPeer {
    fn transfer(&self, api: &'static str, entry: &squeue::Entry, len: usize) -> Result<(), MoveError> {
        let mut ring = self.0.lock().unwrap();
        // SAFETY: the entry names a file that is open until the request has ended below, and a slot by which the kernel
        // finds its own hold of the pages, or none.
        unsafe { ring.submission().push(entry) }.unwrap();
        // A file in memory is read and written at once: there is nothing to wait for.
        ring.submit_and_wait(1).unwrap();
        let moved = ring.completion().next().unwrap().result();
        let failed = |errno, what: String| Err(MoveError::new(api, errno, Cause::Other { what }));
        match usize::try_from(moved) {
            Ok(moved) if moved == len => Ok(()),
            Ok(moved) => failed(None, format!("{moved} of {len} bytes")),
            Err(_) => failed(Some(-moved), "refused".to_owned()),
        }
    }
}

fn memory_file() -> File {
    // SAFETY: a valid name and no flags.
    let fd = unsafe { libc::memfd_create(c"peer".as_ptr(), 0) };
    assert!(fd >= 0);
    // SAFETY: just opened, and known to nobody else.
    File::from(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address(told: &Told, at: u64) -> *mut u8 {
    std::ptr::without_provenance_mut(usize::try_from(told.base + at).unwrap())
}

fn slot(told: &Told) -> u16 {
    u16::try_from(told.keys.local).unwrap()
}

impl Peer for SlotPeer {
    fn told(&self, mr: &Mr) -> Told {
        Told { rail: mr.rail(), keys: mr.keys().clone(), base: mr.extent().start() }
    }

    fn wrong(&self, told: &Told) -> Told {
        Told { keys: Keys { local: u64::from(SLOTS) - 1 - told.keys.local, ..Keys::default() }, ..told.clone() }
    }

    fn write(&self, told: &Told, at: u64, from: &[u8], _: Duration) -> Result<(), MoveError> {
        let mut file = memory_file();
        file.write_all(from).unwrap();
        let len = u32::try_from(from.len()).unwrap();
        let entry = opcode::ReadFixed::new(types::Fd(file.as_raw_fd()), address(told, at), len, slot(told)).build();
        self.transfer("READ_FIXED", &entry, from.len())
    }

    fn read(&self, told: &Told, at: u64, into: &mut [u8], _: Duration) -> Result<(), MoveError> {
        let file = memory_file();
        let len = u32::try_from(into.len()).unwrap();
        let entry = opcode::WriteFixed::new(types::Fd(file.as_raw_fd()), address(told, at), len, slot(told)).build();
        self.transfer("WRITE_FIXED", &entry, into.len())?;
        file.read_exact_at(into, 0).unwrap();
        Ok(())
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the table, for who asks for it with --nocapture")]
fn every_check_ends_as_the_table_says() {
    let _alone = alone();
    let mut expected = Expected::column(EXPECTED, "uring").unwrap();
    // A ring's 16384 slots, each with a page of its own.
    if memlock_forbids(80 << 20) {
        expected = expected.with("many-mrs", "skip: memlock");
    }
    let report = run(Rings, Duration::from_secs(120));
    println!("{report}");
    report.against(&expected).unwrap_or_else(|unexpected| panic!("{unexpected}"));
}

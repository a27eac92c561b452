use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::{IoUring, opcode, types};
use pinrail_core::{Access, Cause, Chunk, ErrorKind, MoveBytes, Rail, RailId, Registrar, Source};
use pinrail_uring::{CallersRing, OpenError, Uring};

use crate::support::{PAGE, WAIT, alone, pages, pinned_bytes, register, rings, skipped};

fn callers(slots: u32) -> IoUring {
    let ring = IoUring::new(4).unwrap();
    ring.submitter().register_buffers_sparse(slots).unwrap();
    ring
}

fn over(ring: &impl AsFd, slots: std::ops::Range<u32>) -> Result<Uring, OpenError> {
    let ring = CallersRing { rail: Rail::named("theirs"), ring: ring.as_fd(), slots };
    // SAFETY: each test's ring is used by nobody else, and its slots are named through live MRs only.
    unsafe { Uring::over(&[ring]) }
}

/// Reads `text` into fixed buffer `slot` at `address`, as a caller does with its own ring.
fn read_fixed(ring: &mut IoUring, text: &[u8], address: u64, slot: u64) -> i32 {
    let (from, mut to) = std::io::pipe().unwrap();
    to.write_all(text).unwrap();
    let address = std::ptr::without_provenance_mut(usize::try_from(address).unwrap());
    let len = u32::try_from(text.len()).unwrap();
    let entry = opcode::ReadFixed::new(types::Fd(from.as_raw_fd()), address, len, u16::try_from(slot).unwrap()).build();
    // SAFETY: the pipe is open until the request has ended below, and the buffer is the slot's.
    unsafe { ring.submission().push(&entry) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    ring.completion().next().unwrap().result()
}

#[test]
fn the_caller_uses_the_slots_by_the_mrs_local_key() {
    let _alone = alone();
    let (mut ring, memory, before) = (callers(8), pages(4), pinned_bytes());
    let uring = over(&ring, 2..6).unwrap();
    assert_eq!((uring.rails()[0].limits.max_mrs, uring.rails()[0].name.as_str()), (Some(4), "theirs"));
    let mut mrs: Vec<_> = (0..4).map(|nth| register(&uring, 0, &memory, nth * PAGE..(nth + 1) * PAGE).unwrap()).collect();
    assert_eq!(register(&uring, 0, &memory, 0..1).unwrap_err().cause, Cause::MrCount { limit: 4 });
    assert_eq!(pinned_bytes() - before, 4 * PAGE);

    for mr in &mrs {
        let key = mr.keys().local;
        assert!((2..6).contains(&key) && mr.keys().remote.is_empty());
        assert_eq!(read_fixed(&mut ring, b"theirs", mr.extent().start() + 8, key), 6);
        let mut seen = [0; 6];
        memory.read_at(mr.extent().start() - memory.extent().start() + 8, &mut seen).unwrap();
        assert_eq!(&seen, b"theirs");
    }

    // The queues are the caller's, so there is no mover, and what there is says so.
    assert!(uring.mover().is_none());
    let error = uring.write(&mrs[0], 0, b"x", WAIT).unwrap_err();
    assert_eq!(error.diagnosis().kind, ErrorKind::NotSupported);

    let stale = (mrs[0].extent().start(), mrs[0].keys().local);
    mrs.iter_mut().for_each(|mr| uring.deregister(mr).unwrap());
    assert_eq!(pinned_bytes(), before);
    assert_eq!(read_fixed(&mut ring, b"stale", stale.0, stale.1), -libc::EFAULT);
    drop(uring);
    assert_eq!(read_fixed(&mut ring, b"open", stale.0, stale.1), -libc::EFAULT, "the caller's ring is still there");
}

#[test]
fn an_mr_outlives_the_callers_descriptor() {
    let _alone = alone();
    let (ring, memory, before) = (callers(1), pages(1), pinned_bytes());
    let uring = over(&ring, 0..1).unwrap();
    let mut mr = register(&uring, 0, &memory, 0..PAGE).unwrap();
    drop(ring);
    assert_eq!(pinned_bytes() - before, PAGE);
    uring.deregister(&mut mr).unwrap();
    assert_eq!(pinned_bytes(), before);
}

#[test]
fn a_ring_that_cannot_take_the_slots_is_refused_at_once() {
    let _alone = alone();
    let bare = IoUring::new(4).unwrap();
    let null = File::open("/dev/null").unwrap();
    for (refused, slot) in
        [(over(&callers(4), 0..5), 4), (over(&callers(4), 4..4), 4), (over(&bare, 0..1), 0), (over(&null, 0..1), 0)]
    {
        let error = refused.unwrap_err();
        assert!(
            matches!(&error, OpenError::CallersRing { rail, slot: told, .. } if rail == "theirs" && *told == slot),
            "{error}"
        );
        assert_eq!(error.diagnosis().kind, ErrorKind::Usage);
    }
}

#[test]
fn the_table_of_a_ring_of_ours_can_be_taken_over() {
    let _alone = alone();
    let (uring, memory, mut ring, before) = (rings(1), pages(1), IoUring::new(4).unwrap(), pinned_bytes());
    let chunk = Chunk { memory: &memory, range: 0..PAGE, access: Access::FULL, source: &Source::Address };
    let mut mr = uring.register(RailId(0), &chunk).unwrap();
    let ours = uring.ring(RailId(0)).unwrap();
    if let Err(error) = clone_table(&ring, ours.as_raw_fd()) {
        skipped(&format!("IORING_REGISTER_CLONE_BUFFERS: {error}"));
        uring.deregister(&mut mr).unwrap();
        return;
    }
    assert_eq!(read_fixed(&mut ring, b"cloned", mr.extent().start(), mr.keys().local), 6);
    let mut seen = [0; 6];
    memory.read_at(0, &mut seen).unwrap();
    assert_eq!(&seen, b"cloned");
    uring.deregister(&mut mr).unwrap();
    assert_eq!(pinned_bytes() - before, PAGE, "the copy of the table still holds the pages");
    ring.submitter().unregister_buffers().unwrap();
    assert_eq!(pinned_bytes(), before);
}

/// IORING_REGISTER_CLONE_BUFFERS with struct io_uring_clone_buffers: where from, and the whole table.
fn clone_table(into: &IoUring, from: i32) -> std::io::Result<()> {
    let mut arg = [0u32; 8];
    arg[0] = from.cast_unsigned();
    // SAFETY: the kernel reads the structure, which lives until the call returns.
    let done = unsafe { libc::syscall(libc::SYS_io_uring_register, into.as_raw_fd(), 30, arg.as_ptr(), 1) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

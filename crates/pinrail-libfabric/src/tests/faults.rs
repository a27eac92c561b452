//! Failures of the provider: told as they are, and nothing left behind.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use libfabric_sys::bindgen as fi;
use pinrail_core::{Access, Cause, Chunk, ErrorKind, RailId, Registrar, Source};

use super::fake::Fake;
use super::modes::chunk;
use super::pages::{pages, with_hole};
use crate::limits::MaxMrSize;

const RAIL: RailId = RailId(0);

#[test]
fn a_failure_carries_call_errno_and_cause_and_is_not_retried() {
    let memory = pages(3 * 4096);
    for (errno, kind, again) in [
        (libc::EAGAIN, ErrorKind::Backend, true),
        (libc::ENOMEM, ErrorKind::Exhausted, false),
        (libc::EINVAL, ErrorKind::Backend, false),
        (libc::EOPNOTSUPP, ErrorKind::NotSupported, false),
    ] {
        let fake = Fake::new(0);
        let fabric = fake.registrar();
        fake.inner().fail.insert(1, errno);
        let error = fabric.register(RAIL, &chunk(&memory)).unwrap_err();
        assert_eq!((error.api, error.errno, error.may_pass()), ("fi_mr_regattr", Some(errno), again));
        assert_eq!(error.cause.kind(), kind, "{error}");
        assert_eq!((fake.live(), fake.inner().calls), (0, 1), "one call");
        let mut mr = fabric.register(RAIL, &chunk(&memory)).unwrap();
        fabric.deregister(&mut mr).unwrap();
    }
}

#[test]
fn what_is_wrong_with_the_memory_is_looked_up_after_a_refusal() {
    let fake = Fake::new(0);
    let fabric = fake.registrar();
    let (memory, hole) = with_hole();
    let chunk = Chunk { memory: &memory, range: 0..memory.len(), access: Access::FULL, source: &Source::Address };
    for (call, errno) in [(1, libc::EFAULT), (2, libc::EINVAL)] {
        fake.inner().fail.insert(call, errno);
        let error = fabric.register(RAIL, &chunk).unwrap_err();
        let expected = Cause::Unmapped { address: memory.extent().start() + hole };
        assert_eq!((error.errno, error.cause), (Some(errno), expected));
    }
    let fine = pages(3 * 4096);
    fake.inner().fail.insert(3, libc::EFAULT);
    let error = fabric.register(RAIL, &self::chunk(&fine)).unwrap_err();
    assert!(error.to_string().contains("mapped and allows the access"), "{error}");
}

#[test]
fn the_kth_failure_leaves_the_others_as_they_are_and_frees_its_key() {
    let fake = Fake::new(0);
    let fabric = fake.registrar();
    let memory = pages(3 * 4096);
    fake.inner().fail.insert(51, libc::ENOMEM);
    let mut live: Vec<_> = (0..50).map(|_| fabric.register(RAIL, &chunk(&memory)).unwrap()).collect();
    assert!(fabric.register(RAIL, &chunk(&memory)).is_err());
    live.extend((0..50).map(|_| fabric.register(RAIL, &chunk(&memory)).unwrap()));
    assert_eq!(fake.live(), 100, "of 100 keys none was lost");
    for mr in &mut live {
        fabric.deregister(mr).unwrap();
    }
    assert_eq!(fake.live(), 0);
}

#[test]
fn one_more_than_the_provider_takes_is_refused_before_the_call() {
    let fake = Fake::with(fi::FI_MR_PROV_KEY, |domain| domain.mr_cnt = 3);
    let fabric = fake.registrar();
    assert_eq!(fabric.rails()[0].limits.max_mrs, Some(3));
    let memory = pages(3 * 4096);
    let mut live: Vec<_> = (0..3).map(|_| fabric.register(RAIL, &chunk(&memory)).unwrap()).collect();
    let error = fabric.register(RAIL, &chunk(&memory)).unwrap_err();
    assert_eq!(error.cause, Cause::MrCount { limit: 3 });
    assert_eq!(fake.inner().calls, 3);
    fabric.deregister(&mut live[1]).unwrap();
    live[1] = fabric.register(RAIL, &chunk(&memory)).unwrap();
    for mr in &mut live {
        fabric.deregister(mr).unwrap();
    }
}

#[test]
fn a_limit_on_what_peers_may_write_leaves_other_registrations_alone() {
    const LIMIT: u64 = 4 << 30;
    let fake = Fake::new(fi::FI_MR_PROV_KEY);
    let mut fabric = fake.registrar();
    Arc::get_mut(&mut fabric.domains[0]).unwrap().max_mr_size = MaxMrSize::by_provider("efa");
    let memory = pages(LIMIT + 4096);
    let of = |len, access| Chunk { memory: &memory, range: 0..len, access, source: &Source::Address };
    let error = fabric.register(RAIL, &of(LIMIT + 1, Access::FULL)).unwrap_err();
    assert_eq!((error.errno, error.cause), (None, Cause::MrSize { limit: LIMIT, need: LIMIT + 1 }));
    assert_eq!(fake.inner().calls, 0);
    for chunk in [of(LIMIT, Access::FULL), of(LIMIT + 1, Access::LOCAL_WRITE | Access::REMOTE_READ)] {
        let mut mr = fabric.register(RAIL, &chunk).unwrap();
        fabric.deregister(&mut mr).unwrap();
    }
}

#[test]
fn a_closing_that_fails_gives_the_mr_back() {
    let fake = Fake::new(0);
    let fabric = fake.registrar();
    let memory = pages(3 * 4096);
    let mut mr = fabric.register(RAIL, &chunk(&memory)).unwrap();
    fake.inner().close.extend([libc::EBUSY, libc::EAGAIN, libc::EIO]);
    let busy = fabric.deregister(&mut mr).unwrap_err();
    assert_eq!((busy.api, busy.errno, busy.cause.kind()), ("fi_close", Some(libc::EBUSY), ErrorKind::Busy));
    assert!(fabric.deregister(&mut mr).unwrap_err().may_pass());
    assert!(fabric.deregister(&mut mr).unwrap_err().to_string().contains("errno 5"));
    assert!(mr.is_live());
    assert_eq!(fake.live(), 1);
    fabric.deregister(&mut mr).unwrap();
    assert_eq!((fake.live(), mr.is_live()), (0, false));
}

#[test]
fn a_registration_that_cannot_be_enabled_is_closed_again() {
    let fake = Fake::new(fi::FI_MR_ENDPOINT);
    let fabric = fake.opened();
    let memory = pages(3 * 4096);
    fake.inner().bind.push_back(libc::ENOMEM);
    let error = fabric.register(RAIL, &chunk(&memory)).unwrap_err();
    assert_eq!((error.api, error.errno), ("fi_mr_bind", Some(libc::ENOMEM)));
    assert_eq!(fake.live(), 0);
}

#[test]
fn what_can_neither_be_enabled_nor_closed_is_leaked_with_its_memory_and_its_place() {
    let fake = Fake::with(fi::FI_MR_ENDPOINT, |domain| domain.mr_cnt = 2);
    let fabric = fake.opened();
    let memory = pages(3 * 4096);
    fake.inner().bind.push_back(libc::ENOMEM);
    fake.inner().close.push_back(libc::EBUSY);
    assert!(fabric.register(RAIL, &chunk(&memory)).is_err());
    assert_eq!(fake.live(), 1, "the provider still has it");
    let mut mr = fabric.register(RAIL, &chunk(&memory)).unwrap();
    assert_eq!(fabric.register(RAIL, &chunk(&memory)).unwrap_err().cause, Cause::MrCount { limit: 2 });
    fabric.deregister(&mut mr).unwrap();
}

#[test]
fn a_borrowed_domain_with_a_live_mr_is_busy_for_its_owner() {
    let mut fake = Fake::new(0);
    let state = Arc::clone(&fake.state);
    let borrowed = fake.borrowed();
    let fabric = fake.registrar();
    let memory = pages(3 * 4096);
    let mut mr = fabric.register(RAIL, &chunk(&memory)).unwrap();
    // SAFETY: the fake's open domain; the call fails and changes nothing.
    assert_eq!(unsafe { fi::fi_close(borrowed.domain.as_ptr().cast()) }, -libc::EBUSY);
    fabric.deregister(&mut mr).unwrap();
    drop((fabric, mr));
    assert_eq!(fake.close(), 0, "never closed by the registrar");
    assert_eq!(state.inner().open, 0);
}

#[test]
fn host_memory_registers_where_dma_bufs_do_not() {
    let fake = Fake::new(fi::FI_MR_HMEM);
    let fabric = fake.registrar();
    let memory = pages(3 * 4096);
    let fd: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let raw = fd.as_raw_fd();
    let source = Source::DmaBuf { fd: Arc::new(fd), offset: 64 };
    let by_dma_buf = || fabric.register(RAIL, &Chunk { source: &source, ..chunk(&memory) }).unwrap_err();
    let error = by_dma_buf();
    assert_eq!((error.errno, error.cause.kind()), (Some(libc::EOPNOTSUPP), ErrorKind::NotSupported));
    // Headers before 1.20 have no word for it, and nothing is called.
    let asked = cfg!(fi_mr_dmabuf).then(|| (raw, 64, 8900, memory.extent().start() + 100 - 64));
    assert_eq!(fake.inner().dma_buf, asked);
    if asked.is_some() {
        // What a provider says whose interface to the device is not there.
        fake.inner().fail.insert(2, libc::ENOSYS);
        let error = by_dma_buf();
        assert_eq!((error.errno, error.cause.kind()), (Some(libc::ENOSYS), ErrorKind::NotSupported));
    }
    let mut mr = fabric.register(RAIL, &chunk(&memory)).unwrap();
    fabric.deregister(&mut mr).unwrap();
}

#[test]
fn a_dma_buf_needs_a_domain_for_device_memory() {
    let fabric = crate::Libfabric::open("shm", 1).unwrap();
    let memory = pages(3 * 4096);
    let fd: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let source = Source::DmaBuf { fd: Arc::new(fd), offset: 0 };
    let error = fabric.register(RAIL, &Chunk { source: &source, ..chunk(&memory) }).unwrap_err();
    assert_eq!(error.cause.kind(), ErrorKind::NoDevicePath);
}

#[test]
fn a_call_that_never_returns_holds_up_nobody_else() {
    let fake = Fake::new(0);
    let fabric = fake.registrar();
    let memory = pages(3 * 4096);
    let mut first = fabric.register(RAIL, &chunk(&memory)).unwrap();
    fake.inner().hang = Some(2);
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| fabric.register(RAIL, &chunk(&memory)).unwrap());
        fake.wait_until_hanging();
        // The fake's own lock is free while it waits; ours would show here as a test that does not end.
        let mut other = fabric.register(RAIL, &chunk(&memory)).unwrap();
        fabric.deregister(&mut other).unwrap();
        fabric.deregister(&mut first).unwrap();
        assert_eq!(fabric.identity().provider, "fake");
        fake.release();
        let mut late = hanging.join().unwrap();
        fabric.deregister(&mut late).unwrap();
    });
    assert_eq!(fake.live(), 0);
}

#[test]
fn a_transfer_that_never_ends_is_leaked_with_its_endpoints_and_its_domain() {
    let fake = Fake::new(fi::FI_MR_LOCAL);
    let fabric = fake.opened();
    let memory = pages(3 * 4096);
    let mut mr = fabric.register(RAIL, &chunk(&memory)).unwrap();
    let write = || fabric.mover().unwrap().write(&mr, 0, b"late", Duration::from_millis(20));
    fake.inner().silent = true;
    assert!(write().unwrap_err().is_timeout());
    fake.inner().silent = false;
    write().unwrap();
    fabric.deregister(&mut mr).unwrap();
    drop((fabric, mr));
    // The buffer that may still be written to is registered, and what it is registered on is open: two endpoints with
    // their queues and vectors, domain and fabric, and the domain that the test lends.
    assert_eq!(fake.live(), 1);
    assert_eq!(fake.inner().open, 1 + 2 * 3 + 2 + 1);
}

#[test]
fn eight_threads_share_a_domain() {
    let fake = Fake::new(0);
    let fabric = fake.registrar();
    let memory = pages(3 * 4096);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut mr = fabric.register(RAIL, &chunk(&memory)).unwrap();
                    fabric.deregister(&mut mr).unwrap();
                }
            });
        }
    });
    assert_eq!((fake.live(), fake.inner().calls), (0, 1600));
}

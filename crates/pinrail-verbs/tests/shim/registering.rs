//! Registrations that fail, and that fail to end.

use std::sync::Arc;

use pinrail_core::{Access, Cause, Chunk, DevicePath, ErrorKind, Memory, Mr, Rail, RailId, RegisterError, Registrar, Source};
use pinrail_memory::{Mapping, Pages};
use pinrail_verbs::{OpenError, Verbs};

use crate::library::{self, answer, calls, live, of_devices, with};

const RAIL: RailId = RailId(0);
const PAGE: u64 = 4096;

fn pages(n: u64) -> Memory {
    Memory::new(Mapping::anonymous(n * PAGE, Pages::Small, None).unwrap())
}

fn register(verbs: &Verbs, memory: &Memory) -> Result<Mr, RegisterError> {
    verbs.register(RAIL, &Chunk { memory, range: 0..PAGE, access: Access::FULL, source: &Source::Address })
}

fn one() -> Verbs {
    Verbs::open(&[Rail::named("shim0")]).unwrap()
}

#[test]
fn the_third_registration_without_room_leaves_the_first_two() {
    library::set(of_devices(1));
    let (verbs, memory) = (one(), pages(1));
    answer("ibv_reg_mr", [0, 0, libc::ENOMEM]);
    let mut mrs = vec![register(&verbs, &memory).unwrap(), register(&verbs, &memory).unwrap()];
    let error = register(&verbs, &memory).unwrap_err();
    assert_eq!((error.api, error.errno, error.diagnosis().kind), ("ibv_reg_mr", Some(libc::ENOMEM), ErrorKind::Exhausted));
    let text = error.to_string();
    assert!(text.contains("shim0") && text.contains("2 are live here of 1048576"), "{text}");
    mrs.push(register(&verbs, &memory).unwrap());
    assert_eq!(live("mr"), 3);
    mrs.iter_mut().for_each(|mr| verbs.deregister(mr).unwrap());
    drop(verbs);
    assert_eq!([live("mr"), live("pd"), live("context")], [0; 3]);
}

#[test]
fn nothing_is_tried_twice() {
    library::set(of_devices(1));
    let (verbs, memory) = (one(), pages(1));
    for errno in [libc::EAGAIN, libc::EINVAL, libc::ENOMEM] {
        let before = calls("ibv_reg_mr");
        answer("ibv_reg_mr", [errno]);
        let error = register(&verbs, &memory).unwrap_err();
        assert_eq!((error.errno, error.may_pass()), (Some(errno), errno == libc::EAGAIN), "{error}");
        assert_eq!(calls("ibv_reg_mr"), before + 1);
    }
}

#[test]
fn a_call_that_never_returns_holds_up_nobody_else() {
    library::set(of_devices(1));
    let (verbs, memory) = (one(), pages(1));
    let mut first = register(&verbs, &memory).unwrap();
    with(|library| library.hang = true);
    let ours = library::shared();
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| {
            library::adopt(ours);
            register(&verbs, &memory).unwrap()
        });
        while !with(|library| library.hanging) {
            std::thread::yield_now();
        }
        // A lock of ours, held over the call, would show here as a test that does not end.
        let mut other = register(&verbs, &memory).unwrap();
        verbs.deregister(&mut other).unwrap();
        verbs.deregister(&mut first).unwrap();
        assert_eq!(verbs.identity().backend, "verbs");
        with(|library| library.hanging = false);
        verbs.deregister(&mut hanging.join().unwrap()).unwrap();
    });
    assert_eq!(live("mr"), 0);
}

#[test]
fn an_mr_whose_deregistration_fails_stays_the_callers_live_with_its_memory() {
    library::set(of_devices(1));
    let (verbs, memory) = (one(), pages(1));
    let mut mr = register(&verbs, &memory).unwrap();
    let address = mr.extent();
    drop(memory);
    answer("ibv_dereg_mr", [libc::EBUSY, libc::EAGAIN]);
    let busy = verbs.deregister(&mut mr).unwrap_err();
    assert_eq!((busy.api, busy.errno, busy.diagnosis().kind), ("ibv_dereg_mr", Some(libc::EBUSY), ErrorKind::Busy));
    assert!(mr.is_live() && !busy.may_pass());
    assert!(verbs.deregister(&mut mr).unwrap_err().may_pass());
    let maps = pinrail_memory::Maps::read().unwrap();
    assert_eq!(maps.check(address, Access::FULL), Ok(()), "the memory is still there");
    verbs.deregister(&mut mr).unwrap();
    assert_eq!((mr.is_live(), live("mr")), (false, 0));
}

#[test]
fn dma_bufs_are_registered_where_there_is_such_a_call_and_refused_where_not() {
    library::set(of_devices(1));
    let fd = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
    let (memory, source) = (pages(4), Source::DmaBuf { fd: Arc::clone(&fd), offset: 8192 });
    let chunk = Chunk { memory: &memory, range: PAGE..3 * PAGE, access: Access::REMOTE_READ, source: &source };

    let verbs = one();
    assert_eq!(verbs.rails()[0].device, DevicePath::Unknown);
    let error = verbs.register(RAIL, &chunk).unwrap_err();
    assert_eq!((error.api, error.errno), ("ibv_reg_dmabuf_mr", Some(libc::EOPNOTSUPP)));
    assert_eq!(error.diagnosis().kind, ErrorKind::NotSupported, "{error}");

    with(|library| library.dma_bufs = true);
    let verbs = one();
    assert_eq!(verbs.rails()[0].device, DevicePath::DmaBuf);
    assert_eq!(live("mr"), 0, "asking leaves nothing behind");
    let mut mr = verbs.register(RAIL, &chunk).unwrap();
    let raw = std::os::fd::AsRawFd::as_raw_fd(&*fd);
    assert_eq!(with(|library| library.registered.clone()), [(8192, 8192, memory.extent().start() + PAGE, raw, 4)]);
    drop(source);
    assert_eq!(Arc::strong_count(&fd), 2, "the MR keeps its export open");
    verbs.deregister(&mut mr).unwrap();
    assert_eq!(Arc::strong_count(&fd), 1);
}

#[test]
fn flags_are_those_asked_for_and_relaxed_ordering_only_on_request() {
    library::set(of_devices(1));
    let memory = pages(1);
    let flags = |verbs: &Verbs, access| {
        let chunk = Chunk { memory: &memory, range: 0..PAGE, access, source: &Source::Address };
        let mut mr = verbs.register(RAIL, &chunk).unwrap();
        verbs.deregister(&mut mr).unwrap();
        with(|library| library.registered.pop().unwrap())
    };
    let (verbs, start) = (one(), memory.extent().start());
    assert_eq!(flags(&verbs, Access::REMOTE_WRITE), (start, 4096, start, -1, 3));
    assert_eq!(flags(&verbs, Access::REMOTE_READ), (start, 4096, start, -1, 4));
    let verbs = verbs.with_relaxed_ordering();
    assert_eq!(flags(&verbs, Access::REMOTE_READ), (start, 4096, start, -1, 4 | 1 << 20));
}

#[test]
fn a_devices_limits_hold_and_a_place_is_free_again_after_a_deregistration_or_a_failure() {
    library::set(of_devices(1));
    with(|library| (library.max_mr, library.max_mr_size) = (2, PAGE));
    let (verbs, memory) = (one(), pages(2));
    let limits = verbs.rails()[0].limits;
    assert_eq!((limits.max_mrs, limits.max_mr_size), (Some(2), Some(PAGE)));
    let long = Chunk { memory: &memory, range: 0..PAGE + 1, access: Access::FULL, source: &Source::Address };
    assert_eq!(verbs.register(RAIL, &long).unwrap_err().cause, Cause::MrSize { limit: PAGE, need: PAGE + 1 });
    answer("ibv_reg_mr", [libc::EFAULT, libc::EINVAL]);
    register(&verbs, &memory).unwrap_err();
    register(&verbs, &memory).unwrap_err();
    let mut mrs = [register(&verbs, &memory).unwrap(), register(&verbs, &memory).unwrap()];
    let before = calls("ibv_reg_mr");
    let error = register(&verbs, &memory).unwrap_err();
    assert_eq!((error.errno, error.cause), (None, Cause::MrCount { limit: 2 }));
    assert_eq!(calls("ibv_reg_mr"), before);
    verbs.deregister(&mut mrs[0]).unwrap();
    mrs[0] = register(&verbs, &memory).unwrap();
    mrs.iter_mut().for_each(|mr| verbs.deregister(mr).unwrap());

    let mut smaller = Rail::named("shim0");
    smaller.limits.max_mrs = Some(1);
    assert_eq!(Verbs::open(&[smaller]).unwrap().rails()[0].limits.max_mrs, Some(1));
    with(|library| library.max_mr_size = u64::MAX);
    assert_eq!(one().rails()[0].limits.max_mr_size, None, "all ones is no limit");
}

#[test]
fn fork_init_that_comes_too_late_says_in_which_order() {
    use pinrail_verbs::{ForkSafety, fork_init, sys};
    library::set(of_devices(1));
    assert_eq!(fork_init(), Ok(ForkSafety::Library));
    answer("ibv_fork_init", [libc::EINVAL, libc::ENOMEM]);
    let late = fork_init().unwrap_err();
    assert_eq!(late, OpenError::ForkInitTooLate);
    let diagnosis = late.diagnosis();
    assert!(diagnosis.message.contains("has registered memory or made a queue already"), "{}", diagnosis.message);
    assert!(diagnosis.hint.unwrap().contains("first of all verbs calls"));
    assert!(matches!(fork_init(), Err(OpenError::Call { api: "ibv_fork_init", errno: libc::ENOMEM, .. })));
    with(|library| library.fork_status = sys::IBV_FORK_UNNEEDED);
    let before = calls("ibv_fork_init");
    assert_eq!(fork_init(), Ok(ForkSafety::Kernel));
    assert_eq!(calls("ibv_fork_init"), before, "where the kernel does it, it is never too late");
}

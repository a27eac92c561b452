//! The limits of the process, each met in a process of its own.

use pinrail_core::{Cause, ErrorKind, Machine, Registrar};
use pinrail_memory::Memlock;
use pinrail_uring::{OpenError, Uring};

use crate::support::{PAGE, alone, in_a_process, pages, passed, pinned_bytes, register, rings, skipped};

fn set_limit(resource: libc::__rlimit_resource_t, soft: u64) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: soft };
    // SAFETY: the structure is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0, "{}", std::io::Error::last_os_error());
}

/// The kernel charges a user, so a user of its own: nobody else's pins then count here.
#[test]
fn memlock_is_named_with_limit_use_and_need() {
    let _alone = alone();
    let user = format!("--reuid={}", 61_000 + std::process::id() % 4_000);
    let wrapper = ["setpriv", &user, "--regid=65534", "--clear-groups"];
    if let Some(output) = in_a_process(&wrapper, "limits::child_with_8_mib_of_memlock") {
        passed(&output);
    }
}

#[test]
#[ignore = "started by the test above, as a user without CAP_IPC_LOCK"]
fn child_with_8_mib_of_memlock() {
    const LIMIT: u64 = 8 << 20;
    set_limit(libc::RLIMIT_MEMLOCK, LIMIT);
    assert!(!Memlock::read().unwrap().exempt, "to be run without CAP_IPC_LOCK");
    let (uring, memory) = (rings(2), pages(5 << 10));
    let mib = |n: u64| 0..n << 20;

    let error = register(&uring, 0, &memory, mib(20)).unwrap_err();
    assert_eq!(error.cause, Cause::Memlock { limit: LIMIT, held: 0, need: 20 << 20, others_unknown: true });
    assert_eq!((error.errno, error.diagnosis().kind), (Some(libc::ENOMEM), ErrorKind::Memlock));

    // What one rail holds is gone for the other: the user is charged.
    let mut first = register(&uring, 0, &memory, mib(6)).unwrap();
    let error = register(&uring, 1, &memory, 100..(3 << 20) + 100).unwrap_err();
    let need = (3 << 20) + PAGE;
    assert_eq!(error.cause, Cause::Memlock { limit: LIMIT, held: 6 << 20, need, others_unknown: true });
    uring.deregister(&mut first).unwrap();
    // Not the whole 8 MiB: recent kernels charge two pages for each ring.
    let mut second = register(&uring, 1, &memory, 0..LIMIT - 8 * PAGE).unwrap();
    uring.deregister(&mut second).unwrap();
    assert_eq!(pinned_bytes(), 0);
}

#[test]
fn a_ring_may_not_fit_memlock_either() {
    let _alone = alone();
    let user = format!("--reuid={}", 65_000 + std::process::id() % 500);
    let wrapper = ["setpriv", &user, "--regid=65534", "--clear-groups"];
    if let Some(output) = in_a_process(&wrapper, "limits::child_with_one_page_of_memlock") {
        passed(&output);
    }
}

#[test]
#[ignore = "started by the test above, as a user without CAP_IPC_LOCK"]
fn child_with_one_page_of_memlock() {
    set_limit(libc::RLIMIT_MEMLOCK, PAGE);
    match Uring::open(&Machine::of_rails(3).rails) {
        Ok(_) => skipped("this kernel does not charge rings to memlock"),
        Err(error) => {
            let cause = Cause::Memlock { limit: PAGE, held: 0, need: 2 * PAGE, others_unknown: true };
            assert_eq!(error, OpenError::Memlock { ring: 1, rings: 3, cause });
            assert_eq!(error.diagnosis().kind, ErrorKind::Memlock);
        }
    }
}

#[test]
fn descriptors_are_named_with_their_limit_and_none_is_kept() {
    let _alone = alone();
    if let Some(output) = in_a_process(&["env"], "limits::child_with_16_descriptors") {
        passed(&output);
    }
}

#[test]
#[ignore = "started by the test above: it lowers a limit of its process"]
fn child_with_16_descriptors() {
    set_limit(libc::RLIMIT_NOFILE, 16);
    for _ in 0..3 {
        let error = Uring::open(&Machine::of_rails(64).rails).unwrap_err();
        let OpenError::Descriptors { ring, rings: 64, limit: Some(16) } = error else { panic!("{error}") };
        assert!((2..=16).contains(&ring), "{error}");
        assert_eq!(error.diagnosis().kind, ErrorKind::Exhausted);
    }
    rings(4);
}

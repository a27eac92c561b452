//! A kernel that really refuses: seccomp filters are a thread's own, so a thread is given one and ends with it.

use pinrail_core::{Cause, ErrorKind, Machine, Registrar};
use pinrail_uring::{OpenError, Uring};

use crate::support::{PAGE, WAIT, alone, pages, pinned_bytes, register, rings};

/// Runs `test` in a thread whose calls of `number` are answered with `errno`.
fn without<T: Send>(number: libc::c_long, errno: i32, test: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|threads| {
        let filtered = threads.spawn(|| {
            refuse(u32::try_from(number).unwrap(), u32::try_from(errno).unwrap());
            test()
        });
        filtered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn refuse(number: u32, errno: u32) {
    // struct seccomp_data begins with the number of the call.
    let load = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let is_it = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: number };
    let fail = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | errno };
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let mut program = [load, is_it, fail, allow];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: no pointer is handed over.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_filter_is_named_with_the_call_that_it_refuses() {
    let _alone = alone();
    for (number, api) in [(libc::SYS_io_uring_setup, "io_uring_setup"), (libc::SYS_io_uring_register, "io_uring_register")] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let error = without(number, errno, || Uring::open(&Machine::of_rails(1).rails).unwrap_err());
            assert_eq!(error, OpenError::Seccomp { api, errno });
            let diagnosis = error.diagnosis();
            assert_eq!(diagnosis.kind, ErrorKind::NotSupported);
            assert!(diagnosis.hint.unwrap().contains("seccomp"), "{error}");
        }
    }
}

#[test]
fn a_deregistration_that_fails_leaves_the_mr_live_and_another_may_succeed() {
    let _alone = alone();
    let (uring, memory, before) = (rings(1), pages(2), pinned_bytes());
    let mut mr = register(&uring, 0, &memory, 0..PAGE).unwrap();
    without(libc::SYS_io_uring_register, libc::EPERM, || {
        let error = uring.deregister(&mut mr).unwrap_err();
        assert_eq!(error.errno, Some(libc::EPERM));
        let error = register(&uring, 0, &memory, PAGE..2 * PAGE).unwrap_err();
        assert_eq!(error.errno, Some(libc::EPERM));
    });
    assert!(mr.is_live());
    assert_eq!(pinned_bytes() - before, PAGE);
    uring.mover().unwrap().write(&mr, 0, b"still", WAIT).unwrap();
    uring.deregister(&mut mr).unwrap();
    assert_eq!(pinned_bytes(), before);
}

#[test]
fn a_transfer_that_could_not_be_handed_over_never_happens_later() {
    let _alone = alone();
    let (uring, memory) = (rings(1), pages(1));
    let mut mr = register(&uring, 0, &memory, 0..PAGE).unwrap();
    let mover = uring.mover().unwrap();
    let error = without(libc::SYS_io_uring_enter, libc::EPERM, || mover.write(&mr, 0, b"never", WAIT).unwrap_err());
    assert_eq!((error.api, error.errno), ("io_uring_enter", Some(libc::EPERM)));
    let error = mover.write(&mr, 8, b"after", WAIT).unwrap_err();
    assert!(matches!(&error.cause, Cause::Other { what } if what.contains("open a new ring")), "{error}");
    let mut seen = [1; 16];
    memory.read_at(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 16]);
    uring.deregister(&mut mr).unwrap();
}

//! Registered memory and processes that fork.

use std::os::fd::AsRawFd;

use pinrail_core::Registrar;
use pinrail_verbs::{ForkSafety, fork_init};

use crate::support::{PAGE, WAIT, alone, every_rail, guest_nodes, ids, pages, register};

/// Before the kernel copied pinned pages for the child, the parent's next write went to a page that the NIC did not know.
#[test]
fn what_is_written_after_a_fork_is_what_the_nic_reads() {
    let _alone = alone();
    let safety = fork_init().unwrap();
    if guest_nodes().is_some() {
        assert_eq!(safety, ForkSafety::Kernel, "of Linux 6.1");
    }
    let Some(verbs) = every_rail() else { return };
    let (memory, mover) = (pages(1), verbs.mover().unwrap());
    let mut mrs: Vec<_> = ids(&verbs).map(|rail| register(&verbs, rail, &memory, 0..PAGE).unwrap()).collect();
    let (waits, wakes) = std::io::pipe().unwrap();
    // SAFETY: the child calls only what may be called after a fork of a process with threads: close, read, _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the child's copy of the descriptor, which would keep the pipe open.
        unsafe { libc::close(wakes.as_raw_fd()) };
        let mut byte = 0u8;
        // SAFETY: room for one byte. It returns when the parent has closed its end.
        unsafe { libc::read(waits.as_raw_fd(), (&raw mut byte).cast(), 1) };
        // SAFETY: no preconditions.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    for (mr, text) in mrs.iter().zip([b"one", b"two", b"six"].iter().cycle()) {
        memory.write_at(7, *text).unwrap();
        let mut seen = [0; 3];
        mover.read(mr, 7, &mut seen, WAIT).unwrap();
        assert_eq!(&seen, *text);
    }
    drop(wakes);
    // SAFETY: the child is ours and not waited for yet; its status is not wanted.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    mrs.iter_mut().for_each(|mr| verbs.deregister(mr).unwrap());
}

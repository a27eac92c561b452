use std::os::fd::AsRawFd;

use pinrail_core::{Cause, RailId, Registrar};

use crate::support::{PAGE, WAIT, alone, in_a_process, memlock_forbids, pages, passed, pinned_bytes, register, rings};

#[test]
fn as_many_pages_are_pinned_as_are_spanned_and_none_when_deregistration_returns() {
    let _alone = alone();
    let (uring, memory, before) = (rings(2), pages(300), pinned_bytes());
    for (range, spanned) in
        [(0..1, 1), (0..PAGE, 1), (PAGE - 1..PAGE + 1, 2), (100..PAGE * 3 + 1, 4), (0..300 * PAGE, 300), (7 * PAGE..8 * PAGE, 1)]
    {
        let mut mrs = [0, 1].map(|rail| register(&uring, rail, &memory, range.clone()).unwrap());
        assert_eq!(pinned_bytes() - before, 2 * spanned * PAGE, "{range:?} on two rails");
        for mr in &mut mrs {
            uring.deregister(mr).unwrap();
        }
        assert_eq!(pinned_bytes(), before, "{range:?}: released before the last deregistration returned");
    }
}

#[test]
fn buffers_that_share_a_page_pin_it_once_each() {
    let _alone = alone();
    let (uring, memory, before) = (rings(1), pages(1), pinned_bytes());
    let mut mrs: Vec<_> = (0..8).map(|nth| register(&uring, 0, &memory, nth * 320..(nth + 1) * 320).unwrap()).collect();
    assert_eq!(pinned_bytes() - before, 8 * PAGE);
    mrs.iter_mut().for_each(|mr| uring.deregister(mr).unwrap());
    assert_eq!(pinned_bytes(), before);
}

#[test]
fn a_failed_registration_pins_nothing_and_gives_its_slot_back() {
    let _alone = alone();
    let mut rails = pinrail_core::Machine::of_rails(1).rails;
    rails[0].limits.max_mrs = Some(1);
    let (uring, good, before) = (pinrail_uring::Uring::open(&rails).unwrap(), pages(1), pinned_bytes());
    let bad = crate::causes::mapped(4, |start| crate::causes::protect(start + 2 * PAGE, PAGE, libc::PROT_NONE));
    for _ in 0..3 {
        register(&uring, 0, &bad, 0..4 * PAGE).unwrap_err();
        assert_eq!(pinned_bytes(), before);
    }
    let mut mr = register(&uring, 0, &good, 0..PAGE).unwrap();
    uring.deregister(&mut mr).unwrap();
}

/// Closing the last descriptor could not release anything here: the child has one. Emptying the slot does.
#[test]
fn a_forked_child_that_keeps_the_ring_open_keeps_no_pin() {
    let _alone = alone();
    let (uring, memory, before) = (rings(1), pages(16), pinned_bytes());
    let mut mr = register(&uring, 0, &memory, 0..16 * PAGE).unwrap();
    let (mut tells, told) = std::io::pipe().unwrap();
    // SAFETY: the child calls only what may be called after a fork of a process with threads: write, pause.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the descriptor is the pipe's, and one byte of a constant is written.
        unsafe { libc::write(told.as_raw_fd(), b"x".as_ptr().cast(), 1) };
        loop {
            // SAFETY: pause has no preconditions.
            unsafe { libc::pause() };
        }
    }
    assert!(child > 0);
    std::io::Read::read_exact(&mut tells, &mut [0]).unwrap();

    assert_eq!(pinned_bytes() - before, 16 * PAGE);
    uring.deregister(&mut mr).unwrap();
    assert_eq!(pinned_bytes(), before);

    // SAFETY: the child is ours and not waited for yet.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: as above; its status is not wanted.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

/// A private page that is pinned is copied for the child at the fork, so that parent and MR go on with the same one.
#[test]
fn a_forked_child_can_use_no_mr_and_its_parent_notices_nothing() {
    let _alone = alone();
    let (uring, memory, before) = (rings(1), pages(4), pinned_bytes());
    memory.write_at(0, b"parent").unwrap();
    let mut mr = register(&uring, 0, &memory, 0..4 * PAGE).unwrap();
    // SAFETY: the child makes system calls and comparisons only, and ends without running any destructor.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut seen = [0; 6];
        let refused = uring.deregister(&mut mr).is_err()
            && uring.mover().is_some_and(|mover| mover.read(&mr, 0, &mut seen, WAIT).is_err())
            && register(&uring, 0, &memory, 0..PAGE).is_err();
        let own = memory.write_at(0, b"child!").is_ok();
        // SAFETY: ends the process.
        unsafe { libc::_exit(if refused && own { 0 } else { 1 }) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: the child is ours and not waited for yet; the status is written to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child used what is its parent's: {status:#x}");

    let mover = uring.mover().unwrap();
    let mut seen = [0; 6];
    mover.read(&mr, 0, &mut seen, WAIT).unwrap();
    assert_eq!(&seen, b"parent", "what the child wrote is the child's");
    memory.write_at(0, b"after!").unwrap();
    mover.read(&mr, 0, &mut seen, WAIT).unwrap();
    assert_eq!(&seen, b"after!", "the MR still reaches the parent's own page");
    assert_eq!(pinned_bytes() - before, 4 * PAGE);
    uring.deregister(&mut mr).unwrap();
    assert_eq!(pinned_bytes(), before);
}

/// What `MADV_DONTFORK` is for, as the kernel shows it: `dc` among the flags of each mapping of the ring.
#[test]
fn the_queues_are_not_mapped_into_a_forked_child() {
    let _alone = alone();
    let _uring = rings(1);
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut ring, mut queues) = (false, 0);
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| ring) {
            assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
            queues += 1;
        } else if line.contains("rw-s") {
            ring = line.ends_with("anon_inode:[io_uring]");
        } else if line.contains("-p ") {
            ring = false;
        }
    }
    assert!(queues >= 2, "the submission entries and the rings");
}

#[test]
fn an_mr_that_is_dropped_leaks_pin_and_memory_together() {
    let _alone = alone();
    if let Some(output) = in_a_process(&["env"], "pins::child_that_drops_an_mr") {
        passed(&output);
    }
}

#[test]
#[ignore = "started by the test above: what it leaks would disturb others"]
fn child_that_drops_an_mr() {
    let (uring, memory) = (rings(1), pages(3));
    let extent = memory.extent();
    drop(register(&uring, 0, &memory, 0..3 * PAGE).unwrap());
    drop(uring);
    drop(memory);
    assert_eq!(pinned_bytes(), 3 * PAGE);
    assert_eq!(pinrail_memory::Maps::read().unwrap().check(extent, pinrail_core::Access::FULL), Ok(()));
}

#[test]
fn a_table_takes_what_the_kernel_grants_and_says_when_it_is_full() {
    let _alone = alone();
    let uring = rings(1);
    let limit = uring.rails()[0].limits.max_mrs.unwrap();
    assert_eq!(limit, 16384, "what kernels since 5.13 grant");
    if memlock_forbids(limit * PAGE) {
        return;
    }
    let (memory, before) = (pages(1), pinned_bytes());
    let mut mrs: Vec<_> = (0..limit).map(|_| register(&uring, 0, &memory, 0..PAGE).unwrap()).collect();
    let mut slots: Vec<u64> = mrs.iter().map(|mr| mr.keys().local).collect();
    slots.sort_unstable();
    assert!(slots.iter().copied().eq(0..limit), "each slot once");

    let error = register(&uring, 0, &memory, 0..PAGE).unwrap_err();
    assert_eq!(error.cause, Cause::MrCount { limit });
    uring.deregister(&mut mrs[77]).unwrap();
    mrs[77] = register(&uring, 0, &memory, 0..PAGE).unwrap();

    mrs.iter_mut().for_each(|mr| uring.deregister(mr).unwrap());
    assert_eq!(pinned_bytes(), before);
}

#[test]
fn a_smaller_limit_of_the_rail_holds() {
    let _alone = alone();
    let mut rails = pinrail_core::Machine::of_rails(2).rails;
    rails[1].limits.max_mrs = Some(3);
    rails[1].limits.max_mr_size = Some(PAGE);
    rails[1].name = "small".into();
    rails[1].node = Some(pinrail_core::NodeId(1));
    let uring = pinrail_uring::Uring::open(&rails).unwrap();
    let small = &uring.rails()[1];
    assert_eq!((small.limits.max_mrs, small.limits.max_mr_size), (Some(3), Some(PAGE)));
    assert_eq!((small.name.as_str(), small.node), ("small", Some(pinrail_core::NodeId(1))));
    assert_eq!((small.pins, small.device), (pinrail_core::PinsCounted::User, pinrail_core::DevicePath::None));
    assert_eq!(small.calls_in_parallel.get(), 1);

    let memory = pages(2);
    let error = register(&uring, 1, &memory, 0..PAGE + 1).unwrap_err();
    assert_eq!(error.cause, Cause::MrSize { limit: PAGE, need: PAGE + 1 });
    let mut mrs: Vec<_> = (0..3).map(|_| register(&uring, 1, &memory, 0..PAGE).unwrap()).collect();
    assert_eq!(register(&uring, 1, &memory, 0..PAGE).unwrap_err().cause, Cause::MrCount { limit: 3 });
    mrs.iter_mut().for_each(|mr| uring.deregister(mr).unwrap());
    assert!(register(&uring, 2, &memory, 0..PAGE).unwrap_err().to_string().contains("there is no rail 2"));
    assert!(uring.ring(RailId(2)).is_none());
}

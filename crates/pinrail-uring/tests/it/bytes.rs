use pinrail_core::{Access, Cause, Chunk, MoveBytes, RailId, Registrar, Source};

use crate::support::{PAGE, WAIT, alone, pages, register, rings};

#[test]
fn bytes_go_both_ways_through_the_pinned_pages() {
    let _alone = alone();
    let (uring, memory) = (rings(2), pages(4));
    let mover = uring.mover().unwrap();
    let mut mrs = [0, 1].map(|rail| register(&uring, rail, &memory, 100..4 * PAGE - 100).unwrap());
    let len = usize::try_from(4 * PAGE - 200).unwrap();
    for (mr, first) in mrs.iter().zip(1u8..) {
        let whole: Vec<u8> = (0..len).map(|at| first.wrapping_add(u8::try_from(at % 251).unwrap())).collect();
        mover.write(mr, 0, &whole, WAIT).unwrap();
        let mut seen = vec![0; len];
        memory.read_at(100, &mut seen).unwrap();
        assert_eq!(seen, whole);

        for at in [0, PAGE - 104, 4 * PAGE - 208] {
            memory.write_at(100 + at, &[first; 8]).unwrap();
            let mut seen = [0; 8];
            mover.read(mr, at, &mut seen, WAIT).unwrap();
            assert_eq!(seen, [first; 8], "at {at}");
        }
    }
    let mut around = [0; 100];
    memory.read_at(0, &mut around).unwrap();
    assert_eq!(around, [0; 100], "no byte before the MR was touched");
    mrs.iter_mut().for_each(|mr| uring.deregister(mr).unwrap());
}

#[test]
fn the_kernel_refuses_what_leaves_the_mr() {
    let _alone = alone();
    let (uring, memory) = (rings(1), pages(3));
    let mover = uring.mover().unwrap();
    // The pages around are mapped, and one is registered too: only the slot's own range counts.
    let mut neighbour = register(&uring, 0, &memory, 0..PAGE).unwrap();
    let mut mr = register(&uring, 0, &memory, PAGE..2 * PAGE).unwrap();
    for at in [PAGE, PAGE - 7, 2 * PAGE, 0u64.wrapping_sub(1), 0u64.wrapping_sub(PAGE), u64::MAX / 2] {
        let write = mover.write(&mr, at, &[9; 8], WAIT).unwrap_err();
        let read = mover.read(&mr, at, &mut [0; 8], WAIT).unwrap_err();
        assert_eq!((write.errno, read.errno), (Some(libc::EFAULT), Some(libc::EFAULT)), "at {at}: {write}");
    }
    let mut all = vec![1; usize::try_from(3 * PAGE).unwrap()];
    memory.read_at(0, &mut all).unwrap();
    assert!(all.iter().all(|&byte| byte == 0));
    uring.deregister(&mut neighbour).unwrap();
    uring.deregister(&mut mr).unwrap();
}

#[test]
fn an_mr_without_write_access_is_not_written() {
    let _alone = alone();
    let (uring, memory) = (rings(1), pages(1));
    let chunk = Chunk { memory: &memory, range: 0..PAGE, access: Access::REMOTE_READ, source: &Source::Address };
    let mut mr = uring.register(RailId(0), &chunk).unwrap();
    let error = uring.mover().unwrap().write(&mr, 0, b"no", WAIT).unwrap_err();
    assert!(matches!(error.cause, Cause::Access { .. }), "{error}");
    uring.mover().unwrap().read(&mr, 0, &mut [1; 2], WAIT).unwrap();
    uring.deregister(&mut mr).unwrap();
}

#[test]
fn stale_and_foreign_mrs_are_not_ours_and_nothing_happens_to_them() {
    let _alone = alone();
    let (uring, other, memory) = (rings(1), rings(1), pages(1));
    let mut mr = register(&uring, 0, &memory, 0..PAGE).unwrap();
    let mut foreign = register(&other, 0, &memory, 0..PAGE).unwrap();
    let refused = |mr: &mut _| {
        assert_eq!(uring.mover().unwrap().write(mr, 0, b"x", WAIT).unwrap_err().cause, Cause::NotOurs);
        assert_eq!(uring.mover().unwrap().read(mr, 0, &mut [0], WAIT).unwrap_err().cause, Cause::NotOurs);
        assert_eq!(uring.deregister(mr).unwrap_err().cause, Cause::NotOurs);
    };
    refused(&mut foreign);
    other.deregister(&mut foreign).unwrap();
    uring.deregister(&mut mr).unwrap();
    refused(&mut mr);

    // An MR of another kind of registrar altogether, on the same rail and over the same memory.
    let chunk = Chunk { memory: &memory, range: 0..PAGE, access: Access::FULL, source: &Source::Address };
    let mut strange = pinrail_core::Mr::new(RailId(0), pinrail_core::Keys::default(), "strange", &chunk);
    refused(&mut strange);
    assert!(strange.is_live());
    strange.retire::<&str>();
}

#[test]
fn two_threads_may_move_on_one_ring() {
    let _alone = alone();
    let (uring, memory) = (rings(1), pages(2));
    let mut mrs = [0, 1].map(|nth| register(&uring, 0, &memory, nth * PAGE..(nth + 1) * PAGE).unwrap());
    std::thread::scope(|threads| {
        for mr in &mrs {
            let uring = &uring;
            threads.spawn(move || {
                for round in 0..200u8 {
                    let at = u64::from(round) * 8;
                    uring.write(mr, at, &[round; 8], WAIT).unwrap();
                    let mut seen = [0; 8];
                    uring.read(mr, at, &mut seen, WAIT).unwrap();
                    assert_eq!(seen, [round; 8]);
                }
            });
        }
    });
    mrs.iter_mut().for_each(|mr| uring.deregister(mr).unwrap());
}

#[test]
fn the_record_can_say_what_ran() {
    let _alone = alone();
    let identity = rings(0).identity();
    assert_eq!((identity.backend.as_str(), identity.provider.as_str()), ("uring", "io_uring"));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(identity.library, format!("Linux {}", release.trim()));
}

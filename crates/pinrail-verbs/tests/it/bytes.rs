//! Bytes through registrations, on queue pairs of Pinrail's own.

use std::collections::BTreeSet;

use pinrail_core::{Access, Cause, Registrar};

use crate::support::{PAGE, WAIT, alone, chunk, every_rail, ids, pages, register};

#[test]
fn bytes_arrive_at_both_ends_of_a_registration_on_every_rail() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let memory = pages(256);
    // Neither end on a page: offsets within the registration differ from those within the memory.
    let (start, end) = (1000, 256 * PAGE - 77);
    let mover = verbs.mover().unwrap();
    for rail in ids(&verbs) {
        let mut mr = register(&verbs, rail, &memory, start..end).unwrap();
        let last = mr.extent().len() - 5;
        for (at, text) in [(0, b"first"), (last, b"last.")] {
            mover.write(&mr, at, text, WAIT).unwrap();
            let mut seen = [0; 5];
            memory.read_at(start + at, &mut seen).unwrap();
            assert_eq!(&seen, text, "{rail} at {at}");
        }
        // More than one piece, and what lies around it stays as it was.
        let long: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        memory.write_at(start + 10_000, &long).unwrap();
        let mut seen = vec![0; long.len()];
        mover.read(&mr, 10_000, &mut seen, WAIT).unwrap();
        assert!(seen == long, "{rail}");
        let mut before = [1; 8];
        memory.read_at(start - 8, &mut before).unwrap();
        assert_eq!(before, [0; 8], "nothing is written outside the registration");
        verbs.deregister(&mut mr).unwrap();
        assert!(!mr.is_live());
        assert_eq!(mover.read(&mr, 0, &mut seen, WAIT).unwrap_err().cause, Cause::NotOurs);
        memory.write_at(0, &vec![0; 256 * 4096]).unwrap();
    }
}

#[test]
fn the_nic_refuses_what_a_key_does_not_cover_and_the_next_transfer_works() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let memory = pages(3);
    let mover = verbs.mover().unwrap();
    for rail in ids(&verbs) {
        let mut mr = register(&verbs, rail, &memory, PAGE..2 * PAGE).unwrap();
        for (at, len) in [(PAGE - 1, 2), (PAGE, 1), (u64::MAX, 1)] {
            let error = mover.write(&mr, at, &vec![7; len], WAIT).unwrap_err();
            assert!(error.to_string().contains("remote access error"), "{error}");
        }
        let mut all = vec![1; 3 * 4096];
        memory.read_at(0, &mut all).unwrap();
        assert!(all.iter().all(|&byte| byte == 0), "a refused transfer changes nothing");
        mover.write(&mr, 0, b"again", WAIT).unwrap();
        verbs.deregister(&mut mr).unwrap();
        memory.write_at(PAGE, &[0; 5]).unwrap();
    }
}

#[test]
fn access_that_was_not_granted_is_refused_by_the_nic() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let (memory, mover) = (pages(1), verbs.mover().unwrap());
    for rail in ids(&verbs) {
        let with = |access| verbs.register(rail, &pinrail_core::Chunk { access, ..chunk(&memory, 0..PAGE) }).unwrap();
        let mut read_only = with(Access::REMOTE_READ);
        mover.read(&read_only, 0, &mut [0; 8], WAIT).unwrap();
        mover.write(&read_only, 0, &[0; 8], WAIT).unwrap_err();
        let mut write_only = with(Access::REMOTE_WRITE);
        mover.write(&write_only, 0, &[0; 8], WAIT).unwrap();
        mover.read(&write_only, 0, &mut [0; 8], WAIT).unwrap_err();
        for mr in [&mut read_only, &mut write_only] {
            verbs.deregister(mr).unwrap();
        }
    }
}

#[test]
fn eight_threads_register_and_move_on_one_domain() {
    const LIVE: u64 = 16;
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    for rail in ids(&verbs) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8u8)
                .map(|thread| {
                    let verbs = &verbs;
                    scope.spawn(move || {
                        let memory = pages(LIVE);
                        let range = |at: u64| at * PAGE..(at + 1) * PAGE;
                        let mut mrs: Vec<_> = (0..LIVE).map(|at| register(verbs, rail, &memory, range(at)).unwrap()).collect();
                        let keys: Vec<_> = mrs.iter().map(|mr| mr.keys().remote.clone()).collect();
                        verbs.mover().unwrap().write(&mrs[3], 5, &[thread; 9], WAIT).unwrap();
                        let mut seen = [0; 9];
                        memory.read_at(3 * PAGE + 5, &mut seen).unwrap();
                        assert_eq!(seen, [thread; 9]);
                        (keys, move || mrs.iter_mut().for_each(|mr| verbs.deregister(mr).unwrap()))
                    })
                })
                .collect();
            // None is deregistered before all are registered.
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let keys: BTreeSet<_> = ended.iter().flat_map(|(keys, _)| keys).collect();
            assert_eq!(keys.len() as u64, 8 * LIVE, "live keys of a domain are unique");
            ended.into_iter().for_each(|(_, mut deregister)| deregister());
        });
    }
}

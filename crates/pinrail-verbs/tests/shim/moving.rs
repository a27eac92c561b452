//! Transfers that go wrong, or on for ever.

use std::time::Duration;

use pinrail_core::{Access, Chunk, ErrorKind, Memory, RailId, Registrar, Source};
use pinrail_memory::{Mapping, Pages};
use pinrail_verbs::{Verbs, sys};
use sys::ibv_wc_status::{IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS};
use sys::ibv_wr_opcode::{IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};

use crate::library::{self, answer, calls, live, of_devices, with};

const LEN: u64 = 1 << 20;

fn verbs_and_memory() -> (Verbs, Memory) {
    library::set(of_devices(1));
    (Verbs::open_first(1).unwrap(), Memory::new(Mapping::anonymous(LEN, Pages::Small, None).unwrap()))
}

fn chunk(memory: &Memory) -> Chunk<'_> {
    Chunk { memory, range: 0..LEN, access: Access::FULL, source: &Source::Address }
}

#[test]
fn a_transfer_that_never_ends_is_given_up_with_its_queue_pairs() {
    let (verbs, memory) = verbs_and_memory();
    let (mut mr, mover) = (verbs.register(RailId(0), &chunk(&memory)).unwrap(), verbs.mover().unwrap());
    let error = mover.write(&mr, 0, b"x", Duration::from_millis(20)).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!([live("qp"), live("cq"), live("mr")], [0, 0, 1], "of the pair nothing is left, so nothing can still arrive");

    with(|library| library.completions.extend([IBV_WC_SUCCESS; 2]));
    mover.write(&mr, 0, b"x", Duration::from_secs(9)).unwrap();
    mover.read(&mr, 0, &mut [0], Duration::from_secs(9)).unwrap();
    assert_eq!([live("qp"), live("cq"), live("mr")], [2, 1, 2], "a pair that works is kept");
    assert_eq!(calls("ibv_create_qp"), 4);
    verbs.deregister(&mut mr).unwrap();
    drop(verbs);
    assert_eq!([live("qp"), live("cq"), live("mr"), live("pd"), live("context")], [0; 5]);
}

#[test]
fn a_long_transfer_goes_in_pieces_to_the_addresses_of_the_registration() {
    let (verbs, memory) = verbs_and_memory();
    let mut mr = verbs.register(RailId(0), &chunk(&memory)).unwrap();
    let (start, key) = (memory.extent().start(), u32::from_ne_bytes(mr.keys().remote.as_slice().try_into().unwrap()));
    with(|library| library.completions.extend([IBV_WC_SUCCESS; 4]));
    let mover = verbs.mover().unwrap();
    mover.write(&mr, 10, &[1; (64 << 10) + 7], Duration::from_secs(9)).unwrap();
    mover.read(&mr, LEN - 3, &mut [0; 3], Duration::from_secs(9)).unwrap();
    // Not inside the registration: it is the device that says so.
    mover.read(&mr, u64::MAX, &mut [0; 1], Duration::from_secs(9)).unwrap();
    assert_eq!(
        with(|library| library.posted.clone()),
        [
            (IBV_WR_RDMA_WRITE, start + 10, key, 64 << 10),
            (IBV_WR_RDMA_WRITE, start + 10 + (64 << 10), key, 7),
            (IBV_WR_RDMA_READ, start + LEN - 3, key, 3),
            (IBV_WR_RDMA_READ, start - 1, key, 1),
        ]
    );
    verbs.deregister(&mut mr).unwrap();
}

#[test]
fn a_refusal_is_told_in_the_librarys_words_and_the_pair_made_anew() {
    let (verbs, memory) = verbs_and_memory();
    let (mut mr, mover) = (verbs.register(RailId(0), &chunk(&memory)).unwrap(), verbs.mover().unwrap());
    with(|library| library.completions.extend([IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS]));
    let error = mover.read(&mr, 0, &mut [0], Duration::from_secs(9)).unwrap_err();
    assert!(error.to_string().contains("ibv_post_send(RDMA_READ): remote access error (completion status 10"), "{error}");
    mover.read(&mr, 0, &mut [0], Duration::from_secs(9)).unwrap();
    assert_eq!(calls("ibv_create_qp"), 4);
    verbs.deregister(&mut mr).unwrap();
}

#[test]
fn a_pair_that_cannot_be_made_is_an_error_and_leaves_nothing() {
    for (function, errno, kind) in [
        ("ibv_create_cq", libc::ENOMEM, ErrorKind::Exhausted),
        ("ibv_create_qp", libc::EOPNOTSUPP, ErrorKind::NotSupported),
        ("ibv_modify_qp", libc::ETIMEDOUT, ErrorKind::Backend),
        ("ibv_reg_mr", libc::ENOMEM, ErrorKind::Exhausted),
        ("post_send", libc::EINVAL, ErrorKind::Backend),
    ] {
        let (verbs, memory) = verbs_and_memory();
        let (mut mr, mover) = (verbs.register(RailId(0), &chunk(&memory)).unwrap(), verbs.mover().unwrap());
        answer(function, [errno]);
        let error = mover.write(&mr, 0, b"x", Duration::from_secs(9)).unwrap_err();
        assert_eq!((error.errno, error.diagnosis().kind), (Some(errno), kind), "{error}");
        assert_eq!([live("qp"), live("cq"), live("mr")], [0, 0, 1], "after {function}");
        verbs.deregister(&mut mr).unwrap();
    }
    let (verbs, memory) = verbs_and_memory();
    let mut mr = verbs.register(RailId(0), &chunk(&memory)).unwrap();
    with(|library| library.port_is_up = false);
    let error = verbs.mover().unwrap().write(&mr, 0, b"x", Duration::from_secs(9)).unwrap_err();
    assert!(error.to_string().contains("no port of shim0 is up"), "{error}");
    verbs.deregister(&mut mr).unwrap();
}

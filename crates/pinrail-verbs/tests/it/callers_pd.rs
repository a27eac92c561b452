//! Registrations through Pinrail, transfers on queue pairs that the test made: on the caller's PD, and on Pinrail's.

use std::ptr::NonNull;

use pinrail_core::{Rail, RailId, Registrar};
use pinrail_verbs::{CallersPd, Handles, Verbs, devices, sys};

use crate::peer::{IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, Peer, rkey};
use crate::support::{PAGE, alone, every_rail, ids, pages, register, skipped};

/// A device that the test opens and closes itself.
struct Opened {
    context: NonNull<sys::ibv_context>,
    pd: NonNull<sys::ibv_pd>,
}

impl Opened {
    /// All of them, with their names.
    fn all() -> Vec<(String, Opened)> {
        let mut count = 0;
        // SAFETY: room for one result.
        let list = unsafe { sys::ibv_get_device_list(&raw mut count) };
        if list.is_null() {
            return Vec::new();
        }
        // SAFETY: the library returned that many entries.
        let devices = unsafe { std::slice::from_raw_parts(list, usize::try_from(count).unwrap()) };
        let opened = devices.iter().map(|&device| {
            // SAFETY: a device of a list that is not yet freed.
            let context = NonNull::new(unsafe { sys::ibv_open_device(device) }).unwrap();
            // SAFETY: an open device.
            let pd = NonNull::new(unsafe { sys::ibv_alloc_pd(context.as_ptr()) }).unwrap();
            // SAFETY: as above.
            let name = unsafe { sys::ibv_get_device_name(device) };
            // SAFETY: a string of the library's.
            let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap().to_owned();
            (name, Opened { context, pd })
        });
        let opened = opened.collect();
        // SAFETY: the list, freed once; what is open stays open.
        unsafe { sys::ibv_free_device_list(list) };
        opened
    }

    fn free_pd(&self) -> i32 {
        // SAFETY: the PD is ours, and freed once: the library refuses while something is on it.
        unsafe { sys::ibv_dealloc_pd(self.pd.as_ptr()) }
    }

    fn close(self) {
        // SAFETY: opened above, closed once.
        assert_eq!(unsafe { sys::ibv_close_device(self.context.as_ptr()) }, 0);
    }
}

/// Everything that keys are worth, on the PD they were made for.
fn keys_are_worth_something(verbs: &Verbs, rail: RailId, Handles { context, pd }: Handles) {
    let (near, far) = (pages(4), pages(4));
    let mut local = register(verbs, rail, &near, 0..4 * PAGE).unwrap();
    let mut remote = register(verbs, rail, &far, 100..3 * PAGE).unwrap();
    let (start, key) = (remote.extent().start(), rkey(&remote));
    // SAFETY: the handles are open until the end of the caller.
    let peer = || unsafe { Peer::on(context, pd) };

    let connected = peer();
    near.write_at(0, b"over an endpoint of the test's").unwrap();
    assert_eq!(connected.moves(IBV_WR_RDMA_WRITE, &local, 30, (start + 5, key)), IBV_WC_SUCCESS);
    let mut seen = [0; 30];
    far.read_at(105, &mut seen).unwrap();
    assert_eq!(&seen, b"over an endpoint of the test's");
    far.write_at(3 * PAGE - 4, b"tail").unwrap();
    assert_eq!(connected.moves(IBV_WR_RDMA_READ, &local, 4, (remote.extent().end() - 4, key)), IBV_WC_SUCCESS);
    near.read_at(0, &mut seen[..4]).unwrap();
    assert_eq!(&seen[..4], b"tail");

    // A connection is broken by each refusal.
    drop(connected);
    assert_eq!(peer().moves(IBV_WR_RDMA_WRITE, &local, 8, (start, key ^ 0x5a)), IBV_WC_REM_ACCESS_ERR, "a wrong key");
    let last = remote.extent().end() - 7;
    assert_eq!(peer().moves(IBV_WR_RDMA_WRITE, &local, 8, (last, key)), IBV_WC_REM_ACCESS_ERR, "past the end");
    verbs.deregister(&mut remote).unwrap();
    assert_eq!(peer().moves(IBV_WR_RDMA_WRITE, &local, 8, (start, key)), IBV_WC_REM_ACCESS_ERR, "a stale key");
    verbs.deregister(&mut local).unwrap();
}

#[test]
fn keys_work_on_the_callers_pd_which_is_never_freed() {
    let _alone = alone();
    let opened = Opened::all();
    if opened.is_empty() {
        return skipped("no RDMA device");
    }
    let pds: Vec<CallersPd> = opened.iter().map(|(name, opened)| CallersPd { rail: Rail::named(name), pd: opened.pd }).collect();
    // SAFETY: each is open until the test frees it, after all that uses it.
    let verbs = unsafe { Verbs::over(&pds) }.unwrap();
    assert_eq!(verbs.rails().len(), opened.len());
    for (rail, (name, opened)) in ids(&verbs).zip(&opened) {
        let Handles { context, pd } = verbs.handles(rail).unwrap();
        assert_eq!((context, pd), (opened.context, opened.pd));
        assert_eq!(&verbs.rails()[rail.index()].name, name);
        keys_are_worth_something(&verbs, rail, Handles { context, pd });
    }

    let memory = pages(1);
    let mut live: Vec<_> = ids(&verbs).map(|rail| register(&verbs, rail, &memory, 0..PAGE).unwrap()).collect();
    for (_, opened) in &opened {
        assert_eq!(opened.free_pd(), libc::EBUSY, "an MR of ours is on it, and it is the owner who is told");
    }
    live.iter_mut().for_each(|mr| verbs.deregister(mr).unwrap());
    drop(verbs);
    for (_, opened) in opened {
        assert_eq!(opened.free_pd(), 0, "nothing of ours is left, and nobody freed it before");
        opened.close();
    }
}

#[test]
fn keys_work_on_queue_pairs_that_the_caller_makes_on_our_pd() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    for rail in ids(&verbs) {
        keys_are_worth_something(&verbs, rail, verbs.handles(rail).unwrap());
    }
    assert!(verbs.handles(RailId(99)).is_none());
}

#[test]
fn a_pd_of_ours_outlives_the_registrar_while_an_mr_or_the_caller_is_on_it() {
    let _alone = alone();
    let Some(found) = devices().ok().filter(|found| !found.is_empty()) else { return skipped("no RDMA device") };
    let (near, far) = (pages(1), pages(1));
    for device in found {
        let verbs = Verbs::open(std::slice::from_ref(&device)).unwrap();
        let (rail, Handles { context, pd }) = (RailId(0), verbs.handles(RailId(0)).unwrap());
        let local = register(&verbs, rail, &near, 0..PAGE).unwrap();
        let remote = register(&verbs, rail, &far, 0..PAGE).unwrap();
        drop(verbs);
        // SAFETY: the MRs live, so what they were made on is open.
        let peer = unsafe { Peer::on(context, pd) };
        near.write_at(0, device.name.as_bytes()).unwrap();
        let len = u32::try_from(device.name.len()).unwrap();
        assert_eq!(peer.moves(IBV_WR_RDMA_WRITE, &local, len, (remote.extent().start(), rkey(&remote))), IBV_WC_SUCCESS);
        let mut seen = vec![0; device.name.len()];
        far.read_at(0, &mut seen).unwrap();
        assert_eq!(seen, device.name.as_bytes());
        // Both MRs leak with their memory and their PD, as nobody can deregister them any more.

        let verbs = Verbs::open(std::slice::from_ref(&device)).unwrap();
        let Handles { context, pd } = verbs.handles(rail).unwrap();
        // SAFETY: open now; and the registrar, which is dropped first, leaves open what others use.
        let theirs = unsafe { Peer::on(context, pd) };
        drop(verbs);
        drop(theirs);
    }
}

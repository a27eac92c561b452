//! Devices that are opened, and what is left open.

use std::ptr::NonNull;

use pinrail_core::{Access, Chunk, ErrorKind, Memory, Rail, RailId, Registrar, Source};
use pinrail_memory::{Mapping, Pages};
use pinrail_verbs::{CallersPd, Handles, OpenError, Verbs, devices, sys};

use crate::library::{self, answer, calls, live, of_devices, with};

fn page() -> Memory {
    Memory::new(Mapping::anonymous(4096, Pages::Small, None).unwrap())
}

fn chunk(memory: &Memory) -> Chunk<'_> {
    Chunk { memory, range: 0..4096, access: Access::FULL, source: &Source::Address }
}

#[test]
fn a_kernel_without_verbs_is_called_so() {
    library::set(of_devices(0));
    assert_eq!(devices(), Ok(Vec::new()));
    assert_eq!(Verbs::open_first(1).unwrap_err(), OpenError::TooFewDevices { devices: 0, rails: 1 });
    answer("ibv_get_device_list", [libc::ENOSYS]);
    let diagnosis = Verbs::open(&[]).unwrap_err().diagnosis();
    assert_eq!((diagnosis.kind, diagnosis.errno), (ErrorKind::NotSupported, Some(libc::ENOSYS)));
    assert!(diagnosis.hint.unwrap().contains("ib_uverbs"));
}

#[test]
fn rails_keep_their_order_and_are_found_by_name() {
    library::set(of_devices(3));
    let verbs = Verbs::open(&[Rail::named("shim2"), Rail::named("shim0")]).unwrap();
    assert_eq!(verbs.rails().iter().map(|rail| rail.name.as_str()).collect::<Vec<_>>(), ["shim2", "shim0"]);
    for (rail, name) in [(0, "shim2"), (1, "shim0")] {
        let Handles { context, pd } = verbs.handles(RailId(rail)).unwrap();
        // SAFETY: open while the registrar lives.
        assert_eq!(unsafe { pd.as_ref() }.context, context.as_ptr());
        // SAFETY: as above.
        let device = unsafe { context.as_ref() }.device;
        // SAFETY: an open device.
        let opened = unsafe { sys::ibv_get_device_name(device) };
        // SAFETY: a string within the device.
        let opened = unsafe { std::ffi::CStr::from_ptr(opened) };
        assert_eq!(opened.to_str(), Ok(name));
    }
    let error = Verbs::open(&[Rail::named("shim3")]).unwrap_err();
    assert_eq!(error.diagnosis().kind, ErrorKind::UnknownDevice);
    assert!(error.to_string().contains("there are shim0, shim1, shim2"), "{error}");
    drop(verbs);
    assert_eq!([live("pd"), live("context")], [0; 2]);
}

#[test]
fn what_was_opened_is_closed_when_a_later_call_fails() {
    for (function, errno) in [("ibv_open_device", libc::EMFILE), ("ibv_alloc_pd", libc::ENOMEM), ("ibv_query_device", libc::EIO)]
    {
        library::set(of_devices(2));
        answer(function, [0, errno]);
        let error = Verbs::open_first(2).unwrap_err();
        assert_eq!(error, OpenError::Call { api: function, device: "shim1".into(), errno });
        assert!(error.to_string().contains(&format!("on shim1 ({}, errno {errno})", pinrail_core::errno_name(errno))), "{error}");
        assert_eq!([live("pd"), live("context")], [0; 2], "after {function}");
    }
}

#[test]
fn an_mr_keeps_its_domain_open_whatever_is_dropped_first() {
    library::set(of_devices(1));
    let (verbs, memory) = (Verbs::open_first(1).unwrap(), page());
    let mr = verbs.register(RailId(0), &chunk(&memory)).unwrap();
    drop(verbs);
    assert_eq!(calls("ibv_dealloc_pd"), 0);
    assert!(mr.is_live());
    drop(mr);
    assert_eq!([live("mr"), live("pd"), live("context")], [1; 3], "leaked together, as the NIC may still write there");
}

#[test]
fn a_device_stays_open_under_the_callers_queue_pairs() {
    library::set(of_devices(1));
    let verbs = Verbs::open_first(1).unwrap();
    let pd = verbs.handles(RailId(0)).unwrap().pd;
    // SAFETY: such a structure of integers and pointers.
    let mut attr: sys::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    // SAFETY: an open PD, a valid structure.
    let qp = unsafe { sys::ibv_create_qp(pd.as_ptr(), &raw mut attr) };
    drop(verbs);
    assert_eq!((calls("ibv_dealloc_pd"), calls("ibv_close_device")), (1, 0), "EBUSY: closing would pull it away");
    // SAFETY: made above, destroyed once.
    assert_eq!(unsafe { sys::ibv_destroy_qp(qp) }, 0);
}

#[test]
fn a_callers_pd_is_never_freed_and_its_device_never_closed() {
    library::set(of_devices(1));
    let theirs = Verbs::open_first(1).unwrap();
    let Handles { context, pd } = theirs.handles(RailId(0)).unwrap();
    let (freed, closed) = (calls("ibv_dealloc_pd"), calls("ibv_close_device"));
    let rail = Rail { mbps: Some(7), ..Rail::named("mine") };
    // SAFETY: open until `theirs` is dropped.
    let verbs = unsafe { Verbs::over(&[CallersPd { rail, pd }]) }.unwrap();
    assert_eq!((verbs.rails()[0].name.as_str(), verbs.rails()[0].mbps), ("mine", Some(7)));
    let handles = verbs.handles(RailId(0)).unwrap();
    assert_eq!((handles.context, handles.pd), (context, pd));
    let memory = page();
    let mut mr = verbs.register(RailId(0), &chunk(&memory)).unwrap();
    // SAFETY: a live PD; the library refuses.
    assert_eq!(unsafe { sys::ibv_dealloc_pd(NonNull::as_ptr(pd)) }, libc::EBUSY);
    verbs.deregister(&mut mr).unwrap();
    drop(verbs);
    assert_eq!((calls("ibv_dealloc_pd"), calls("ibv_close_device")), (freed + 1, closed), "the one call is the test's");
    drop(theirs);
    assert_eq!([live("pd"), live("context")], [0; 2]);
}

#[test]
fn the_file_that_the_calls_go_to_is_named() {
    library::set(of_devices(1));
    let identity = Verbs::open_first(1).unwrap().identity();
    let this = std::env::current_exe().unwrap();
    assert_eq!(identity.library, this.file_name().unwrap().to_str().unwrap(), "here it is this program");
    assert_eq!((identity.backend.as_str(), identity.provider.as_str()), ("verbs", "unknown"));
    with(|library| assert_eq!(library.calls.get("ibv_get_device_list"), Some(&2)));
}

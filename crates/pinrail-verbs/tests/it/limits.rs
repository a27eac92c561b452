//! Limits of the rail, of the user and of the control group, each met and each told.

use std::fs;
use std::path::PathBuf;

use pinrail_core::{Cause, ErrorKind, Memory, RailId, Registrar};
use pinrail_memory::{Mapping, Memlock, Pages};
use pinrail_verbs::{OpenError, Verbs, devices};

use crate::support::{PAGE, alone, every_rail, guest_nodes, ids, in_a_process, pages, passed, pinned_bytes, register, skipped};

#[test]
fn a_smaller_limit_of_the_rail_holds() {
    let _alone = alone();
    let Some(mut rails) = devices().ok().filter(|found| !found.is_empty()) else { return skipped("no RDMA device") };
    for rail in &mut rails {
        (rail.limits.max_mrs, rail.limits.max_mr_size) = (Some(3), Some(PAGE));
    }
    let (verbs, memory) = (Verbs::open(&rails).unwrap(), pages(2));
    for rail in ids(&verbs) {
        let error = register(&verbs, rail, &memory, 0..PAGE + 1).unwrap_err();
        assert_eq!((error.errno, error.cause), (None, Cause::MrSize { limit: PAGE, need: PAGE + 1 }));
        let mut mrs: Vec<_> = (0..3).map(|_| register(&verbs, rail, &memory, 0..PAGE).unwrap()).collect();
        let error = register(&verbs, rail, &memory, 0..PAGE).unwrap_err();
        assert_eq!((error.errno, error.cause), (None, Cause::MrCount { limit: 3 }));
        verbs.deregister(&mut mrs[1]).unwrap();
        mrs[1] = register(&verbs, rail, &memory, 0..PAGE).unwrap();
        mrs.iter_mut().for_each(|mr| verbs.deregister(mr).unwrap());
    }
}

#[test]
fn more_rails_than_devices_are_refused() {
    let found = devices().unwrap_or_default();
    if found.is_empty() {
        return skipped("no RDMA device");
    }
    let too_many = u16::try_from(found.len() + 1).unwrap();
    let Err(OpenError::TooFewDevices { devices, rails }) = Verbs::open_first(too_many) else { panic!("opened one too many") };
    assert_eq!((devices, rails), (found.len(), found.len() + 1));
    assert_eq!(Verbs::open_first(1).unwrap().rails()[0].name, found[0].name);
}

/// The kernel charges this process alone, by base pages, whatever the pages are.
#[test]
fn memlock_is_named_with_its_limit_to_an_ordinary_user() {
    let _alone = alone();
    if devices().is_ok_and(|found| !found.is_empty()) {
        let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"];
        let limited = ["prlimit", "--memlock=1048576"];
        passed(&in_a_process(&[&limited[..], &user].concat(), "limits::child_with_little_memlock"));
    } else {
        skipped("no RDMA device");
    }
}

#[test]
#[ignore = "started by the test above, as a user with a limit"]
fn child_with_little_memlock() {
    const LIMIT: u64 = 1 << 20;
    let verbs = every_rail().unwrap();
    let memlock = Memlock::read().unwrap();
    assert_eq!((memlock.soft_bytes, memlock.exempt, memlock.pinned_bytes), (Some(LIMIT), false, 0));
    let memory = pages(512);
    for rail in ids(&verbs) {
        let held = pinned_bytes();
        let mut fits = register(&verbs, rail, &memory, 0..LIMIT / 2).unwrap();
        let error = register(&verbs, rail, &memory, LIMIT / 2..LIMIT + 1).unwrap_err();
        let (held, need) = (held + LIMIT / 2, LIMIT / 2 + PAGE);
        assert_eq!(error.cause, Cause::Memlock { limit: LIMIT, held, need, others_unknown: false });
        assert_eq!((error.errno, error.diagnosis().kind), (Some(libc::ENOMEM), ErrorKind::Memlock));
        verbs.deregister(&mut fits).unwrap();
        let mut all = register(&verbs, rail, &memory, 0..LIMIT).unwrap();
        verbs.deregister(&mut all).unwrap();
    }
    assert_eq!(pinned_bytes(), 0);
}

/// A control group of the test's own below the root, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new(limits: &str) -> Group {
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+rdma").unwrap();
        let group = Group(PathBuf::from(format!("/sys/fs/cgroup/pinrail-{}", std::process::id())));
        fs::create_dir(&group.0).unwrap();
        fs::write(group.0.join("rdma.max"), limits).unwrap();
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap();
    }
}

#[test]
fn the_control_group_that_refuses_is_named() {
    let _alone = alone();
    if guest_nodes().is_none() {
        return skipped("only the guest's control groups are the test's to change");
    }
    let group = Group::new("rxe0 hca_handle=2 hca_object=6");
    let joins = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0.display());
    passed(&in_a_process(&["sh", "-c", &joins, "sh"], "limits::child_of_a_small_group"));
}

#[test]
#[ignore = "started by the test above, in a control group"]
fn child_of_a_small_group() {
    let (verbs, memory) = (Verbs::open_first(1).unwrap(), pages(1));
    let rail = RailId(0);
    // The PD is the first of six objects.
    let mut mrs: Vec<_> = (0..5).map(|_| register(&verbs, rail, &memory, 0..PAGE).unwrap()).collect();
    let error = register(&verbs, rail, &memory, 0..PAGE).unwrap_err();
    assert_eq!((error.errno, error.diagnosis().kind), (Some(libc::EAGAIN), ErrorKind::Cgroup), "{error}");
    assert!(error.to_string().contains("rdma.max says 6, 6 are in use"), "{error}");
    assert!(!error.may_pass(), "it does not pass by itself, so nobody should try again");
    verbs.deregister(&mut mrs[0]).unwrap();
    mrs[0] = register(&verbs, rail, &memory, 0..PAGE).unwrap();
    mrs.iter_mut().for_each(|mr| verbs.deregister(mr).unwrap());
}

#[test]
fn huge_pages_of_the_pool_are_registered_and_charged_whole() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    if guest_nodes().is_some() {
        fs::write("/proc/sys/vm/nr_hugepages", "8").unwrap();
    }
    let memory = match Mapping::anonymous(4 << 20, Pages::Huge2M, None) {
        Ok(mapping) => Memory::new(mapping),
        Err(why) => return skipped(&why.to_string()),
    };
    for rail in ids(&verbs) {
        let before = pinned_bytes();
        let mut mr = register(&verbs, rail, &memory, 0..4 << 20).unwrap();
        assert_eq!(pinned_bytes() - before, 4 << 20);
        verbs.mover().unwrap().write(&mr, (2 << 20) - 2, b"seam", crate::support::WAIT).unwrap();
        let mut seen = [0; 4];
        memory.read_at((2 << 20) - 2, &mut seen).unwrap();
        assert_eq!(&seen, b"seam");
        verbs.deregister(&mut mr).unwrap();
        memory.write_at((2 << 20) - 2, &[0; 4]).unwrap();
    }
}

//! Memory that the crate maps itself.

use pinrail_core::{Access, Cause, ErrorKind, Memory, NodeId};
use pinrail_memory::{MapError, Mapping, Maps, Pages, node_histogram, page_size_behind};

use crate::pool::Pool;
use crate::{child, raw, skip};

#[test]
fn base_pages_are_never_joined() {
    let mapping = Mapping::anonymous((8 << 20) - 5, Pages::Small, None).unwrap();
    assert_eq!(mapping.len(), 8 << 20);
    let (extent, memory) = (mapping.extent(), Memory::new(mapping));
    memory.write_at(0, &vec![1; 8 << 20]).unwrap();
    let behind = page_size_behind(extent).unwrap();
    assert_eq!((behind.page_size, behind.transparent_bytes), (4096, 0));
}

#[test]
fn transparent_pages_are_huge_where_they_are_switched_on() {
    let mapping = Mapping::anonymous(8 << 20, Pages::Transparent, None).unwrap();
    assert_eq!(mapping.extent().start() % (2 << 20), 0);
    let (extent, notes, memory) = (mapping.extent(), mapping.notes().to_vec(), Memory::new(mapping));
    memory.write_at(0, &vec![1; 8 << 20]).unwrap();
    let behind = page_size_behind(extent).unwrap();
    assert_eq!(behind.page_size, 4096, "transparent pages promise nothing");
    if !notes.is_empty() {
        return skip(&notes[0]);
    }
    assert!(behind.transparent_bytes > 0, "switched on, and yet none of 8 MiB is a huge page: {behind:?}");
}

#[test]
fn pool_pages_are_promised_at_once() {
    let Some(_pool) = Pool::with(4, 2 << 20) else { return };
    let mapping = Mapping::anonymous(5 << 20, Pages::Huge2M, None).unwrap();
    assert_eq!((mapping.len(), mapping.extent().start() % (2 << 20)), (6 << 20, 0));
    let (extent, memory) = (mapping.extent(), Memory::new(mapping));
    memory.write_at((6 << 20) - 1, &[7]).unwrap();
    assert_eq!(page_size_behind(extent).unwrap().page_size, 2 << 20);
}

#[test]
fn pages_of_1_gib_can_be_had() {
    let Some(_pool) = Pool::with(1, 1 << 30) else { return };
    let mapping = Mapping::anonymous(1, Pages::Huge1G, None).unwrap();
    assert_eq!((mapping.len(), mapping.extent().start() % (1 << 30)), (1 << 30, 0));
    Memory::new(mapping).write_at((1 << 30) - 1, &[7]).unwrap();
}

#[test]
fn an_exhausted_pool_is_an_error_when_mapping() {
    let Some(_pool) = Pool::with(2, 2 << 20) else { return };
    let error = Mapping::anonymous(1 << 40, Pages::Huge2M, None).unwrap_err();
    let MapError::Refused { api: "mmap", errno: Some(libc::ENOMEM), cause, .. } = &error else { panic!("{error}") };
    let Cause::Hugepages { page_size: 0x20_0000, need: 0x8_0000, free } = *cause else { panic!("{error}") };
    assert!(free >= 2, "{error}");
    let diagnosis = error.diagnosis();
    assert_eq!((diagnosis.kind, diagnosis.need, diagnosis.limit), (ErrorKind::Hugepages, Some(0x8_0000), Some(free)));
    assert!(diagnosis.hint.is_some());
}

#[test]
fn a_reservation_is_given_back_by_dropping() {
    let Some(_pool) = Pool::with(3, 2 << 20) else { return };
    let available = || pinrail_memory::HugePool::read(2 << 20).unwrap().available();
    let before = available();
    for _ in 0..20 {
        let mapping = Mapping::anonymous(6 << 20, Pages::Huge2M, None).unwrap();
        assert_eq!(available() + 3, before);
        drop(mapping);
        assert_eq!(available(), before);
    }
}

#[test]
fn nothing_lies_behind_a_mapping_and_nothing_stays_of_it() {
    let many: Vec<Mapping> = (0..16).map(|_| Mapping::anonymous(4096, Pages::Small, None).unwrap()).collect();
    for one in &many {
        for other in &many {
            assert_ne!(one.extent().end(), other.extent().start());
        }
        let guard = pinrail_core::Extent::new(one.extent().end(), 1).unwrap();
        let refused = Maps::read().unwrap().check(guard, Access::REMOTE_READ);
        assert!(matches!(refused, Err(Cause::Protection { .. })), "{refused:?}");
    }
    let extents: Vec<_> = many.iter().map(Mapping::extent).collect();
    drop(many);
    // Other tests map at the same time and may be given one place or another.
    let maps = Maps::read().unwrap();
    let still = extents.iter().filter(|extent| maps.overlapping(**extent).any(|region| region.extent == **extent)).count();
    assert!(still < extents.len(), "all are still there");
}

#[test]
fn lengths_that_cannot_be_are_refused_before_any_call() {
    for pages in Pages::ALL {
        assert_eq!(Mapping::anonymous(0, pages, None).unwrap_err().diagnosis().kind, ErrorKind::ZeroLength);
        for len in [u64::MAX, u64::MAX - (2 << 30), i64::MAX as u64] {
            let error = Mapping::anonymous(len, pages, None).unwrap_err();
            assert_eq!(error.diagnosis().kind, ErrorKind::Wrap, "{error}");
        }
    }
}

#[test]
fn more_than_the_address_space_names_every_possible_limit() {
    let error = Mapping::anonymous(1 << 50, Pages::Small, None).unwrap_err();
    assert_eq!(error.diagnosis().kind, ErrorKind::Exhausted);
    assert!(
        error.to_string().contains("RLIMIT_AS is unlimited") && error.to_string().contains("vm.overcommit_memory is"),
        "{error}"
    );
}

#[test]
fn a_node_is_preferred_and_one_that_is_not_there_is_a_note() {
    let here = Mapping::anonymous(1 << 20, Pages::Small, Some(NodeId(0))).unwrap();
    if !here.notes().is_empty() {
        return skip(&here.notes()[0]);
    }
    let (extent, memory) = (here.extent(), Memory::new(here));
    assert_eq!(node_histogram(extent, 16).unwrap().absent, 16);
    memory.write_at(0, &vec![1; 1 << 20]).unwrap();
    let histogram = node_histogram(extent, 1000).unwrap();
    assert_eq!((histogram.asked, histogram.absent, histogram.unknown), (256, 0, 0));
    assert!(histogram.is_mixed() || histogram.single() == Some(NodeId(0)), "{histogram:?}");

    for node in [NodeId(1023), NodeId(4_000_000)] {
        let nowhere = Mapping::anonymous(1 << 20, Pages::Small, Some(node)).unwrap();
        assert!(nowhere.notes()[0].contains(&node.to_string()), "{:?}", nowhere.notes());
    }
}

#[test]
fn the_limit_on_mappings_is_named() {
    child::run("mappings::child_reaches_the_limit_on_mappings");
}

#[test]
#[ignore = "uses up every mapping of its process"]
fn child_reaches_the_limit_on_mappings() {
    let mut many = Vec::with_capacity(1 << 20);
    let error = loop {
        match Mapping::anonymous(4096, Pages::Small, None) {
            Ok(mapping) => many.push(mapping),
            Err(error) => break error,
        }
        if many.len() == many.capacity() {
            return skip("vm.max_map_count is beyond reach");
        }
    };
    let kept = many.len() as u64;
    drop(many);
    let MapError::Refused { cause: Cause::MapCount { limit, have }, .. } = error else { panic!("{error}") };
    assert!(have.abs_diff(limit) <= 3 && kept * 2 <= limit, "{have} of {limit}, {kept} kept");
    // All of them could be unmapped, so there is room again.
    Mapping::anonymous(4096, Pages::Small, None).unwrap();
}

#[test]
fn a_limited_control_group_is_an_error_and_no_signal() {
    let Some(_pool) = Pool::with(4, 2 << 20) else { return };
    if !raw::is_root() {
        return skip("control groups are made by root");
    }
    let line = r#"
        root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
        here=$root$(sed -n 's/^0:://p' /proc/self/cgroup)
        grep -qw hugetlb "$here/cgroup.controllers" || { echo "SKIPPED: no hugetlb controller in $here" >&2; exit; }
        had=$(cat "$here/cgroup.subtree_control")
        echo +hugetlb > "$here/cgroup.subtree_control" && mkdir "$here/pinrail-test" || { echo SKIPPED >&2; exit; }
        echo 4194304 > "$here/pinrail-test/hugetlb.2MB.max"
        (echo 0 > "$here/pinrail-test/cgroup.procs"; exec "$0" "$@"); rc=$?
        rmdir "$here/pinrail-test"
        case $had in *hugetlb*) ;; *) echo -hugetlb > "$here/cgroup.subtree_control";; esac
        exit $rc"#;
    child::run_under("mappings::child_has_a_limited_control_group", &["sh", "-c", line]);
}

#[test]
#[ignore = "started in a control group that may have 4 MiB of huge pages"]
fn child_has_a_limited_control_group() {
    drop(Mapping::anonymous(4 << 20, Pages::Huge2M, None).unwrap());
    let error = Mapping::anonymous(6 << 20, Pages::Huge2M, None).unwrap_err();
    assert_eq!(error.diagnosis().kind, ErrorKind::Cgroup, "{error}");
    assert!(error.to_string().contains("hugetlb.2MB.max is 4194304 bytes"), "{error}");
}

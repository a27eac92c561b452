//! What is said to be resident, against memory whose state is known.

use pinrail_core::{Extent, Memory};
use pinrail_memory::{Mapping, Pages, Residency, node_histogram};

use crate::pool::Pool;
use crate::raw::{self, Raw};

const PAGE: u64 = 4096;

fn resident(extent: Extent) -> u64 {
    Residency::new().resident(extent).unwrap()
}

#[test]
fn pages_are_resident_once_they_are_written() {
    let raw = Raw::anonymous(1 << 20);
    assert_eq!(resident(raw.extent()), 0);
    let memory = raw.memory();
    for nth in (0..256).step_by(3) {
        memory.write_at(nth * PAGE, &[1]).unwrap();
    }
    // 86 runs: more than are asked for in one call.
    assert_eq!(resident(raw.extent()), 86 * PAGE);
    assert!(!Residency::new().sample_is_resident(raw.extent()).unwrap());
    memory.write_at(0, &vec![1; 1 << 20]).unwrap();
    assert_eq!(resident(raw.extent()), 1 << 20);
    assert!(Residency::new().sample_is_resident(raw.extent()).unwrap());
}

#[test]
fn bytes_are_counted_and_not_pages() {
    let raw = Raw::anonymous(1 << 20);
    raw.memory().write_at(PAGE, &[1]).unwrap();
    let part = Extent::new(raw.extent().start() + PAGE + 100, 5000).unwrap();
    assert_eq!(resident(part), PAGE - 100);
}

#[test]
fn the_shared_zero_page_is_absent() {
    for pages in [Pages::Small, Pages::Transparent] {
        let mapping = Mapping::anonymous(4 << 20, pages, None).unwrap();
        let (extent, memory) = (mapping.extent(), Memory::new(mapping));
        memory.read_at(0, &mut vec![1; 4 << 20]).unwrap();
        assert_eq!(resident(extent), 0, "{pages}");
        assert!(!Residency::new().sample_is_resident(extent).unwrap());
        assert_eq!(node_histogram(extent, 64).unwrap().absent, 64);
    }
}

#[test]
fn a_huge_page_is_resident_as_a_whole() {
    let Some(_pool) = Pool::with(2, 2 << 20) else { return };
    let mapping = Mapping::anonymous(4 << 20, Pages::Huge2M, None).unwrap();
    let (extent, memory) = (mapping.extent(), Memory::new(mapping));
    assert_eq!(resident(extent), 0);
    memory.write_at((2 << 20) + 5, &[1]).unwrap();
    assert_eq!(resident(extent), 2 << 20);
    let middle = Extent::new(extent.start() + (1 << 20), 2 << 20).unwrap();
    assert_eq!(resident(middle), 1 << 20);
}

#[test]
fn shared_memory_is_resident_where_this_process_maps_it() {
    let file = raw::memfd(1 << 20, 0).unwrap();
    let (mine, other) = (Raw::shared(&file, 1 << 20), Raw::shared(&file, 1 << 20));
    other.memory().write_at(0, &vec![1; 1 << 20]).unwrap();
    assert_eq!(resident(other.extent()), 1 << 20);
    // In the page cache, so cheap to map, but a pin would still fault.
    assert_eq!(resident(mine.extent()), 0);
}

#[test]
fn a_hole_is_absent() {
    let raw = Raw::anonymous(1 << 20);
    raw.memory().write_at(0, &vec![1; 1 << 20]).unwrap();
    raw.punch(64 << 10, 64 << 10);
    assert_eq!(resident(raw.extent()), (1 << 20) - (64 << 10));
    let end = Extent::new(u64::MAX - 10, 5).unwrap();
    assert!(Residency::new().resident(end).is_err(), "no memory lies at the end of the address space");
}

//! Memory that cannot be registered, and that it is said why.

use std::sync::Arc;

use pinrail_core::{Access, Cause, Chunk, DevicePath, ErrorKind, Memory, RailId, RegisterError, Registrar, Source};
use pinrail_memory::testing::{memory_file, with_hole};
use pinrail_verbs::Verbs;

use crate::support::{PAGE, alone, chunk, every_rail, forbid_writing, ids, pages, register};

fn refused(verbs: &Verbs, rail: RailId, memory: &Memory, access: Access) -> RegisterError {
    verbs.register(rail, &Chunk { access, ..chunk(memory, 0..memory.len()) }).unwrap_err()
}

#[test]
fn a_hole_is_named_by_its_first_address() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let (memory, hole) = with_hole().unwrap();
    for rail in ids(&verbs) {
        let error = refused(&verbs, rail, &memory, Access::FULL);
        assert_eq!(error.cause, Cause::Unmapped { address: memory.extent().start() + hole });
        assert_eq!((error.api, error.errno, error.diagnosis().kind), ("ibv_reg_mr", Some(libc::EFAULT), ErrorKind::Unmapped));
    }
}

#[test]
fn read_only_memory_is_registered_for_reading_and_refused_for_writing() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let memory = pages(3);
    forbid_writing(&memory, 1);
    for rail in ids(&verbs) {
        for access in [Access::FULL, Access::LOCAL_WRITE, Access::REMOTE_WRITE] {
            let error = refused(&verbs, rail, &memory, access);
            let Cause::Protection { address, protection, .. } = &error.cause else { panic!("{error}") };
            assert_eq!((*address, protection.as_str()), (memory.extent().start() + PAGE, "r--p"));
            assert_eq!(error.errno, Some(libc::EFAULT));
        }
        for access in [Access::REMOTE_READ, Access::empty()] {
            let mut mr = verbs.register(rail, &Chunk { access, ..chunk(&memory, 0..memory.len()) }).unwrap();
            verbs.deregister(&mut mr).unwrap();
        }
    }
}

#[test]
fn what_is_certainly_wrong_is_told_before_the_call() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let memory = pages(2);
    let imagined = Memory::imagined(memory.extent().start(), PAGE).unwrap();
    for rail in ids(&verbs) {
        let told = |memory, range| {
            let error = register(&verbs, rail, memory, range).unwrap_err();
            assert_eq!(error.errno, None, "{error}");
            error.diagnosis().kind
        };
        assert_eq!(told(&memory, PAGE..PAGE), ErrorKind::ZeroLength);
        assert_eq!(told(&memory, 0..2 * PAGE + 1), ErrorKind::Batch);
        assert_eq!(told(&imagined, 0..PAGE), ErrorKind::NotSupported);
    }
    let error = register(&verbs, RailId(99), &memory, 0..PAGE).unwrap_err();
    assert!(error.to_string().contains("there is no rail 99"), "{error}");
}

#[test]
fn a_device_without_dma_bufs_says_so() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let (memory, source) = (pages(1), Source::DmaBuf { fd: Arc::new(memory_file().unwrap().into()), offset: 0 });
    for rail in ids(&verbs).filter(|rail| verbs.rails()[rail.index()].device == DevicePath::Unknown) {
        let error = verbs.register(rail, &Chunk { source: &source, ..chunk(&memory, 0..PAGE) }).unwrap_err();
        assert_eq!((error.api, error.errno), ("ibv_reg_dmabuf_mr", Some(libc::EOPNOTSUPP)));
        assert_eq!(error.diagnosis().kind, ErrorKind::NotSupported);
    }
}

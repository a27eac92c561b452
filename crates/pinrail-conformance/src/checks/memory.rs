//! Memory that cannot be had, or not in every way.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pinrail_core::{Access, Cause, Chunk, DevicePath, ErrorKind, Source};

use super::{Live, NO_MOVER, PAGE, access, on_each_rail, read, refused, told};
use crate::suite::{Outcome, Tried};
use crate::{DmaBuf, Fixture};

/// What a provider that neither pins nor maps says of memory that is no good: nothing.
const ACCEPTED: Outcome = Outcome::Weaker("accepted");

pub(crate) fn unmapped(fixture: &dyn Fixture) -> Tried {
    let Some((memory, hole)) = fixture.unmapped() else { return Ok(Outcome::Skip("no such memory")) };
    let registrar = fixture.registrar();
    on_each_rail(&*registrar, |rail| {
        let chunk =
            Chunk { memory: &memory, range: 0..memory.len(), access: access(&*registrar, rail), source: &Source::Address };
        let Ok(error) = refused(&*registrar, registrar.register(rail, &chunk)) else { return Ok(ACCEPTED) };
        let address = memory.extent().start() + hole;
        if error.cause == (Cause::Unmapped { address }) {
            return Ok(Outcome::Pass);
        }
        Err(format!("kind unmapped with address {address:#x} was expected: {}", told(&error.diagnosis())))
    })
}

pub(crate) fn read_only_for_writing(fixture: &dyn Fixture) -> Tried {
    let Some(memory) = fixture.read_only() else { return Ok(Outcome::Skip("no such memory")) };
    let registrar = fixture.registrar();
    on_each_rail(&*registrar, |rail| {
        let chunk = Chunk { memory: &memory, range: 0..memory.len(), access: Access::FULL, source: &Source::Address };
        let Ok(error) = refused(&*registrar, registrar.register(rail, &chunk)) else { return Ok(ACCEPTED) };
        match error.diagnosis().kind {
            ErrorKind::Protection => Ok(Outcome::Pass),
            _ => Err(format!("kind protection was expected: {}", told(&error.diagnosis()))),
        }
    })
}

pub(crate) fn read_only_for_reading(fixture: &dyn Fixture) -> Tried {
    let Some(memory) = fixture.read_only() else { return Ok(Outcome::Skip("no such memory")) };
    let registrar = fixture.registrar();
    let Some(mover) = registrar.mover() else { return Ok(NO_MOVER) };
    on_each_rail(&*registrar, |rail| {
        let mut live = Live::on(&*registrar, rail);
        let chunk = Chunk { memory: &memory, range: 0..memory.len(), access: Access::REMOTE_READ, source: &Source::Address };
        let mr = match live.register_chunk(chunk) {
            Ok(mr) => mr,
            Err(error) if error.diagnosis().kind == ErrorKind::Protection => return Ok(Outcome::Weaker("refused")),
            Err(error) => return Err(format!("success or kind protection was expected: {}", told(&error.diagnosis()))),
        };
        let there = read(&memory, 0..memory.len())?;
        let mut seen: Vec<u8> = there.iter().map(|byte| !byte).collect();
        mover.read(mr, 0, &mut seen, fixture.wait()).map_err(|error| error.to_string())?;
        if seen != there {
            return Err("the bytes that were read are not those of the memory".to_owned());
        }
        live.end()?;
        Ok(Outcome::Pass)
    })
}

pub(crate) fn dma_buf(fixture: &dyn Fixture) -> Tried {
    let registrar = fixture.registrar();
    let given = fixture.dma_buf();
    on_each_rail(&*registrar, |rail| {
        let DmaBuf { memory, fd, offset } = match &given {
            Some(DmaBuf { memory, fd, offset }) => DmaBuf { memory: memory.clone(), fd: Arc::clone(fd), offset: *offset },
            None if registrar.rails()[rail.index()].device == DevicePath::DmaBuf => return Ok(Outcome::Skip("no dma-buf")),
            // Any descriptor does where none is taken.
            None => {
                let fd = OwnedFd::from(File::open("/dev/null").map_err(|error| error.to_string())?);
                DmaBuf { memory: fixture.memory(PAGE), fd: Arc::new(fd), offset: 0 }
            }
        };
        let source = Source::DmaBuf { fd, offset };
        let mut live = Live::on(&*registrar, rail);
        let chunk = Chunk { memory: &memory, range: 0..memory.len(), access: live.access(), source: &source };
        match live.register_chunk(chunk).map(|_| ()).map_err(|error| error.diagnosis()) {
            Err(error) if matches!(error.kind, ErrorKind::NotSupported | ErrorKind::NoDevicePath) => {
                return Ok(Outcome::Weaker("not-supported"));
            }
            Err(error) => return Err(format!("success or kind not-supported was expected: {}", told(&error))),
            Ok(()) if given.is_none() => return Err("/dev/null was registered as a dma-buf".to_owned()),
            Ok(()) => {}
        }
        let Some(mover) = registrar.mover() else { return Ok(NO_MOVER) };
        live.verify(mover, fixture.wait())?;
        live.end()?;
        Ok(Outcome::Pass)
    })
}

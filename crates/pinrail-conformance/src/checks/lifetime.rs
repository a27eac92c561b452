//! Who may end an MR, and what outlives what.

use std::fs::File;
use std::os::unix::fs::FileExt;

use pinrail_core::{Cause, Chunk, Keys, Mr, RailId, Registrar, Source};

use super::{Live, PAGE, access, deregister, not_ours, on_each_rail};
use crate::suite::{Outcome, Tried};
use crate::{Failing, Fixture};

pub(crate) fn retired(fixture: &dyn Fixture) -> Tried {
    let (registrar, memory) = (fixture.registrar(), fixture.memory(PAGE));
    on_each_rail(&*registrar, |rail| {
        let chunk = Chunk { memory: &memory, range: 0..PAGE, access: access(&*registrar, rail), source: &Source::Address };
        let mut mr = registrar.register(rail, &chunk).map_err(|error| error.to_string())?;
        deregister(&*registrar, &mut mr)?;
        // Its slot or key may be another's by now.
        let mut next = Live::on(&*registrar, rail);
        next.register(&memory, 0..PAGE)?;
        not_ours(registrar.deregister(&mut mr))?;
        moves_nothing(fixture, &*registrar, &mr)?;
        next.end()?;
        Ok(Outcome::Pass)
    })
}

pub(crate) fn foreign(fixture: &dyn Fixture) -> Tried {
    struct Strange;
    let (ours, theirs, memory) = (fixture.registrar(), fixture.registrar(), fixture.memory(PAGE));
    on_each_rail(&*ours, |rail| {
        let chunk = Chunk { memory: &memory, range: 0..PAGE, access: access(&*ours, rail), source: &Source::Address };
        let mut mr = theirs.register(rail, &chunk).map_err(|error| error.to_string())?;
        let refused = not_ours(ours.deregister(&mut mr)).and_then(|()| moves_nothing(fixture, &*ours, &mr));
        if !mr.is_live() {
            return Err("another registrar's MR was retired".to_owned());
        }
        deregister(&*theirs, &mut mr)?;
        refused?;

        let mut strange = Mr::new(rail, mr.keys().clone(), Strange, &chunk);
        let refused = not_ours(ours.deregister(&mut strange)).and_then(|()| moves_nothing(fixture, &*ours, &strange));
        strange.retire::<Strange>().ok_or("an MR of another kind of registrar was retired")?;
        refused?;
        Ok(Outcome::Pass)
    })
}

fn moves_nothing(fixture: &dyn Fixture, registrar: &dyn Registrar, mr: &Mr) -> Result<(), String> {
    let Some(mover) = registrar.mover() else { return Ok(()) };
    let mut byte = [0];
    for moved in [mover.write(mr, 0, &byte, fixture.patience()), mover.read(mr, 0, &mut byte, fixture.patience())] {
        match moved.map_err(|error| error.cause) {
            Err(Cause::NotOurs) => {}
            Err(other) => return Err(format!("a transfer was refused for another reason: {other}")),
            Ok(()) => return Err("a transfer went through it".to_owned()),
        }
    }
    Ok(())
}

pub(crate) fn failed_deregistration(fixture: &dyn Fixture) -> Tried {
    let Some(Failing { mut mr, repair, registrar }) = fixture.failing_deregistration() else {
        return Ok(Outcome::Skip("nothing fails"));
    };
    let keys: Keys = mr.keys().clone();
    let failed = registrar.deregister(&mut mr);
    let (live, kept) = (mr.is_live(), *mr.keys() == keys);
    repair();
    let error = match failed {
        Err(error) if live && kept => error,
        failed => return Err(format!("{failed:?} left the MR {}", if live { "with other keys" } else { "retired" })),
    };
    if error.api.is_empty() || error.errno.is_none() && !matches!(error.cause, Cause::Busy { .. }) {
        return Err(format!("the failed call's API and errno were expected: {error}"));
    }
    deregister(&*registrar, &mut mr)?;
    Ok(Outcome::Pass)
}

pub(crate) fn dropped_registrar(fixture: &dyn Fixture) -> Tried {
    const MARK: &[u8] = b"what an MR that was dropped live keeps";
    let rails = fixture.registrar().rails().len();
    for rail in (0..).map(RailId).take(rails) {
        let (registrar, memory) = (fixture.registrar(), fixture.memory(2 * PAGE));
        let extent = memory.extent();
        let chunk = Chunk { memory: &memory, range: 0..2 * PAGE, access: access(&*registrar, rail), source: &Source::Address };
        let mr = registrar.register(rail, &chunk).map_err(|error| error.to_string())?;
        drop(registrar);
        if !mr.is_live() || mr.extent() != chunk.extent() {
            return Err(format!("{mr:?} is another one after its registrar is gone"));
        }
        memory.write_at(PAGE, MARK).map_err(|error| error.to_string())?;
        drop(memory);
        // Nobody can end it any more, so it is leaked, with its memory: the device may still write there.
        drop(mr);
        let mut there = [0; MARK.len()];
        let own = File::open("/proc/self/mem").map_err(|error| format!("/proc/self/mem: {error}"))?;
        let read = own.read_exact_at(&mut there, extent.start() + PAGE);
        if read.is_err() || there.as_slice() != MARK {
            return Err(format!("an MR that was dropped live let its memory go ({read:?})"));
        }
    }
    Ok(Outcome::Pass)
}

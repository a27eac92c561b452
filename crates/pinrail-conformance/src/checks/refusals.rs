//! What is refused before the provider is called. The sign of that is an error without an errno.

use pinrail_core::{Access, Chunk, ErrorKind, Memory, RailId, RegisterError, Source};

use super::{PAGE, access, on_each_rail, refused, told};
use crate::Fixture;
use crate::suite::{Outcome, Tried};

pub(crate) fn zero_length(fixture: &dyn Fixture) -> Tried {
    let (registrar, memory) = (fixture.registrar(), fixture.memory(2 * PAGE));
    on_each_rail(&*registrar, |rail| {
        for start in [0, 5, PAGE, memory.len()] {
            let chunk =
                Chunk { memory: &memory, range: start..start, access: access(&*registrar, rail), source: &Source::Address };
            before_the_call(&refused(&*registrar, registrar.register(rail, &chunk))?, ErrorKind::ZeroLength)?;
        }
        Ok(Outcome::Pass)
    })
}

pub(crate) fn outside_memory(fixture: &dyn Fixture) -> Tried {
    let (registrar, memory) = (fixture.registrar(), fixture.memory(2 * PAGE));
    let len = memory.len();
    on_each_rail(&*registrar, |rail| {
        for range in [0..len + 1, len - 1..len + PAGE, len + PAGE..len + 2 * PAGE, PAGE..u64::MAX] {
            let chunk = Chunk { memory: &memory, range, access: access(&*registrar, rail), source: &Source::Address };
            before_the_call(&refused(&*registrar, registrar.register(rail, &chunk))?, ErrorKind::Batch)?;
        }
        Ok(Outcome::Pass)
    })
}

pub(crate) fn imagined_memory(fixture: &dyn Fixture) -> Tried {
    let (registrar, real) = (fixture.registrar(), fixture.memory(PAGE));
    // Where there are bytes, so that nothing but the kind of memory can be why.
    let imagined = Memory::imagined(real.extent().start(), PAGE).map_err(|error| error.to_string())?;
    on_each_rail(&*registrar, |rail| {
        let chunk = Chunk { memory: &imagined, range: 0..PAGE, access: access(&*registrar, rail), source: &Source::Address };
        before_the_call(&refused(&*registrar, registrar.register(rail, &chunk))?, ErrorKind::NotSupported)?;
        Ok(Outcome::Pass)
    })
}

pub(crate) fn unknown_rail(fixture: &dyn Fixture) -> Tried {
    let (registrar, memory) = (fixture.registrar(), fixture.memory(PAGE));
    let first = u16::try_from(registrar.rails().len()).map_err(|error| error.to_string())?;
    for rail in [first, u16::MAX] {
        let chunk = Chunk { memory: &memory, range: 0..PAGE, access: Access::FULL, source: &Source::Address };
        let error = refused(&*registrar, registrar.register(RailId(rail), &chunk))?;
        if error.errno.is_some() || !error.to_string().contains(&RailId(rail).to_string()) {
            return Err(format!("an error without errno that names {} was expected: {}", RailId(rail), told(&error.diagnosis())));
        }
    }
    Ok(Outcome::Pass)
}

/// Memory that the check maps and does not touch, at most.
const MAPPED_MAX: u64 = 64 << 30;

pub(crate) fn mr_size(fixture: &dyn Fixture) -> Tried {
    let registrar = fixture.registrar();
    on_each_rail(&*registrar, |rail| {
        let Some(limit) = registrar.rails()[rail.index()].limits.max_mr_size else { return Ok(Outcome::Skip("no limit")) };
        if limit >= MAPPED_MAX {
            return Ok(Outcome::Skip("limit beyond 64 GiB"));
        }
        let memory = fixture.memory(limit + 1);
        let chunk = Chunk { memory: &memory, range: 0..limit + 1, access: access(&*registrar, rail), source: &Source::Address };
        let error = refused(&*registrar, registrar.register(rail, &chunk))?;
        before_the_call(&error, ErrorKind::MrSize)?;
        let stated = error.cause.limit_and_need();
        if stated != (Some(limit), Some(limit + 1)) {
            return Err(format!("the limit is {limit} and the error states limit and need as {stated:?}"));
        }
        Ok(Outcome::Pass)
    })
}

fn before_the_call(error: &RegisterError, kind: ErrorKind) -> Result<(), String> {
    let diagnosis = error.diagnosis();
    if diagnosis.kind == kind && diagnosis.errno.is_none() {
        return Ok(());
    }
    Err(format!("kind {kind} without errno was expected: {}", told(&diagnosis)))
}

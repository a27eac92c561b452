//! That bytes go where the MR says, and nowhere else.

use std::iter;

use pinrail_core::{Access, Chunk, Memory, Source};

use super::{Live, NO_MOVER, PAGE, fill, on_each_rail, rails, read};
use crate::suite::{Outcome, Tried};
use crate::{Fixture, Verified, verify};

pub(crate) fn both_ways(fixture: &dyn Fixture) -> Tried {
    let (registrar, memory) = (fixture.registrar(), fixture.memory(8 * PAGE));
    let Some(mover) = registrar.mover() else { return Ok(NO_MOVER) };
    // All rails at once, as a plan registers them; ends that lie on no page.
    let mut live: Vec<Live<'_>> = Vec::new();
    for rail in rails(&*registrar) {
        let mut on_rail = Live::on(&*registrar, rail);
        for range in [100..3 * PAGE, 3 * PAGE..8 * PAGE - 7] {
            on_rail.register(&memory, range)?;
        }
        live.push(on_rail);
    }
    let targets: Vec<_> = live.iter().flat_map(Live::targets).collect();
    let verified = verify(mover, &targets, fixture.wait()).map_err(|error| error.diagnosis().message)?;
    let count = live.len() as u64;
    proved(verified, 2 * count, count)?;
    live.into_iter().try_for_each(Live::end)?;
    Ok(Outcome::Pass)
}

pub(crate) fn one_byte(fixture: &dyn Fixture) -> Tried {
    let (registrar, memory) = (fixture.registrar(), fixture.memory(2 * PAGE));
    let Some(mover) = registrar.mover() else { return Ok(NO_MOVER) };
    on_each_rail(&*registrar, |rail| {
        let mut live = Live::on(&*registrar, rail);
        for start in [0, PAGE - 1, PAGE, 2 * PAGE - 1] {
            live.register(&memory, start..start + 1)?;
        }
        proved(live.verify(mover, fixture.wait())?, 4, 1)?;
        live.end()?;
        Ok(Outcome::Pass)
    })
}

fn proved(verified: Verified, mrs: u64, seams: u64) -> Result<(), String> {
    if (verified.mrs, verified.seams) == (mrs, seams) {
        return Ok(());
    }
    Err(format!("{mrs} MRs and {seams} seams were to be proved: {verified:?}"))
}

pub(crate) fn same_start(fixture: &dyn Fixture) -> Tried {
    let (registrar, memory) = (fixture.registrar(), fixture.memory(2 * PAGE));
    let Some(mover) = registrar.mover() else { return Ok(NO_MOVER) };
    on_each_rail(&*registrar, |rail| {
        let mut live = Live::on(&*registrar, rail);
        let proved = |live: &Live<'_>, mrs| proved(live.verify(mover, fixture.wait())?, mrs, 0);
        live.register(&memory, 0..100)?;
        live.register(&memory, 0..2 * PAGE)?;
        proved(&live, 2)?;
        live.deregister(0)?;
        proved(&live, 1)?;
        live.register(&memory, 0..50)?;
        live.register(&memory, 0..50)?;
        live.deregister(0)?;
        proved(&live, 2)?;
        live.end()?;
        Ok(Outcome::Pass)
    })
}

pub(crate) fn nothing_around(fixture: &dyn Fixture) -> Tried {
    const AROUND: u8 = 0xa5;
    let (registrar, memory) = (fixture.registrar(), fixture.memory(4 * PAGE));
    let Some(mover) = registrar.mover() else { return Ok(NO_MOVER) };
    let (start, end) = (PAGE + 1000, 3 * PAGE - 1000);
    on_each_rail(&*registrar, |rail| {
        fill(&memory, AROUND)?;
        let mut live = Live::on(&*registrar, rail);
        let mr = live.register(&memory, start..end)?;
        let whole: Vec<u8> = (0..u8::MAX).cycle().zip(start..end).map(|(byte, _)| byte).collect();
        mover.write(mr, 0, &whole, fixture.wait()).map_err(|error| error.to_string())?;
        if read(&memory, start..end)? != whole {
            return Err("the bytes of the MR are not those that were written".to_owned());
        }
        let around = read(&memory, 0..start)?.into_iter().chain(read(&memory, end..4 * PAGE)?);
        let offsets = (0..start).chain(end..4 * PAGE);
        if let Some((at, byte)) = iter::zip(offsets, around).find(|(_, byte)| *byte != AROUND) {
            return Err(format!("a write to {start}..{end} changed byte {at} to {byte:#04x}"));
        }
        let mut seen = vec![0; whole.len()];
        mover.read(mr, 0, &mut seen, fixture.wait()).map_err(|error| error.to_string())?;
        if seen != whole {
            return Err("the bytes that were read are not those of the MR".to_owned());
        }
        live.end()?;
        Ok(Outcome::Pass)
    })
}

pub(crate) fn move_outside(fixture: &dyn Fixture) -> Tried {
    let (registrar, memory) = (fixture.registrar(), fixture.memory(4 * PAGE));
    let Some(mover) = registrar.mover() else { return Ok(NO_MOVER) };
    fill(&memory, 0)?;
    on_each_rail(&*registrar, |rail| {
        let mut live = Live::on(&*registrar, rail);
        // Memory before and behind it is mapped, and registered too.
        live.register(&memory, 0..4 * PAGE)?;
        let mr = live.register(&memory, PAGE..2 * PAGE)?;
        let outside = [(PAGE - 1, 2), (PAGE, 1), (2 * PAGE, 1), (0, PAGE + 1), (u64::MAX, 1), (PAGE.wrapping_neg(), 8)];
        for (at, len) in outside {
            let len = usize::try_from(len).map_err(|error| error.to_string())?;
            let written = mover.write(mr, at, &vec![0xee; len], fixture.patience());
            let moved = mover.read(mr, at, &mut vec![0; len], fixture.patience());
            if written.is_ok() || moved.is_ok() {
                return Err(format!("{len} bytes at {at} of an MR of {PAGE} bytes: write {written:?}, read {moved:?}"));
            }
        }
        if read(&memory, 0..4 * PAGE)?.iter().any(|byte| *byte != 0) {
            return Err("a transfer that was refused wrote all the same".to_owned());
        }
        live.verify(mover, fixture.wait()).map_err(|error| format!("after refused transfers: {error}"))?;
        live.end()?;
        Ok(Outcome::Pass)
    })
}

pub(crate) fn against_access(fixture: &dyn Fixture) -> Tried {
    let (registrar, memory) = (fixture.registrar(), fixture.memory(PAGE));
    let Some(mover) = registrar.mover() else { return Ok(NO_MOVER) };
    on_each_rail(&*registrar, |rail| {
        fill(&memory, 0)?;
        let mut live = Live::on(&*registrar, rail);
        let chunk = Chunk { memory: &memory, range: 0..PAGE, access: Access::REMOTE_READ, source: &Source::Address };
        let mr = live.register_chunk(chunk).map_err(|error| error.to_string())?;
        let moved = mover.write(mr, 8, &[0xee; 8], fixture.patience());
        let outcome = match (moved, reached(&memory)?) {
            (_, true) => Outcome::Weaker("written"),
            (Ok(()), false) => Outcome::Weaker("completes"),
            (Err(error), false) if error.is_timeout() => Outcome::Weaker("times out"),
            (Err(_), false) => Outcome::Pass,
        };
        live.end()?;
        Ok(outcome)
    })
}

fn reached(memory: &Memory) -> Result<bool, String> {
    Ok(read(memory, 0..memory.len())?.iter().any(|byte| *byte != 0))
}

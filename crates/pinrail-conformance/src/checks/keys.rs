//! Keys: that they are unique, and what becomes of a peer that has the wrong one.

use std::collections::BTreeSet;

use pinrail_core::{Keys, Memory, MoveError, Mr};

use super::{Live, PAGE, fill, on_each_rail, read};
use crate::suite::{Outcome, Tried};
use crate::{Fixture, Peered};

/// What tells an MR of a rail from all others: the remote key, or the local one where the fabric has no peers.
pub(super) fn name_of(mr: &Mr) -> Vec<u8> {
    let Keys { local, remote } = mr.keys();
    if remote.is_empty() { local.to_le_bytes().to_vec() } else { remote.to_vec() }
}

pub(crate) fn unique(fixture: &dyn Fixture) -> Tried {
    const MRS: u64 = 64;
    let (registrar, memory) = (fixture.registrar(), fixture.memory(MRS * PAGE));
    on_each_rail(&*registrar, |rail| {
        let mut live = Live::on(&*registrar, rail);
        for page in 0..MRS {
            live.register(&memory, page * PAGE..(page + 1) * PAGE)?;
        }
        all_differ(&live)?;
        // A key may come back, but not beside itself.
        for nth in (0..MRS / 2).rev() {
            live.deregister(usize::try_from(2 * nth).map_err(|error| error.to_string())?)?;
            live.register(&memory, 0..PAGE)?;
            live.register(&memory, 0..PAGE)?;
        }
        all_differ(&live)?;
        live.end()?;
        Ok(Outcome::Pass)
    })
}

fn all_differ(live: &Live<'_>) -> Result<(), String> {
    let keys: BTreeSet<_> = live.mrs.iter().map(|(_, mr)| name_of(mr)).collect();
    if keys.len() == live.mrs.len() { Ok(()) } else { Err(format!("{} live MRs have {} keys", live.mrs.len(), keys.len())) }
}

#[derive(Clone, Copy)]
enum Way {
    Write,
    Read,
}

#[derive(Clone, Copy)]
enum Forged {
    Wrong,
    Stale,
    OutOfRange,
}

pub(crate) fn wrong_write(fixture: &dyn Fixture) -> Tried {
    tried(fixture, Way::Write, Forged::Wrong)
}

pub(crate) fn wrong_read(fixture: &dyn Fixture) -> Tried {
    tried(fixture, Way::Read, Forged::Wrong)
}

pub(crate) fn stale_write(fixture: &dyn Fixture) -> Tried {
    tried(fixture, Way::Write, Forged::Stale)
}

pub(crate) fn stale_read(fixture: &dyn Fixture) -> Tried {
    tried(fixture, Way::Read, Forged::Stale)
}

pub(crate) fn out_of_range_write(fixture: &dyn Fixture) -> Tried {
    tried(fixture, Way::Write, Forged::OutOfRange)
}

pub(crate) fn out_of_range_read(fixture: &dyn Fixture) -> Tried {
    tried(fixture, Way::Read, Forged::OutOfRange)
}

const THERE: u8 = 0x11;
const SENT: u8 = 0xee;
/// Bytes of a transfer. The second half of one out of range is what lies outside.
const LEN: usize = 16;
const HALF: u64 = 8;

/// A transfer by a key that is no good, between two by keys that are.
fn tried(fixture: &dyn Fixture, way: Way, forged: Forged) -> Tried {
    // The memory is declared first, so that it stays mapped until the peer is gone: a transfer may come late.
    let memory = fixture.memory(4 * PAGE);
    let Some(peered) = fixture.peer() else { return Ok(Outcome::Skip("no peer")) };
    let Peered { peer, registrar } = &peered;
    let end = 2 * PAGE;
    on_each_rail(&**registrar, |rail| {
        fill(&memory, THERE)?;
        let mut live = Live::on(&**registrar, rail);
        let good = peer.told(live.register(&memory, 0..end)?);
        let control = |told, when: &str| {
            let mut seen = [0; 7];
            peer.write(told, 64, b"by key!", fixture.wait())
                .and_then(|()| peer.read(told, 64, &mut seen, fixture.wait()))
                .map_err(|error| format!("a transfer by a good key {when} failed: {error}"))?;
            let there = read(&memory, 64..71)?;
            if (seen.as_slice(), there.as_slice()) == (b"by key!", b"by key!") {
                return Ok(());
            }
            Err(format!("a transfer by a good key {when} moved other bytes"))
        };
        control(&good, "before")?;
        let (told, at) = match forged {
            Forged::Wrong => (peer.wrong(&good), PAGE),
            Forged::Stale => (good.clone(), PAGE),
            Forged::OutOfRange => (good.clone(), end - HALF),
        };
        if let Forged::Stale = forged {
            live.deregister(0)?;
        }
        let (moved, read_there) = match way {
            Way::Write => (peer.write(&told, at, &[SENT; LEN], fixture.patience()), false),
            Way::Read => {
                let mut into = [SENT; LEN];
                let moved = peer.read(&told, at, &mut into, fixture.patience());
                (moved, into[LEN / 2..].contains(&THERE))
            }
        };
        // A transfer that was given up may still arrive; this one would come after it.
        if let Forged::Stale = forged {
            live.register(&memory, 0..end)?;
        }
        control(&peer.told(live.newest()), "afterwards")?;
        let reached = read_there || written(&memory, forged, end)?;
        live.end()?;
        Ok(outcome(&moved, reached))
    })
}

/// Whether the write arrived where it should not: outside the MR where it leaves it, else anywhere.
fn written(memory: &Memory, forged: Forged, end: u64) -> Result<bool, String> {
    let from = if let Forged::OutOfRange = forged { end } else { PAGE };
    Ok(read(memory, from..memory.len())?.contains(&SENT))
}

fn outcome(moved: &Result<(), MoveError>, reached: bool) -> Outcome {
    match moved {
        _ if reached => Outcome::Weaker("reaches"),
        Ok(()) => Outcome::Weaker("completes"),
        Err(error) if error.is_timeout() => Outcome::Weaker("times out"),
        Err(_) => Outcome::Pass,
    }
}

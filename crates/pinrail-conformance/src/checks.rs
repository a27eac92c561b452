//! The checks, a room for each part of the contract, and what they share.

pub(crate) mod bytes;
pub(crate) mod errors;
pub(crate) mod keys;
pub(crate) mod lifetime;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod refusals;

use std::ops::Range;
use std::time::Duration;

use pinrail_core::{
    Access, Cause, Chunk, ChunkId, DeregisterError, Diagnosis, Memory, MoveBytes, Mr, RailId, RegisterError, Registrar, Source,
};

use crate::suite::{Outcome, Tried};
use crate::{Target, Verified, verify};

/// Bytes of a page: of the smallest there are, which is all that seams and holes need.
const PAGE: u64 = 4096;

const NO_MOVER: Outcome = Outcome::Skip("no mover");

/// Live MRs of one rail with what was asked for. They are deregistered at the end, however it comes: what a broken
/// promise leaves behind shall not break another one.
struct Live<'a> {
    registrar: &'a dyn Registrar,
    rail: RailId,
    mrs: Vec<(Chunk<'a>, Mr)>,
}

impl<'a> Live<'a> {
    fn on(registrar: &'a dyn Registrar, rail: RailId) -> Live<'a> {
        Live { registrar, rail, mrs: Vec::new() }
    }

    /// The access that the rail can grant.
    fn access(&self) -> Access {
        access(self.registrar, self.rail)
    }

    /// Registers `range` of `memory` with all the access there is.
    fn register(&mut self, memory: &'a Memory, range: Range<u64>) -> Result<&Mr, String> {
        let chunk = Chunk { memory, range, access: self.access(), source: &Source::Address };
        self.register_chunk(chunk).map_err(|error| error.to_string())
    }

    fn register_chunk(&mut self, chunk: Chunk<'a>) -> Result<&Mr, RegisterError> {
        let mr = self.registrar.register(self.rail, &chunk)?;
        self.mrs.push((chunk, mr));
        Ok(self.newest())
    }

    fn newest(&self) -> &Mr {
        &self.mrs[self.mrs.len() - 1].1
    }

    fn targets(&self) -> impl Iterator<Item = Target<'_>> {
        let numbered = (0..).map(ChunkId).zip(&self.mrs);
        numbered.map(|(id, (chunk, mr))| Target { buffer: "checked", id, chunk: chunk.clone(), mr })
    }

    /// Moves bytes through all of them.
    fn verify(&self, mover: &dyn MoveBytes, wait: Duration) -> Result<Verified, String> {
        verify(mover, &self.targets().collect::<Vec<_>>(), wait).map_err(|error| error.diagnosis().message)
    }

    /// Deregisters one.
    fn deregister(&mut self, nth: usize) -> Result<(), String> {
        let (chunk, mut mr) = self.mrs.remove(nth);
        let done = deregister(self.registrar, &mut mr);
        if mr.is_live() {
            self.mrs.insert(nth, (chunk, mr));
        }
        done
    }

    /// Deregisters all; each has to succeed.
    fn end(mut self) -> Result<(), String> {
        while !self.mrs.is_empty() {
            self.deregister(self.mrs.len() - 1)?;
        }
        Ok(())
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        for (_, mr) in &mut self.mrs {
            // Whatever it says: the check has ended already, and with another word.
            self.registrar.deregister(mr).ok();
        }
    }
}

fn access(registrar: &dyn Registrar, rail: RailId) -> Access {
    registrar.rails()[rail.index()].access
}

fn rails(registrar: &dyn Registrar) -> impl Iterator<Item = RailId> + use<> {
    (0..).map(RailId).take(registrar.rails().len())
}

/// Tries the same on every rail. They are of one kind, so they have to end alike.
fn on_each_rail(registrar: &dyn Registrar, mut tried: impl FnMut(RailId) -> Tried) -> Tried {
    let mut first: Option<Outcome> = None;
    for rail in rails(registrar) {
        let outcome = tried(rail).map_err(|broken| format!("{rail}: {broken}"))?;
        match &first {
            Some(first) if *first != outcome => return Err(format!("rail 0: {first}, but {rail}: {outcome}")),
            Some(_) => {}
            None => first = Some(outcome),
        }
    }
    first.ok_or_else(|| "the registrar has no rail".to_owned())
}

/// Deregisters, and the MR has to be retired then.
fn deregister(registrar: &dyn Registrar, mr: &mut Mr) -> Result<(), String> {
    match registrar.deregister(mr) {
        Ok(()) if mr.is_live() => Err("a deregistration succeeded and left the MR live".to_owned()),
        Ok(()) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The error of a registration that has to fail. One that succeeded is undone.
fn refused(registrar: &dyn Registrar, result: Result<Mr, RegisterError>) -> Result<RegisterError, String> {
    match result {
        Err(error) => Ok(error),
        Ok(mut mr) => {
            registrar.deregister(&mut mr).ok();
            Err(format!("{mr:?} was registered"))
        }
    }
}

/// An error as the checks show it.
fn told(diagnosis: &Diagnosis) -> String {
    let Diagnosis { kind, errno, message, .. } = diagnosis;
    format!("{message:?} (kind {kind}, errno {errno:?})")
}

fn read(memory: &Memory, range: Range<u64>) -> Result<Vec<u8>, String> {
    let len = usize::try_from(range.end - range.start).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; len];
    memory.read_at(range.start, &mut bytes).map_err(|error| format!("the memory cannot be read: {error}"))?;
    Ok(bytes)
}

fn fill(memory: &Memory, byte: u8) -> Result<(), String> {
    let len = usize::try_from(memory.len()).map_err(|error| error.to_string())?;
    memory.write_at(0, &vec![byte; len]).map_err(|error| format!("the memory cannot be written: {error}"))
}

/// That a registrar refused what is not its own, or not any more, and changed nothing.
fn not_ours(result: Result<(), DeregisterError>) -> Result<(), String> {
    match result.map_err(|error| error.cause) {
        Err(Cause::NotOurs) => Ok(()),
        Err(other) => Err(format!("the deregistration was refused for another reason: {other}")),
        Ok(()) => Err("it was deregistered".to_owned()),
    }
}

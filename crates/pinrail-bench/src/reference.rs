//! What others do, written from public descriptions: on the registrar itself, with threads of their own, and without any
//! of Pinrail's planning and dispatch. Each is named after what it does.

mod all_rails_at_once;
mod bounded_pool;
mod crew;
mod pieces;
mod prefault_then_at_once;
mod rails_in_series_one_by_one;
mod thread_per_buffer;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use pinrail_core::{DeregisterError, Mr, Prepare, PrepareError, RailId, RegisterError, Source};

use crate::contestant::{Contestant, Live, Ran, Ready, Setting, Undone};
use crate::error::BenchError;
use crew::Crew;
use pieces::{Piece, Pieces};

/// A way to register a batch that others have published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    RailsInSeriesOneByOne,
    AllRailsAtOnce,
    ThreadPerBuffer,
    BoundedPool(NonZeroU32),
    PrefaultThenAtOnce(NonZeroU32),
}

/// The references, as a hint shows them.
pub(crate) fn choices() -> &'static str {
    "references: rails-in-series-one-by-one, all-rails-at-once, thread-per-buffer, bounded-pool=N, prefault-then-at-once=N"
}

impl FromStr for Reference {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Reference, BenchError> {
        let wrong = |why: &str| BenchError::Reference { name: text.chars().take(80).collect(), why: why.to_owned() };
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let plain = match name {
            "rails-in-series-one-by-one" => Reference::RailsInSeriesOneByOne,
            "all-rails-at-once" => Reference::AllRailsAtOnce,
            "thread-per-buffer" => Reference::ThreadPerBuffer,
            "bounded-pool" | "prefault-then-at-once" => {
                let threads = value
                    .and_then(|value| value.parse::<NonZeroU32>().ok())
                    .filter(|threads| threads.get() <= THREADS_MAX)
                    .ok_or_else(|| wrong("needs a number of threads from 1 to 4096, as in bounded-pool=16"))?;
                let of = if name == "bounded-pool" { Reference::BoundedPool } else { Reference::PrefaultThenAtOnce };
                return Ok(of(threads));
            }
            _ => return Err(wrong("is unknown")),
        };
        if value.is_some() { Err(wrong("takes no value")) } else { Ok(plain) }
    }
}

/// Most threads that a reference may be asked to have.
const THREADS_MAX: u32 = 4096;

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::RailsInSeriesOneByOne => f.write_str("rails-in-series-one-by-one"),
            Reference::AllRailsAtOnce => f.write_str("all-rails-at-once"),
            Reference::ThreadPerBuffer => f.write_str("thread-per-buffer"),
            Reference::BoundedPool(threads) => write!(f, "bounded-pool={threads}"),
            Reference::PrefaultThenAtOnce(threads) => write!(f, "prefault-then-at-once={threads}"),
        }
    }
}

/// What a reference's threads do with one piece on one rail.
type Call<'w> = dyn Fn(&Piece, RailId) + Sync + 'w;

/// What there is to do, as each reference walks through it.
struct Work<'w> {
    pieces: &'w Pieces,
    rails: &'w [RailId],
    crew: &'w Crew,
    call: &'w Call<'w>,
}

impl Reference {
    /// Calls for every piece on every rail, in the reference's own way.
    fn walk(self, work: &Work<'_>) {
        match self {
            Reference::RailsInSeriesOneByOne => rails_in_series_one_by_one::walk(work),
            Reference::AllRailsAtOnce | Reference::PrefaultThenAtOnce(_) => all_rails_at_once::walk(work),
            Reference::ThreadPerBuffer => thread_per_buffer::walk(work),
            Reference::BoundedPool(threads) => bounded_pool::walk(work, threads),
        }
    }
}

impl Contestant for Reference {
    fn ready(&self, setting: Setting) -> Result<Box<dyn Ready>, BenchError> {
        let rails: Vec<RailId> = setting.machine.usable().collect();
        let pieces = Pieces::cut(&setting.batch, &setting.machine, &rails)
            .map_err(|why| BenchError::Reference { name: self.to_string(), why })?;
        Ok(Box::new(Prepared { reference: *self, setting, rails, pieces }))
    }
}

struct Prepared {
    reference: Reference,
    setting: Setting,
    rails: Vec<RailId>,
    pieces: Pieces,
}

struct Registered {
    prepared: Prepared,
    /// By piece, then by rail.
    mrs: Vec<Mutex<Option<Mr>>>,
    threads: u32,
}

impl Prepared {
    fn walk(&self, crew: &Crew, call: &Call<'_>) {
        self.reference.walk(&Work { pieces: &self.pieces, rails: &self.rails, crew, call });
    }

    fn prefault(&self, crew: &Crew) -> Result<(), PrepareError> {
        match self.reference {
            Reference::PrefaultThenAtOnce(threads) => {
                prefault_then_at_once::prefault(&self.pieces, self.setting.prepare.as_ref() as &dyn Prepare, crew, threads)
            }
            _ => Ok(()),
        }
    }
}

impl Ready for Prepared {
    fn register(self: Box<Self>) -> Result<Box<dyn Live>, BenchError> {
        let crew = Crew::default();
        let mrs = (0..self.pieces.all.len() * self.rails.len()).map(|_| Mutex::new(None)).collect();
        let mut registered = Registered { prepared: *self, mrs, threads: 0 };
        registered.prepared.prefault(&crew).map_err(BenchError::Prepare)?;
        let failed: Mutex<Option<RegisterError>> = Mutex::new(None);
        registered.prepared.walk(&crew, &|piece, rail| {
            if lock(&failed).is_some() {
                return;
            }
            match registered.prepared.setting.registrar.register(rail, &piece.chunk(&Source::Address)) {
                Ok(mr) => *lock(registered.mr(piece, rail)) = Some(mr),
                Err(error) => *lock(&failed) = Some(error),
            }
        });
        registered.threads = crew.peak();
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        match failed {
            None => Ok(Box::new(registered)),
            Some(error) => {
                let reference = registered.prepared.reference.to_string();
                registered.undo().map_err(|error| BenchError::ReferenceDeregister { reference: reference.clone(), error })?;
                Err(BenchError::ReferenceRegister { reference, error })
            }
        }
    }
}

impl Registered {
    fn mr(&self, piece: &Piece, rail: RailId) -> &Mutex<Option<Mr>> {
        let nth = self.prepared.rails.iter().position(|other| *other == rail).expect("the rails walked are these");
        &self.mrs[piece.at * self.prepared.rails.len() + nth]
    }

    /// Deregisters all that is live, and tries all of it; an MR that fails stays leaked, as its memory must.
    fn undo(&self) -> Result<u32, DeregisterError> {
        let crew = Crew::default();
        let failed: Mutex<Option<DeregisterError>> = Mutex::new(None);
        self.prepared.walk(&crew, &|piece, rail| {
            let Some(mut mr) = lock(self.mr(piece, rail)).take() else { return };
            if let Err(error) = self.prepared.setting.registrar.deregister(&mut mr) {
                *lock(&failed) = Some(error);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(crew.peak()), Err)
    }
}

impl Live for Registered {
    fn ran(&self) -> Ran {
        Ran { threads: self.threads, peak_in_flight: None, dispatched: Vec::new() }
    }

    fn mrs(&mut self) -> Vec<&Mr> {
        self.mrs.iter_mut().filter_map(|mr| mr.get_mut().unwrap_or_else(PoisonError::into_inner).as_ref()).collect()
    }

    fn deregister(self: Box<Self>) -> Result<Undone, BenchError> {
        let reference = self.prepared.reference.to_string();
        let threads = self.undo().map_err(|error| BenchError::ReferenceDeregister { reference, error })?;
        Ok(Undone { threads })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_reads_back_as_it_is_written() {
        for name in
            ["rails-in-series-one-by-one", "all-rails-at-once", "thread-per-buffer", "bounded-pool=16", "prefault-then-at-once=1"]
        {
            assert_eq!(name.parse::<Reference>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for name in
            ["", "bounded-pool", "bounded-pool=0", "bounded-pool=x", "bounded-pool=5000", "thread-per-buffer=2", "capped=2"]
        {
            assert!(name.parse::<Reference>().is_err(), "{name}");
        }
    }
}

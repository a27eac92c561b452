//! Many at once.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use pinrail_core::{Chunk, ErrorKind, Memory, RailId, RegisterError, Registrar, Source};

use super::keys::name_of;
use super::{Live, PAGE, on_each_rail, told};
use crate::suite::{Outcome, Tried};
use crate::{Fixture, verify};

const THREADS: usize = 8;
const ROUNDS: u64 = 32;
/// Bytes are moved in every so many rounds: on an emulated NIC a transfer takes far longer than a registration.
const MOVES_EVERY: u64 = 8;

pub(crate) fn eight_threads(fixture: &dyn Fixture) -> Tried {
    let registrar = fixture.registrar();
    on_each_rail(&*registrar, |rail| {
        let calls = Calls::of(&*registrar, rail);
        let keys = Mutex::new(BTreeSet::new());
        let worker = || {
            let memory = fixture.memory(4 * PAGE);
            (0..ROUNDS).try_for_each(|round| {
                let mut live = Live::on(&*registrar, rail);
                for range in [round..2 * PAGE, 2 * PAGE..4 * PAGE - round] {
                    let key = name_of(calls.one(|| live.register(&memory, range))?);
                    if !lock(&keys).insert(key) {
                        return Err("two live MRs have one key".to_owned());
                    }
                }
                if let Some(mover) = registrar.mover().filter(|_| round % MOVES_EVERY == 0) {
                    live.verify(mover, fixture.wait())?;
                }
                while let Some((_, mr)) = live.mrs.last() {
                    // Taken out first: from the call on the key may be another's.
                    lock(&keys).remove(&name_of(mr));
                    calls.one(|| live.deregister(live.mrs.len() - 1))?;
                }
                Ok(())
            })
        };
        thread::scope(|scope| {
            let start = |nth| thread::Builder::new().name(format!("worker {nth}")).spawn_scoped(scope, worker);
            let started: Vec<_> = (0..THREADS).map(start).collect();
            for thread in started {
                let thread = thread.map_err(|error| format!("no thread could be had: {error}"))?;
                thread.join().map_err(|_| "a thread panicked")??;
            }
            Ok(Outcome::Pass)
        })
    })
}

/// Lets no more calls in than a rail says it takes ([`Rail::calls_in_parallel`](pinrail_core::Rail::calls_in_parallel)),
/// as every user of a registrar must.
struct Calls {
    free: Mutex<u32>,
    freed: Condvar,
}

impl Calls {
    fn of(registrar: &dyn Registrar, rail: RailId) -> Calls {
        Calls { free: Mutex::new(registrar.rails()[rail.index()].calls_in_parallel.get()), freed: Condvar::new() }
    }

    fn one<T>(&self, call: impl FnOnce() -> T) -> T {
        let free = self.freed.wait_while(lock(&self.free), |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        let done = call();
        *lock(&self.free) += 1;
        self.freed.notify_one();
        done
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// MRs that have to fit where a rail states no smaller limit.
const MANY: u64 = 20_000;

pub(crate) fn many_mrs(fixture: &dyn Fixture) -> Tried {
    let registrar = fixture.registrar();
    let memory = fixture.memory((MANY + 1) * PAGE);
    on_each_rail(&*registrar, |rail| {
        let limit = registrar.rails()[rail.index()].limits.max_mrs;
        let count = limit.map_or(MANY, |limit| limit.min(MANY));
        let mut live = Live::on(&*registrar, rail);
        for nth in 0..count {
            match page(&mut live, &memory, nth) {
                Ok(()) => {}
                Err(error) if error.diagnosis().kind == ErrorKind::Memlock => return Ok(Outcome::Skip("memlock")),
                Err(error) => return Err(format!("MR {} of {count}: {}", nth + 1, told(&error.diagnosis()))),
            }
        }
        let keys: BTreeSet<_> = live.mrs.iter().map(|(_, mr)| name_of(mr)).collect();
        if keys.len() as u64 != count {
            return Err(format!("{count} live MRs have {} keys", keys.len()));
        }
        if limit == Some(count) {
            full(&mut live, &memory, count)?;
        }
        if let Some(mover) = registrar.mover() {
            let targets: Vec<_> = live.targets().step_by(997).collect();
            verify(mover, &targets, fixture.wait()).map_err(|error| error.diagnosis().message)?;
        }
        live.end()?;
        Ok(Outcome::Pass)
    })
}

/// One more than the rail takes is refused, and fits when another one is gone.
fn full<'a>(live: &mut Live<'a>, memory: &'a Memory, limit: u64) -> Result<(), String> {
    match page(live, memory, limit).map_err(|error| error.diagnosis()) {
        Err(error) if error.kind == ErrorKind::MrCount && error.limit == Some(limit) => {}
        Err(error) => return Err(format!("kind mr-count with limit {limit} was expected: {}", told(&error))),
        Ok(()) => return Err(format!("the rail says that it takes {limit} MRs, and took one more")),
    }
    live.deregister(live.mrs.len() / 2)?;
    page(live, memory, limit).map_err(|error| format!("after one of {limit} MRs was deregistered: {error}"))
}

fn page<'a>(live: &mut Live<'a>, memory: &'a Memory, nth: u64) -> Result<(), RegisterError> {
    let range = nth * PAGE..(nth + 1) * PAGE;
    live.register_chunk(Chunk { memory, range, access: live.access(), source: &Source::Address }).map(|_| ())
}

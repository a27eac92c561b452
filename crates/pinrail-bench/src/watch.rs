//! Sees every call that a variant makes, from the fabric's side: what a bench believes is this and not what a variant
//! says of itself.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};

use pinrail_core::{
    Chunk, DeregisterError, Identity, Kind, MoveBytes, Mr, Prepare, PrepareError, PrepareStep, Prepared, Rail, RailId,
    RegisterError, Registrar,
};

use crate::clock::{Clock, Stopwatch};

/// One call, as it passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// `None` for a preparation.
    pub(crate) rail: Option<RailId>,
    /// The first address.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
    pub(crate) thread: ThreadId,
    pub(crate) entered_ns: u64,
    pub(crate) left_ns: u64,
    pub(crate) ok: bool,
    /// Bytes that a preparation made resident.
    pub(crate) populated: u64,
}

/// The log of one trial. Writing takes an addition and a store, so that threads do not meet here.
pub(crate) struct Watch {
    clock: Stopwatch,
    calls: Box<[OnceLock<Call>]>,
    next: AtomicUsize,
    lost: AtomicU64,
}

impl Watch {
    /// A log with room for so many calls, timed by that clock.
    pub(crate) fn new(room: usize, clock: &Clock) -> Arc<Watch> {
        let calls = (0..room).map(|_| OnceLock::new()).collect();
        Arc::new(Watch { clock: clock.start(), calls, next: AtomicUsize::new(0), lost: AtomicU64::new(0) })
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.ns()
    }

    /// Every call so far, in the order in which they ended.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.iter().filter_map(|call| call.get().copied()).collect()
    }

    /// Calls for which there was no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn log(&self, call: Call) {
        // The threads that wrote are joined before anybody reads.
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        if self.calls.get(at).is_none_or(|place| place.set(call).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn timed<T, E>(&self, call: Call, run: impl FnOnce() -> Result<T, E>, populated: impl Fn(&T) -> u64) -> Result<T, E> {
        let entered_ns = self.now_ns();
        let result = run();
        let left_ns = self.now_ns();
        let populated = result.as_ref().map_or(0, populated);
        self.log(Call { entered_ns, left_ns, ok: result.is_ok(), populated, ..call });
        result
    }
}

fn call(kind: Kind, rail: Option<RailId>, start: u64, len: u64) -> Call {
    Call { kind, rail, start, len, thread: thread::current().id(), entered_ns: 0, left_ns: 0, ok: false, populated: 0 }
}

/// A registrar whose calls are logged.
pub(crate) struct Watched {
    pub(crate) registrar: Arc<dyn Registrar>,
    pub(crate) watch: Arc<Watch>,
}

impl Registrar for Watched {
    fn identity(&self) -> Identity {
        self.registrar.identity()
    }

    fn rails(&self) -> &[Rail] {
        self.registrar.rails()
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        let start = chunk.memory.extent().start().saturating_add(chunk.range.start);
        let len = chunk.range.end.saturating_sub(chunk.range.start);
        self.watch.timed(call(Kind::Register, Some(rail), start, len), || self.registrar.register(rail, chunk), |_| 0)
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        let call = call(Kind::Deregister, Some(mr.rail()), mr.extent().start(), mr.extent().len());
        self.watch.timed(call, || self.registrar.deregister(mr), |()| 0)
    }

    fn mover(&self) -> Option<&dyn MoveBytes> {
        self.registrar.mover()
    }
}

/// A preparation whose calls are logged.
pub(crate) struct WatchedPrepare {
    pub(crate) prepare: Arc<dyn Prepare>,
    pub(crate) watch: Arc<Watch>,
}

impl Prepare for WatchedPrepare {
    fn prepare(&self, step: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        let (start, len) = match step {
            PrepareStep::Populate { memory, range, .. } | PrepareStep::Export { memory, range, .. } => {
                (memory.extent().start().saturating_add(range.start), range.end.saturating_sub(range.start))
            }
            _ => (0, 0),
        };
        let populated = |prepared: &Prepared| match prepared {
            Prepared::Resident { bytes } => *bytes,
            _ => 0,
        };
        self.watch.timed(call(Kind::Prepare, None, start, len), || self.prepare.prepare(step), populated)
    }
}

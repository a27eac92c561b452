//! One trial of one variant: fresh rails, fresh memory, the stages timed apart, and what was seen from outside.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use pinrail_conformance::Target;
use pinrail_core::batch::Layout;
use pinrail_core::{Buffer, Chunk, ChunkId, Diagnosis, Identity, Kind, Machine, MoveBytes, Mr, Registrar, Source};
use pinrail_memory::{Memlock, Populate};
use serde::{Deserialize, Serialize};

use crate::clock::{self, Clock};
use crate::contestant::{Ran, Setting};
use crate::error::BenchError;
use crate::memory;
use crate::spec::Spec;
use crate::variant::Variant;
use crate::watch::{Call, Watch, Watched, WatchedPrepare};

/// How long the kernel is given to unpin what an earlier trial has deregistered.
const UNPINNED_WITHIN_S: f64 = 1.5;

/// Rails that were opened for one trial.
pub struct Opened {
    /// What registers. It must have been made for this trial: one that was used before is refused.
    pub registrar: Arc<dyn Registrar>,
    /// The machine; its rails are the registrar's, in the same order, with the limits that hold.
    pub machine: Machine,
    /// What a reader of the results should know of the provider.
    pub notes: Vec<String>,
    /// True where registrations may be answered from the provider's own cache.
    pub cached: bool,
}

/// Opens fresh rails: called once for each trial.
pub type Open<'o> = dyn Fn() -> Result<Opened, Box<Diagnosis>> + 'o;

/// Seconds of each stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Mapping the memory, and making it resident where that was asked for.
    pub allocate_s: f64,
    /// Planning; references have next to none.
    pub plan_s: f64,
    /// From the first preparation's call to the last return; zero without one.
    pub prefault_s: f64,
    /// From the first registration's call to the last return; it may overlap with preparation.
    pub register_s: f64,
    /// From the start of preparation to the moment every key is usable.
    pub total_s: f64,
    /// All of deregistration.
    pub deregister_s: f64,
}

/// What one process did in one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its stages.
    pub stages: Stages,
    /// Seconds of CPU while it registered, of all its threads, in the kernel too.
    pub cpu_s: f64,
    /// Seconds of CPU while it deregistered.
    pub deregister_cpu_s: f64,
    /// The most threads at once while it registered, the caller's among them.
    pub peak_threads: u32,
    /// The most steps in flight at once while it registered.
    pub peak_in_flight: u32,
    /// The most deregistrations in flight at once.
    pub deregister_peak_in_flight: u32,
    /// Registrations.
    pub tasks: u64,
    /// Seconds that registrations spent inside their calls, all of them added up.
    pub service_s: f64,
    /// Seconds that registrations waited for their turn once they could have begun, all of them added up.
    pub wait_s: f64,
    /// By rail.
    pub rails: Vec<RailLoad>,
    /// Bytes that preparations made resident.
    pub populated_bytes: u64,
    /// Bytes that drivers held pinned for this process when the trial began, beyond those before the first.
    pub pinned_before_bytes: u64,
    /// Seconds that it was made to start after the others.
    pub late_s: f64,
}

/// What one rail did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RailLoad {
    /// Registrations.
    pub tasks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds inside their calls, added up.
    pub busy_s: f64,
}

/// Everything that was seen of a trial: what judges look at.
pub(crate) struct Evidence {
    pub(crate) identity: Identity,
    /// A registrar that an earlier trial had.
    pub(crate) reused: bool,
    pub(crate) cached: bool,
    pub(crate) machine: Machine,
    /// The batch as the variant was given it.
    pub(crate) batch: Vec<Buffer>,
    /// Resident bytes before the clock started, and all bytes.
    pub(crate) resident_before: (u64, u64),
    /// When it started, on the clock of the calls.
    pub(crate) started_ns: u64,
    /// Calls while it registered.
    pub(crate) calls: Vec<Call>,
    /// Calls while it deregistered.
    pub(crate) undone: Vec<Call>,
    pub(crate) lost: u64,
    pub(crate) ran: Ran,
    pub(crate) notes: Vec<String>,
    pub(crate) verified: Option<Moved>,
    pub(crate) trial: Trial,
}

/// The registrars of earlier trials, so that one which comes back is recognised. A `Weak` keeps the place in memory
/// taken, so that another registrar cannot be at the same address.
pub(crate) struct Earlier {
    registrars: Vec<Weak<dyn Registrar>>,
    /// Bytes pinned before the first trial.
    pinned_bytes: u64,
}

impl Earlier {
    /// Nothing has run yet.
    pub(crate) fn none() -> Result<Earlier, BenchError> {
        Ok(Earlier { registrars: Vec::new(), pinned_bytes: Memlock::read().map_err(BenchError::Host)?.pinned_bytes })
    }

    /// Bytes that an earlier trial has left pinned. Where the kernel unpins late (before 6.4, up to a second) they are
    /// given that time.
    fn left_pinned(&self) -> Result<u64, BenchError> {
        let waiting = Clock::wall().start();
        loop {
            let pinned = Memlock::read().map_err(BenchError::Host)?.pinned_bytes.saturating_sub(self.pinned_bytes);
            if pinned == 0 || waiting.seconds() > UNPINNED_WITHIN_S {
                return Ok(pinned);
            }
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn had(&mut self, registrar: &Arc<dyn Registrar>) -> bool {
        let this = Arc::downgrade(registrar);
        let had = self.registrars.iter().any(|earlier| Weak::ptr_eq(earlier, &this));
        self.registrars.push(this);
        had
    }
}

/// What a trial is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// To back memory, to fill caches, and to move bytes through everything; what it takes is thrown away.
    WarmUp,
    /// To be measured.
    Measure,
}

/// Bytes that were moved through registrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// MRs through which they went, at both ends.
    pub mrs: u64,
    /// Bytes.
    pub bytes: u64,
    /// Seams that they crossed.
    pub seams: u64,
}

/// Bounds one transfer: a fabric that lost it would never say so.
const TRANSFER_WAIT: Duration = Duration::from_secs(10);

/// Moves bytes through every MR and across every seam: success alone is no proof.
fn verify(mover: &dyn MoveBytes, mrs: &[&Mr], batch: &[Buffer]) -> Result<Moved, BenchError> {
    let mut buffers: Vec<&Buffer> = batch.iter().collect();
    buffers.sort_by_key(|buffer| buffer.extent().start());
    let target = |(id, mr): (u32, &&'_ Mr)| {
        let start = mr.extent().start();
        let after = buffers.partition_point(|buffer| buffer.extent().start() <= start);
        let buffer = buffers[after.saturating_sub(1)];
        let first = start - buffer.memory.extent().start();
        let chunk = (buffer, first..first + mr.extent().len());
        (ChunkId(id), chunk)
    };
    let chunks: Vec<(ChunkId, (&Buffer, std::ops::Range<u64>))> = (0..).zip(mrs).map(target).collect();
    let targets: Vec<Target<'_>> = chunks
        .iter()
        .zip(mrs)
        .map(|((id, (buffer, range)), mr)| Target {
            buffer: &buffer.name,
            id: *id,
            chunk: Chunk {
                memory: &buffer.memory,
                range: range.clone(),
                access: buffer.access.effective(),
                source: &Source::Address,
            },
            mr,
        })
        .collect();
    let moved =
        pinrail_conformance::verify(mover, &targets, TRANSFER_WAIT).map_err(|error| BenchError::Verify(Box::new(error)))?;
    Ok(Moved { mrs: moved.mrs, bytes: moved.bytes, seams: moved.seams })
}

/// Runs one trial. `start` is called when everything is ready: it may wait for others.
pub(crate) fn run(
    spec: &Spec,
    variant: &Variant,
    layout: &Layout,
    open: &Open<'_>,
    earlier: &mut Earlier,
    purpose: Purpose,
    start: &mut dyn FnMut() -> Result<(), BenchError>,
) -> Result<Evidence, BenchError> {
    let Opened { registrar, machine, notes: mut opened_notes, cached } = open().map_err(BenchError::Open)?;
    let (identity, reused) = (registrar.identity(), earlier.had(&registrar));
    let pinned_before_bytes = earlier.left_pinned()?;

    let allocating = spec.clock.start();
    let memory::Made { buffers: batch, memories, notes } = memory::make(spec, layout, &machine)?;
    let allocate_s = allocating.seconds();
    opened_notes.extend(notes);

    let watch = Watch::new(room(&batch, &machine), &spec.clock);
    let setting = Setting {
        batch: batch.clone(),
        machine: machine.clone(),
        registrar: Arc::new(Watched { registrar: Arc::clone(&registrar), watch: Arc::clone(&watch) }),
        prepare: Arc::new(WatchedPrepare { prepare: Arc::new(Populate::new()), watch: Arc::clone(&watch) }),
    };
    let planning = spec.clock.start();
    let ready = variant.contestant().ready(setting)?;
    let plan_s = planning.seconds();

    // Looked at last, so that whoever touches memory before the clock starts is seen.
    let resident_before = memory::resident(&memories)?;
    start()?;
    let (cpu_before, started_ns) = (clock::cpu_s(), watch.now_ns());
    let mut live = ready.register()?;
    let total_s = seconds(watch.now_ns() - started_ns);
    let cpu_s = clock::cpu_s() - cpu_before;
    let calls = watch.calls();
    let ran = live.ran();
    let verified = match (purpose, registrar.mover()) {
        (Purpose::WarmUp, Some(mover)) => Some(verify(mover, &live.mrs(), &batch)?),
        _ => None,
    };

    let (cpu_before, undoing) = (clock::cpu_s(), spec.clock.start());
    live.deregister()?;
    let (deregister_s, deregister_cpu_s) = (undoing.seconds(), clock::cpu_s() - cpu_before);
    let undone = watch.calls().split_off(calls.len());

    let of = |kind| calls.iter().filter(move |call| call.kind == kind);
    let stages = Stages {
        allocate_s,
        plan_s,
        prefault_s: span(of(Kind::Prepare)),
        register_s: span(of(Kind::Register)),
        total_s,
        deregister_s,
    };
    let registers: Vec<&Call> = of(Kind::Register).filter(|call| call.ok).collect();
    let trial = Trial {
        stages,
        cpu_s,
        deregister_cpu_s,
        peak_threads: ran.threads,
        peak_in_flight: ran.peak_in_flight.unwrap_or_else(|| in_flight(&calls)),
        deregister_peak_in_flight: in_flight(&undone),
        tasks: registers.len() as u64,
        service_s: registers.iter().map(|call| seconds(call.left_ns - call.entered_ns)).sum(),
        wait_s: waits(&calls, started_ns).iter().sum(),
        rails: load(&registers, machine.rails.len()),
        populated_bytes: of(Kind::Prepare).map(|call| call.populated).sum(),
        pinned_before_bytes,
        late_s: 0.0,
    };
    drop(memories);
    let lost = watch.lost();
    Ok(Evidence {
        identity,
        reused,
        cached,
        machine,
        batch,
        resident_before,
        started_ns,
        calls,
        undone,
        lost,
        ran,
        notes: opened_notes,
        verified,
        trial,
    })
}

/// Room for every call that an honest variant makes, twice.
fn room(batch: &[Buffer], machine: &Machine) -> usize {
    let smallest = machine.rails.iter().filter_map(|rail| rail.limits.max_mr_size).min().unwrap_or(u64::MAX);
    let slices = pinrail_policy::Slices::default();
    let calls = batch.iter().map(|buffer| {
        let pieces = buffer.len().div_ceil(smallest.max(1)) + 1;
        2 * pieces * machine.rails.len() as u64 + slices.count(buffer.len(), buffer.page_size) + pieces
    });
    usize::try_from(2 * calls.sum::<u64>()).unwrap_or(usize::MAX)
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

/// From the first call to the last return.
fn span<'c>(calls: impl Iterator<Item = &'c Call>) -> f64 {
    let ends = calls.map(|call| (call.entered_ns, call.left_ns));
    let (first, last) = ends.fold((u64::MAX, 0), |(first, last), (entered, left)| (first.min(entered), last.max(left)));
    seconds(last.saturating_sub(first))
}

/// The most calls that were open at once.
pub(crate) fn in_flight(calls: &[Call]) -> u32 {
    let mut edges: Vec<(u64, i32)> = calls.iter().flat_map(|call| [(call.entered_ns, 1), (call.left_ns, -1)]).collect();
    // A call that ended at the very moment at which another began was not open with it.
    edges.sort_unstable();
    let (mut open, mut peak) = (0i32, 0i32);
    for (_, change) in edges {
        open += change;
        peak = peak.max(open);
    }
    peak.unsigned_abs()
}

/// By registration: the seconds between the moment at which it could have begun (the start, or the end of the last
/// preparation of its bytes) and the moment at which it did.
fn waits(calls: &[Call], started_ns: u64) -> Vec<f64> {
    let mut prepared: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.kind == Kind::Prepare) {
        let slice = prepared.entry(call.start).or_insert((call.start + call.len, 0));
        slice.1 = slice.1.max(call.left_ns);
    }
    let ready = |call: &Call| {
        let slices = prepared.range(call.start..call.start + call.len);
        slices.map(|(_, &(_, left_ns))| left_ns).max().unwrap_or(started_ns).min(call.entered_ns)
    };
    let registers = calls.iter().filter(|call| call.kind == Kind::Register);
    registers.map(|call| seconds(call.entered_ns - ready(call))).collect()
}

fn load(registers: &[&Call], rails: usize) -> Vec<RailLoad> {
    let mut load = vec![RailLoad::default(); rails];
    for call in registers {
        if let Some(of) = call.rail.and_then(|rail| load.get_mut(rail.index())) {
            of.tasks += 1;
            of.bytes += call.len;
            of.busy_s += seconds(call.left_ns - call.entered_ns);
        }
    }
    load
}

//! What a registration costs on ever fuller rails: the mechanism behind a published order effect, looked at by itself.

use std::ops::ControlFlow;
use std::sync::Arc;

use pinrail_core::batch::Layout;
use pinrail_core::{Buffer, Chunk, DeregisterError, Machine, Mr, RailId, Registrar, Source};
use pinrail_plan::Plan;
use pinrail_policy::{AllRails, Policy};
use serde::{Deserialize, Serialize};

use crate::check;
use crate::clock;
use crate::environment::Environment;
use crate::error::BenchError;
use crate::memory;
use crate::rng::SplitMix;
use crate::run::{self, Event, Observer};
use crate::spec::{MemoryState, Spec};
use crate::stats;
use crate::verdict::CONFIDENCE;

/// Levels of filling at most.
const LEVELS: usize = 9;

/// What errors call it.
const NAME: &str = "sweep prior-bytes";

const GIB: f64 = 1_073_741_824.0;

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The version of the document.
    pub version: u32,
    /// Always `prior-bytes`.
    pub sweep: String,
    /// The backend that ran, as it calls itself.
    pub backend: String,
    /// The provider that ran, as it calls itself.
    pub provider: String,
    /// Where.
    pub environment: Environment,
    /// Bytes of each buffer.
    pub buffer_bytes: u64,
    /// Rails.
    pub rails: Vec<String>,
    /// The machine file: the rails with the limits that held.
    pub machine: String,
    /// Why nothing can be said of what registration costs; null where something can.
    pub withheld: Option<String>,
    /// Trials, each on fresh rails.
    pub trials: u32,
    /// What the order of levels was drawn from.
    pub seed: u64,
    /// How a call's time grows with what its rail holds already.
    pub register: Slope,
    /// The same of deregistration.
    pub deregister: Slope,
    /// Every call.
    pub points: Vec<Point>,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
}

/// A slope in milliseconds a GiB and rail, with its interval, beside what a call takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slope {
    /// The median over trials.
    pub ms_per_gib: f64,
    /// The low end of the interval; null where there are too few trials for one.
    pub low: Option<f64>,
    /// The high end.
    pub high: Option<f64>,
    /// Milliseconds of a call on an empty rail, median.
    pub empty_ms: f64,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The trial.
    pub trial: u32,
    /// The rail, by its place.
    pub rail: u16,
    /// Bytes its rail held before.
    pub prior_bytes: u64,
    /// Milliseconds to register.
    pub register_ms: f64,
    /// Milliseconds to deregister.
    pub deregister_ms: f64,
}

/// Registers one buffer on rails that hold ever more: one call at a time, levels in a seeded random order, on resident
/// memory; times are read from [`Spec::clock`]. The batch is one size; its last buffer is the one that is timed, the others fill.
///
/// # Errors
/// [`BenchError::Usage`] for buffers of several sizes, fewer than two, or memory that is not resident; what certainly does
/// not fit; what the backend reports.
pub fn prior_bytes(spec: &Spec, open: &crate::Open<'_>, observer: &mut Observer<'_>) -> Result<Sweep, BenchError> {
    let usage = |what: &str| Err(BenchError::Usage { what: what.to_owned() });
    let buffers = &spec.batch.buffers;
    if buffers.len() < 2 || buffers.iter().any(|buffer| buffer.len != buffers[0].len) {
        return usage("a sweep takes at least two buffers of one size, as in 48x64MiB: the last is timed, the others fill");
    }
    if spec.memory == MemoryState::Untouched {
        return usage("a sweep needs --memory resident: the first touch would be part of the first rail's calls");
    }
    let (layout, started_unix_s) = (spec.batch.layout()?, clock::unix_s());
    let mut rng = SplitMix::new(spec.seed);
    let mut sweep = None;
    for trial in 0..spec.trials {
        let opened = open().map_err(BenchError::Open)?;
        let identity = opened.registrar.identity();
        if let Some(what) = check::other_backend(&spec.backend, &identity) {
            return Err(BenchError::Refused { what });
        }
        let rails: Vec<String> = opened.machine.rails.iter().map(|rail| rail.name.clone()).collect();
        if sweep.is_none() {
            let all = Policy { rails: Arc::new(AllRails), ..Policy::new(spec.cores) };
            run::fits_memlock(&Plan::new(layout.imagined()?, &opened.machine, &all)?, 1)?;
            run::fits_memory(&layout, 1)?;
        }
        let points = one_trial(spec, &layout, opened.registrar.as_ref(), &opened.machine, trial, &mut rng)?;
        let so_far = sweep.get_or_insert_with(|| Sweep {
            version: crate::VERSION,
            sweep: "prior-bytes".to_owned(),
            backend: identity.backend.clone(),
            provider: identity.provider.clone(),
            withheld: check::pins_nothing(&spec.clock, &identity, &opened.machine)
                .or_else(|| check::may_be_cached(&identity, opened.cached)),
            environment: Environment::read(spec.cores.get(), &identity.library),
            machine: opened.machine.to_toml(),
            buffer_bytes: buffers[0].len,
            rails,
            trials: spec.trials,
            seed: spec.seed,
            register: Slope::default(),
            deregister: Slope::default(),
            points: Vec::new(),
            started_unix_s,
        });
        so_far.points.extend(points);
        let stages = crate::Stages::default();
        if observer(&Event::Trial { block: trial, blocks: spec.trials, name: "prior-bytes", stages }) == ControlFlow::Break(()) {
            return Err(BenchError::Cancelled);
        }
    }
    let Some(mut sweep) = sweep else { return usage("0 trials measure nothing") };
    sweep.register = slope(&sweep, |point| point.register_ms);
    sweep.deregister = slope(&sweep, |point| point.deregister_ms);
    Ok(sweep)
}

/// Levels in random order: what is registered grows and shrinks, so that time and filling are not one thing.
fn one_trial(
    spec: &Spec,
    layout: &Layout,
    registrar: &dyn Registrar,
    machine: &Machine,
    trial: u32,
    rng: &mut SplitMix,
) -> Result<Vec<Point>, BenchError> {
    let made = memory::make(spec, layout, machine)?;
    let Some((probe, fill)) = made.buffers.split_last() else { return Ok(Vec::new()) };
    let steps = fill.len().min(LEVELS - 1);
    let mut levels: Vec<usize> = (0..=steps).map(|nth| nth * fill.len() / steps).collect();
    rng.shuffle(&mut levels);
    let rails: Vec<RailId> = (0..u16::try_from(registrar.rails().len()).unwrap_or(u16::MAX)).map(RailId).collect();
    let mut held = Held { registrar, rails: &rails, mrs: Vec::new() };
    let mut points = Vec::new();
    for level in levels {
        held.fill_to(level, fill)?;
        for &rail in &rails {
            let clock = spec.clock.start();
            let mut mr = held.register(rail, probe)?;
            let register_ms = clock.seconds() * 1e3;
            let clock = spec.clock.start();
            let undone = registrar.deregister(&mut mr);
            let deregister_ms = clock.seconds() * 1e3;
            undone.map_err(deregistering)?;
            let prior_bytes = fill[..level].iter().map(Buffer::len).sum();
            points.push(Point { trial, rail: rail.0, prior_bytes, register_ms, deregister_ms });
        }
    }
    held.fill_to(0, fill)?;
    Ok(points)
}

/// What fills the rails: by buffer, an MR on each rail. What cannot be deregistered stays leaked, as its memory must.
struct Held<'h> {
    registrar: &'h dyn Registrar,
    rails: &'h [RailId],
    mrs: Vec<Mr>,
}

impl Held<'_> {
    /// Registers or deregisters whole buffers until so many of them are registered on every rail.
    fn fill_to(&mut self, buffers: usize, fill: &[Buffer]) -> Result<(), BenchError> {
        while self.mrs.len() < buffers * self.rails.len() {
            let (buffer, rail) = (self.mrs.len() / self.rails.len(), self.mrs.len() % self.rails.len());
            let mr = self.register(self.rails[rail], &fill[buffer])?;
            self.mrs.push(mr);
        }
        while self.mrs.len() > buffers * self.rails.len() {
            let Some(mut mr) = self.mrs.pop() else { return Ok(()) };
            self.registrar.deregister(&mut mr).map_err(deregistering)?;
        }
        Ok(())
    }

    fn register(&self, rail: RailId, buffer: &Buffer) -> Result<Mr, BenchError> {
        let access = buffer.access.effective();
        let chunk = Chunk { memory: &buffer.memory, range: buffer.range(), access, source: &Source::Address };
        let failed = |error| BenchError::ReferenceRegister { reference: NAME.to_owned(), error };
        self.registrar.register(rail, &chunk).map_err(failed)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // After a failure: what still can be deregistered is.
        for mr in &mut self.mrs {
            self.registrar.deregister(mr).ok();
        }
    }
}

fn deregistering(error: DeregisterError) -> BenchError {
    BenchError::ReferenceDeregister { reference: NAME.to_owned(), error }
}

/// The slope of each trial by itself, and of these the median with its interval: calls of one trial are not independent.
fn slope(sweep: &Sweep, ms: fn(&Point) -> f64) -> Slope {
    let of_trial = |trial: u32| {
        let of = sweep.points.iter().filter(|point| point.trial == trial);
        #[expect(clippy::cast_precision_loss, reason = "bytes of memory are below 2^53")]
        let points: Vec<(f64, f64)> = of.map(|point| (point.prior_bytes as f64 / GIB, ms(point))).collect();
        stats::slope(&points)
    };
    let slopes: Vec<f64> = (0..sweep.trials).filter_map(of_trial).collect();
    let enough = sweep.trials >= stats::trials_min(CONFIDENCE) && !slopes.is_empty();
    let interval = enough.then(|| stats::median_interval(&slopes, CONFIDENCE, &mut SplitMix::new(sweep.seed)));
    let empty: Vec<f64> = sweep.points.iter().filter(|point| point.prior_bytes == 0).map(ms).collect();
    Slope {
        ms_per_gib: stats::median(&slopes),
        low: interval.map(|of| of.low),
        high: interval.map(|of| of.high),
        empty_ms: stats::median(&empty),
    }
}

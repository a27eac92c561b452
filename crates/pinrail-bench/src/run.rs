//! A whole run: refused before anything is touched, warmed up, tried in blocks, judged.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use pinrail_core::batch::Layout;
use pinrail_core::{Identity, Machine, Memory, PinsCounted};
use pinrail_memory::{Mapping, Memlock};
use pinrail_plan::Plan;
use pinrail_policy::{AllRails, Policy};
use serde::{Deserialize, Serialize};

use crate::canary;
use crate::check::{self, Check, Checks, Fault, Slicing};
use crate::clock::{self, Clock, Stopwatch};
use crate::environment::{self, Environment};
use crate::error::BenchError;
use crate::memory;
use crate::processes::{Crowd, Processes};
use crate::record::Record;
use crate::results::{BatchRecord, Finding, Results, VERSION};
use crate::rng::SplitMix;
use crate::schedule;
use crate::spec::Spec;
use crate::stats;
use crate::summary;
use crate::trial::{self, Earlier, Moved, Open, Opened, Purpose, Stages, Trial};
use crate::variant::Variant;
use crate::verdict::{CONFIDENCE, Ground, Side};

/// How far a run is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// A variant is tried once, and what it took is thrown away.
    WarmUp {
        /// The variant.
        name: &'e str,
    },
    /// A trial has ended.
    Trial {
        /// Its block, counted from 0.
        block: u32,
        /// Blocks of the run.
        blocks: u32,
        /// The variant.
        name: &'e str,
        /// What it took; with several processes, the slowest.
        stages: Stages,
    },
}

/// Told how far a run is; `Break` ends it after the trial that is under way.
pub type Observer<'o> = dyn FnMut(&Event<'_>) -> ControlFlow<()> + 'o;

/// Measures: every variant in every block, in a seeded random order, on fresh rails and fresh memory; with `processes` in
/// several at once.
///
/// # Errors
/// What cannot be measured, and what must not be: another backend than the one named. Every other broken rule withholds
/// the verdicts it concerns and is listed in [`Results::findings`].
pub fn run(
    spec: &Spec,
    open: &Open<'_>,
    processes: Option<&Processes<'_>>,
    observer: &mut Observer<'_>,
) -> Result<Results, BenchError> {
    let checks: Checks = Check::ALL.into();
    let order = schedule::blocks(spec.variants.len(), spec.trials, spec.seed);
    let first = First::look(spec, open, processes, &checks)?;
    match processes {
        None => first.judge(spec, &mut Here::new(spec, open, checks.clone())?, observer, &order, &checks),
        Some(processes) => {
            let mut crowd = Crowd { processes, half_s: vec![0.0; spec.variants.len()] };
            let results = first.judge(spec, &mut crowd, observer, &order, &checks)?;
            Ok(Results { processes: processes.count, skew: processes.skew, ..results })
        }
    }
}

/// One process's trial with its judgement.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Tried {
    pub(crate) trial: Trial,
    pub(crate) faults: Vec<(Check, Fault)>,
    pub(crate) slicing: Slicing,
    pub(crate) record: Record,
    pub(crate) notes: Vec<String>,
    pub(crate) verified: Option<Moved>,
}

/// Where trials come from.
pub(crate) trait Trials {
    /// One trial: an entry for each process.
    fn try_once(&mut self, variant: usize, purpose: Purpose) -> Result<Vec<Tried>, BenchError>;
}

/// Trials in this process.
pub(crate) struct Here<'h> {
    spec: &'h Spec,
    open: &'h Open<'h>,
    layout: Layout,
    earlier: Earlier,
    checks: Checks,
}

impl<'h> Here<'h> {
    pub(crate) fn new(spec: &'h Spec, open: &'h Open<'h>, checks: Checks) -> Result<Here<'h>, BenchError> {
        Ok(Here { spec, open, layout: spec.batch.layout()?, earlier: Earlier::none()?, checks })
    }

    /// One trial that starts when `start` returns.
    pub(crate) fn once(
        &mut self,
        variant: usize,
        purpose: Purpose,
        start: &mut dyn FnMut() -> Result<(), BenchError>,
    ) -> Result<Tried, BenchError> {
        let variant = &self.spec.variants[variant];
        let evidence = trial::run(self.spec, variant, &self.layout, self.open, &mut self.earlier, purpose, start)?;
        let faults = check::trial(self.spec, variant, &evidence, &self.checks);
        Ok(Tried {
            faults,
            slicing: check::slicing(&evidence),
            record: Record::of(&evidence),
            verified: evidence.verified,
            notes: evidence.notes,
            trial: evidence.trial,
        })
    }

    /// Rails and memory, and nothing done with them.
    pub(crate) fn idle(&mut self, start: &mut dyn FnMut() -> Result<(), BenchError>) -> Result<Tried, BenchError> {
        let opened = (self.open)().map_err(BenchError::Open)?;
        let made = memory::make(self.spec, &self.layout, &opened.machine)?;
        start()?;
        drop((opened.registrar, made));
        Ok(Tried::default())
    }
}

impl Trials for Here<'_> {
    fn try_once(&mut self, variant: usize, purpose: Purpose) -> Result<Vec<Tried>, BenchError> {
        Ok(vec![self.once(variant, purpose, &mut || Ok(()))?])
    }
}

/// What a first look has found: rails were opened and closed again.
pub(crate) struct First {
    identity: Identity,
    machine: Machine,
    notes: Vec<String>,
    environment: Environment,
    since: Stopwatch,
    started_unix_s: u64,
    bytes: u64,
}

impl First {
    /// Refuses what certainly cannot be measured, before anything is touched.
    pub(crate) fn look(
        spec: &Spec,
        open: &Open<'_>,
        processes: Option<&Processes<'_>>,
        checks: &Checks,
    ) -> Result<First, BenchError> {
        let (since, started_unix_s) = (Clock::wall().start(), clock::unix_s());
        spec.check()?;
        if processes.is_some_and(|of| of.count == 0) {
            return Err(BenchError::Usage { what: "0 processes measure nothing".to_owned() });
        }
        let layout = spec.batch.layout()?;
        let Opened { registrar, machine, notes, .. } = open().map_err(BenchError::Open)?;
        let identity = registrar.identity();
        drop(registrar);
        if checks.contains(&Check::Backend)
            && let Some(what) = check::other_backend(&spec.backend, &identity)
        {
            return Err(BenchError::Refused { what });
        }
        let batches = processes.map_or(1, Processes::batches);
        for variant in &spec.variants {
            let all = || Policy { rails: Arc::new(AllRails), ..Policy::new(spec.cores) };
            let policy = variant.claims().map_or_else(all, |claims| claims.policy.clone());
            fits_memlock(&Plan::new(layout.imagined()?, &machine, &policy)?, batches)?;
        }
        let need = fits_memory(&layout, batches)?;
        let environment = Environment::read(spec.cores.get(), &identity.library);
        Ok(First { identity, machine, notes, environment, since, started_unix_s, bytes: need })
    }

    /// The run itself.
    pub(crate) fn judge(
        self,
        spec: &Spec,
        trials: &mut dyn Trials,
        observer: &mut Observer<'_>,
        order: &[Vec<usize>],
        checks: &Checks,
    ) -> Result<Results, BenchError> {
        let names = Variant::names(&spec.variants);
        let mut tell = |event: Event<'_>| match observer(&event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(BenchError::Cancelled),
        };
        let mut notes = self.notes;
        back_memory(spec, self.bytes)?;
        let mut verified = Vec::new();
        for (variant, name) in names.iter().enumerate() {
            tell(Event::WarmUp { name })?;
            let warm = trials.try_once(variant, Purpose::WarmUp)?;
            verified.push(warm.iter().find_map(|of| of.verified));
        }
        if verified.iter().any(Option::is_none) {
            notes.push("this backend moves no bytes by itself, so none were moved through the registrations".to_owned());
        }
        let mut tried: Vec<Vec<Vec<Tried>>> = names.iter().map(|_| Vec::new()).collect();
        let mut canary_s = vec![canary::run(&spec.clock)?];
        for (block, variants) in (0..).zip(order) {
            for &variant in variants {
                let mut trial = trials.try_once(variant, Purpose::Measure)?;
                canary_s.push(canary::run(&spec.clock)?);
                trial.iter_mut().for_each(|of| notes.append(&mut of.notes));
                let stages = summary::slowest(&trial);
                // One record a variant is kept: the last.
                if let Some(before) = tried[variant].last_mut() {
                    before.iter_mut().for_each(|of| of.record = Record::default());
                }
                tried[variant].push(trial);
                tell(Event::Trial { block, blocks: spec.trials, name: &names[variant], stages })?;
            }
        }
        notes.sort_unstable();
        notes.dedup();
        let findings = findings(&names, &tried, order, checks)?;
        let of = |at: usize| summary::variant(spec, &spec.variants[at], &names[at], &tried[at], verified[at], &self.machine);
        let variants: Vec<_> = (0..names.len()).map(of).collect();
        let drift = stats::drift(&canary_s, CONFIDENCE, &mut SplitMix::new(spec.seed));
        let ground = Ground { findings: &findings, drift: drift.at_least, seed: spec.seed, checks };
        let slicing = |at: usize| tried[at].first().and_then(|trial| trial.iter().map(|of| of.slicing).max());
        let side =
            |at: usize| Side { name: &names[at], samples: &variants[at].samples, slicing: slicing(at).unwrap_or_default() };
        let pairs = (0..variants.len()).flat_map(|a| (a + 1..variants.len()).map(move |b| (a, b)));
        let comparisons = pairs.map(|(a, b)| ground.compare(&side(a), &side(b))).collect();
        Ok(Results {
            version: VERSION,
            comparisons,
            variants,
            backend: self.identity.backend,
            provider: self.identity.provider,
            environment: self.environment,
            batch: BatchRecord {
                name: spec.batch_name.clone(),
                buffers: spec.batch.buffers.len() as u64,
                bytes: spec.batch.bytes().unwrap_or(u64::MAX),
                file: spec.batch.to_json_value(),
            },
            rails: self.machine.rails.iter().map(|rail| rail.name.clone()).collect(),
            machine: self.machine.to_toml(),
            memory: spec.memory,
            pages: spec.pages.to_string(),
            trials: spec.trials,
            seed: spec.seed,
            confidence: CONFIDENCE,
            processes: 1,
            skew: None,
            schedule: order.to_vec(),
            canary_s,
            drift: drift.seen,
            drift_at_least: drift.at_least,
            findings,
            notes,
            started_unix_s: self.started_unix_s,
            took_s: self.since.seconds(),
        })
    }
}

/// The bytes that so many of the batch take, if they are free.
pub(crate) fn fits_memory(layout: &Layout, batches: u64) -> Result<u64, BenchError> {
    let bytes = layout.allocations.iter().map(|of| of.span.end - of.span.start).fold(0, u64::saturating_add);
    let (need, available) = (bytes.saturating_mul(batches), environment::available_bytes());
    if need > available { Err(BenchError::Memory { need, available }) } else { Ok(need) }
}

/// The pins of all processes certainly do not exceed the limit. A user's pins add up over its processes.
pub(crate) fn fits_memlock(plan: &Plan, batches: u64) -> Result<(), BenchError> {
    let (memlock, needs) = (Memlock::read().map_err(BenchError::Host)?, plan.needs());
    for (bytes, counted) in [
        (needs.memlock_process_bytes, PinsCounted::Process),
        (needs.memlock_user_bytes.saturating_mul(batches), PinsCounted::User),
    ] {
        if bytes > 0 {
            memlock.precheck(bytes, counted).map_err(BenchError::Memlock)?;
        }
    }
    Ok(())
}

/// Touches as much memory as a trial has, and gives it back: a host that backs a guest's memory lazily does it now, and not
/// in the first trials, where it was seen to take 10 times as long.
fn back_memory(spec: &Spec, bytes: u64) -> Result<(), BenchError> {
    let memory = Memory::new(Mapping::anonymous(bytes, spec.pages, None)?);
    memory::make_resident(&[memory], spec.pages, spec.cores, &|| true)
}

/// What was broken in any trial, and what did nothing in all of them.
fn findings(
    names: &[String],
    tried: &[Vec<Vec<Tried>>],
    order: &[Vec<usize>],
    checks: &Checks,
) -> Result<Vec<Finding>, BenchError> {
    let interleaved = check::interleaved(order, names).filter(|(check, _)| checks.contains(check));
    let mut findings: Vec<Finding> = interleaved.into_iter().map(|(check, what)| Finding::new(check, None, what)).collect();
    for (name, tried) in names.iter().zip(tried) {
        let faults = || tried.iter().flatten().flat_map(|of| &of.faults);
        // By check, the first that broke it.
        let mut broken: BTreeMap<Check, &String> = BTreeMap::new();
        // By term, how often it did nothing, and what was said of it first.
        let mut idle: BTreeMap<(Check, &str), (usize, &String)> = BTreeMap::new();
        for (check, fault) in faults() {
            match fault {
                Fault::Broken(what) if *check == Check::Backend => return Err(BenchError::Refused { what: what.clone() }),
                Fault::Broken(what) => drop(broken.entry(*check).or_insert(what)),
                Fault::Idle(what) => {
                    let term = what.split(' ').next().unwrap_or_default();
                    idle.entry((*check, term)).or_insert((0, what)).0 += 1;
                }
            }
        }
        let times = tried.iter().flatten().filter(|of| of.trial.tasks > 0).count();
        let never = idle.into_iter().filter(|(_, (idle, _))| *idle >= times).map(|((check, _), (_, what))| (check, what));
        findings.extend(broken.into_iter().chain(never).map(|(check, what)| Finding::new(check, Some(name), what.clone())));
    }
    Ok(findings)
}

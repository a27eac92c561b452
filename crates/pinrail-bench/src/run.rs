//! A whole run: refused before anything is touched, warmed up, tried in blocks, judged.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use pinrail_core::batch::Layout;
use pinrail_core::{Machine, PinsCounted};
use pinrail_memory::{Mapping, Memlock};
use pinrail_plan::Plan;
use pinrail_policy::{AllRails, Policy};
use std::sync::Arc;

use crate::canary;
use crate::check::{self, Check, Checks, Fault, Slicing};
use crate::clock::{self, Clock};
use crate::environment::{self, Environment};
use crate::error::BenchError;
use crate::memory;
use crate::record::Record;
use crate::results::{BatchRecord, Figure, Finding, LoadResults, Results, VERSION, VariantResults};
use crate::rng::SplitMix;
use crate::schedule;
use crate::spec::Spec;
use crate::stats;
use crate::trial::{self, Earlier, Open, Opened, Stages, Trial};
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
        /// What it took.
        stages: Stages,
    },
}

/// Told how far a run is; `Break` ends it after the trial that is under way.
pub type Observer<'o> = dyn FnMut(&Event<'_>) -> ControlFlow<()> + 'o;

/// Measures: every variant in every block, in a seeded random order, on fresh rails and fresh memory.
///
/// # Errors
/// What cannot be measured, and what must not be: another backend than the one named. Every other broken rule withholds
/// the verdicts it concerns and is listed in [`Results::findings`].
pub fn run(spec: &Spec, open: &Open<'_>, observer: &mut Observer<'_>) -> Result<Results, BenchError> {
    let order = schedule::blocks(spec.variants.len(), spec.trials, spec.seed);
    judged(spec, open, observer, &order, &Check::ALL.into())
}

/// A trial with its judgement.
pub(crate) struct Tried {
    pub(crate) trial: Trial,
    pub(crate) faults: Vec<(Check, Fault)>,
    pub(crate) slicing: Slicing,
    pub(crate) record: Record,
    pub(crate) notes: Vec<String>,
}

/// The same with the order of trials and the checks in force given: tests plant errors in the one and lift the others.
pub(crate) fn judged(
    spec: &Spec,
    open: &Open<'_>,
    observer: &mut Observer<'_>,
    order: &[Vec<usize>],
    checks: &Checks,
) -> Result<Results, BenchError> {
    let (started_unix_s, clock) = (clock::unix_s(), Clock::start());
    let layout = spec.batch.layout()?;
    let opened = first(spec, open, &layout, checks)?;
    let environment = Environment::read(spec.cores.get(), &opened.registrar.identity().library);
    let (identity, machine, mut notes) = (opened.registrar.identity(), opened.machine, opened.notes);
    drop(opened.registrar);

    let names = Variant::names(&spec.variants);
    let mut tell = |event: Event<'_>| match observer(&event) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(BenchError::Cancelled),
    };
    back_memory(spec, &layout)?;
    let mut earlier = Earlier::none()?;
    let mut try_once = |variant: usize| -> Result<Tried, BenchError> {
        let variant = &spec.variants[variant];
        let evidence = trial::run(spec, variant, &layout, open, &mut earlier, || Ok(()))?;
        let faults = check::trial(spec, variant, &evidence, checks);
        if let Some((_, Fault::Broken(what))) = faults.iter().find(|(check, _)| *check == Check::Backend) {
            return Err(BenchError::Refused { what: what.clone() });
        }
        Ok(Tried {
            faults,
            slicing: check::slicing(&evidence),
            record: Record::of(&evidence),
            notes: evidence.notes,
            trial: evidence.trial,
        })
    };
    for (variant, name) in names.iter().enumerate() {
        tell(Event::WarmUp { name })?;
        try_once(variant)?;
    }
    let mut tried: Vec<Vec<Tried>> = spec.variants.iter().map(|_| Vec::new()).collect();
    let mut canary_s = vec![canary::run()?];
    for (block, variants) in (0..).zip(order) {
        for &variant in variants {
            let mut trial = try_once(variant)?;
            canary_s.push(canary::run()?);
            notes.append(&mut trial.notes);
            let stages = trial.trial.stages;
            // One record a variant is kept: the last.
            if let Some(before) = tried[variant].last_mut() {
                before.record = Record::default();
            }
            tried[variant].push(trial);
            tell(Event::Trial { block, blocks: spec.trials, name: &names[variant], stages })?;
        }
    }
    notes.sort_unstable();
    notes.dedup();
    let findings = findings(&names, &tried, order, checks);
    let variants: Vec<VariantResults> = spec
        .variants
        .iter()
        .zip(&names)
        .zip(&tried)
        .map(|((variant, name), tried)| results(spec, variant, name, tried, &machine))
        .collect();
    let drift = stats::drift(&canary_s);
    let ground = Ground { findings: &findings, drift, seed: spec.seed, checks };
    let side = |at: usize| Side {
        name: &names[at],
        samples: &variants[at].samples,
        slicing: tried[at].first().map_or((0, 0), |tried| tried.slicing),
    };
    let pairs = (0..variants.len()).flat_map(|a| (a + 1..variants.len()).map(move |b| (a, b)));
    let comparisons = pairs.map(|(a, b)| ground.compare(&side(a), &side(b))).collect();
    Ok(Results {
        version: VERSION,
        comparisons,
        variants,
        backend: identity.backend,
        provider: identity.provider,
        environment,
        batch: BatchRecord {
            name: spec.batch_name.clone(),
            buffers: spec.batch.buffers.len() as u64,
            bytes: spec.batch.bytes().unwrap_or(u64::MAX),
            file: spec.batch.to_json_value(),
        },
        rails: machine.rails.iter().map(|rail| rail.name.clone()).collect(),
        memory: spec.memory,
        pages: spec.pages.to_string(),
        trials: spec.trials,
        seed: spec.seed,
        confidence: CONFIDENCE,
        processes: 1,
        schedule: order.to_vec(),
        canary_s,
        drift,
        findings,
        notes,
        started_unix_s,
        took_s: clock.seconds(),
    })
}

/// Refuses what certainly cannot be measured, before anything is touched; answers rails that were opened to see.
fn first(spec: &Spec, open: &Open<'_>, layout: &Layout, checks: &Checks) -> Result<Opened, BenchError> {
    let usage = |what: &str| Err(BenchError::Usage { what: what.to_owned() });
    if spec.variants.is_empty() {
        return usage("there is nothing to compare: name policies or references");
    }
    if spec.trials == 0 {
        return usage("0 trials measure nothing");
    }
    if spec.batch.buffers.is_empty() {
        return usage("the batch has no buffers");
    }
    let opened = open().map_err(|why| BenchError::Open(Box::new(why)))?;
    if checks.contains(&Check::Backend)
        && let Some(what) = check::other_backend(&spec.backend, &opened.registrar.identity())
    {
        return Err(BenchError::Refused { what });
    }
    let memlock = Memlock::read().map_err(BenchError::Host)?;
    for variant in &spec.variants {
        let all = || Policy { rails: Arc::new(AllRails), ..Policy::new(spec.cores) };
        let policy = variant.claims().map_or_else(all, |claims| claims.policy.clone());
        let plan = Plan::new(layout.imagined()?, &opened.machine, &policy)?;
        let needs = plan.needs();
        for (bytes, counted) in
            [(needs.memlock_process_bytes, PinsCounted::Process), (needs.memlock_user_bytes, PinsCounted::User)]
        {
            if bytes > 0 {
                memlock.precheck(bytes, counted).map_err(BenchError::Memlock)?;
            }
        }
    }
    let (need, available) = (bytes(layout), environment::available_bytes());
    if need > available {
        return Err(BenchError::Memory { need, available });
    }
    Ok(opened)
}

/// Bytes of all allocations.
fn bytes(layout: &Layout) -> u64 {
    layout.allocations.iter().map(|allocation| allocation.span.end - allocation.span.start).fold(0, u64::saturating_add)
}

/// Touches as much memory as a trial has, and gives it back: a host that backs a guest's memory lazily does it now, and not
/// in the first trials, where it was seen to take 10 times as long.
fn back_memory(spec: &Spec, layout: &Layout) -> Result<(), BenchError> {
    let memories: Result<Vec<_>, _> = layout
        .allocations
        .iter()
        .map(|of| Mapping::anonymous(of.span.end - of.span.start, spec.pages, None).map(pinrail_core::Memory::new))
        .collect();
    memory::populate(&memories?, spec.pages, spec.cores.get() as usize)
}

/// What was broken in any trial, and what did nothing in all of them.
fn findings(names: &[String], tried: &[Vec<Tried>], order: &[Vec<usize>], checks: &Checks) -> Vec<Finding> {
    let interleaved = check::interleaved(order, names.len()).filter(|(check, _)| checks.contains(check));
    let mut findings: Vec<Finding> = interleaved.into_iter().map(|(check, what)| Finding::new(check, None, what)).collect();
    for (name, tried) in names.iter().zip(tried) {
        // By check: the first that broke it, and how often it was idle.
        let mut broken: BTreeMap<Check, String> = BTreeMap::new();
        let mut idle: BTreeMap<Check, (usize, String)> = BTreeMap::new();
        for (check, fault) in tried.iter().flat_map(|tried| tried.faults.clone()) {
            match fault {
                Fault::Broken(what) => drop(broken.entry(check).or_insert(what)),
                Fault::Idle(what) => idle.entry(check).or_insert((0, what)).0 += 1,
            }
        }
        let never = idle.into_iter().filter(|(_, (times, _))| *times >= tried.len()).map(|(check, (_, what))| (check, what));
        findings.extend(broken.into_iter().chain(never).map(|(check, what)| Finding::new(check, Some(name), what)));
    }
    findings
}

fn results(spec: &Spec, variant: &Variant, name: &str, tried: &[Tried], machine: &Machine) -> VariantResults {
    let all = |of: fn(&Trial) -> f64| -> Vec<f64> { tried.iter().map(|tried| of(&tried.trial)).collect() };
    let figure = |of: fn(&Trial) -> f64| {
        let samples = all(of);
        let interval = stats::median_interval(&samples, CONFIDENCE, &mut SplitMix::new(spec.seed));
        Figure { median_s: stats::median(&samples), low_s: interval.low, high_s: interval.high }
    };
    let median = |of: fn(&Trial) -> f64| stats::median(&all(of));
    let most = |of: fn(&Trial) -> u32| tried.iter().map(|tried| of(&tried.trial)).max().unwrap_or(0);
    let samples = all(|trial| trial.stages.total_s);
    let deregister = figure(|trial| trial.stages.deregister_s);
    let load = |(at, rail): (usize, &pinrail_core::Rail)| {
        let busy: Vec<f64> = tried.iter().map(|tried| tried.trial.rails[at].busy_s).collect();
        let last = tried.last().map(|tried| tried.trial.rails[at].clone()).unwrap_or_default();
        LoadResults { rail: rail.name.clone(), tasks: last.tasks, bytes: last.bytes, busy_s: stats::median(&busy) }
    };
    VariantResults {
        name: name.to_owned(),
        policy: variant.claims().map(|claims| claims.policy.spec()),
        total: figure(|trial| trial.stages.total_s),
        prefault: figure(|trial| trial.stages.prefault_s),
        register: figure(|trial| trial.stages.register_s),
        deregister,
        deregister_s: deregister.median_s,
        allocate_s: median(|trial| trial.stages.allocate_s),
        plan_s: median(|trial| trial.stages.plan_s),
        cpu_s: median(|trial| trial.cpu_s),
        cores_busy: median(|trial| trial.cpu_s / trial.stages.total_s),
        peak_threads: most(|trial| trial.peak_threads),
        peak_in_flight: most(|trial| trial.peak_in_flight),
        tasks: tried.last().map_or(0, |tried| tried.trial.tasks),
        service_s: median(|trial| trial.service_s),
        wait_s: median(|trial| trial.wait_s),
        load: machine.rails.iter().enumerate().map(load).collect(),
        outliers: stats::outliers(&samples),
        samples,
        raw: tried.iter().map(|tried| vec![tried.trial.clone()]).collect(),
        record: tried.last().map(|tried| vec![tried.record.clone()]).unwrap_or_default(),
    }
}

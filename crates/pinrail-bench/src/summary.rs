//! From the trials of a variant to its figures.

use pinrail_core::{Machine, Rail};

use crate::results::{Figure, LoadResults, ProcessResults, VariantResults};
use crate::rng::SplitMix;
use crate::run::Tried;
use crate::spec::Spec;
use crate::stats;
use crate::trial::{Moved, Stages, Trial};
use crate::variant::Variant;
use crate::verdict::CONFIDENCE;

/// The stages of the slowest process; each stage by itself.
pub(crate) fn slowest(trial: &[Tried]) -> Stages {
    let most = |of: fn(&Stages) -> f64| trial.iter().map(|tried| of(&tried.trial.stages)).fold(0.0, f64::max);
    Stages {
        allocate_s: most(|of| of.allocate_s),
        plan_s: most(|of| of.plan_s),
        prefault_s: most(|of| of.prefault_s),
        register_s: most(|of| of.register_s),
        total_s: most(|of| of.total_s),
        deregister_s: most(|of| of.deregister_s),
    }
}

/// All figures of a variant; `tried` is by block, then by process.
pub(crate) fn variant(
    spec: &Spec,
    variant: &Variant,
    name: &str,
    tried: &[Vec<Tried>],
    verified: Option<Moved>,
    machine: &Machine,
) -> VariantResults {
    let stages: Vec<Stages> = tried.iter().map(|trial| slowest(trial)).collect();
    let stage = |of: fn(&Stages) -> f64| -> Vec<f64> { stages.iter().map(of).collect() };
    let figure = |samples: &[f64]| {
        let interval = stats::median_interval(samples, CONFIDENCE, &mut SplitMix::new(spec.seed));
        Figure { median_s: stats::median(samples), low_s: interval.low, high_s: interval.high }
    };
    let all = || tried.iter().flatten().map(|of| &of.trial);
    let most = |of: fn(&Trial) -> u32| all().map(of).max().unwrap_or(0);
    // Of what adds up over processes, each trial's sum.
    let sums = |of: fn(&Trial) -> f64| -> Vec<f64> {
        tried.iter().map(|trial| trial.iter().map(|tried| of(&tried.trial)).sum()).collect()
    };
    let (cpu, samples) = (sums(|of| of.cpu_s), stage(|of| of.total_s));
    let busy: Vec<f64> = cpu.iter().zip(&samples).map(|(cpu, total)| cpu / total).collect();
    let each = |of: fn(&Trial) -> f64| {
        let seconds: Vec<f64> = all().filter(|trial| trial.tasks > 0).map(of).collect();
        stats::median(&seconds)
    };
    let deregister = figure(&stage(|of| of.deregister_s));
    let load = |(at, rail): (usize, &Rail)| {
        let of: Vec<_> = all().filter_map(|trial| trial.rails.get(at)).filter(|load| load.tasks > 0).collect();
        let busy: Vec<f64> = of.iter().map(|load| load.busy_s).collect();
        let (tasks, bytes) = of.last().map_or((0, 0), |load| (load.tasks, load.bytes));
        LoadResults { rail: rail.name.clone(), tasks, bytes, busy_s: stats::median(&busy) }
    };
    let process = |at: usize| {
        let of = |stage: fn(&Trial) -> f64| {
            let samples: Vec<f64> = tried.iter().filter_map(|trial| trial.get(at)).map(|tried| stage(&tried.trial)).collect();
            stats::median(&samples)
        };
        ProcessResults {
            register_s: of(|trial| trial.stages.register_s),
            total_s: of(|trial| trial.stages.total_s),
            deregister_s: of(|trial| trial.stages.deregister_s),
            cpu_s: of(|trial| trial.cpu_s),
        }
    };
    VariantResults {
        name: name.to_owned(),
        policy: variant.claims().map(|claims| claims.policy.spec()),
        total: figure(&samples),
        prefault: figure(&stage(|of| of.prefault_s)),
        register: figure(&stage(|of| of.register_s)),
        deregister,
        deregister_s: deregister.median_s,
        allocate_s: stats::median(&stage(|of| of.allocate_s)),
        plan_s: stats::median(&stage(|of| of.plan_s)),
        cpu_s: stats::median(&cpu),
        cores_busy: stats::median(&busy),
        peak_threads: most(|of| of.peak_threads),
        peak_in_flight: most(|of| of.peak_in_flight),
        tasks: all().map(|of| of.tasks).filter(|tasks| *tasks > 0).min().unwrap_or(0),
        service_s: each(|of| of.service_s / count(of.tasks)),
        wait_s: each(|of| of.wait_s / count(of.tasks)),
        load: machine.rails.iter().enumerate().map(load).collect(),
        processes: (0..tried.first().map_or(0, Vec::len)).map(process).collect(),
        verified,
        outliers: stats::outliers(&samples),
        samples,
        raw: tried.iter().map(|trial| trial.iter().map(|of| of.trial.clone()).collect()).collect(),
        record: tried.last().map(|trial| trial.iter().map(|of| of.record.clone()).collect()).unwrap_or_default(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of calls")]
fn count(tasks: u64) -> f64 {
    tasks as f64
}

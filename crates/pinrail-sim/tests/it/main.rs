//! Plans and dispatch in virtual time: what a policy promises can be read off a trace.

use std::num::NonZeroU32;

use pinrail_core::batch::BatchSpec;
use pinrail_core::{Kind, Machine, StepWhat};
use pinrail_plan::Plan;
use pinrail_policy::Policy;
use pinrail_sim::{Event, Node, Trace, run};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn plan(shape: &str, rails: u16, parallel: u32, spec: &str) -> Plan {
    let mut machine = Machine::of_rails(rails);
    let parallel = NonZeroU32::new(parallel).expect("a test's rail takes calls");
    machine.rails.iter_mut().for_each(|rail| rail.calls_in_parallel = parallel);
    let buffers = BatchSpec::shape(shape).and_then(|batch| batch.layout()?.imagined()).expect("a test's own shape");
    let policy = Policy::new(NonZeroU32::MIN).with(spec).expect("a test's own spec");
    Plan::new(buffers, &machine, &policy).expect("a test's own plan")
}

/// A millisecond a registration and one for every MiB of a preparation's chunk.
fn trace(plan: &Plan, kind: Kind) -> Trace {
    let cost = |what, bytes: u64| match what {
        StepWhat::Prepare { .. } => (bytes >> 20).max(1) * MS,
        StepWhat::Task { .. } => MS,
    };
    let limits = plan.policy().concurrency.begin(&plan.shape(kind));
    run(plan.steps(kind).expect("a plan counts its steps"), plan.policy().ceiling(), limits, Node { workers: 64 }, cost)
}

fn makespan_ms(shape: &str, rails: u16, parallel: u32, spec: &str) -> u64 {
    trace(&plan(shape, rails, parallel, spec), Kind::Register).end.0 / MS
}

#[test]
fn equal_tasks_take_as_long_as_the_tightest_limit_says() {
    assert_eq!(makespan_ms("12x1MiB", 4, 16, "unbounded+no-prefault"), 1, "48 tasks, 64 workers");
    assert_eq!(makespan_ms("12x1MiB", 4, 1, "unbounded+no-prefault"), 12, "one call a rail");
    assert_eq!(makespan_ms("12x1MiB", 4, 16, "per-rail=3+unbounded+no-prefault"), 4);
    assert_eq!(makespan_ms("12x1MiB", 4, 16, "capped=6+no-prefault"), 8);
    assert_eq!(makespan_ms("12x1MiB", 4, 16, "rails-in-series+unbounded+no-prefault"), 4, "a buffer's rails one by one");
}

#[test]
fn a_chunk_registers_while_later_ones_are_still_prepared() {
    let plan = plan("4x8MiB", 1, 1, "capped=2+prefault");
    let trace = trace(&plan, Kind::Register);
    let steps = plan.steps(Kind::Register).unwrap();
    let kind = |event: &Event| matches!(steps.what(event.step), StepWhat::Prepare { .. });
    let overlapping = trace.steps.iter().any(|task| {
        !kind(task) && trace.steps.iter().any(|slice| kind(slice) && slice.start < task.end && task.start < slice.end)
    });
    assert!(overlapping && trace.peak_in_flight == 2);
}

#[test]
fn the_same_plan_has_the_same_trace() {
    let plan = plan("kimi-k3/64", 4, 1, "ascending+capped=3");
    assert_eq!(trace(&plan, Kind::Register), trace(&plan, Kind::Register));
}

#[test]
fn deregistration_keeps_the_policys_limits_and_not_its_order() {
    let trace = trace(&plan("4x1MiB", 2, 4, "descending+capped=3"), Kind::Deregister);
    assert_eq!((trace.peak_in_flight, trace.end.0), (3, 3 * MS));
    assert!(trace.steps.iter().map(|event| event.step.0).eq(0..8), "the caller's order");
}

fn spec() -> impl Strategy<Value = String> {
    let fan_out = prop_oneof![Just("rails-in-parallel"), Just("rails-in-series")];
    let order = prop_oneof![Just("caller-order"), Just("ascending"), Just("descending")];
    let limit = prop_oneof![Just("unbounded".to_owned()), (1u32..9).prop_map(|n| format!("capped={n}"))];
    let rail = prop_oneof![Just(String::new()), (1u32..4).prop_map(|n| format!("+per-rail={n}"))];
    let prefault = prop_oneof![Just("prefault"), Just("no-prefault")];
    (fan_out, order, limit, rail, prefault).prop_map(|(a, b, c, d, e)| format!("{a}+{b}+{c}{d}+{e}"))
}

proptest! {
    #[test]
    fn under_every_policy_everything_runs_once_within_the_limits(spec in spec(), rails in 1u16..5, parallel in 1u32..4, divisor in 256u64..4096) {
        let plan = plan(&format!("kimi-k3/{divisor}"), rails, parallel, &spec);
        for kind in [Kind::Register, Kind::Deregister] {
            let trace = trace(&plan, kind);
            let steps = plan.steps(kind).unwrap();
            let mut seen: Vec<u32> = trace.steps.iter().map(|event| event.step.0).collect();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..u32::try_from(steps.len()).unwrap()));
            if let Some(cap) = spec.split('+').find_map(|term| term.strip_prefix("capped=")) {
                prop_assert!(trace.peak_in_flight <= cap.parse().unwrap());
            }
        }
    }
}

//! Plans and dispatch in virtual time: what a policy promises can be read off a trace.

mod contention;
// Hundreds of thousands of steps, which an interpreter takes an hour for; the crate has no unsafe code.
#[cfg(not(miri))]
mod published;
#[cfg(not(miri))]
mod scenarios;

use std::num::NonZeroU32;

use pinrail_core::batch::BatchSpec;
use pinrail_core::{Kind, Machine, StepWhat};
use pinrail_plan::Plan;
use pinrail_policy::Policy;
use pinrail_sim::{Event, Fate, NoFaults, Node, Profile, Trace};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// A millisecond a registration and a deregistration, and one for every 8 MiB of first touch.
const PLAIN: &str = "version = 1\nabout = 'plain'\nthread_start_ns = 0\n\
    [register]\nlock = { scope = 'domain', share = 0, ns = 0 }\nns_per_gib = 0\n\
    [touch]\nns_per_4kib = 488.28125\nstorm = 1\nknee_threads = 64\nefficiency = 1\npast_knee = 1\nprobe_ns_per_slice = 0\n";

/// What a call costs besides: a millisecond, so that limits can be counted.
struct OneMs;

impl pinrail_sim::Faults for OneMs {
    fn call(&mut self, call: &pinrail_sim::Asked) -> Fate {
        let more_ns = if matches!(call.what, StepWhat::Task { .. }) { MS } else { 0 };
        Fate { more_ns, ..NoFaults.call(call) }
    }
}

fn plan(shape: &str, rails: u16, parallel: u32, spec: &str) -> Plan {
    let mut machine = Machine::of_rails(rails);
    let parallel = NonZeroU32::new(parallel).expect("a test's rail takes calls");
    machine.rails.iter_mut().for_each(|rail| rail.calls_in_parallel = parallel);
    let buffers = BatchSpec::shape(shape).and_then(|batch| batch.layout()?.imagined()).expect("a test's own shape");
    let policy = Policy::new(NonZeroU32::MIN).with(spec).expect("a test's own spec");
    Plan::new(buffers, &machine, &policy).expect("a test's own plan")
}

fn traced(plan: &Plan, kind: Kind, resident: bool) -> (Trace, Vec<Event>) {
    let profile = Profile::from_toml("plain", PLAIN).expect("a test's own profile");
    let node = Node { profile: &profile, cores: NonZeroU32::new(64).expect("not zero"), resident, budget: None };
    let mut events = Vec::new();
    let trace = node.run(&[plan], kind, &mut OneMs, &mut |event| events.push(*event)).expect("a plan counts its steps");
    (trace, events)
}

fn makespan_ms(shape: &str, rails: u16, parallel: u32, spec: &str) -> u64 {
    traced(&plan(shape, rails, parallel, spec), Kind::Register, true).0.end.0 / MS
}

#[test]
fn equal_tasks_take_as_long_as_the_tightest_limit_says() {
    assert_eq!(makespan_ms("12x1MiB", 4, 16, "unbounded+no-prefault"), 1, "48 tasks, 64 cores");
    assert_eq!(makespan_ms("12x1MiB", 4, 1, "unbounded+no-prefault"), 12, "one call a rail");
    assert_eq!(makespan_ms("12x1MiB", 4, 16, "per-rail=3+unbounded+no-prefault"), 4);
    assert_eq!(makespan_ms("12x1MiB", 4, 16, "capped=6+no-prefault"), 8);
    assert_eq!(makespan_ms("12x1MiB", 4, 16, "rails-in-series+unbounded+no-prefault"), 4, "a buffer's rails one by one");
}

#[test]
fn a_chunk_registers_while_later_ones_are_still_prepared() {
    let (trace, events) = traced(&plan("4x8MiB", 1, 1, "capped=2+prefault"), Kind::Register, false);
    let is_slice = |event: &Event| matches!(event.what, StepWhat::Prepare { .. });
    let overlapping = events.iter().any(|task| {
        !is_slice(task) && events.iter().any(|slice| is_slice(slice) && slice.start < task.end && task.start < slice.end)
    });
    assert!(overlapping && trace.processes[0].peak_in_flight == 2);
}

#[test]
fn deregistration_keeps_the_policys_limits_and_not_its_order() {
    let (trace, mut events) = traced(&plan("4x1MiB", 2, 4, "descending+capped=3"), Kind::Deregister, true);
    assert_eq!((trace.processes[0].peak_in_flight, trace.end.0), (3, 3 * MS));
    events.sort_by_key(|event| event.seq);
    assert!(events.iter().map(|event| event.step.0).eq(0..8), "the caller's order");
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
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    #[test]
    fn under_every_policy_and_profile_everything_runs_once_within_the_limits(
        spec in spec(), rails in 1u16..5, parallel in 1u32..4, divisor in 256u64..4096, cores in 1u32..9,
        processes in 1u32..4, budget in proptest::option::of(1u32..5), at in 0usize..7, resident: bool,
    ) {
        let plan = plan(&format!("kimi-k3/{divisor}"), rails, parallel, &spec);
        let profile = Profile::named(Profile::names().nth(at).unwrap()).unwrap();
        let budget = budget.and_then(NonZeroU32::new);
        let node = Node { profile: &profile, cores: NonZeroU32::new(cores).unwrap(), resident, budget };
        for kind in [Kind::Register, Kind::Deregister] {
            let mut events = Vec::new();
            let trace = node.run(&vec![&plan; processes as usize], kind, &mut NoFaults, &mut |event| events.push(*event)).unwrap();
            let steps = plan.steps(kind).unwrap().len();
            prop_assert_eq!(trace.steps, steps as u64 * u64::from(processes));
            for process in 0..processes {
                let mut seen: Vec<u32> = events.iter().filter(|event| event.process == process).map(|event| event.step.0).collect();
                seen.sort_unstable();
                prop_assert!(seen.into_iter().eq(0..u32::try_from(steps).unwrap()));
            }
            if let Some(cap) = spec.split('+').find_map(|term| term.strip_prefix("capped=")) {
                prop_assert!(trace.processes.iter().all(|process| process.peak_in_flight <= cap.parse().unwrap()));
            }
            if let Some(budget) = budget {
                prop_assert!(in_flight_max(&events) <= i64::from(budget.get() + processes));
            }
            // Threads that come too late for a step have started all the same.
            let all_ns = trace.end.0 + MS * trace.processes.iter().map(|process| u64::from(process.threads)).sum::<u64>();
            prop_assert!(trace.cpu_ns <= all_ns * u64::from(cores), "no more than there are");
            prop_assert!(events.is_sorted_by_key(|event| event.end));
            let again = node.run(&vec![&plan; processes as usize], kind, &mut NoFaults, &mut |_| {}).unwrap();
            prop_assert_eq!(again.hash, trace.hash);
        }
    }
}

/// The most steps that ran at one moment.
fn in_flight_max(events: &[Event]) -> i64 {
    let mut changes: Vec<(u64, i64)> = events.iter().flat_map(|event| [(event.start.0, 1), (event.end.0, -1)]).collect();
    changes.sort_unstable();
    let (mut now, mut max) = (0, 0);
    for (_, change) in changes {
        now += change;
        max = max.max(now);
    }
    max
}

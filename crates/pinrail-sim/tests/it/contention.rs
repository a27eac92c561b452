//! What processes, locks, pages and cores do to each other.

use std::num::NonZeroU32;

use pinrail_core::Kind;
use pinrail_sim::{NoFaults, Node, Profile, Trace};

use super::{MS, plan};

const TOUCH: &str = "\n[touch]\nns_per_4kib = 1000\nstorm = 4\nstorm_cores_busy = 2\nknee_threads = 2\nefficiency = 1\npast_knee = 0.5\nprobe_ns_per_slice = 0\n";

fn run(register: &str, processes: usize, cores: u32, spec: &str, resident: bool) -> Trace {
    let profile = format!("version = 1\nabout = 'x'\nthread_start_ns = 0\n[register]\n{register}{TOUCH}");
    let profile = Profile::from_toml("x", &profile).expect("a test's own profile");
    let plan = plan("4x1GiB", 4, 64, spec);
    let node = Node { profile: &profile, cores: NonZeroU32::new(cores).expect("a test has cores"), resident, budget: None };
    node.run(&vec![&plan; processes], Kind::Register, &mut NoFaults, &mut |_| {}).expect("a plan counts its steps")
}

fn ms(register: &str, processes: usize, cores: u32, spec: &str, resident: bool) -> u64 {
    run(register, processes, cores, spec, resident).end.0 / MS
}

const ALL: &str = "unbounded+no-prefault";

#[test]
fn cores_are_shared() {
    let work = "ns_per_gib = 1e6";
    assert_eq!(ms(work, 1, 16, ALL, true), 1, "16 calls on 16 cores");
    assert_eq!(ms(work, 1, 4, ALL, true), 4, "on 4");
    assert_eq!(ms(work, 3, 16, ALL, true), 3, "three processes of them");
}

#[test]
fn a_lock_is_as_wide_as_its_scope() {
    let lock = |scope: &str| format!("ns_per_gib = 1e6\nlock = {{ scope = '{scope}', share = 1 }}");
    assert_eq!([lock("domain"), lock("process"), lock("node")].map(|lock| ms(&lock, 2, 64, ALL, true)), [4, 16, 32]);
}

#[test]
fn who_waits_for_a_lock_and_spins_takes_cores_from_those_who_work() {
    let lock = |spin: f64| format!("ns_per_gib = 1e6\nlock = {{ scope = 'process', share = 1, spin = {spin} }}");
    assert_eq!(ms(&lock(0.0), 1, 1, ALL, true), 16);
    // 16 calls of a millisecond under one lock on one core, which 15, then 14, then … spin beside.
    assert_eq!(ms(&lock(1.0), 1, 1, ALL, true), (1..=16).sum::<u64>());
    assert_eq!(run(&lock(1.0), 1, 64, ALL, true).cpu_ns / MS, (1..=16).sum::<u64>());
}

#[test]
fn accumulation_is_by_process_and_rail() {
    let k = "ns_per_gib_registered = 1e6";
    let one_by_one = "capped=1+no-prefault";
    // Each rail has 0, 1, 2 and 3 GiB before its four registrations.
    assert_eq!(ms(k, 1, 64, one_by_one, true), 4 * 6);
    assert_eq!(ms(k, 5, 64, one_by_one, true), 4 * 6, "other processes have domains of their own");
}

#[test]
fn pages_are_touched_once_and_slower_by_several() {
    let touch_ns = 262_144 * 1000;
    assert_eq!(run("", 1, 64, "rails-in-series+capped=1+no-prefault", false).end.0, 4 * touch_ns);
    let storm = run("", 1, 64, ALL, false);
    assert_eq!(storm.end.0, 4 * touch_ns, "four chunks at once, each four times slower");
    assert_eq!(storm.cpu_ns, 4 * 4 * touch_ns * 2, "two cores busy a storm");
    assert_eq!(ms("", 1, 64, ALL, true), 0);
}

#[test]
fn prefault_helps_up_to_the_knee() {
    let all_ms = 4 * 262_144 * 1000 / MS;
    let by = |n: u32| ms("", 1, 64, &format!("capped={n}+prefault"), false);
    assert_eq!([by(1), by(2)], [all_ms, all_ms / 2]);
    assert_eq!(by(4), all_ms, "past the knee half of the speed is left");
}

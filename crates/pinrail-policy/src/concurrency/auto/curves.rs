//! Four machines that a controller meets, in virtual time: how far `auto` stays behind the best fixed cap.
//!
//! A step's work is a cost of its own and one for its bytes, with 12 % of noise; all in flight share the speed-up that
//! the machine has at that number. The best cap is the best one for the same steps and noise: a higher bar than the best
//! on average, so that also a cap that is right is some per cent over it.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small and positive numbers of a model"
)]

use std::num::NonZeroU32;

use pinrail_core::{Kind, RailId, StepId};

use super::{Auto, Learned};
use crate::{Concurrency, Control, Controller, ControllerReport, Finished, RunShape, Tick};

/// A machine: its speed-up by the number in flight, and what cores divided by processes say.
#[derive(Clone, Copy)]
struct Machine {
    name: &'static str,
    prior: u32,
    speed_up: fn(f64) -> f64,
}

const MACHINES: [Machine; 4] = [
    Machine { name: "linear to 32", prior: 32, speed_up: |n| n.min(32.0) },
    Machine { name: "knee at 6", prior: 16, speed_up: |n| n.min(6.0) / (1.0 + 0.019 * (n - 6.0).max(0.0)) },
    Machine { name: "one lock", prior: 16, speed_up: |_| 1.0 },
    // 192 cores, 8 processes: at 8 times as many it is 5 times slower.
    Machine { name: "oversubscribed", prior: 24, speed_up: |n| n.min(24.0) / (1.0 + 4.0 * (n - 24.0).max(0.0) / 168.0) },
];

const CAPS: [u32; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 192];
const SEEDS: u64 = 30;

struct Random(u64);

impl Random {
    /// Between 0 and 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Of mean 1, with 12 % of standard deviation.
    fn noise(&mut self) -> f64 {
        let normal = (0..12).map(|_| self.next()).sum::<f64>() - 6.0;
        1.0 + 0.12 * normal.clamp(-4.0, 4.0)
    }
}

/// Sizes like those of a model's buffers: few large, many of middle size, small and tiny ones. A sample of the middle
/// first, then the longest first.
fn sizes(count: usize, random: &mut Random) -> Vec<u64> {
    let kinds = [(16, 409_993_216), (96, 90_072_678), (50, 2_925_527), (20, 2_500)];
    let mut all: Vec<u64> = kinds.iter().flat_map(|&(count, bytes)| std::iter::repeat_n(bytes, count)).collect();
    all = all.iter().copied().cycle().take(count.max(all.len())).collect();
    while all.len() > count {
        all.swap_remove((random.next() * all.len() as f64) as usize);
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    let sample = count.min(48);
    let first = (count - sample) / 2;
    let middle: Vec<u64> = all.drain(first..first + sample).collect();
    middle.into_iter().chain(all).collect()
}

/// Nanoseconds of a step by itself: 2 ms and 300 ms a GiB.
fn work_ns(bytes: u64) -> f64 {
    2e6 + bytes as f64 * 0.3 * 1e9 / (1u64 << 30) as f64
}

enum By<'c> {
    Cap(u32),
    Controller(&'c mut dyn Controller),
}

/// How long the steps take, in nanoseconds; `unit` is what a byte counts to the controller.
fn run(machine: &Machine, sizes: &[u64], seed: u64, mut by: By<'_>, unit: u64) -> f64 {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let works: Vec<f64> = sizes.iter().map(|&bytes| work_ns(bytes) * random.noise()).collect();
    let (mut now, mut next) = (0.0, 0);
    // What is left of each, its number, when it began, and how many there were.
    let mut flying: Vec<(f64, usize, f64, u32)> = Vec::new();
    loop {
        let limit = match &by {
            By::Cap(cap) => *cap,
            By::Controller(controller) => {
                let limits = controller.limits();
                limits.register.min(limits.total).get()
            }
        };
        while next < works.len() && (flying.len() as u32) < limit {
            flying.push((works[next], next, now, flying.len() as u32 + 1));
            next += 1;
        }
        let Some(first) = (0..flying.len()).min_by(|&a, &b| flying[a].0.total_cmp(&flying[b].0)) else { return now };
        let rate = (machine.speed_up)(flying.len() as f64) / flying.len() as f64;
        let (left, at, started, in_flight) = flying.swap_remove(first);
        now += left / rate;
        flying.iter_mut().for_each(|other| other.0 -= left);
        if let By::Controller(controller) = &mut by {
            controller.finished(Tick(now as u64), &finished(at, sizes[at] * unit, started as u64, in_flight));
        }
    }
}

fn finished(at: usize, bytes: u64, started: u64, in_flight: u32) -> Finished {
    let (step, started) = (StepId(at as u32), Tick(started));
    Finished { step, kind: Kind::Register, rail: Some(RailId(0)), bytes, started, in_flight, ok: true, exhausted: false }
}

fn shape(sizes: &[u64], unit: u64) -> RunShape {
    let bytes = sizes.iter().sum::<u64>() * unit;
    RunShape { tasks_do: Kind::Register, tasks: sizes.len() as u64, prepares: 0, bytes, task_bytes: bytes, rails: 1 }
}

fn begin(auto: Auto, shape: &RunShape) -> Box<dyn Controller> {
    let Control::Adaptive(controller) = auto.begin(shape) else { panic!("auto adapts") };
    controller
}

fn auto(machine: &Machine) -> Auto {
    Auto::new(NonZeroU32::new(machine.prior).unwrap(), NonZeroU32::MIN)
}

/// Time and report of `auto`, where it may know what it learned from steps of another seed.
fn adaptive(machine: &Machine, sizes: &[u64], seed: u64, learned: Learned) -> (f64, ControllerReport) {
    let mut controller = begin(auto(machine).remembering(learned), &shape(sizes, 1));
    let time = run(machine, sizes, seed, By::Controller(controller.as_mut()), 1);
    (time, controller.report())
}

/// Per cent over the best fixed cap, the median and the 95th percentile of the seeds: of the prior as a fixed cap, of
/// `auto`, and of `auto` that remembers a long run.
fn regrets(machine: &Machine, count: usize) -> [(f64, f64); 3] {
    let mut regrets = [const { Vec::new() }; 3];
    for seed in 1..=SEEDS {
        let sizes = sizes(count, &mut Random(seed));
        let fixed = |cap: u32| run(machine, &sizes, seed, By::Cap(cap), 1);
        let best = CAPS.iter().map(|&cap| fixed(cap)).min_by(f64::total_cmp).unwrap();
        let (fresh, _) = adaptive(machine, &sizes, seed, Learned::default());
        let (_, earlier) = adaptive(machine, &self::sizes(1456, &mut Random(seed + SEEDS)), seed + SEEDS, Learned::default());
        let (again, _) = adaptive(machine, &sizes, seed, Learned::default().after(&earlier));
        for (regrets, time) in regrets.iter_mut().zip([fixed(machine.prior), fresh, again]) {
            regrets.push(100.0 * (time / best - 1.0));
        }
    }
    regrets.map(|mut regrets| {
        regrets.sort_unstable_by(f64::total_cmp);
        (regrets[regrets.len() / 2], regrets[regrets.len() * 95 / 100])
    })
}

#[test]
fn a_prior_that_is_far_too_small_is_left_behind() {
    let machine = Machine { prior: 8, ..MACHINES[0] };
    let sizes = sizes(5824, &mut Random(7));
    let (time, report) = adaptive(&machine, &sizes, 7, Learned::default());
    let fixed = |cap| run(&machine, &sizes, 7, By::Cap(cap), 1);
    let levels: Vec<_> = report.levels.iter().map(|(_, limits, why)| (limits.register.get(), *why)).collect();
    assert!(time < 0.6 * fixed(8), "{levels:?}");
    assert_eq!(Learned::default().after(&report).register.map(NonZeroU32::get), Some(32), "no more than four times the prior");
}

#[test]
fn it_does_the_same_again_and_whatever_a_byte_is() {
    for machine in &MACHINES {
        let sizes = sizes(1456, &mut Random(3));
        let of = |unit: u64| {
            let mut controller = begin(auto(machine), &shape(&sizes, unit));
            let time = run(machine, &sizes, 3, By::Controller(controller.as_mut()), unit);
            (time, controller.report())
        };
        assert_eq!(of(1), of(1));
        assert_eq!(of(1), of(1024), "{}", machine.name);
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the table is what this is about")]
fn never_far_from_the_best_fixed_cap() {
    println!("{:>16} {:>5}  prior       auto        remembering", "", "steps");
    for machine in &MACHINES {
        for count in [48, 182, 1456] {
            let all = regrets(machine, count);
            let [fixed, auto, again] = all;
            let shown = all.map(|(median, high)| format!("{median:5.1}/{high:5.1}"));
            println!("{:>16} {count:>5}  {}", machine.name, shown.join(" "));
            // Short runs cannot be searched, only begun well; in none is a search much worse than none.
            assert!(auto.0 <= fixed.0 + 2.0 && auto.1 <= fixed.1 + 2.0, "{}, {count}: {auto:?}, not {fixed:?}", machine.name);
            assert!(count < 1456 || auto.0 <= 6.0 && auto.1 <= 10.0, "{}, {count}: {auto:?}", machine.name);
            assert!(again.0 <= auto.0 + 2.0, "{}, {count}: {again:?} remembering, {auto:?}", machine.name);
        }
    }
}

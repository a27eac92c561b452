//! How often the bench is wrong: one policy twice that it calls different, and a planted slowdown that it misses.
//!
//! `cargo run --release -p pinrail-bench --example detection` counts both on recorded noise: each trial takes what a real
//! one took, on a clock that only the recording moves, so that the counts are the same on any machine.
//! `… --example detection -- 100` counts 100 runs of each on real registrations of this machine.

#![expect(clippy::print_stdout, reason = "the counts are what it shows")]

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pinrail_bench::{
    BenchError, Clock, Comparison, Contestant, Live, MemoryState, Opened, Ready, Setting, Spec, Variant, Verdict, run,
};
use pinrail_core::batch::BatchSpec;
use pinrail_core::{
    Cause, Chunk, DeregisterError, Diagnosis, Identity, Keys, Machine, Mr, Rail, RailId, RegisterError, Registrar,
};
use pinrail_memory::Pages;
use pinrail_policy::{Policy, spec};
use pinrail_uring::Uring;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Seconds of trials of one policy in the order in which they ran; the head says where.
const RECORDED: &str = include_str!("../src/noise.txt");

const POLICY: &str = "capped=1+no-prefault";

/// Trials of a first run, and the most that a second one is given, whatever the bench asks for.
const TRIALS: u32 = 10;
const TRIALS_MAX: u32 = 400;

/// What is planted: the difference that the bench says it should see.
const SLOWER: f64 = 0.1;

const RUNS: u32 = 100;

/// How time is read, and how it passes.
#[derive(Clone)]
struct Time {
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    pass: Arc<dyn Fn(Duration) + Send + Sync>,
}

impl Time {
    /// It passes by itself.
    #[expect(clippy::disallowed_methods, reason = "a slowdown by a share of what was measured needs a clock")]
    fn wall() -> Time {
        let origin = Instant::now();
        let pass = |time| {
            let since = Instant::now();
            while since.elapsed() < time {
                std::hint::spin_loop();
            }
        };
        Time { now: Arc::new(move || origin.elapsed()), pass: Arc::new(pass) }
    }

    /// It passes when it is told to.
    fn counted() -> Time {
        let ns = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&ns);
        let pass = move |time: Duration| {
            ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        };
        Time { now: Arc::new(move || Duration::from_nanos(read.load(Ordering::Relaxed))), pass: Arc::new(pass) }
    }
}

/// A policy that takes longer than it should.
struct Slowed {
    policy: Variant,
    time: Time,
}

struct AboutToBeSlow {
    policy: Box<dyn Ready>,
    time: Time,
}

impl Contestant for Slowed {
    fn ready(&self, setting: Setting) -> std::result::Result<Box<dyn Ready>, BenchError> {
        Ok(Box::new(AboutToBeSlow { policy: self.policy.contestant().ready(setting)?, time: self.time.clone() }))
    }
}

impl Ready for AboutToBeSlow {
    fn register(self: Box<Self>) -> std::result::Result<Box<dyn Live>, BenchError> {
        let began = (self.time.now)();
        let live = self.policy.register()?;
        (self.time.pass)(((self.time.now)() - began).mul_f64(SLOWER));
        Ok(live)
    }
}

/// A fabric whose one registration takes what a recorded trial took.
struct Recorded {
    rails: Vec<Rail>,
    takes: Duration,
    time: Time,
}

struct Token;

impl Registrar for Recorded {
    fn identity(&self) -> Identity {
        Identity { backend: "recorded".into(), provider: "recorded".into(), library: "an example".into() }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> std::result::Result<Mr, RegisterError> {
        (self.time.pass)(self.takes);
        Ok(Mr::new(rail, Keys::default(), Token, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> std::result::Result<(), DeregisterError> {
        mr.retire::<Token>().map(|_| ()).ok_or_else(|| DeregisterError::new("recorded", None, Cause::NotOurs))
    }
}

/// The policy twice, the first of the two slowed where that is planted.
fn variants(planted: bool, time: &Time) -> Result<Vec<Variant>> {
    let policy = Variant::policy(POLICY, NonZeroU32::MIN)?;
    let first = if planted {
        let slowed = Slowed { policy: policy.clone(), time: time.clone() };
        let claimed = Policy::new(NonZeroU32::MIN).with(POLICY)?;
        Variant::claiming(POLICY, spec::parse(POLICY)?, claimed, Arc::new(slowed))
    } else {
        policy.clone()
    };
    Ok(vec![first, policy])
}

/// Where trials come from.
struct Source<'s> {
    backend: &'static str,
    batch: &'static str,
    time: Time,
    open: &'s dyn Fn() -> std::result::Result<Opened, Box<Diagnosis>>,
}

impl Source<'_> {
    fn compare(&self, planted: bool, trials: u32, seed: u64) -> Result<Comparison> {
        let now = Arc::clone(&self.time.now);
        let spec = Spec {
            backend: self.backend.to_owned(),
            batch_name: self.batch.to_owned(),
            batch: BatchSpec::shape(self.batch)?,
            memory: MemoryState::Resident,
            pages: Pages::Small,
            variants: variants(planted, &self.time)?,
            trials,
            seed,
            cores: NonZeroU32::MIN,
            clock: Clock::new(move || now()),
        };
        let results = run(&spec, self.open, None, &mut |_| ControlFlow::Continue(()))?;
        Ok(results.comparisons.into_iter().next().ok_or("two variants are one pair")?)
    }
}

/// What so many runs came to.
#[derive(Debug, Default)]
struct Counts {
    runs: u32,
    slower: u32,
    faster: u32,
    none: u32,
    withheld: u32,
    /// Trials of each, those of runs that were made again included.
    trials: u64,
    again: u32,
}

impl Counts {
    /// As a user would: ten trials; where the bench then asks for more, as many as it asks for.
    fn count(source: &Source<'_>, planted: bool, runs: u32, most: u32) -> Result<Counts> {
        let mut counts = Counts { runs, ..Counts::default() };
        for seed in 0..u64::from(runs) {
            let mut pair = source.compare(planted, TRIALS, seed)?;
            counts.trials += u64::from(TRIALS);
            if let Some(more) = pair.trials_wanted {
                let more = more.min(most);
                pair = source.compare(planted, more, seed)?;
                counts.trials += u64::from(more);
                counts.again += 1;
            }
            *match pair.verdict {
                Verdict::Slower => &mut counts.slower,
                Verdict::Faster => &mut counts.faster,
                Verdict::NoDifference => &mut counts.none,
                Verdict::Withheld => &mut counts.withheld,
            } += 1;
        }
        Ok(counts)
    }

    fn show(&self, noise: &str, planted: &str) {
        let Counts { runs, slower, faster, none, withheld, trials, again } = self;
        let each = *trials as f64 / f64::from(*runs);
        println!("{noise:<16} {planted:<14} {runs:>4} {slower:>7} {faster:>7} {none:>5} {withheld:>9} {again:>6} {each:>11.1}");
    }
}

fn seconds() -> Result<Vec<f64>> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| Ok(line.parse()?)).collect()
}

/// Both counts on recorded noise; each run begins somewhere else in the recording.
fn on_recorded(runs: u32, most: u32) -> Result<[Counts; 2]> {
    let (seconds, next) = (seconds()?, AtomicUsize::new(0));
    let time = Time::counted();
    let open = || {
        let takes = Duration::from_secs_f64(seconds[next.fetch_add(1, Ordering::Relaxed) % seconds.len()]);
        let machine = Machine::of_rails(1);
        let registrar = Arc::new(Recorded { rails: machine.rails.clone(), takes, time: time.clone() });
        Ok(Opened { registrar, machine, notes: Vec::new(), cached: false })
    };
    let source = Source { backend: "recorded", batch: "1x4KiB", time: time.clone(), open: &open };
    Ok([Counts::count(&source, false, runs, most)?, Counts::count(&source, true, runs, most)?])
}

/// Both counts on rings of this machine.
fn on_rings(runs: u32) -> Result<[Counts; 2]> {
    let open = || {
        let registrar = Uring::open(&Machine::of_rails(1).rails).map_err(|error| Box::new(error.diagnosis()))?;
        let machine = Machine { rails: registrar.rails().to_vec(), ..Machine::default() };
        Ok(Opened { registrar: Arc::new(registrar), machine, notes: Vec::new(), cached: false })
    };
    let source = Source { backend: "uring", batch: "8x1MiB", time: Time::wall(), open: &open };
    Ok([Counts::count(&source, false, runs, TRIALS_MAX)?, Counts::count(&source, true, runs, TRIALS_MAX)?])
}

fn main() -> Result<()> {
    println!("noise            planted        runs  slower  faster  none  withheld  again  trials each");
    let show = |noise: &str, [same, planted]: [Counts; 2]| {
        same.show(noise, "nothing");
        planted.show(noise, "10 % slower");
    };
    if let Some(runs) = std::env::args().nth(1) {
        show("rings", on_rings(runs.parse()?)?);
        return Ok(());
    }
    show("recorded", on_recorded(RUNS, TRIALS_MAX)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole bench on a recording, so few times that it is no count; the counts gate in `verdict.rs`.
    #[test]
    fn a_recording_gives_the_same_counts_each_time() {
        let counts = || format!("{:?}", on_recorded(1, TRIALS).unwrap());
        assert_eq!(counts(), counts());
    }
}

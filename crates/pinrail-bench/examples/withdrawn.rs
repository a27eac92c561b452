//! The speed-up that was withdrawn (docs/MEASURING.md), once more, on a fabric where a call costs more the more is
//! registered already. The fabric has a clock of its own, so that the figures are the same on any machine.
//!
//! `cargo run -p pinrail-bench --example withdrawn`

#![expect(clippy::print_stdout, reason = "the figures are what it shows")]

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pinrail_bench::{
    BenchError, Clock, Contestant, Live, MemoryState, Opened, Ran, Ready, Results, Setting, Spec, Sweep, Undone, Variant,
    prior_bytes, run,
};
use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{
    Cause, Chunk, DeregisterError, Diagnosis, Identity, Keys, Machine, Mr, Rail, RailId, RegisterError, Registrar,
};
use pinrail_engine::{Engine, Options, Registration};
use pinrail_memory::{Pages, Populate};
use pinrail_plan::Plan;
use pinrail_policy::{Policy, spec};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ONE: NonZeroU32 = NonZeroU32::MIN;

/// Each policy as the two sides of the published comparison: what is sorted how, and the rest alike.
const POLICIES: [&str; 2] = ["ascending", "descending"];
const ALIKE: &str = "rails-in-series+capped=1+no-prefault";

/// Buffers are a 64th of the published ones, and a byte costs 64 times as much.
const SHRUNK: u64 = 64;

/// Milliseconds of a call on one rail: fixed, a GiB of its own, a GiB that the rail holds already.
#[derive(Clone, Copy)]
struct Cost {
    call_ms: f64,
    own_ms_per_gib: f64,
    prior_ms_per_gib: f64,
    /// Each call takes up to so much more or less than it should.
    scatter: f64,
}

/// Measured on EFA and memory of GPUs (kvcache-ai/Mooncake issues 3210 and 3216).
const EFA: Cost = Cost { call_ms: 2.05, own_ms_per_gib: 5.0, prior_ms_per_gib: 8.35, scatter: 0.0 };

/// A fabric whose calls cost by what is registered already, on a clock that only they move.
struct Growing {
    cost: Cost,
    rails: Vec<Rail>,
    held_bytes: Vec<AtomicU64>,
    clock_ns: Arc<AtomicU64>,
}

struct Token;

impl Growing {
    fn open(cost: Cost, rails: u16, clock_ns: &Arc<AtomicU64>) -> Opened {
        let machine = Machine::of_rails(rails);
        let held_bytes = machine.rails.iter().map(|_| AtomicU64::new(0)).collect();
        let growing = Growing { cost, rails: machine.rails.clone(), held_bytes, clock_ns: Arc::clone(clock_ns) };
        Opened { registrar: Arc::new(growing), machine, notes: Vec::new(), cached: false }
    }

    /// Between -1 and 1, another for every call: a hash of the moment.
    fn scatter(now_ns: u64) -> f64 {
        let hash = (now_ns ^ now_ns >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        f64::from((hash >> 40) as u32) / f64::from(1 << 23) - 1.0
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

impl Registrar for Growing {
    fn identity(&self) -> Identity {
        Identity { backend: "growing".into(), provider: "growing".into(), library: "an example".into() }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> std::result::Result<Mr, RegisterError> {
        let len = chunk.range.end - chunk.range.start;
        let prior = self.held_bytes[rail.index()].fetch_add(len, Ordering::Relaxed);
        let Cost { call_ms, own_ms_per_gib, prior_ms_per_gib, scatter } = self.cost;
        let ms = call_ms + own_ms_per_gib * gib(len) + prior_ms_per_gib * gib(prior);
        let ms = ms * (1.0 + scatter * Growing::scatter(self.clock_ns.load(Ordering::Relaxed)));
        let took = Duration::from_secs_f64(ms / 1e3);
        self.clock_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(Mr::new(rail, Keys::default(), Token, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> std::result::Result<(), DeregisterError> {
        let (rail, len) = (mr.rail(), mr.extent().len());
        mr.retire::<Token>().ok_or_else(|| DeregisterError::new("growing", None, Cause::NotOurs))?;
        self.held_bytes[rail.index()].fetch_sub(len, Ordering::Relaxed);
        self.clock_ns.fetch_add(1_000, Ordering::Relaxed);
        Ok(())
    }
}

/// The published harness: it sorts its own list by the name of the policy, then calls the batch function once a buffer.
#[derive(Clone)]
struct OneCallABuffer {
    sorts: &'static str,
    policy: Policy,
}

struct Called {
    harness: OneCallABuffer,
    setting: Setting,
    live: Vec<Registration>,
}

impl Contestant for OneCallABuffer {
    fn ready(&self, mut setting: Setting) -> std::result::Result<Box<dyn Ready>, BenchError> {
        setting.batch.sort_by_key(pinrail_core::Buffer::len);
        if self.sorts == "descending" {
            setting.batch.reverse();
        }
        Ok(Box::new(Called { harness: self.clone(), setting, live: Vec::new() }))
    }
}

impl Ready for Called {
    fn register(mut self: Box<Self>) -> std::result::Result<Box<dyn Live>, BenchError> {
        let engine = Engine::new(Arc::clone(&self.setting.registrar), Arc::clone(&self.setting.prepare));
        for buffer in self.setting.batch.clone() {
            let plan = Plan::new(vec![buffer], &self.setting.machine, &self.harness.policy)?;
            self.live.push(engine.register(plan, &Options::default()).map_err(BenchError::Register)?);
        }
        Ok(self)
    }
}

impl Live for Called {
    fn ran(&self) -> Ran {
        let dispatched = self.live.iter().map(|live| pinrail_bench::dispatched(live.plan(), live.report())).collect();
        Ran { threads: 1, peak_in_flight: Some(1), dispatched }
    }

    fn mrs(&mut self) -> Vec<&Mr> {
        self.live.iter().flat_map(|live| live.mrs().map(|(_, mr)| mr)).collect()
    }

    fn deregister(self: Box<Self>) -> std::result::Result<Undone, BenchError> {
        for live in self.live {
            live.deregister().map_err(BenchError::Deregister)?;
        }
        Ok(Undone { threads: 1 })
    }
}

fn policy(order: &str) -> Result<Policy> {
    Ok(Policy::new(ONE).with(&format!("{order}+{ALIKE}"))?)
}

/// 24 small buffers and 24 large ones, a small one after each large one.
fn batch() -> BatchSpec {
    let lens = [409_993_216 / SHRUNK, 2_925_527 / SHRUNK];
    BatchSpec::of((0..48).map(|nth| BufferSpec::new(format!("b{nth}"), lens[nth % 2])))
}

/// Seconds that the harness reports of itself, with fresh rails.
fn reported(policy_order: &str, list_order: &'static str) -> Result<f64> {
    let shrunk = SHRUNK as f64;
    let cost = Cost { own_ms_per_gib: EFA.own_ms_per_gib * shrunk, prior_ms_per_gib: EFA.prior_ms_per_gib * shrunk, ..EFA };
    let clock_ns = Arc::new(AtomicU64::new(0));
    let Opened { registrar, machine, .. } = Growing::open(cost, 32, &clock_ns);
    let layout = batch().layout()?;
    let mapped = pinrail_bench::memory::map(&layout, Pages::Small)?;
    let batch = layout.buffers(&mapped.memories)?;
    let harness = OneCallABuffer { sorts: list_order, policy: policy(policy_order)? };
    let prepare = Arc::new(Populate::new());
    let live = harness.ready(Setting { batch, machine, registrar, prepare })?.register()?;
    let seconds = Duration::from_nanos(clock_ns.load(Ordering::Relaxed)).as_secs_f64();
    live.deregister()?;
    Ok(seconds)
}

/// What this bench says of two variants on that fabric.
fn benched(variants: Vec<Variant>) -> Result<Results> {
    let shrunk = SHRUNK as f64;
    let cost = Cost { own_ms_per_gib: EFA.own_ms_per_gib * shrunk, prior_ms_per_gib: EFA.prior_ms_per_gib * shrunk, ..EFA };
    let (spec, clock_ns) = bench(batch(), variants, MemoryState::Untouched, 8);
    let open = || -> std::result::Result<Opened, Box<Diagnosis>> { Ok(Growing::open(cost, 32, &clock_ns)) };
    Ok(run(&spec, &open, None, &mut |_| ControlFlow::Continue(()))?)
}

/// A bench whose clock is the fabric's.
fn bench(batch: BatchSpec, variants: Vec<Variant>, memory: MemoryState, trials: u32) -> (Spec, Arc<AtomicU64>) {
    let clock_ns = Arc::new(AtomicU64::new(0));
    let reads = Arc::clone(&clock_ns);
    let spec = Spec {
        backend: "growing".to_owned(),
        batch_name: "24 small, 24 large".to_owned(),
        batch,
        memory,
        pages: Pages::Small,
        variants,
        trials,
        seed: 1,
        cores: ONE,
        clock: Clock::new(move || Duration::from_nanos(reads.load(Ordering::Relaxed))),
    };
    (spec, clock_ns)
}

/// The harness as a variant under each policy's name.
fn harness() -> Result<Vec<Variant>> {
    let variant = |sorts| {
        let typed = format!("{sorts}+{ALIKE}");
        let policy = policy(sorts)?;
        let harness = Arc::new(OneCallABuffer { sorts, policy: policy.clone() });
        Ok(Variant::claiming(sorts, spec::parse(&typed)?, policy, harness))
    };
    POLICIES.into_iter().map(variant).collect()
}

/// The policies themselves, each with the whole batch.
fn policies() -> Result<Vec<Variant>> {
    POLICIES.into_iter().map(|order| Ok(Variant::policy(&format!("{order}+{ALIKE}"), ONE)?)).collect()
}

/// What a call costs by what its rail holds already, on a fabric that scatters.
fn mechanism() -> Result<Sweep> {
    let (spec, clock_ns) = bench(BatchSpec::shape("33x8MiB")?, Vec::new(), MemoryState::Resident, 10);
    let open =
        || -> std::result::Result<Opened, Box<Diagnosis>> { Ok(Growing::open(Cost { scatter: 0.02, ..EFA }, 4, &clock_ns)) };
    Ok(prior_bytes(&spec, &open, &mut |_| ControlFlow::Continue(()))?)
}

fn main() -> Result<()> {
    let register = mechanism()?.register;
    println!("The mechanism: a sweep over what a rail holds already");
    let (low, high) = (register.low.unwrap_or(f64::NAN), register.high.unwrap_or(f64::NAN));
    println!("  {:.2} ms a GiB and rail ({low:.2} to {high:.2}); {} are planted\n", register.ms_per_gib, EFA.prior_ms_per_gib);

    println!("The harness: sorts its own list, then calls the batch function once a buffer");
    let [up, down] = POLICIES;
    let (fast, slow) = (reported(up, up)?, reported(down, down)?);
    println!("  policy {up}, list {up}    {fast:5.1} s");
    println!("  policy {down}, list {down}  {slow:5.1} s: {:.2} times, the \"effect\"", slow / fast);
    println!("The same with the lists exchanged");
    println!("  policy {up}, list {down}   {:5.1} s", reported(up, down)?);
    println!("  policy {down}, list {up}   {:5.1} s: the list made the difference\n", reported(down, up)?);

    for (title, variants) in [("This bench, given that harness", harness()?), ("This bench, given the policies", policies()?)] {
        let results = benched(variants)?;
        println!("{title}");
        for pair in &results.comparisons {
            println!("  {} / {}: {}, ratio {:.2}", pair.a, pair.b, pair.verdict.as_str(), pair.ratio);
        }
        for finding in &results.findings {
            println!("  {}: {}: {}", finding.check, finding.variant.as_deref().unwrap_or("all"), finding.what);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pinrail_bench::Verdict;

    use super::*;

    #[test]
    fn a_planted_slope_lies_in_its_interval() {
        let Sweep { register, deregister, withheld, .. } = mechanism().unwrap();
        let (low, high) = (register.low.unwrap(), register.high.unwrap());
        assert!(low < EFA.prior_ms_per_gib && EFA.prior_ms_per_gib < high && low > 0.0, "{register:?}");
        assert!((register.ms_per_gib / EFA.prior_ms_per_gib - 1.0).abs() < 0.02, "{register:?}");
        assert!((register.empty_ms / EFA.call_ms - 1.0).abs() < 0.05, "{register:?}");
        assert_eq!((deregister.low, deregister.high, withheld), (Some(0.0), Some(0.0), None), "every call takes the same");
    }

    #[test]
    fn the_harness_shows_an_effect_that_its_list_makes() {
        let [up, down] = POLICIES;
        let (fast, slow) = (reported(up, up).unwrap(), reported(down, down).unwrap());
        assert!((2.4..3.0).contains(&(slow / fast)), "{slow} and {fast}; 93.3 and 35.5 were published");
        assert_eq!((reported(down, up).unwrap(), reported(up, down).unwrap()), (fast, slow));
    }

    #[test]
    fn this_bench_withholds_it_and_judges_the_policies() {
        let results = benched(harness().unwrap()).unwrap();
        assert_eq!(results.comparisons[0].verdict, Verdict::Withheld);
        assert!(results.findings.iter().any(|found| found.what.contains("registered in 48 calls")), "{:?}", results.findings);
        let results = benched(policies().unwrap()).unwrap();
        assert_eq!((results.comparisons[0].verdict, results.findings.len()), (Verdict::Faster, 0), "{:?}", results.findings);
    }
}

//! Planted errors. Each misled somebody, or could have; each is flagged by one check, and passes when that check is lifted:
//! so no check can be lost without a test that fails.
//!
//! `cargo test -p pinrail-bench canaries -- --nocapture` prints the table.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{
    Access, Chunk, DeregisterError, Diagnosis, Identity, Keys, Machine, MoveBytes, MoveError, Mr, PinsCounted, Place, Prepare,
    PrepareError, PrepareStep, Prepared, Rail, RailId, RegisterError, Registrar,
};
use pinrail_engine::{Engine, Options, Registration};
use pinrail_memory::Pages;
use pinrail_plan::Plan;
use pinrail_policy::{Policy, spec};

use crate::check::{Check, Checks};
use crate::clock::Clock;
use crate::contestant::{Contestant, Live, Ran, Ready, Setting, Undone};
use crate::error::BenchError;
use crate::results::Results;
use crate::run::{First, Here};
use crate::spec::{MemoryState, Spec};
use crate::through_engine::{ThroughEngine, dispatched};
use crate::trial::Opened;
use crate::variant::Variant;
use crate::{reference, schedule};

const CORES: NonZeroU32 = NonZeroU32::new(2).unwrap();

/// A fabric that keeps nothing and takes a moment, so that calls overlap.
struct Fake {
    rails: Vec<Rail>,
    provider: &'static str,
    mover: Option<Nowhere>,
}

struct Token;

/// Says that bytes were moved.
struct Nowhere;

impl MoveBytes for Nowhere {
    fn write(&self, _: &Mr, _: u64, _: &[u8], _: Duration) -> Result<(), MoveError> {
        Ok(())
    }

    fn read(&self, _: &Mr, _: u64, _: &mut [u8], _: Duration) -> Result<(), MoveError> {
        Ok(())
    }
}

impl Registrar for Fake {
    fn identity(&self) -> Identity {
        Identity { backend: "fake".into(), provider: self.provider.into(), library: "none".into() }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        thread::park_timeout(Duration::from_millis(1));
        Ok(Mr::new(rail, Keys::default(), Token, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        mr.retire::<Token>().ok_or_else(|| DeregisterError::new("fake", None, pinrail_core::Cause::NotOurs))?;
        Ok(())
    }

    fn mover(&self) -> Option<&dyn MoveBytes> {
        self.mover.as_ref().map(|mover| mover as _)
    }
}

fn fake(pins: PinsCounted, provider: &'static str) -> Arc<dyn Registrar> {
    let mut rails = Machine::of_rails(2).rails;
    for rail in &mut rails {
        (rail.pins, rail.calls_in_parallel) = (pins, NonZeroU32::new(4).unwrap());
    }
    Arc::new(Fake { rails, provider, mover: None })
}

fn opened(registrar: Arc<dyn Registrar>) -> Opened {
    let machine = Machine { rails: registrar.rails().to_vec(), ..Machine::default() };
    Opened { registrar, machine, notes: Vec::new(), cached: false }
}

/// A contestant made of a function.
struct Planted<F>(F);

impl<F: Fn(Setting) -> Result<Box<dyn Ready>, BenchError> + Send + Sync> Contestant for Planted<F> {
    fn ready(&self, setting: Setting) -> Result<Box<dyn Ready>, BenchError> {
        self.0(setting)
    }
}

/// Something that claims to be this policy and is the function.
fn claims(claimed: &str, really: impl Fn(Setting) -> Result<Box<dyn Ready>, BenchError> + Send + Sync + 'static) -> Vec<Variant> {
    let policy = Policy::new(CORES).with(claimed).unwrap();
    let liar = Variant::claiming(claimed, spec::parse(claimed).unwrap(), policy, Arc::new(Planted(really)));
    vec![liar, Variant::reference("rails-in-series-one-by-one").unwrap()]
}

fn engine(spec: &str) -> ThroughEngine {
    ThroughEngine(Policy::new(CORES).with(spec).unwrap())
}

fn honest(spec: &str) -> Vec<Variant> {
    vec![Variant::policy(spec, CORES).unwrap(), Variant::reference("all-rails-at-once").unwrap()]
}

/// Buffers in no order.
fn batch() -> BatchSpec {
    BatchSpec::of([3u64, 1, 2, 5, 4, 6].iter().map(|pages| BufferSpec::new(format!("b{pages}"), pages * 8192)))
}

fn bench(variants: Vec<Variant>) -> Spec {
    Spec {
        backend: "fake".to_owned(),
        batch_name: "6 buffers".to_owned(),
        batch: batch(),
        memory: MemoryState::Untouched,
        pages: Pages::Small,
        variants,
        trials: 2,
        seed: 1,
        cores: CORES,
        clock: Clock::wall(),
    }
}

type Run = Result<Results, BenchError>;

/// Runs with rails that are opened like this.
fn run_with(spec: &Spec, checks: &Checks, open: &dyn Fn() -> Result<Opened, Box<Diagnosis>>) -> Run {
    let order = schedule::blocks(spec.variants.len(), spec.trials, spec.seed);
    run_in(spec, checks, open, &order)
}

fn run_in(spec: &Spec, checks: &Checks, open: &dyn Fn() -> Result<Opened, Box<Diagnosis>>, order: &[Vec<usize>]) -> Run {
    let first = First::look(spec, open, None, checks)?;
    let mut here = Here::new(spec, open, checks.clone())?;
    first.judge(spec, &mut here, &mut |_| ControlFlow::Continue(()), order, checks)
}

fn run(variants: Vec<Variant>, checks: &Checks) -> Run {
    run_spec(&bench(variants), checks)
}

fn run_spec(spec: &Spec, checks: &Checks) -> Run {
    run_with(spec, checks, &|| Ok(opened(fake(PinsCounted::User, "none"))))
}

/// The published mistake: the batch call, once a buffer.
struct OneByOne {
    setting: Setting,
    policy: Policy,
    live: Vec<Registration>,
}

impl Ready for OneByOne {
    fn register(mut self: Box<Self>) -> Result<Box<dyn Live>, BenchError> {
        let engine = Engine::new(Arc::clone(&self.setting.registrar), Arc::clone(&self.setting.prepare));
        for buffer in self.setting.batch.clone() {
            let plan = Plan::new(vec![buffer], &self.setting.machine, &self.policy)?;
            self.live.push(engine.register(plan, &Options::default()).map_err(BenchError::Register)?);
        }
        Ok(self)
    }
}

impl Live for OneByOne {
    fn ran(&self) -> Ran {
        let dispatched = self.live.iter().map(|live| dispatched(live.plan(), live.report())).collect();
        Ran { threads: 2, peak_in_flight: Some(2), dispatched }
    }

    fn mrs(&mut self) -> Vec<&Mr> {
        self.live.iter().flat_map(|live| live.mrs().map(|(_, mr)| mr)).collect()
    }

    fn deregister(self: Box<Self>) -> Result<Undone, BenchError> {
        for live in self.live {
            live.deregister().map_err(BenchError::Deregister)?;
        }
        Ok(Undone { threads: 1 })
    }
}

/// Does something first, within the time that is measured; or forgets to deregister.
struct Around {
    first: Box<dyn FnOnce() -> Result<(), BenchError> + Send>,
    inner: Box<dyn Ready>,
    forgets: bool,
}

struct Forgetful(Box<dyn Live>);

impl Ready for Around {
    fn register(self: Box<Self>) -> Result<Box<dyn Live>, BenchError> {
        (self.first)()?;
        let live = self.inner.register()?;
        Ok(if self.forgets { Box::new(Forgetful(live)) } else { live })
    }
}

impl Live for Forgetful {
    fn ran(&self) -> Ran {
        self.0.ran()
    }

    fn mrs(&mut self) -> Vec<&Mr> {
        self.0.mrs()
    }

    fn deregister(self: Box<Self>) -> Result<Undone, BenchError> {
        std::mem::forget(self);
        Ok(Undone { threads: 1 })
    }
}

/// A preparation that leaves everything to the registration.
struct Lazy;

impl Prepare for Lazy {
    fn prepare(&self, _: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        Ok(Prepared::Skipped)
    }
}

fn one_call_a_buffer(checks: &Checks) -> Run {
    run(
        claims("ascending+capped=2", |setting| {
            let policy = Policy::new(CORES).with("ascending+capped=2").unwrap();
            Ok(Box::new(OneByOne { setting, policy, live: Vec::new() }))
        }),
        checks,
    )
}

fn the_caller_sorts(checks: &Checks) -> Run {
    run(
        claims("capped=2", |mut setting| {
            setting.batch.sort_by_key(pinrail_core::Buffer::len);
            engine("capped=2").ready(setting)
        }),
        checks,
    )
}

fn wrong_order(checks: &Checks) -> Run {
    run(claims("ascending", |setting| engine("caller-order").ready(setting)), checks)
}

fn wrong_cap(checks: &Checks) -> Run {
    run(claims("capped=2", |setting| engine("unbounded").ready(setting)), checks)
}

fn wrong_rails(checks: &Checks) -> Run {
    run(claims("rails=rail0", |setting| engine("all-rails").ready(setting)), checks)
}

fn wrong_fan_out(checks: &Checks) -> Run {
    run(claims("rails-in-series+unbounded", |setting| engine("rails-in-parallel+unbounded").ready(setting)), checks)
}

fn wrong_rail_limit(checks: &Checks) -> Run {
    run(claims("per-rail=1+unbounded", |setting| engine("unbounded").ready(setting)), checks)
}

fn joins_all_the_same(checks: &Checks) -> Run {
    let mut spec = bench(claims("no-coalesce", |setting| engine("coalesce").ready(setting)));
    spec.batch.buffers.iter_mut().for_each(|buffer| buffer.allocation = Some("one".to_owned()));
    run_spec(&spec, checks)
}

fn reused_domain(checks: &Checks) -> Run {
    let once = fake(PinsCounted::User, "none");
    run_with(&bench(honest("capped=2")), checks, &|| Ok(opened(Arc::clone(&once))))
}

/// A clock by which everything takes longer the later it is: a machine that slows down.
fn slowing() -> Clock {
    let looks = AtomicU64::new(100);
    Clock::new(move || {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        Duration::from_nanos(look * look)
    })
}

/// One policy twice, on a machine that slows down.
fn twice_on_a_machine_that_slows_down() -> Spec {
    let twice = ["capped=2"; 2].map(|spec| Variant::policy(spec, CORES).unwrap());
    Spec { trials: 10, clock: slowing(), ..bench(twice.into()) }
}

fn fixed_order(checks: &Checks) -> Run {
    let open = || Ok(opened(fake(PinsCounted::User, "none")));
    run_in(&twice_on_a_machine_that_slows_down(), checks, &open, &vec![vec![0, 1]; 10])
}

fn drift(checks: &Checks) -> Run {
    run_spec(&Spec { trials: 10, clock: slowing(), ..bench(honest("capped=2")) }, checks)
}

fn prefault_inside_register(checks: &Checks) -> Run {
    run(claims("prefault", |setting| engine("prefault").ready(Setting { prepare: Arc::new(Lazy), ..setting })), checks)
}

fn prefault_before_the_clock(checks: &Checks) -> Run {
    run(
        claims("no-prefault", |setting| {
            for buffer in &setting.batch {
                buffer.memory.write_at(0, &[1]).map_err(BenchError::Host)?;
            }
            engine("no-prefault").ready(setting)
        }),
        checks,
    )
}

fn fallback_backend(checks: &Checks) -> Run {
    let spec = Spec { backend: "fake:efa".to_owned(), ..bench(honest("capped=2")) };
    run_with(&spec, checks, &|| Ok(opened(fake(PinsCounted::User, "tcp"))))
}

fn skips_work(checks: &Checks) -> Run {
    run(
        claims("rails-in-parallel", |mut setting| {
            let half = setting.batch.len() / 2;
            let skipped = setting.batch.split_off(half);
            let inner = engine("rails-in-parallel").ready(setting)?;
            // Its plan is whole for whoever asks for names only.
            drop(skipped);
            Ok(inner)
        }),
        // What is handed on is another check's.
        &checks.iter().copied().filter(|check| *check != Check::SameBatch).collect(),
    )
}

fn forgets_to_deregister(checks: &Checks) -> Run {
    run(
        claims("rails-in-parallel", |setting| {
            let inner = engine("rails-in-parallel").ready(setting)?;
            Ok(Box::new(Around { first: Box::new(|| Ok(())), inner, forgets: true }))
        }),
        checks,
    )
}

fn shares_by_thread_count(checks: &Checks) -> Run {
    const THREADS: u64 = 2;
    let shares = Planted(|setting: Setting| -> Result<Box<dyn Ready>, BenchError> {
        let inner = "all-rails-at-once".parse::<reference::Reference>()?.ready(setting.clone())?;
        let first = move || {
            for buffer in &setting.batch {
                let share = buffer.len() / THREADS;
                for nth in 0..THREADS {
                    let range = nth * share..(nth + 1) * share;
                    let step = PrepareStep::Populate { memory: &buffer.memory, range, access: Access::FULL, place: Place::Host };
                    setting.prepare.prepare(&step)?;
                }
            }
            Ok(())
        };
        Ok(Box::new(Around { first: Box::new(first), inner, forgets: false }))
    });
    let shares = Variant::other("a share a thread", Arc::new(shares));
    run(vec![shares, Variant::reference("prefault-then-at-once=2").unwrap()], checks)
}

fn pins_nothing(checks: &Checks) -> Run {
    run_with(&bench(honest("capped=2")), checks, &|| Ok(opened(fake(PinsCounted::Nothing, "none"))))
}

fn cached(checks: &Checks) -> Run {
    let open = || Ok(Opened { cached: true, ..opened(fake(PinsCounted::User, "none")) });
    run_with(&bench(honest("capped=2")), checks, &open)
}

fn a_sort_of_what_is_sorted(checks: &Checks) -> Run {
    let mut spec = bench(honest("ascending"));
    spec.batch.buffers.sort_by_key(|buffer| buffer.len);
    run_spec(&spec, checks)
}

fn a_sort_of_one(checks: &Checks) -> Run {
    let mut spec = bench(honest("ascending"));
    spec.batch.buffers.truncate(1);
    run_spec(&spec, checks)
}

fn rails_that_are_all(checks: &Checks) -> Run {
    run(honest("rails=rail1,rail0"), checks)
}

fn a_cap_under_the_name_unbounded(checks: &Checks) -> Run {
    run(claims("unbounded", |setting| engine("capped=1").ready(setting)), checks)
}

fn a_cap_that_is_never_reached(checks: &Checks) -> Run {
    run(honest("capped=512"), checks)
}

fn a_rail_limit_that_is_never_reached(checks: &Checks) -> Run {
    run(honest("per-rail=4"), checks)
}

fn rail_local_that_chooses_all(checks: &Checks) -> Run {
    run(honest("rail-local"), checks)
}

fn a_series_of_one_rail(checks: &Checks) -> Run {
    run(honest("rails=rail1+rails-in-series"), checks)
}

fn nothing_to_join(checks: &Checks) -> Run {
    run(honest("coalesce"), checks)
}

fn nothing_to_keep_apart(checks: &Checks) -> Run {
    run(honest("no-coalesce"), checks)
}

fn prefault_of_what_is_there(checks: &Checks) -> Run {
    run_spec(&Spec { memory: MemoryState::Resident, ..bench(honest("prefault")) }, checks)
}

fn shares_nothing_out(checks: &Checks) -> Run {
    run(honest("coverage=disjoint"), checks)
}

fn two_trials(checks: &Checks) -> Run {
    run(honest("capped=2"), checks)
}

/// Name, the check that flags it, a part of what it says, and the run.
type Plant = (&'static str, Check, &'static str, fn(&Checks) -> Run);

const PLANTS: [Plant; 32] = [
    ("one call a buffer", Check::WholeBatch, "registered in 6 calls", one_call_a_buffer),
    ("the caller sorts", Check::SameBatch, "in another order than the caller's", the_caller_sorts),
    ("caller-order under the name ascending", Check::Order, "handed out after one that it comes before", wrong_order),
    ("unbounded under the name capped=2", Check::ProcessLimit, "steps were in flight at once", wrong_cap),
    ("all-rails under the name rails=rail0", Check::Coverage, "is not chosen for it", wrong_rails),
    ("parallel under the name rails-in-series", Check::FanOut, "were registered at once", wrong_fan_out),
    ("no limit under the name per-rail=1", Check::RailLimit, "were in flight on one rail", wrong_rail_limit),
    ("joins under the name no-coalesce", Check::Coalescing, "covers several buffers", joins_all_the_same),
    ("a re-used domain", Check::FreshRails, "rails of an earlier trial", reused_domain),
    ("fixed order under drift", Check::Interleaved, "came 10 times before", fixed_order),
    ("a machine that drifts", Check::Drift, "the machine drifted", drift),
    ("prefault mixed into register", Check::Preparation, "first touched inside registrations", prefault_inside_register),
    ("prefault before the clock starts", Check::FreshMemory, "were resident when the clock started", prefault_before_the_clock),
    ("a fallback backend", Check::Backend, "fake:efa was asked for and fake (tcp) ran", fallback_backend),
    ("skips half of the work", Check::Coverage, "bytes of buffer b5 were registered on rail0", skips_work),
    ("forgets to deregister", Check::Coverage, "is not what was deregistered", forgets_to_deregister),
    ("shares fixed by thread count", Check::Slices, "slices are compared", shares_by_thread_count),
    ("a provider that pins nothing", Check::Pins, "pins nothing", pins_nothing),
    ("a registration cache", Check::Cache, "from a cache of its own", cached),
    ("a sort of what is sorted", Check::Order, "in that order already", a_sort_of_what_is_sorted),
    ("a sort that saw one element", Check::Order, "it saw a single chunk", a_sort_of_one),
    (
        "capped=1 under the name unbounded",
        Check::ProcessLimit,
        "no two steps were ever in flight",
        a_cap_under_the_name_unbounded,
    ),
    ("a cap that is never reached", Check::ProcessLimit, "was never reached", a_cap_that_is_never_reached),
    ("a rail limit above what a rail takes", Check::RailLimit, "no rail takes more", a_rail_limit_that_is_never_reached),
    ("rail-local that chooses all rails", Check::Rails, "chose all 2 rails", rail_local_that_chooses_all),
    ("rails= that names all rails", Check::Rails, "chose all 2 rails", rails_that_are_all),
    ("a series of one rail", Check::FanOut, "is registered on one rail", a_series_of_one_rail),
    ("coalesce with nothing to join", Check::Coalescing, "no buffers of the batch touch", nothing_to_join),
    ("no-coalesce with nothing to join", Check::Coalescing, "no buffers of the batch touch", nothing_to_keep_apart),
    ("prefault of resident memory", Check::Preparation, "was resident before", prefault_of_what_is_there),
    ("disjoint shares of what fits", Check::Coverage, "every rail holds the whole batch", shares_nothing_out),
    ("two trials", Check::Trials, "2 trials are too few", two_trials),
];

/// Whether a run says this of itself: refused, or withheld.
fn says(run: &Run, what: &str) -> bool {
    match run {
        Err(error) => error.to_string().contains(what),
        Ok(results) => {
            let withheld = results.comparisons.iter().filter(|pair| pair.verdict == crate::Verdict::Withheld);
            let reasons: Vec<&str> = withheld.filter_map(|pair| pair.reason.as_deref()).collect();
            // A pair gives one reason; the findings list all of them.
            let found = results.findings.iter().map(|finding| finding.what.as_str());
            !reasons.is_empty() && reasons.iter().copied().chain(found).any(|reason| reason.contains(what))
        }
    }
}

/// All checks but those that look at how long the run was and how still the machine stood.
fn in_force() -> Checks {
    Check::ALL.into_iter().filter(|check| !matches!(check, Check::Trials | Check::Drift)).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "the table is what the test shows")]
fn every_planted_error_is_flagged_by_its_check_and_by_no_other() {
    println!("{:<42} {:<14} said", "planted", "check");
    for (name, check, what, plant) in PLANTS {
        let mut checks = in_force();
        checks.insert(check);
        let flagged = plant(&checks);
        assert!(says(&flagged, what), "{name} is not flagged: {:?}", flagged.map(|results| results.comparisons));
        checks.remove(&check);
        let lifted = plant(&checks);
        assert!(!says(&lifted, what), "{name} is flagged by another check than {}", check.as_str());
        println!("{name:<42} {:<14} …{what}…", check.as_str());
    }
}

/// Why the order matters: what the fixed one invents is gone where trials are interleaved.
#[test]
fn a_fixed_order_under_drift_invents_a_difference() {
    let mut checks = in_force();
    checks.remove(&Check::Interleaved);
    let verdict = |run: Run| run.unwrap().comparisons[0].verdict;
    assert_eq!(verdict(fixed_order(&checks)), crate::Verdict::Faster);
    assert_eq!(verdict(run_spec(&twice_on_a_machine_that_slows_down(), &checks)), crate::Verdict::NoDifference);
}

#[test]
fn bytes_that_do_not_arrive_end_the_run() {
    let rails = Machine::of_rails(2).rails;
    let open = || Ok(opened(Arc::new(Fake { rails: rails.clone(), provider: "none", mover: Some(Nowhere) })));
    let run = run_with(&bench(honest("capped=2")), &in_force(), &open);
    assert!(matches!(run, Err(BenchError::Verify(_))), "{:?}", run.map(|results| results.comparisons));
}

#[test]
fn what_is_honest_is_not_flagged() {
    let spec = bench(vec![
        Variant::policy("ascending+capped=2", CORES).unwrap(),
        Variant::policy("descending+capped=2", CORES).unwrap(),
        Variant::policy("caller-order+unbounded+rails-in-parallel", CORES).unwrap(),
        Variant::policy("rails-in-series+per-rail=1+prefault", CORES).unwrap(),
        Variant::policy("rails=rail1+no-prefault", CORES).unwrap(),
        Variant::policy("", CORES).unwrap(),
        Variant::policy("", CORES).unwrap(),
        Variant::reference("rails-in-series-one-by-one").unwrap(),
        Variant::reference("all-rails-at-once").unwrap(),
        Variant::reference("thread-per-buffer").unwrap(),
        Variant::reference("bounded-pool=2").unwrap(),
        Variant::reference("prefault-then-at-once=2").unwrap(),
    ]);
    let results = run_spec(&spec, &in_force()).unwrap();
    assert_eq!(results.findings, []);
    assert!(results.comparisons.iter().all(|pair| pair.verdict != crate::Verdict::Withheld), "{:?}", results.comparisons);
    let of = |name: &str| results.variants.iter().find(|of| of.name == name).unwrap();
    assert_eq!((of("ascending+capped=2").peak_in_flight, of("rails-in-series-one-by-one").peak_in_flight), (2, 1));
    assert_eq!((of("rails-in-series-one-by-one").peak_threads, of("bounded-pool=2").peak_threads), (1, 3));
    assert_eq!((of("rails=rail1+no-prefault").tasks, of("default").tasks), (6, 12));
    let load = &of("rails=rail1+no-prefault").load;
    assert_eq!((load[0].tasks, load[1].tasks, load[1].bytes), (0, 6, 21 * 8192));
}

#[test]
fn a_trace_is_what_the_viewers_read() {
    let mut results = run_spec(&bench(honest("capped=2")), &in_force()).unwrap();
    results.variants[0].record[0].levels = vec![(0, 1), (1_500, 2)];
    let trace = crate::chrome(&results);
    assert_eq!((trace["displayTimeUnit"].as_str(), trace.as_object().unwrap().len()), (Some("ms"), 2));
    let events = trace["traceEvents"].as_array().unwrap();
    let mut named = std::collections::BTreeSet::new();
    let (mut waits, mut limits, mut in_flight) = (0, Vec::new(), Vec::new());
    let mut tracks: std::collections::BTreeMap<(u64, u64), Vec<(f64, f64)>> = std::collections::BTreeMap::new();
    let mut registers = 0;
    for event in events {
        let number = |key: &str| event[key].as_f64().filter(|number| *number >= 0.0);
        assert!(event["name"].is_string() && event["args"].is_object(), "{event}");
        let (pid, tid) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let ts = number("ts").unwrap();
        match event["ph"].as_str().unwrap() {
            "M" => {
                assert!(event["args"]["name"].is_string(), "{event}");
                match event["name"].as_str().unwrap() {
                    "process_name" => assert_eq!(tid, 0),
                    "thread_name" => assert!(named.insert((pid, tid)), "{event} is a track's second name"),
                    other => panic!("{other} is no metadata that viewers know"),
                }
            }
            "C" => {
                let steps = event["args"]["steps"].as_u64().unwrap();
                match event["name"].as_str().unwrap() {
                    "limit" => limits.push((ts, steps)),
                    "in flight" => in_flight.push((pid, steps)),
                    other => panic!("{other} is no counter of ours"),
                }
            }
            "X" => {
                waits += u32::from(event["cat"] == "wait");
                tracks.entry((pid, tid)).or_default().push((ts, ts + number("dur").unwrap()));
                registers += u32::from(event["cat"] == "register");
            }
            other => panic!("{other} is no phase of ours"),
        }
    }
    // Each registration is there twice: on its worker's track and on its rail's. Events of one track do not overlap.
    assert_eq!(registers, 2 * 2 * 12);
    assert!(tracks.keys().all(|track| named.contains(track)), "a track without a name");
    assert!(waits > 0 && limits == [(0.0, 1), (1.5, 2)], "{waits} waits, {limits:?}");
    let most = |of: u64| in_flight.iter().filter(|(pid, _)| *pid == of).map(|(_, steps)| *steps).max();
    assert_eq!(most(1), Some(2), "capped=2");
    assert!(in_flight.chunk_by(|a, b| a.0 == b.0).all(|of| of.last().unwrap().1 == 0), "all that began ended");
    for track in tracks.values_mut() {
        track.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(track.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-3), "{track:?}");
    }
}

#[test]
fn runs_compare_and_refuse_to() {
    let results = run(honest("capped=2"), &in_force()).unwrap();
    let read = crate::read(&serde_json::to_string(&results).unwrap()).unwrap();
    assert_eq!(read.comparisons, results.comparisons);
    let again = crate::compare(&results, &results).unwrap();
    assert_eq!(again.iter().map(|pair| (pair.ratio, pair.verdict)).collect::<Vec<_>>(), [(1.0, crate::Verdict::Withheld); 2]);
    let mut other = results.clone();
    other.environment.cpus += 1;
    assert!(crate::compare(&results, &other).unwrap_err().to_string().contains("two machines"));
    let mut other = results.clone();
    let mut machine = Machine::from_toml(&other.machine).unwrap();
    machine.rails[1].limits.max_mrs = Some(64);
    other.machine = machine.to_toml();
    let refused = crate::compare(&results, &other).unwrap_err().to_string();
    assert!(refused.ends_with("max_mrs of rail1: none and 64"), "{refused}");
    let mut other = results.clone();
    other.batch.file = serde_json::Value::Null;
    assert!(crate::compare(&results, &other).unwrap_err().to_string().contains("two batches"));
    assert!(crate::read("{\"version\":99}").unwrap_err().to_string().contains("version 99"));
}

//! One seed, one world: a machine, batches, policies and everything that goes wrong, from one thread in virtual time.
//!
//! A world registers a few batches, directly, in the background or through a registry, while calls fail, hang and panic,
//! callers cancel and limits change (safety). Then faults stop, and all that is left must end (liveness). Each seed
//! switches some kinds of fault off, because faults hide each other.
//!
//! ```
//! use pinrail_engine::testing::seeds;
//!
//! let passed = seeds::run(1).unwrap_or_else(|found| panic!("{found}"));
//! assert_eq!(passed.hash, seeds::run(1).expect("the same again").hash);
//! ```

use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pinrail_core::{
    Buffer, BufferId, ChunkId, Extent, Limits, Machine, Memory, NodeId, NumaNode, PinsCounted, Place, RailId, StepWhat,
};
use pinrail_dispatch::testing::Canary;
use pinrail_plan::Plan;
use pinrail_policy::{Policy, Slices};

use super::bank::{Bank, Faults};
use super::policies::{Limiting, Nonsense, Overheard, Unstable, any_limits};
use super::rng::Rng;
use super::stage::{Outside, Rules, Stage, Temper};
use crate::crew::Crew;
use crate::registry::{ClaimError, Claimed, Held, Overlap, Reader, Registry};
use crate::{Attempts, Engine, Failure, OnFailure, Options, Quarantine, Reason, Registration};

const PAGE: u64 = 4096;
const MS: u64 = 1_000_000;

/// A seed whose world kept every promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// What happened, in a number: the same on every machine and in every build.
    pub hash: u64,
    /// Calls into the backend.
    pub calls: u64,
    /// Virtual time, in nanoseconds.
    pub took_ns: u64,
}

/// A seed whose world broke a promise.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// Which promise, and how.
    pub what: String,
    /// What the seed chose.
    pub choices: Vec<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        self.choices.iter().try_for_each(|choice| writeln!(f, "  {choice}"))?;
        write!(f, "again: cargo xtask sim --seeds 1 --from {}", self.seed)
    }
}

/// Runs the world of a seed.
///
/// # Errors
/// [`Found`], with what the seed chose.
pub fn run(seed: u64) -> Result<Passed, Box<Found>> {
    play(seed, None).map_err(|what| {
        // Once more, to tell what the seed chose: putting that into words takes as long as the rest.
        let choices = Choices::default();
        play(seed, Some(Arc::clone(&choices))).ok();
        let choices = choices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::new(Found { seed, what, choices })
    })
}

/// What a seed chose, in words.
type Choices = Arc<Mutex<Vec<String>>>;

fn play(seed: u64, choices: Option<Choices>) -> Result<Passed, String> {
    catch_unwind(AssertUnwindSafe(|| World::new(seed, choices).run())).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
    })
}

/// The first of `seeds` that finds a planted fault, and how it is found.
#[must_use]
pub fn first_to_find(canary: Canary, mut seeds: std::ops::Range<u64>) -> Option<Box<Found>> {
    Canary::plant(Some(canary));
    let found = seeds.find_map(|seed| run(seed).err());
    Canary::plant(None);
    found
}

struct World {
    rng: Rng,
    stage: Stage,
    bank: Arc<Bank>,
    engine: Engine,
    registry: Option<Registry>,
    reader: Option<Reader>,
    machine: Machine,
    policy: Policy,
    pool: Vec<Buffer>,
    swarm: Swarm,
    held: Vec<Held>,
    kept: Vec<Registration>,
    /// Calls that nobody waited for; what they register may come late, and what cannot be undone then is leaked.
    left_behind: u64,
    choices: Option<Choices>,
}

/// What comes from outside, in operations of a thousand; a kind that is switched off is 0.
#[derive(Clone, Copy, Debug)]
struct Swarm {
    cancel: u32,
    let_go: u32,
    limits: u32,
    deadline: u32,
    nonsense: u32,
}

/// Soon, or after the first pauses, or after all of them.
fn any_moment(rng: &mut Rng) -> u64 {
    let span = *rng.pick(&[10_000, 10 * MS, 400 * MS]);
    rng.below(span)
}

fn weight(rng: &mut Rng, max: u32) -> u32 {
    if rng.chance(600) { 0 } else { 1 + u32::try_from(rng.below(max.into())).unwrap_or(0) }
}

impl World {
    fn new(seed: u64, choices: Option<Choices>) -> World {
        let mut rng = Rng::new(seed);
        let machine = machine(&mut rng);
        let rails = machine.rails.len() as u64;
        let temper = Temper {
            call_ns_max: *rng.pick(&[0, 1000, MS, 20 * MS]),
            slow_rail: rng.chance(200).then(|| u16::try_from(rng.below(rails)).unwrap_or(0)),
            stuck: 0,
            no_thread: weight(&mut rng, 400),
            slow: weight(&mut rng, 300),
        };
        let faults = Faults {
            register_fails: weight(&mut rng, 150),
            register_panics: weight(&mut rng, 100),
            again: weight(&mut rng, 400),
            again_for_ever: weight(&mut rng, 100),
            deregister_fails: weight(&mut rng, 200),
            deregister_stays: weight(&mut rng, 200),
            deregister_panics: weight(&mut rng, 150),
            deregister_lies: weight(&mut rng, 100),
            prepare_fails: weight(&mut rng, 100),
            prepare_panics: weight(&mut rng, 80),
            live_max: rng.chance(150).then(|| rng.index(30)),
        };
        let swarm = Swarm {
            cancel: weight(&mut rng, 400),
            let_go: weight(&mut rng, 400),
            limits: weight(&mut rng, 500),
            deadline: weight(&mut rng, 400),
            nonsense: weight(&mut rng, 100),
        };
        let stage = Stage::new(rng.split(), temper);
        let bank = Bank::new(machine.rails.clone(), stage.clone(), rng.split(), faults);
        let limiting = match rng.below(5) {
            0 => Limiting::Erratic { panics: weight(&mut rng, 100) },
            1 => Limiting::Broken(weight(&mut rng, 600)),
            2 => Limiting::Fixed(Limits::NONE),
            _ => Limiting::Fixed(any_limits(&mut rng)),
        };
        let overheard = Overheard { limiting, stage: stage.clone(), rng: Mutex::new(rng.split()) };
        let policy = policy(&mut rng, overheard);
        let engine = Engine::on(bank.clone(), bank.clone(), Crew::on(stage.clone()));
        let registry = rng.chance(500).then(|| Registry::new(engine.clone()).expect("eight rails are few"));
        let pool = pool(&mut rng);
        let world = World {
            reader: registry.as_ref().map(Registry::reader),
            rng,
            stage,
            bank,
            engine,
            registry,
            machine,
            policy,
            pool,
            swarm,
            held: Vec::new(),
            kept: Vec::new(),
            left_behind: 0,
            choices,
        };
        let rails: Vec<_> = world.machine.rails.iter().map(|rail| (rail.calls_in_parallel, rail.limits.max_mr_size)).collect();
        world.note(|| format!("rails (calls in parallel, max_mr_size): {rails:?}"));
        world.note(|| format!("policy: {}, {limiting:?}", world.policy));
        world.note(|| format!("{swarm:?}, {temper:?}"));
        world.note(|| format!("{faults:?}"));
        world
    }

    fn note(&self, choice: impl FnOnce() -> String) {
        if let Some(choices) = &self.choices {
            choices.lock().unwrap_or_else(PoisonError::into_inner).push(choice());
        }
    }

    fn run(mut self) -> Passed {
        for _ in 0..self.rng.within(1..=4) {
            self.operation();
            self.check();
        }
        self.end();
        Passed { hash: self.stage.hash(), calls: self.bank.calls(), took_ns: self.stage.now_ns() }
    }

    fn operation(&mut self) {
        let choice = self.rng.below(8);
        match self.registry.clone() {
            Some(registry) if choice < 5 => self.claim(&registry),
            Some(_) if choice < 7 && !self.held.is_empty() => {
                let at = self.rng.index(self.held.len());
                let held = self.held.swap_remove(at);
                self.note(|| format!("release {held:?}"));
                self.begin(Attempts::All);
                self.look_up_meanwhile();
                held.release().ok();
            }
            Some(registry) if choice == 7 => {
                let range = self.pool[self.rng.index(self.pool.len())].extent();
                self.note(|| format!("invalidate {range}"));
                registry.invalidate(range);
                self.bank.forget(range);
            }
            Some(registry) => {
                self.begin(Attempts::All);
                registry.retry().ok();
            }
            None if choice < 6 => {
                if let Some(plan) = self.plan() {
                    let result = self.register(Arc::new(plan));
                    self.keep(result);
                }
            }
            None => {
                if let Some(registration) = self.kept.pop() {
                    self.note(|| format!("deregister {registration:?}"));
                    self.begin(Attempts::All);
                    if let Err(still) = registration.deregister() {
                        assert!(!still.failed.is_empty() && still.failed.is_sorted_by_key(|failed| failed.seq), "{still:?}");
                        assert_eq!(still.left.live(), still.failed.len() as u64, "each that is left has failed");
                        self.kept.push(still.left.0);
                    }
                }
            }
        }
        self.stage.nothing_from_outside();
    }

    fn begin(&self, attempts: Attempts) {
        self.stage.begin(Rules::new(self.policy.ceiling(), attempts == Attempts::StopEarly));
    }

    /// A batch of some of the pool; `None` where it cannot be planned, which is checked.
    fn plan(&mut self) -> Option<Plan> {
        let mut buffers: Vec<Buffer> = Vec::new();
        for buffer in &self.pool {
            if self.rng.chance(600) && buffers.iter().all(|other| !other.extent().overlaps(buffer.extent())) {
                buffers.insert(self.rng.index(buffers.len() + 1), buffer.clone());
            }
        }
        let slices = Slices::of(*self.rng.pick(&[PAGE, 2 * PAGE, 32 << 20]));
        if self.rng.chance(self.swarm.nonsense) {
            let nonsense = *self.rng.pick(&[Nonsense::Short, Nonsense::Twice, Nonsense::Beyond]);
            let policy = Policy { order: Arc::new(nonsense), ..self.policy.clone() };
            let refused = Plan::new(buffers, &self.machine, &policy);
            assert!(refused.is_err(), "{nonsense:?} is planned");
            return None;
        }
        let lens: Vec<u64> = buffers.iter().map(Buffer::len).collect();
        self.note(|| format!("batch of {lens:?} bytes, {slices:?}"));
        let plan = match Plan::new(buffers, &self.machine, &self.policy) {
            Ok(plan) => plan.with_slices(slices),
            Err(error) => {
                self.note(|| error.to_string());
                return None;
            }
        };
        check_order(&plan);
        Some(plan)
    }

    fn claim(&mut self, registry: &Registry) {
        let Some(plan) = self.plan() else { return };
        let overlap = *self.rng.pick(&[Overlap::Refuse, Overlap::Allow]);
        let calls = self.bank.calls();
        let claim = match registry.claim(plan, overlap) {
            Ok(Claimed::Held(held)) => {
                assert_eq!(self.bank.calls(), calls, "what is registered is not registered again");
                self.note(|| format!("registered already: {held:?}"));
                return self.held.push(held);
            }
            Ok(Claimed::New(claim)) => claim,
            Err(ClaimError::Overlap { .. }) => {
                assert_eq!(overlap, Overlap::Refuse, "an overlap that was allowed");
                return;
            }
            Err(ClaimError::Plan(_)) => return,
            Err(other) => panic!("{other}"),
        };
        let registration = match self.register(Arc::clone(claim.plan())) {
            Ok(registration) => registration,
            Err(mut failure) => {
                let kept = failure.kept.take();
                // As a caller that gives what could not be undone one more try, later.
                self.kept.extend(failure.quarantine.take().map(|left| left.0));
                let Some(kept) = kept else { return };
                kept
            }
        };
        let wanted: Vec<(Extent, Vec<RailId>)> = whole(&registration);
        // What of the registration is no whole buffer is undone, which may fail.
        self.begin(Attempts::All);
        let held = claim.publish(registration).expect("keys are short");
        let reader = self.reader.as_mut().expect("it has a registry");
        for (extent, rails) in wanted {
            for rail in rails {
                let pieces = reader.range(extent, rail).unwrap_or_else(|why| panic!("{extent} was just registered: {why}"));
                assert!(pieces.windows(2).all(|pair| pair[0].extent.end() == pair[1].extent.start()), "{pieces:?}");
                let ends = (pieces.first().map(|piece| piece.extent.start()), pieces.last().map(|piece| piece.extent.end()));
                assert_eq!(ends, (Some(extent.start()), Some(extent.end())), "pieces are the whole range");
            }
        }
        self.held.push(held);
    }

    /// Registers on the caller's thread or in the background, with whatever comes from outside.
    fn register(&mut self, plan: Arc<Plan>) -> Result<Registration, Box<Failure>> {
        let is_late = self.rng.chance(self.swarm.deadline);
        let options = Options {
            on_failure: *self.rng.pick(&[OnFailure::RollBack, OnFailure::KeepComplete]),
            attempts: *self.rng.pick(&[Attempts::All, Attempts::StopEarly]),
            deadline: is_late.then(|| Duration::from_nanos(any_moment(&mut self.rng))),
            threads_max: u32::try_from(self.rng.within(1..=12)).unwrap_or(1),
        };
        self.note(|| format!("register {} tasks, {options:?}", plan.tasks()));
        self.begin(options.attempts);
        let span = *self.rng.pick(&[10_000, 2 * MS, 50 * MS]);
        if self.rng.chance(self.swarm.limits) {
            for _ in 0..self.rng.within(1..=3) {
                let (after, limits) = (self.rng.below(span), any_limits(&mut self.rng));
                self.note(|| format!("after {after} ns: {limits:?}"));
                self.stage.after(after, Outside::Limits(limits));
            }
        }
        self.look_up_meanwhile();
        let (tasks, calls, live) = (plan.tasks(), self.bank.calls(), self.bank.live());
        let result =
            if self.rng.chance(500) { self.engine.register(plan, &options) } else { self.in_background(plan, &options, span) };
        self.judge(&result, tasks, &options);
        if let Err(failure) = &result
            && let Reason::Refused(_) = failure.reason
        {
            assert_eq!((self.bank.calls(), self.bank.live()), (calls, live), "refused, and calls were made");
        }
        result
    }

    fn in_background(&mut self, plan: Arc<Plan>, options: &Options, span: u64) -> Result<Registration, Box<Failure>> {
        let handle = self.engine.start(plan, options)?;
        let steering = handle.steering();
        if self.rng.chance(self.swarm.cancel) {
            let after = self.rng.below(span);
            self.note(|| format!("after {after} ns: cancel"));
            self.stage.after(after, Outside::Cancel(Arc::clone(&steering)));
        }
        let lets_go = self.rng.chance(self.swarm.let_go);
        if lets_go {
            let (after, stuck) = (self.rng.below(span), u32::try_from(self.rng.below(300)).unwrap_or(0));
            self.note(|| format!("after {after} ns: detach; stuck: {stuck}"));
            self.stage.stuck(stuck);
            self.stage.after(after, Outside::LetGo(steering));
        }
        self.stage.perform();
        self.stage.stuck(0);
        if lets_go {
            self.left_behind += self.stage.not_ended();
        }
        assert!(handle.is_finished(), "what runs in the background has ended");
        handle.wait()
    }

    /// Look-ups by another thread while something goes on.
    fn look_up_meanwhile(&mut self) {
        let Some(reader) = &self.reader else { return };
        for _ in 0..self.rng.below(3) {
            let (mut reader, bank, rules) = (reader.clone(), Arc::clone(&self.bank), self.stage.rules());
            let (pool, mut rng) = (self.pool.clone(), self.rng.split());
            let look_up = move || {
                let extent = rng.pick(&pool).extent();
                for rail in (0..8).map(RailId) {
                    if let Ok(pieces) = reader.range(extent, rail) {
                        let fault = |piece: &crate::registry::KeyPiece<'_>| bank.fault_of(piece.local_key, rail, piece.extent);
                        pieces.iter().filter_map(fault).for_each(|fault| rules.wrong(fault));
                    }
                }
            };
            let after = self.rng.below(2 * MS);
            self.stage.after(after, Outside::Do(Box::new(look_up)));
        }
    }

    /// A result against what was asked for.
    fn judge(&self, result: &Result<Registration, Box<Failure>>, tasks: u64, options: &Options) {
        let failure = match result {
            Ok(registration) => {
                assert_eq!(registration.live(), registration.plan().tasks(), "all of it, or a failure");
                return self.check_registration(registration);
            }
            Err(failure) => failure,
        };
        let live = |part: &Option<Registration>| part.as_ref().map_or(0, |part| part.live());
        let of_tasks = |list: &mut dyn Iterator<Item = bool>| list.filter(|is_task| *is_task).fold(0u64, |n, _| n + 1);
        let failed = of_tasks(&mut failure.failed.iter().map(|failed| failed.rail.is_some()));
        let stuck = of_tasks(&mut failure.stuck.iter().map(|stuck| stuck.rail.is_some()));
        let listed = failed
            + stuck
            + failure.rolled_back
            + failure.not_attempted
            + live(&failure.kept)
            + failure.quarantine.as_ref().map_or(0, Quarantine::live);
        let all = failure.report.as_ref().map_or(tasks, |report| {
            let steps = (0..u32::try_from(report.steps.len()).unwrap_or(u32::MAX)).map(pinrail_core::StepId);
            of_tasks(&mut steps.map(|step| matches!(report.steps.what(step), StepWhat::Task { .. })))
        });
        assert_eq!(listed, all, "each task is in one list: {failure:?}");
        assert!(failure.failed.is_sorted_by_key(|failed| failed.seq), "failures are listed as they were handed out");
        match &failure.reason {
            Reason::Step(first) => assert_eq!(Some(first), failure.failed.first(), "the first failure is the reason"),
            Reason::Detached | Reason::Refused(_) => {}
            Reason::Cancelled => {}
            Reason::Deadline => assert!(options.deadline.is_some(), "a deadline that nobody set"),
        }
        let keeps = options.on_failure == OnFailure::KeepComplete && matches!(failure.reason, Reason::Step(_));
        if let Some(kept) = &failure.kept {
            assert!(keeps || matches!(failure.reason, Reason::Detached), "kept, and nobody asked for it: {failure:?}");
            self.check_registration(kept);
        }
        failure.quarantine.iter().for_each(|left| self.check_registration(&left.0));
        if let Some(report) = &failure.report {
            check_record(report);
        }
    }

    /// What a registration says it holds.
    fn check_registration(&self, registration: &Registration) {
        let plan = registration.plan();
        let place = |chunk: ChunkId, rail: RailId| {
            let nth = plan.rails_of(chunk).iter().position(|other| *other == rail);
            (chunk, nth.unwrap_or_else(|| panic!("{chunk} is registered on {rail}, which was not chosen")))
        };
        let mrs: Vec<_> = registration.mrs().map(|(chunk, mr)| (place(chunk, mr.rail()), mr)).collect();
        assert!(mrs.is_sorted_by(|a, b| a.0 < b.0), "registrations are listed in the caller's order");
        for ((chunk, _), mr) in mrs {
            assert_eq!(mr.extent(), plan.extent(chunk), "{chunk} is registered elsewhere");
            assert!(mr.is_live() && self.bank.knows(mr), "{mr:?} of {chunk} is not live in the backend");
        }
        check_record(registration.report());
    }

    fn keep(&mut self, result: Result<Registration, Box<Failure>>) {
        match result {
            Ok(registration) => self.kept.push(registration),
            Err(mut failure) => {
                self.kept.extend(failure.kept.take().into_iter().chain(failure.quarantine.take().map(|left| left.0)))
            }
        }
    }

    /// After an operation: what is live is held by somebody, with its memory, and what was released is not seen.
    fn check(&mut self) {
        assert!(self.bank.all_have_their_memory(), "a registration is live and its memory was let go of");
        let counts = self.registry.as_ref().map(Registry::counts).unwrap_or_default();
        let kept: u64 = self.kept.iter().map(Registration::live).sum();
        let held = kept + counts.mrs + counts.quarantined;
        let live = self.bank.live();
        assert!(live >= held, "{held} registrations are held and only {live} are live");
        assert!(live <= held + self.left_behind, "{live} registrations are live and only {held} are held: an MR is lost");
        let Some(reader) = &mut self.reader else { return };
        for buffer in &self.pool {
            for rail in self.machine.ids() {
                let Ok(pieces) = reader.range(buffer.extent(), rail) else { continue };
                for piece in pieces.iter() {
                    if let Some(fault) = self.bank.fault_of(piece.local_key, rail, piece.extent) {
                        panic!("{fault}");
                    }
                }
            }
        }
    }

    /// Faults stop; all that is left ends, within a bound.
    fn end(&mut self) {
        self.note(|| "faults stop".to_owned());
        self.bank.heal();
        self.stage.nothing_from_outside();
        self.stage.temper(Temper { call_ns_max: 1000, ..Temper::default() });
        let returns = self.rng.chance(700);
        let late = if returns { self.stage.release_stuck() } else { 0 };
        let (start_ns, left) = (self.stage.now_ns(), self.bank.live() + late);
        self.begin(Attempts::All);
        for registration in std::mem::take(&mut self.kept) {
            registration.deregister().unwrap_or_else(|still| panic!("nothing fails any more: {still}"));
        }
        for held in std::mem::take(&mut self.held) {
            held.release().unwrap_or_else(|left| panic!("nothing fails any more: {left}"));
        }
        if let Some(registry) = &self.registry {
            registry.retry().unwrap_or_else(|left| panic!("nothing fails any more: {left}"));
            registry.close().unwrap_or_else(|open| panic!("nothing is left: {open}"));
        }
        self.stage.play_out();
        let live = self.bank.live();
        assert!(live <= self.left_behind, "{live} registrations are live in the end and nobody holds them: an MR is lost");
        assert!(self.bank.all_have_their_memory(), "a registration is live and its memory was let go of");
        assert!(self.stage.not_ended() == 0 || !returns, "a call has returned and its worker has not ended");
        // A call takes 1 us at most now, and who was paused goes on within the longest pauses, or had a slow call before.
        let (took, bound) = (self.stage.now_ns() - start_ns, left * 1000 + 400 * MS + 100 * 20 * MS);
        assert!(took <= bound, "{left} registrations were left and it took {took} ns to end, over {bound}");
        self.stage.clear();
    }
}

/// Buffers that are wholly registered, with their rails.
fn whole(registration: &Registration) -> Vec<(Extent, Vec<RailId>)> {
    let plan = registration.plan();
    let is_whole = |buffer: &BufferId| {
        let mut chunks = plan.chunks_of(*buffer).map(ChunkId);
        chunks.all(|chunk| plan.rails_of(chunk).iter().all(|rail| registration.mr(chunk, *rail).is_some()))
    };
    let buffers = (0..).map(BufferId).take(plan.buffers().len()).filter(is_whole);
    // With disjoint shares a buffer's chunks may be on different rails: then there is no rail that has all of it.
    let rails = |buffer: BufferId| {
        let rails = plan.selection(buffer).rails.iter().copied();
        let on_all = |rail: &RailId| plan.chunks_of(buffer).map(ChunkId).all(|chunk| plan.rails_of(chunk).contains(rail));
        (plan.buffers()[buffer.index()].extent(), rails.filter(on_all).collect())
    };
    buffers.map(rails).collect()
}

/// Chunks that an order does not tell apart keep the caller's order.
fn check_order(plan: &Plan) {
    let order: Vec<ChunkId> = plan.order().collect();
    let mut all = order.clone();
    all.sort_unstable();
    assert!(all.into_iter().eq(plan.chunk_ids()), "the order is no permutation");
    let len = |chunk: ChunkId| plan.chunks()[chunk.index()].len();
    let spec = plan.policy().order.spec();
    for pair in order.windows(2) {
        let (first, second) = (len(pair[0]), len(pair[1]));
        let is_sorted = match spec.as_str() {
            "ascending" => first <= second,
            "descending" => first >= second,
            _ => true,
        };
        assert!(is_sorted, "{} is before {} in {spec}", pair[0], pair[1]);
        assert!(first != second || spec == "sample-first" || pair[0] < pair[1], "equal chunks are turned round in {spec}");
    }
}

/// Hand-outs are numbered through but for those that have not returned, and took no time backwards.
fn check_record(report: &crate::Report) {
    assert!(report.record.is_sorted_by(|a, b| a.seq < b.seq), "a hand-out is listed twice");
    assert!(report.record.iter().all(|handout| handout.start <= handout.end), "a call returned before it began");
}

fn machine(rng: &mut Rng) -> Machine {
    let mut machine = Machine::of_rails(u16::try_from(rng.within(1..=8)).unwrap_or(1));
    let max_mr_size = rng.chance(300).then(|| PAGE * rng.within(1..=4));
    let max_mrs = rng.chance(50).then(|| rng.within(4..=40));
    for rail in &mut machine.rails {
        rail.calls_in_parallel = NonZeroU32::new(*rng.pick(&[1, 1, 1, 2, 3, u32::MAX])).unwrap_or(NonZeroU32::MIN);
        rail.pins = PinsCounted::Nothing;
        rail.node = Some(NodeId(u32::from(rng.chance(500))));
        rail.limits.max_mr_size = max_mr_size;
        rail.limits.max_mrs = max_mrs;
    }
    machine.nodes = [0, 1].map(|id| NumaNode { id: NodeId(id) }).to_vec();
    machine
}

/// Buffers of a few allocations: some touch, some overlap, many are equal.
fn pool(rng: &mut Rng) -> Vec<Buffer> {
    let mut pool = Vec::new();
    let mut address = 1 << 20;
    for _ in 0..rng.within(1..=4) {
        let pages = rng.within(2..=12);
        let memory = Memory::imagined(address, pages * PAGE).expect("small numbers");
        address += (pages + rng.below(3)) * PAGE;
        let place = *rng.pick(&[Place::Host, Place::Host, Place::HostNode(NodeId(0)), Place::HostNode(NodeId(1))]);
        let mut at = 0;
        while at < pages {
            let len = rng.within(1..=3).min(pages - at);
            let bytes = if rng.chance(100) { rng.within(1..=len * PAGE) } else { len * PAGE };
            let range = at * PAGE..at * PAGE + bytes;
            let name = format!("buffer{}", pool.len());
            pool.push(Buffer::new(name, memory.clone(), range).expect("inside its memory").with_place(place));
            // Now and then the next one begins in the middle of this one.
            at += if rng.chance(150) { len.div_ceil(2) } else { len + rng.below(2) };
        }
    }
    pool
}

fn policy(rng: &mut Rng, overheard: Overheard) -> Policy {
    let mut terms: Vec<String> = Vec::new();
    let mut one_of = |rng: &mut Rng, choices: &[&str]| terms.push((*rng.pick(choices)).to_owned());
    one_of(rng, &["device-local", "rail-local", "rail-local+local-max=1", "rail-local+share=all", "all-rails", "rails=rail0"]);
    one_of(rng, &["rails-in-parallel", "rails-in-series"]);
    one_of(rng, &["caller-order", "ascending", "descending"]);
    one_of(rng, &["prefault", "no-prefault"]);
    one_of(rng, &["coalesce", "no-coalesce", "coalesce=gaps"]);
    one_of(rng, &["coverage=full", "coverage=disjoint"]);
    if rng.chance(300) {
        terms.push(format!("per-rail={}", rng.within(1..=3)));
    }
    let policy = Policy::new(NonZeroU32::MIN).with(&terms.join("+")).expect("known terms");
    let mut policy = Policy { concurrency: Arc::new(overheard), ..policy };
    if Canary::OrderNotStable.is_planted() && policy.order.spec() == "ascending" {
        policy.order = Arc::new(Unstable);
    }
    policy
}

//! Workers on one thread, in virtual time: whom a seed picks goes on, a call begins and returns when it says, and
//! dispatch's oracle is asked about every hand-out.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pinrail_core::{Kind, Limits, StepId, StepWhat};
use pinrail_dispatch::Outcome;
use pinrail_dispatch::testing::Oracle;

use super::rng::Rng;
use crate::clock;
use crate::handle::Steering;
use crate::parker::Epoch;
use crate::report::Handout;
use crate::run::{Control, Next};

/// More than any run here needs: who gets there goes in circles.
const ACTIONS_MAX: u64 = 200_000;

/// A [`Worker`](crate::run::Worker) of any kind of run.
pub(crate) trait Drive: Send {
    fn next(&mut self) -> Next;
    fn call(&mut self);
    fn control(&self) -> &Arc<Control>;
    /// The step it has in hand, with its place in the order of hand-outs.
    fn holds(&self) -> Option<(u64, StepId, StepWhat)>;
    /// The steps it has done since this one.
    fn done_since(&self, seq: Option<u64>) -> Vec<Handout>;
}

/// What calls, threads and clocks do here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Temper {
    /// The longest call, in nanoseconds.
    pub(crate) call_ns_max: u64,
    /// The rail, if any, whose calls take a hundred times as long.
    pub(crate) slow_rail: Option<u16>,
    /// Calls of a thousand that never return, where somebody may stop waiting for them.
    pub(crate) stuck: u32,
    /// Threads of a thousand that cannot be had.
    pub(crate) no_thread: u32,
    /// Moments of a thousand that pass while somebody could go on.
    pub(crate) slow: u32,
}

/// What holds for the runs of one operation, as its checker knows it; workers and policies are not asked.
pub(crate) struct Rules {
    pub(crate) ceiling: Limits,
    pub(crate) stop_early: bool,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    cancelled: bool,
    /// What the limits' policy said last, run by run.
    controlled: Vec<(Kind, Arc<Mutex<Limits>>)>,
    wrong: Vec<String>,
}

impl Rules {
    pub(crate) fn new(ceiling: Limits, stop_early: bool) -> Arc<Rules> {
        Arc::new(Rules { ceiling, stop_early, said: Mutex::default() })
    }

    /// A run begins, and these are its policy's limits.
    pub(crate) fn began(&self, kind: Kind, limits: Limits) -> Arc<Mutex<Limits>> {
        let limits = Arc::new(Mutex::new(limits));
        held(&self.said).controlled.push((kind, Arc::clone(&limits)));
        limits
    }

    pub(crate) fn wrong(&self, what: String) {
        held(&self.said).wrong.push(what);
    }

    fn controlled(&self, kind: Kind) -> Arc<Mutex<Limits>> {
        let of_kind = |(of, limits): &(Kind, Arc<Mutex<Limits>>)| (*of == kind).then(|| Arc::clone(limits));
        held(&self.said).controlled.iter().rev().find_map(of_kind).unwrap_or_else(|| Arc::new(Mutex::new(Limits::NONE)))
    }
}

/// What comes from outside while a run goes on.
pub(crate) enum Outside {
    Cancel(Arc<Steering>),
    /// As a detached handle does, but for the wait.
    LetGo(Arc<Steering>),
    Limits(Limits),
    Do(Box<dyn FnOnce() + Send>),
}

/// The place where workers play. Clones are one stage.
#[derive(Clone)]
pub(crate) struct Stage(Arc<Mutex<Scene>>);

/// A worker on the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Actor(usize);

struct Scene {
    start: Instant,
    now_ns: u64,
    rng: Rng,
    temper: Temper,
    rules: Arc<Rules>,
    runs: Vec<Run>,
    parts: Vec<Part>,
    /// By moment, then by when they were made.
    events: BTreeMap<(u64, u64), Event>,
    events_made: u64,
    later: VecDeque<Box<dyn FnOnce() + Send>>,
    /// What the call that goes on now is for.
    calling: Option<StepWhat>,
    /// A thread could not be had.
    lacks_threads: bool,
    actions: u64,
    hash: u64,
}

struct Run {
    control: Arc<Control>,
    kind: Kind,
    oracle: Oracle,
    rules: Arc<Rules>,
    controlled: Arc<Mutex<Limits>>,
    caller: Limits,
    has_failed: bool,
    /// The wake-ups delivered so far, to those who wait and to those who pause.
    seen: [Epoch; 2],
}

struct Part {
    worker: Option<Box<dyn Drive>>,
    run: usize,
    state: State,
    /// Whoever waits for it cannot stop waiting.
    is_own: bool,
    /// The last step it is known to have done.
    done: Option<u64>,
    sleeps: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// About to sleep in one of the run's two places, unless its epoch has moved.
    Drowsy(usize, Epoch, Option<u64>),
    Asleep(usize),
    Calling,
    Ended,
}

enum Event {
    Effect(usize),
    Return(usize),
    Timeout(usize, u64),
    Outside(Outside),
}

enum Turn {
    Part(usize),
    Event(Event),
    /// Time has passed.
    Passed,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    pub(crate) fn new(rng: Rng, temper: Temper) -> Stage {
        let scene = Scene {
            start: clock::now(),
            now_ns: 0,
            rng,
            temper,
            rules: Rules::new(Limits::NONE, false),
            runs: Vec::new(),
            parts: Vec::new(),
            events: BTreeMap::new(),
            events_made: 0,
            later: VecDeque::new(),
            calling: None,
            lacks_threads: false,
            actions: 0,
            hash: 0,
        };
        Stage(Arc::new(Mutex::new(scene)))
    }

    fn scene(&self) -> MutexGuard<'_, Scene> {
        held(&self.0)
    }

    pub(crate) fn now(&self) -> Instant {
        let scene = self.scene();
        scene.start + Duration::from_nanos(scene.now_ns)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.scene().now_ns
    }

    /// The next operation, and what holds for it.
    pub(crate) fn begin(&self, rules: Arc<Rules>) {
        self.scene().rules = rules;
    }

    /// What holds for the operation that goes on now.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.scene().rules)
    }

    /// What the call that goes on now is for.
    pub(crate) fn calling(&self) -> Option<StepWhat> {
        self.scene().calling
    }

    /// From now on calls and threads do as this says.
    pub(crate) fn temper(&self, temper: Temper) {
        self.scene().temper = temper;
    }

    /// Something comes from outside in so many nanoseconds.
    pub(crate) fn after(&self, ns: u64, outside: Outside) {
        let mut scene = self.scene();
        let at = scene.now_ns + ns;
        scene.event(at, Event::Outside(outside));
    }

    /// What was to come from outside does not.
    pub(crate) fn nothing_from_outside(&self) {
        self.scene().events.retain(|_, event| !matches!(event, Event::Outside(_)));
    }

    /// Every call that was never to return does; answers how many these are.
    pub(crate) fn release_stuck(&self) -> u64 {
        let mut scene = self.scene();
        let returning: Vec<usize> =
            scene.events.values().filter_map(|event| if let Event::Return(at) = event { Some(*at) } else { None }).collect();
        let stuck: Vec<usize> =
            (0..scene.parts.len()).filter(|at| scene.parts[*at].state == State::Calling && !returning.contains(at)).collect();
        let (now, late) = (scene.now_ns, stuck.len() as u64);
        for at in stuck {
            scene.event(now, Event::Effect(at));
            scene.event(now, Event::Return(at));
        }
        late
    }

    /// What happened, in a number.
    pub(crate) fn hash(&self) -> u64 {
        self.scene().hash
    }

    pub(crate) fn hire(&self, worker: Box<dyn Drive>) -> io::Result<Actor> {
        let mut scene = self.scene();
        let no_thread = scene.temper.no_thread;
        if scene.rng.chance(no_thread) {
            scene.lacks_threads = true;
            return Err(io::Error::from_raw_os_error(11));
        }
        Ok(scene.enter(worker, false))
    }

    pub(crate) fn admit(&self, worker: Box<dyn Drive>) -> Actor {
        self.scene().enter(worker, true)
    }

    /// Keeps what goes on beside its caller for [`Stage::perform`].
    pub(crate) fn later(&self, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let mut scene = self.scene();
        let no_thread = scene.temper.no_thread;
        if scene.rng.chance(no_thread) {
            return Err(io::Error::from_raw_os_error(11));
        }
        scene.later.push_back(run);
        Ok(())
    }

    /// Does what was kept.
    pub(crate) fn perform(&self) {
        loop {
            let Some(run) = self.scene().later.pop_front() else { return };
            run();
        }
    }

    pub(crate) fn play_to_end_of(&self, actor: Actor) {
        self.play(|| self.scene().parts[actor.0].state == State::Ended);
    }

    /// Plays on until every worker has ended that can.
    pub(crate) fn play_out(&self) {
        self.play(|| {
            let scene = self.scene();
            // Who waits for a call that never returns waits with it.
            let stuck = |run: usize| scene.parts.iter().any(|part| part.run == run && part.state == State::Calling);
            let can_go_on = |part: &Part| match part.state {
                State::Ended | State::Calling => false,
                State::Asleep(_) => !stuck(part.run),
                State::Ready | State::Drowsy(..) => true,
            };
            scene.events.is_empty() && !scene.parts.iter().any(can_go_on)
        });
    }

    /// Lets so many calls of a thousand never return from now on.
    pub(crate) fn stuck(&self, per_mille: u32) {
        self.scene().temper.stuck = per_mille;
    }

    /// What never returned is dropped, and its workers with it.
    pub(crate) fn clear(&self) {
        let (parts, runs) = {
            let mut scene = self.scene();
            (std::mem::take(&mut scene.parts), std::mem::take(&mut scene.runs))
        };
        drop((parts, runs));
    }

    /// Workers that have not ended.
    pub(crate) fn not_ended(&self) -> u64 {
        self.scene().parts.iter().filter(|part| part.state != State::Ended).fold(0, |n, _| n + 1)
    }

    /// Lets whom the seed picks go on, until that is done.
    pub(crate) fn play(&self, is_done: impl Fn() -> bool) {
        // A world that broke a promise is over: what is dropped on the way out is not played.
        while !thread::panicking() && !is_done() {
            // Never held while somebody goes on: what he does may ask for the time.
            let turn = self.scene().turn();
            match turn {
                Turn::Passed => {}
                Turn::Part(at) => self.go_on(at),
                Turn::Event(Event::Effect(at)) => self.call(at),
                Turn::Event(Event::Return(at)) => self.scene().parts[at].state = State::Ready,
                Turn::Event(Event::Timeout(at, sleep)) => self.scene().wake(at, sleep),
                Turn::Event(Event::Outside(outside)) => self.outside(outside),
            }
            self.scene().observe();
        }
    }

    fn go_on(&self, at: usize) {
        let (mut worker, before) = {
            let mut scene = self.scene();
            let part = &mut scene.parts[at];
            if let State::Drowsy(place, epoch, until) = part.state {
                return scene.fall_asleep(at, place, epoch, until);
            }
            let worker = part.worker.take().expect("who is ready is not taken");
            let before = worker.holds();
            (worker, before)
        };
        let next = worker.next();
        let mut scene = self.scene();
        scene.took(at, worker.as_ref(), before, next);
        scene.parts[at].worker = Some(worker);
        if scene.parts[at].state == State::Ended {
            let worker = scene.parts[at].worker.take();
            drop(scene);
            drop(worker);
        }
    }

    fn call(&self, at: usize) {
        let mut worker = self.scene().parts[at].worker.take().expect("who calls is not taken");
        self.scene().calling = worker.holds().map(|(_, _, what)| what);
        worker.call();
        let mut scene = self.scene();
        scene.calling = None;
        scene.parts[at].worker = Some(worker);
    }

    fn outside(&self, outside: Outside) {
        match outside {
            Outside::Cancel(steering) => {
                held(&self.scene().rules.said).cancelled = true;
                steering.cancel();
            }
            Outside::LetGo(steering) => {
                held(&self.scene().rules.said).cancelled = true;
                steering.let_go();
            }
            Outside::Limits(limits) => {
                let mut scene = self.scene();
                for run in &mut scene.runs {
                    run.caller = limits;
                    run.control.parker.deliver(run.control.dispatch.set_limits(limits));
                }
            }
            Outside::Do(something) => something(),
        }
    }
}

impl Scene {
    fn enter(&mut self, worker: Box<dyn Drive>, is_own: bool) -> Actor {
        let control = Arc::clone(worker.control());
        let run = self.runs.iter().position(|run| Arc::ptr_eq(&run.control, &control)).unwrap_or_else(|| {
            let steps = control.dispatch.steps().clone();
            let (kind, rules) = (steps.tasks(), Arc::clone(&self.rules));
            let controlled = rules.controlled(kind);
            let oracle = Oracle::new(steps, rules.ceiling);
            let seen = [control.parker.epoch(), control.pauses.epoch()];
            let caller = Limits::NONE;
            self.runs.push(Run { control, kind, oracle, rules, controlled, caller, has_failed: false, seen });
            self.runs.len() - 1
        });
        self.parts.push(Part { worker: Some(worker), run, state: State::Ready, is_own, done: None, sleeps: 0 });
        Actor(self.parts.len() - 1)
    }

    fn event(&mut self, at_ns: u64, event: Event) {
        self.events.insert((at_ns, self.events_made), event);
        self.events_made += 1;
    }

    fn note(&mut self, what: [u64; 3]) {
        for word in what.into_iter().chain([self.now_ns]) {
            // FNV-1a, a word at a time.
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Who or what is next.
    fn turn(&mut self) -> Turn {
        self.actions += 1;
        assert!(self.actions < ACTIONS_MAX, "it goes round in circles");
        let is_ready = |part: &Part| matches!(part.state, State::Ready | State::Drowsy(..));
        let ready: Vec<usize> = (0..self.parts.len()).filter(|at| is_ready(&self.parts[*at])).collect();
        let first = self.events.first_key_value().map(|(key, _)| *key);
        if ready.is_empty() {
            self.nobody_waits();
            let Some(key) = first else { panic!("nobody can go on, and nothing will happen: {:?}", self.states()) };
            return self.reach(key);
        }
        let is_due = first.is_some_and(|(at, _)| at <= self.now_ns);
        let is_slow = self.rng.chance(self.temper.slow);
        match first {
            Some(key) if is_slow || (is_due && self.rng.below(ready.len() as u64 + 1) == 0) => self.reach(key),
            _ => {
                let nth = self.rng.index(ready.len());
                Turn::Part(ready[nth])
            }
        }
    }

    fn reach(&mut self, key: (u64, u64)) -> Turn {
        self.now_ns = self.now_ns.max(key.0);
        self.events.remove(&key).map_or(Turn::Passed, Turn::Event)
    }

    fn states(&self) -> Vec<(State, usize)> {
        self.parts.iter().filter(|part| part.state != State::Ended).map(|part| (part.state, part.run)).collect()
    }

    /// Where nobody is about to take, nobody sleeps while a step could start.
    fn nobody_waits(&mut self) {
        for at in 0..self.runs.len() {
            let sleeps = self.parts.iter().any(|part| part.run == at && part.state == State::Asleep(0));
            if sleeps {
                self.expect(at);
                let run = &self.runs[at];
                if let Some(step) = run.oracle.smallest() {
                    panic!("{:?}: workers wait while {step} could start: a wake-up is lost", run.kind);
                }
            } else if !self.lacks_threads {
                self.nobody_is_missing(at);
            }
        }
    }

    /// Where all are busy and one more could be, as many are there as there may be: under fixed limits those who could ever
    /// be busy, else all that the crew has.
    fn nobody_is_missing(&mut self, at: usize) {
        self.expect(at);
        let run = &self.runs[at];
        let there = self.parts.iter().filter(|part| part.run == at && part.state != State::Ended).fold(0, |n, _| n + 1);
        if let Some(step) = run.oracle.smallest().filter(|_| there > 0 && run.caller == Limits::NONE) {
            let threads_max = run.control.crew.threads_max;
            assert!(there >= threads_max, "{:?}: {step} could start and none of {there} workers brings another", run.kind);
        }
    }

    /// Brings the oracle's view of limits and stops up to now.
    fn expect(&mut self, at: usize) {
        let now = self.start + Duration::from_nanos(self.now_ns);
        let run = &mut self.runs[at];
        let controlled = *held(&run.controlled);
        run.oracle.limits = run.rules.ceiling.least(run.caller).least(controlled);
        let is_late = run.control.deadline().is_some_and(|deadline| now >= deadline);
        let is_cancelled = held(&run.rules.said).cancelled && run.kind == Kind::Register;
        run.oracle.stopped |= is_late || is_cancelled || (run.has_failed && run.rules.stop_early && run.kind == Kind::Register);
    }

    /// Checks what a worker did, and does what it wants next.
    fn took(&mut self, at: usize, worker: &dyn Drive, before: Option<(u64, StepId, StepWhat)>, next: Next) {
        let run = self.parts[at].run;
        for handout in worker.done_since(self.parts[at].done) {
            self.parts[at].done = Some(handout.seq);
            assert!(before.is_some_and(|(seq, ..)| seq == handout.seq), "a step has ended that nobody had in hand");
            let what = self.runs[run].control.dispatch.steps().what(handout.step);
            let outcome = match (handout.ok, what) {
                (true, _) => Outcome::Done,
                (false, StepWhat::Prepare { .. }) => Outcome::Skip,
                (false, StepWhat::Task { .. }) => Outcome::Failed,
            };
            self.runs[run].oracle.end(handout.step, outcome);
            self.runs[run].has_failed |= !handout.ok;
            self.note([1, handout.step.0.into(), u64::from(handout.ok)]);
        }
        self.expect(run);
        let now = worker.holds();
        if let Some((_, step, what)) = now.filter(|_| now != before) {
            self.started(run, step);
            self.note([2, step.0.into(), u64::from(matches!(what, StepWhat::Prepare { .. }))]);
        }
        let is_same = |limits: Limits| limits == self.runs[run].oracle.limits;
        assert!(is_same(self.runs[run].control.dispatch.limits()), "the limits in force are others than those set");
        self.parts[at].state = match next {
            Next::Call => {
                self.begin_call(at, now.map(|(_, _, what)| what));
                State::Calling
            }
            Next::Go => State::Ready,
            Next::Park(epoch, until) => {
                assert_eq!(self.runs[run].oracle.smallest(), None, "told to wait while a step could start");
                assert!(!self.runs[run].oracle.has_ended(), "told to wait after the end");
                State::Drowsy(0, epoch, until.map(|until| self.ns_of(until)))
            }
            Next::Pause(epoch, until) => State::Drowsy(1, epoch, Some(self.ns_of(until))),
            Next::End => {
                assert!(self.runs[run].oracle.has_ended(), "a worker leaves while steps are left");
                State::Ended
            }
        };
        let as_number = match next {
            Next::Call => 0,
            Next::Park(..) => 1,
            Next::Pause(..) => 2,
            Next::End => 3,
            Next::Go => 4,
        };
        self.note([3, at as u64, as_number]);
    }

    fn started(&mut self, run: usize, step: StepId) {
        let run = &mut self.runs[run];
        assert_eq!(run.oracle.smallest(), Some(step), "{:?}: {step} is not the smallest that may start now", run.kind);
        run.oracle.start(step);
    }

    fn ns_of(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }

    fn begin_call(&mut self, at: usize, what: Option<StepWhat>) {
        let Temper { call_ns_max, slow_rail, stuck, .. } = self.temper;
        let is_slow = matches!(what, Some(StepWhat::Task { rail, .. }) if Some(rail.0) == slow_rail);
        let takes = self.rng.below(call_ns_max + 1) * if is_slow { 100 } else { 1 };
        let is_stuck = !self.parts[at].is_own && self.rng.chance(stuck);
        let effect = match self.rng.below(3) {
            0 => 0,
            1 => takes,
            _ => self.rng.below(takes + 1),
        };
        let now = self.now_ns;
        if !is_stuck {
            self.event(now + effect, Event::Effect(at));
            self.event(now + takes, Event::Return(at));
        }
    }

    fn fall_asleep(&mut self, at: usize, place: usize, epoch: Epoch, until: Option<u64>) {
        let control = &self.runs[self.parts[at].run].control;
        let now = [&control.parker, &control.pauses][place].epoch();
        if now != epoch {
            self.parts[at].state = State::Ready;
            return;
        }
        self.parts[at].state = State::Asleep(place);
        self.parts[at].sleeps += 1;
        let sleep = self.parts[at].sleeps;
        if let Some(until) = until {
            self.event(until, Event::Timeout(at, sleep));
        }
    }

    fn wake(&mut self, at: usize, sleep: u64) {
        let part = &mut self.parts[at];
        if part.sleeps == sleep && matches!(part.state, State::Asleep(_)) {
            part.state = State::Ready;
        }
    }

    /// Delivers the wake-ups that were asked for since, each to a sleeper that the seed picks, and looks for what others
    /// have found wrong.
    fn observe(&mut self) {
        for at in 0..self.runs.len() {
            for place in 0..2 {
                let run = &mut self.runs[at];
                let now = [&run.control.parker, &run.control.pauses][place].epoch();
                let before = std::mem::replace(&mut run.seen[place], now);
                let mut sleepers: Vec<usize> = Vec::new();
                if now != before {
                    let sleeps = |part: &Part| part.run == at && part.state == State::Asleep(place);
                    sleepers.extend((0..self.parts.len()).filter(|part| sleeps(&self.parts[*part])));
                }
                let wanted = if now.of_all != before.of_all { u64::MAX } else { now.of_one - before.of_one };
                for _ in 0..wanted.min(sleepers.len() as u64) {
                    let nth = self.rng.index(sleepers.len());
                    self.parts[sleepers.swap_remove(nth)].state = State::Ready;
                }
            }
        }
        if let Some(wrong) = held(&self.rules.said).wrong.first() {
            panic!("{wrong}");
        }
    }
}

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pinrail_core::{Kind, Limits, RailId, StepId, Steps, WorkerId};
use pinrail_policy::{Control, Controller, ControllerReport, Finished, Tick};

use crate::lane::{EMPTY, Lane};
use crate::{Counts, Outcome, Seen, Start, Stop, Take, Wake};

/// Everything that changes during a run, under one lock.
pub(crate) struct State {
    /// What the tasks do.
    tasks: Kind,
    /// One a rail, then the one of preparations.
    lanes: Vec<Lane>,
    /// By lane: the smallest ready step, or [`EMPTY`] where the lane has none or may start none.
    heads: Vec<u32>,
    groups: Vec<GroupState>,
    running: StepSet,
    prepares_running: u32,
    tasks_running: u32,
    counts: Counts,
    next_seq: u64,
    limits: LimitsInForce,
    stop: Option<Stop>,
    /// Workers that were told to wait and have not taken since.
    waiting: BTreeSet<WorkerId>,
}

#[derive(Clone, Copy)]
struct GroupState {
    /// Preparations that have not ended; the tasks wait for zero.
    prepares_left: u32,
    /// Steps that have not been handed out.
    unstarted: u32,
    dropped: bool,
}

impl State {
    pub(crate) fn new(steps: &Steps, ceiling: Limits, control: Control) -> State {
        let mut lanes: Vec<Lane> = steps.lanes().iter().map(|&parallel| Lane::new(parallel)).collect();
        lanes.push(Lane::new(NonZeroU32::MAX));
        let mut groups = Vec::with_capacity(steps.groups().len());
        for (at, group) in steps.groups().iter().enumerate() {
            let first = steps.first_of(at).0;
            for step in first..first + group.prepares {
                lanes[steps.lanes().len()].ready_at_start(step);
            }
            if group.prepares == 0 {
                for (step, rail) in (first..).zip(first_tasks(steps, at)) {
                    lanes[rail.index()].ready_at_start(step);
                }
            }
            groups.push(GroupState { prepares_left: group.prepares, unstarted: steps.len_of(at), dropped: false });
        }
        let pending = groups.iter().map(|group| group.unstarted).sum();
        let mut state = State {
            tasks: steps.tasks(),
            heads: vec![EMPTY; lanes.len()],
            lanes,
            groups,
            running: StepSet::of(steps.len()),
            prepares_running: 0,
            tasks_running: 0,
            counts: Counts { pending, ..Counts::default() },
            next_seq: 0,
            limits: LimitsInForce::new(ceiling, control),
            stop: None,
            waiting: BTreeSet::new(),
        };
        state.refresh_all(steps);
        state
    }

    pub(crate) fn take(&mut self, steps: &Steps, worker: WorkerId) -> Take {
        self.waiting.remove(&worker);
        if self.has_ended() {
            return Take::Finished;
        }
        let Some(lane) = self.startable() else {
            debug_assert!(self.counts.running > 0, "steps are left, none runs and none may start");
            self.waiting.insert(worker);
            return Take::Wait;
        };
        let step = StepId(self.heads[lane]);
        self.lanes[lane].pop();
        self.started(lane);
        self.running.insert(step);
        let group = &mut self.groups[steps.locate(step).0];
        group.unstarted -= 1;
        if planted!(DoubleStart) && group.unstarted > 0 {
            self.lanes[lane].ready(step.0);
        }
        self.refresh(steps, lane);
        let seq = self.next_seq;
        self.next_seq += 1;
        let somebody_waits = !self.waiting.is_empty();
        let more = (somebody_waits || self.limits.is_adaptive) && self.startable().is_some();
        let (wake, hire) = (more && somebody_waits && !planted!(LostWakeUp), more && !somebody_waits);
        Take::Start(Start { step, seq, in_flight: self.counts.running, wake, hire })
    }

    pub(crate) fn done(&mut self, steps: &Steps, step: StepId, outcome: Outcome, seen: Seen) {
        assert!(self.running.remove(step), "{step} is not running");
        let (at, within) = steps.locate(step);
        let nth = within.checked_sub(steps.groups()[at].prepares);
        let rail = nth.map(|nth| steps.rails_of(at)[nth as usize]);
        let lane = rail.map_or(steps.lanes().len(), RailId::index);
        self.ended(lane);
        if outcome == Outcome::Skip {
            self.drop_rest_of(at);
        }
        match nth {
            None => self.prepared(steps, at),
            Some(nth) if steps.in_series() => self.make_ready(steps, at, nth + 1),
            Some(_) => {}
        }
        self.refresh(steps, lane);
        let finished = Finished {
            step,
            kind: if nth.is_none() { Kind::Prepare } else { self.tasks },
            rail,
            bytes: steps.groups()[at].bytes,
            started: seen.started,
            in_flight: seen.in_flight,
            ok: outcome == Outcome::Done,
            exhausted: outcome == Outcome::Exhausted,
        };
        let lanes_changed = self.limits.finished(seen.now, &finished);
        if lanes_changed || outcome == Outcome::Skip {
            self.refresh_all(steps);
        }
    }

    pub(crate) fn set_limits(&mut self, steps: &Steps, limits: Limits) {
        self.limits.set_caller(limits);
        self.refresh_all(steps);
    }

    pub(crate) fn stop(&mut self, why: Stop) {
        self.stop.get_or_insert(why);
    }

    /// Whom to wake after what just happened.
    pub(crate) fn wake(&self) -> Wake {
        if self.waiting.is_empty() {
            Wake::None
        } else if self.has_ended() {
            Wake::All
        } else if self.startable().is_some() {
            Wake::One
        } else {
            Wake::None
        }
    }

    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stop
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits.in_force
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn report(&self) -> Option<ControllerReport> {
        self.limits.report()
    }

    /// Every lane may run what it takes, preparations as many as there are, and no more than the limits allow.
    pub(crate) fn workers_max(&self) -> u32 {
        let limits = self.limits.in_force;
        let prepares: u32 = self.groups.iter().map(|group| group.prepares_left).sum();
        let lanes = self.lanes.iter().take(self.lanes.len() - 1);
        let tasks = lanes.map(|lane| u64::from(lane.parallel().min(limits.per_rail).get())).sum::<u64>();
        let tasks = tasks.min(limits.of(self.tasks).get().into());
        let busy = tasks + u64::from(prepares.min(limits.prepare.get()));
        let busy = busy.min(limits.total.get().into()).min(self.counts.pending.into());
        u32::try_from(busy).unwrap_or(u32::MAX)
    }

    /// Nothing will start any more.
    fn has_ended(&self) -> bool {
        self.stop.is_some() || self.counts.pending == 0
    }

    /// The lane with the smallest step that every limit allows.
    fn startable(&self) -> Option<usize> {
        let limits = &self.limits.in_force;
        if self.counts.running >= limits.total.get() {
            return None;
        }
        let rails = self.heads.len() - 1;
        let tasks = if self.tasks_running < limits.of(self.tasks).get() { &self.heads[..rails] } else { &[] };
        let prepare = if self.prepares_running < limits.prepare.get() { self.heads[rails] } else { EMPTY };
        let best = tasks.iter().copied().fold(prepare, u32::min);
        // A step is the head of one lane only.
        if best == EMPTY { None } else { self.heads.iter().position(|&head| head == best) }
    }

    fn started(&mut self, lane: usize) {
        self.lanes[lane].running += 1;
        *self.running_of(lane) += 1;
        self.counts.pending -= 1;
        self.counts.running += 1;
        self.counts.peak_running = self.counts.peak_running.max(self.counts.running);
    }

    fn ended(&mut self, lane: usize) {
        if !planted!(TokenLeaked) {
            self.lanes[lane].running -= 1;
        }
        *self.running_of(lane) -= 1;
        self.counts.running -= 1;
        self.counts.finished += 1;
    }

    fn running_of(&mut self, lane: usize) -> &mut u32 {
        if lane + 1 == self.lanes.len() { &mut self.prepares_running } else { &mut self.tasks_running }
    }

    /// A preparation of the group has ended: after the last one its tasks are ready.
    fn prepared(&mut self, steps: &Steps, at: usize) {
        self.groups[at].prepares_left -= 1;
        let awaited = u32::from(planted!(DependencyDropped) && steps.groups()[at].prepares > 1);
        if self.groups[at].prepares_left == awaited {
            for nth in (0..).take(first_tasks(steps, at).len()) {
                self.make_ready(steps, at, nth);
            }
        }
    }

    /// The group's `nth` task, where there is one and it is still wanted.
    fn make_ready(&mut self, steps: &Steps, at: usize, nth: u32) {
        let Some(rail) = steps.rails_of(at).get(nth as usize) else { return };
        if !self.groups[at].dropped {
            let step = steps.first_of(at).0 + steps.groups()[at].prepares + nth;
            self.lanes[rail.index()].ready(step);
            self.refresh(steps, rail.index());
        }
    }

    /// What of the group has not started never will. Steps that lie in lanes are taken out when they come to the head.
    fn drop_rest_of(&mut self, at: usize) {
        let group = &mut self.groups[at];
        group.dropped = true;
        self.counts.dropped += group.unstarted;
        self.counts.pending -= group.unstarted;
        group.unstarted = 0;
    }

    fn refresh_all(&mut self, steps: &Steps) {
        (0..self.lanes.len()).for_each(|lane| self.refresh(steps, lane));
    }

    fn refresh(&mut self, steps: &Steps, at: usize) {
        let lane = &mut self.lanes[at];
        let mut head = lane.smallest();
        while head != EMPTY && self.groups[steps.locate(StepId(head)).0].dropped {
            lane.pop();
            head = lane.smallest();
        }
        let is_full = at < steps.lanes().len() && lane.is_full(self.limits.in_force.per_rail);
        self.heads[at] = if is_full { EMPTY } else { head };
    }
}

/// The tasks of a group that are ready as soon as its preparations have ended.
fn first_tasks(steps: &Steps, at: usize) -> &[RailId] {
    let rails = steps.rails_of(at);
    if steps.in_series() { &rails[..1] } else { rails }
}

/// Where the limits come from, and the least of them.
struct LimitsInForce {
    ceiling: Limits,
    caller: Limits,
    controlled: Limits,
    controller: Option<Box<dyn Controller>>,
    /// Also after the controller panicked.
    is_adaptive: bool,
    /// Set when the controller panicked; the limits it had set last stay.
    failed: Option<Tick>,
    in_force: Limits,
}

impl LimitsInForce {
    fn new(ceiling: Limits, control: Control) -> LimitsInForce {
        let is_adaptive = matches!(control, Control::Adaptive(_));
        let (controlled, controller, failed) = match control {
            Control::Fixed(limits) => (limits, None, None),
            Control::Adaptive(controller) => match caught(|| controller.limits()) {
                Some(limits) => (limits, Some(controller), None),
                None => (Limits::NONE, None, Some(Tick(0))),
            },
        };
        let in_force = ceiling.least(controlled);
        LimitsInForce { ceiling, caller: Limits::NONE, controlled, controller, is_adaptive, failed, in_force }
    }

    fn set_caller(&mut self, limits: Limits) {
        self.caller = limits;
        self.in_force = self.ceiling.least(self.caller).least(self.controlled);
    }

    /// Asks the controller; true when a lane may have opened or closed.
    fn finished(&mut self, now: Tick, seen: &Finished) -> bool {
        let Some(controller) = &mut self.controller else { return false };
        match caught(|| controller.finished(now, seen)) {
            Some(None) => false,
            Some(Some(limits)) => {
                let before = self.in_force.per_rail;
                self.controlled = limits;
                self.set_caller(self.caller);
                before != self.in_force.per_rail
            }
            None => {
                self.controller = None;
                self.failed = Some(now);
                false
            }
        }
    }

    fn report(&self) -> Option<ControllerReport> {
        let panicked = |at| ControllerReport { levels: vec![(at, self.in_force, "the controller panicked")] };
        match &self.controller {
            Some(controller) => Some(caught(|| controller.report()).unwrap_or_else(|| panicked(Tick(0)))),
            None => self.failed.map(panicked),
        }
    }
}

/// Asks a controller; `None` if it panicked. A third party's bug must not take the batch, and its live MRs, down with it.
fn caught<T>(ask: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(ask)).ok()
}

/// A set of steps, one bit each.
struct StepSet(Vec<u64>);

impl StepSet {
    fn of(steps: usize) -> StepSet {
        StepSet(vec![0; steps.div_ceil(64)])
    }

    fn insert(&mut self, step: StepId) {
        self.0[step.index() / 64] |= 1 << (step.0 % 64);
    }

    /// True when it was there.
    fn remove(&mut self, step: StepId) -> bool {
        let (word, bit) = (&mut self.0[step.index() / 64], 1 << (step.0 % 64));
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

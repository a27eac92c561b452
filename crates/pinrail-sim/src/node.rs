//! The world: processes with their workers, cores, locks, pages, and the loop that lets time pass.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;

use pinrail_core::{Kind, PrepareStep, StepWhat, StepsError, WorkerId};
use pinrail_dispatch::{Dispatch, Seen, Start, Take, Wake};
use pinrail_plan::Plan;
use pinrail_policy::Tick;

use crate::budget::Budget;
use crate::cores::{Cores, WHOLE};
use crate::cost::{Crowd, Piece, whole_ns};
use crate::faults::{Asked, Fate, Faults};
use crate::profile::{CallCost, LockCost, Profile, Scope, TouchCost};
use crate::trace::{Event, Took, Trace, TraceHash};

/// What processes run on.
#[derive(Clone, Copy, Debug)]
pub struct Node<'n> {
    /// What calls cost.
    pub profile: &'n Profile,
    /// Its cores.
    pub cores: NonZeroU32,
    /// Whether host memory was touched before.
    pub resident: bool,
    /// Steps that may run at once on the node besides one of each process; the policies alone decide without.
    pub budget: Option<NonZeroU32>,
}

/// Most threads of a process, as the engine's default has it.
const THREADS_MAX: u32 = 1024;

/// From here on pages count as huge.
pub(crate) const HUGE_BYTES: u64 = 2 << 20;

impl Node<'_> {
    /// Runs a plan in each process, all starting at once: what `tasks` says, with the preparations if that is
    /// registering. `see` is shown every step as it ends.
    ///
    /// # Errors
    /// [`StepsError::TooMany`].
    pub fn run(
        &self,
        plans: &[&Plan],
        tasks: Kind,
        faults: &mut dyn Faults,
        see: &mut dyn FnMut(&Event),
    ) -> Result<Trace, StepsError> {
        let mut world = World::new(self, plans, tasks, faults, see)?;
        world.start();
        world.run();
        Ok(world.end())
    }
}

struct World<'w> {
    node: &'w Node<'w>,
    tasks: Kind,
    cost: CallCost,
    faults: &'w mut dyn Faults,
    see: &'w mut dyn FnMut(&Event),
    cores: Cores<Due>,
    processes: Vec<Process<'w>>,
    workers: Vec<Worker>,
    /// Tasks in flight on the node.
    in_flight: u32,
    locks: Vec<Lock>,
    /// Rails of the widest process: how locks of domains are counted.
    rails: usize,
    budget: Option<Budget>,
    /// Workers that may take a step now.
    seeking: VecDeque<usize>,
    /// Workers whose calls begin at this moment: what they cost depends on how many these are.
    fresh: Vec<usize>,
    steps: u64,
    hash: TraceHash,
}

struct Process<'w> {
    plan: &'w Plan,
    dispatch: Dispatch,
    /// Its first worker: workers are numbered through.
    first_worker: usize,
    idle: BTreeSet<WorkerId>,
    /// Tasks in flight.
    in_flight: u32,
    /// Preparations in flight.
    preparing: u32,
    /// By rail: bytes registered.
    registered_bytes: Vec<u64>,
    /// By chunk.
    pages: Vec<Pages>,
    took: Took,
}

/// The pages of a chunk.
#[derive(Clone, Debug, Default)]
struct Pages {
    /// Of 4 KiB, nobody has touched.
    untouched: u64,
    /// Tasks in flight on them.
    in_flight: u32,
    /// Workers that touch them now, all of them.
    touching: Vec<usize>,
    /// Where the count of work stands when they are done.
    due_ns: u64,
    /// Counts changes of that: what was due before a change is not.
    version: u32,
    load: u64,
}

struct Worker {
    process: usize,
    id: WorkerId,
    stage: Stage,
    call: Option<Call>,
    load: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its thread is being made.
    Starting,
    /// Without a step.
    Between,
    /// Its call runs and holds no lock.
    Outside,
    /// It waits for the lock.
    Waiting,
    /// It holds the lock.
    Inside,
}

#[derive(Clone, Copy)]
struct Call {
    start: Start,
    what: StepWhat,
    chunk: usize,
    since: Tick,
    piece: Piece,
    work_ns: f64,
    fate: Fate,
}

#[derive(Default)]
struct Lock {
    held: bool,
    queue: VecDeque<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The worker has come to the end of its stage.
    Worker(usize),
    /// A chunk's pages are all there, unless that has changed since.
    Touched { process: usize, chunk: usize, version: u32 },
}

impl<'w> World<'w> {
    fn new(
        node: &'w Node<'w>,
        plans: &[&'w Plan],
        tasks: Kind,
        faults: &'w mut dyn Faults,
        see: &'w mut dyn FnMut(&Event),
    ) -> Result<World<'w>, StepsError> {
        let cost = match tasks {
            Kind::Deregister => node.profile.deregister.unwrap_or_default(),
            Kind::Register | Kind::Prepare => node.profile.register,
        };
        let rails = plans.iter().map(|plan| plan.rails().len()).max().unwrap_or(0);
        let locks = match cost.lock.map(|lock| lock.scope) {
            None => 0,
            Some(Scope::Node) => 1,
            Some(Scope::Process) => plans.len(),
            Some(Scope::Domain) => plans.len() * rails,
        };
        let mut world = World {
            node,
            tasks,
            cost,
            faults,
            see,
            cores: Cores::new(node.cores.get()),
            processes: Vec::with_capacity(plans.len()),
            workers: Vec::new(),
            in_flight: 0,
            locks: (0..locks).map(|_| Lock::default()).collect(),
            rails,
            budget: node.budget.map(|tokens| Budget::new(tokens, plans.len())),
            seeking: VecDeque::new(),
            fresh: Vec::new(),
            steps: 0,
            hash: TraceHash::default(),
        };
        for &plan in plans {
            world.add(plan)?;
        }
        Ok(world)
    }

    fn add(&mut self, plan: &'w Plan) -> Result<(), StepsError> {
        let control = plan.policy().concurrency.begin(&plan.shape(self.tasks));
        let dispatch = Dispatch::new(plan.steps(self.tasks)?, plan.policy().ceiling(), control);
        let threads = dispatch.workers_max().clamp(1, THREADS_MAX);
        let touched = self.node.resident || self.node.profile.touch.is_none() || self.tasks == Kind::Deregister;
        let pages = plan.chunks().iter().map(|chunk| {
            let all = chunk.pinned_bytes() / 4096;
            Pages { untouched: if touched { 0 } else { all }, ..Pages::default() }
        });
        let (process, first_worker) = (self.processes.len(), self.workers.len());
        self.processes.push(Process {
            plan,
            dispatch,
            first_worker,
            idle: BTreeSet::new(),
            in_flight: 0,
            preparing: 0,
            registered_bytes: vec![0; plan.rails().len()],
            pages: pages.collect(),
            took: Took { threads, ..Took::default() },
        });
        let worker = |id| Worker { process, id: WorkerId(id), stage: Stage::Starting, call: None, load: WHOLE };
        self.workers.extend((0..threads).map(worker));
        Ok(())
    }

    fn start(&mut self) {
        let start_ns = whole_ns(self.node.profile.thread_start_ns);
        for worker in 0..self.workers.len() {
            self.cores.add(WHOLE);
            self.cores.after(start_ns, Due::Worker(worker));
        }
    }

    fn run(&mut self) {
        loop {
            if let Some(worker) = self.seeking.pop_front() {
                self.seek(worker);
            } else if let Some(due) = self.cores.due_now() {
                match due {
                    Due::Worker(worker) => self.go_on(worker),
                    Due::Touched { process, chunk, version } => self.touched(process, chunk, version),
                }
            } else if self.fresh.is_empty() {
                if !self.cores.advance() {
                    return;
                }
            } else {
                for worker in std::mem::take(&mut self.fresh) {
                    self.set_out(worker);
                }
            }
        }
    }

    fn end(mut self) -> Trace {
        for process in &mut self.processes {
            let counts = process.dispatch.counts();
            debug_assert_eq!(counts.pending + counts.running, 0, "steps were left");
            process.took.peak_in_flight = counts.peak_running;
            process.took.controller = process.dispatch.report();
        }
        let processes: Vec<Took> = self.processes.into_iter().map(|process| process.took).collect();
        let end = processes.iter().map(Took::end).max().unwrap_or_default();
        Trace { processes, end, cpu_ns: self.cores.busy_ns(), steps: self.steps, hash: self.hash.value() }
    }

    /// A worker wants a step; where the node has a budget it needs a token first.
    fn seek(&mut self, worker: usize) {
        let Worker { process, id, .. } = self.workers[worker];
        if self.budget.as_mut().is_none_or(|budget| budget.acquire(worker, process)) {
            let take = self.processes[process].dispatch.take(id);
            self.taken(worker, take);
        }
    }

    fn taken(&mut self, worker: usize, take: Take) {
        let Worker { process, id, .. } = self.workers[worker];
        match take {
            Take::Start(start) => return self.begin(worker, start),
            Take::Wait => {
                self.processes[process].idle.insert(id);
            }
            Take::Finished => {}
        }
        self.give_back(worker);
    }

    /// The worker's token goes to whoever has waited longest for one.
    fn give_back(&mut self, worker: usize) {
        let next = self.budget.as_mut().and_then(|budget| budget.release(worker));
        self.seeking.extend(next);
    }

    fn deliver(&mut self, process: usize, wake: Wake) {
        let of = &mut self.processes[process];
        let woken = match wake {
            Wake::None => return,
            Wake::One => of.idle.pop_first().into_iter().collect(),
            Wake::All => std::mem::take(&mut of.idle),
        };
        self.seeking.extend(woken.into_iter().map(|id| of.first_worker + id.0 as usize));
    }

    fn begin(&mut self, worker: usize, start: Start) {
        let at = self.workers[worker].process;
        let process = &mut self.processes[at];
        let what = process.dispatch.steps().what(start.step);
        let asked = Asked { process: index(at), tasks: self.tasks, what, seq: start.seq };
        let fate = self.faults.call(&asked);
        let (chunk, piece) = match what {
            StepWhat::Prepare { chunk, slice } => {
                process.preparing += 1;
                (chunk, slice_of(process.plan, chunk, slice))
            }
            StepWhat::Task { chunk, rail, .. } => {
                process.in_flight += 1;
                process.pages[chunk.index()].in_flight += 1;
                self.in_flight += 1;
                let planned = &process.plan.chunks()[chunk.index()];
                let piece = Piece {
                    bytes: planned.len(),
                    pages_4kib: planned.pinned_bytes() / 4096,
                    huge: planned.page_size() >= HUGE_BYTES,
                    registered_bytes: process.registered_bytes[rail.index()],
                };
                (chunk, piece)
            }
        };
        let call = Call { start, what, chunk: chunk.index(), since: self.cores.now(), piece, work_ns: 0.0, fate };
        self.workers[worker].call = Some(call);
        self.fresh.push(worker);
        if start.wake {
            self.deliver(at, Wake::One);
        }
    }

    /// All that begin at this moment have: what a call costs is known now.
    fn set_out(&mut self, worker: usize) {
        let Some(mut call) = self.workers[worker].call else { return };
        let at = self.workers[worker].process;
        let mut load = WHOLE;
        let ns = match call.what {
            StepWhat::Prepare { .. } => {
                let (ns, busy) = self.prepare_ns(at, &call);
                load = whole_ns(busy * 1000.0);
                ns
            }
            StepWhat::Task { .. } => {
                let untouched = self.processes[at].pages[call.chunk].untouched > 0;
                if untouched && self.touch(call.piece.huge).is_some_and(|touch| !touch.under_lock) {
                    return self.join(worker, at, call.chunk);
                }
                let crowd = self.crowd(at, call.chunk);
                call.work_ns = self.cost.work_ns(&call.piece, &crowd);
                self.cost.outside_ns(call.work_ns, &crowd)
            }
        };
        self.workers[worker].call = Some(call);
        self.work(worker, Stage::Outside, whole_ns(ns).saturating_add(call.fate.more_ns), load);
    }

    /// What a preparation costs, and how busy it keeps a core.
    fn prepare_ns(&self, process: usize, call: &Call) -> (f64, f64) {
        let of = &self.processes[process];
        let Some(touch) = self.touch(call.piece.huge) else { return (self.node.profile.export_ns, 1.0) };
        if of.pages[call.chunk].untouched == 0 {
            return (touch.probe_ns_per_slice, 1.0);
        }
        (touch.among_ns(call.piece.pages_4kib, of.preparing), touch.busy(of.preparing))
    }

    fn touch(&self, huge: bool) -> Option<TouchCost> {
        let Profile { touch, touch_huge, .. } = self.node.profile;
        if huge { touch_huge.or(*touch) } else { *touch }
    }

    fn crowd(&self, process: usize, chunk: usize) -> Crowd {
        let of = &self.processes[process];
        Crowd { process: of.in_flight, same_pages: of.pages[chunk].in_flight, node: self.in_flight, cores: self.node.cores.get() }
    }

    /// A registration meets pages that nobody has touched: it touches them, with those who are at it already.
    fn join(&mut self, worker: usize, process: usize, chunk: usize) {
        let Some(call) = self.workers[worker].call else { return };
        let Some(touch) = self.touch(call.piece.huge) else { return };
        let pages = &mut self.processes[process].pages[chunk];
        pages.touching.push(worker);
        let left = match pages.touching.len() {
            1 => whole_ns(touch.among_ns(pages.untouched, 1)),
            2 => whole_ns(crate::cost::float(self.cores.left_ns(pages.due_ns)) * touch.storm),
            _ => self.cores.left_ns(pages.due_ns),
        };
        let threads = WHOLE * pages.touching.len() as u64;
        let busy = touch.storm_cores_busy.map_or(threads, |cores| threads.min(whole_ns(cores * 1000.0)));
        self.cores.remove(std::mem::replace(&mut pages.load, busy));
        self.cores.add(busy);
        if pages.touching.len() <= 2 {
            pages.version += 1;
            pages.due_ns = self.cores.due_ns(left);
            self.cores.after(left, Due::Touched { process, chunk, version: pages.version });
        }
    }

    /// All pages are there: whoever touched them goes on.
    fn touched(&mut self, process: usize, chunk: usize, version: u32) {
        let pages = &mut self.processes[process].pages[chunk];
        if pages.version == version {
            pages.untouched = 0;
            self.cores.remove(std::mem::take(&mut pages.load));
            self.fresh.append(&mut pages.touching);
        }
    }

    /// The worker is at it for so long.
    fn work(&mut self, worker: usize, stage: Stage, ns: u64, load: u64) {
        self.workers[worker].stage = stage;
        self.workers[worker].load = load;
        self.cores.add(load);
        self.cores.after(ns, Due::Worker(worker));
    }

    /// The worker has come to the end of its stage.
    fn go_on(&mut self, worker: usize) {
        self.cores.remove(self.workers[worker].load);
        match (self.workers[worker].stage, self.workers[worker].call, self.cost.lock) {
            (Stage::Starting, ..) => self.seeking.push_back(worker),
            (Stage::Outside, Some(call), Some(lock)) if matches!(call.what, StepWhat::Task { .. }) => {
                self.enter(worker, &call, &lock);
            }
            (Stage::Inside, Some(call), Some(lock)) => {
                self.leave(worker, &call, &lock);
                self.finish(worker, &call);
            }
            (_, Some(call), _) => self.finish(worker, &call),
            (_, None, _) => {}
        }
    }

    fn lock_of(&self, worker: usize, call: &Call, lock: &LockCost) -> usize {
        let process = self.workers[worker].process;
        match (lock.scope, call.what) {
            (Scope::Process, _) => process,
            (Scope::Domain, StepWhat::Task { rail, .. }) => process * self.rails + rail.index(),
            (Scope::Node | Scope::Domain, _) => 0,
        }
    }

    fn enter(&mut self, worker: usize, call: &Call, lock: &LockCost) {
        let of = self.lock_of(worker, call, lock);
        if self.locks[of].held {
            self.locks[of].queue.push_back(worker);
            self.workers[worker].stage = Stage::Waiting;
            self.cores.add(spin(lock));
        } else {
            self.locks[of].held = true;
            self.hold(worker, call, lock);
        }
    }

    fn hold(&mut self, worker: usize, call: &Call, lock: &LockCost) {
        let process = self.workers[worker].process;
        let crowd = self.crowd(process, call.chunk);
        // Pages are untouched here only where that is done under the lock.
        let untouched = std::mem::take(&mut self.processes[process].pages[call.chunk].untouched);
        let touch_ns = self.touch(call.piece.huge).map_or(0.0, |touch| touch.among_ns(untouched, 1));
        self.work(worker, Stage::Inside, whole_ns(lock.inside_ns(call.work_ns, &crowd) + touch_ns), WHOLE);
    }

    fn leave(&mut self, worker: usize, call: &Call, lock: &LockCost) {
        let of = self.lock_of(worker, call, lock);
        match self.locks[of].queue.pop_front() {
            None => self.locks[of].held = false,
            Some(next) => {
                self.cores.remove(spin(lock));
                if let Some(call) = self.workers[next].call {
                    self.hold(next, &call, lock);
                }
            }
        }
    }

    fn finish(&mut self, worker: usize, call: &Call) {
        let Worker { process: at, id, .. } = self.workers[worker];
        let (process, now) = (&mut self.processes[at], self.cores.now());
        let went_well = call.fate.outcome == pinrail_dispatch::Outcome::Done;
        let span = match call.what {
            StepWhat::Prepare { .. } => {
                process.preparing -= 1;
                let pages = &mut process.pages[call.chunk];
                let done = if went_well { call.piece.pages_4kib } else { 0 };
                pages.untouched = pages.untouched.saturating_sub(done);
                &mut process.took.prepare
            }
            StepWhat::Task { rail, .. } => {
                process.in_flight -= 1;
                process.pages[call.chunk].in_flight -= 1;
                self.in_flight -= 1;
                if went_well {
                    process.registered_bytes[rail.index()] += call.piece.bytes;
                }
                &mut process.took.tasks
            }
        };
        let first = span.map_or(call.since, |(first, _)| first.min(call.since));
        *span = Some((first, now));
        let Start { step, seq, in_flight, .. } = call.start;
        let outcome = call.fate.outcome;
        let (process, what, start) = (index(at), call.what, call.since);
        let event = Event { process, seq, step, what, worker: id, start, end: now, in_flight, outcome };
        self.steps += 1;
        self.hash.add(&event);
        (self.see)(&event);

        self.workers[worker].stage = Stage::Between;
        self.workers[worker].call = None;
        let seen = Seen { now, started: call.since, in_flight };
        if self.budget.as_ref().is_some_and(Budget::is_wanted) {
            // Others wait for a token: the worker queues up behind them.
            let wake = self.processes[at].dispatch.done(step, outcome, seen);
            self.deliver(at, wake);
            self.give_back(worker);
            self.seeking.push_back(worker);
        } else {
            let (wake, take) = self.processes[at].dispatch.done_and_take(id, Some((step, outcome, seen)));
            self.taken(worker, take);
            self.deliver(at, wake);
        }
    }
}

/// What a preparation of host memory touches; nothing where it is an export.
fn slice_of(plan: &Plan, chunk: pinrail_core::ChunkId, slice: u32) -> Piece {
    let planned = &plan.chunks()[chunk.index()];
    let huge = planned.page_size() >= HUGE_BYTES;
    match plan.prepare_step(chunk, slice) {
        PrepareStep::Populate { range, .. } => {
            let bytes = range.end - range.start;
            let pages_4kib = bytes.div_ceil(planned.page_size()) * (planned.page_size() / 4096);
            Piece { bytes, pages_4kib, huge, registered_bytes: 0 }
        }
        _ => Piece::default(),
    }
}

fn spin(lock: &LockCost) -> u64 {
    whole_ns(lock.spin * 1000.0)
}

fn index(process: usize) -> u32 {
    u32::try_from(process).unwrap_or(u32::MAX)
}

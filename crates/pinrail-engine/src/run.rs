//! One run of steps: the same loop registers, deregisters and rolls back.

use std::sync::{self, Arc};
use std::time::{Duration, Instant};

use pinrail_core::{StepId, StepWhat, WorkerId};
use pinrail_dispatch::{Dispatch, Outcome, Seen, Stop, Take, Wake};
use pinrail_policy::Tick;

use crate::crew::{Crew, Hired};
use crate::failure::StepError;
use crate::parker::{Epoch, Parker};
use crate::report::Handout;
use crate::sync::{Condvar, Mutex, lock, wait};

/// Pauses before the second, third, … attempt at a call that answers EAGAIN.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(16),
    Duration::from_millis(64),
    Duration::from_millis(256),
];

/// What the steps of a run do: calls into a backend, and what follows from their answers. Nothing here waits but
/// [`Work::call`], so that whoever drives a [`Worker`] decides when a call begins and when it returns.
pub(crate) trait Work: Send + Sync + 'static {
    /// A call to be made.
    type Call: Send;
    /// What it gives.
    type Got: Send;

    /// A step's first call; `None` where there is nothing to do.
    fn begin(&self, what: StepWhat) -> Option<Self::Call>;

    /// Makes the call and must not panic.
    fn call(&self, call: &mut Self::Call) -> Result<Self::Got, StepError>;

    /// What follows; `seq` is the step's place in the order of hand-outs.
    fn returned(
        &self,
        what: StepWhat,
        seq: u64,
        call: Self::Call,
        answer: Result<Self::Got, StepError>,
        control: &Control,
    ) -> Then<Self::Call>;
}

/// What follows from a call's answer.
pub(crate) enum Then<C> {
    Call(C),
    End(Outcome),
}

/// What may be asked of a run, and what others may tell it.
pub(crate) struct Control {
    pub(crate) dispatch: Dispatch,
    pub(crate) crew: Crew,
    /// Where workers wait for a step.
    pub(crate) parker: Parker,
    /// Where workers wait between the attempts at one: a wake-up for a step must not be spent on them.
    pub(crate) pauses: Parker,
    start: Instant,
    deadline: Option<Instant>,
}

impl Control {
    pub(crate) fn new(dispatch: Dispatch, crew: Crew, deadline: Option<Instant>) -> Control {
        let start = crew.now();
        Control { dispatch, crew, parker: Parker::default(), pauses: Parker::default(), start, deadline }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The time since the start.
    pub(crate) fn tick(&self) -> Tick {
        Tick(u64::try_from(self.crew.now().saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX))
    }

    /// Nothing starts after this.
    pub(crate) fn stop(&self, why: Stop) {
        self.parker.deliver(self.dispatch.stop(why));
        self.pauses.deliver(Wake::All);
    }

    /// True when nothing more shall begin; a deadline that has passed is noticed here.
    pub(crate) fn is_stopped(&self) -> bool {
        if self.deadline.is_some_and(|deadline| self.crew.now() >= deadline) {
            self.stop(Stop::Deadline);
        }
        self.dispatch.stopped().is_some()
    }
}

/// Whether whoever waits for the end of a run still does, and where he waits: a call that never returns must not keep him.
#[derive(Default)]
pub(crate) struct Patience {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Patience {
    /// Nobody waits for a call that has not returned any more.
    pub(crate) fn end(&self) {
        *lock(&self.is_over) = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        *lock(&self.is_over)
    }

    /// Waits until `is_done`, which changes before [`Patience::look`]; false where the patience ended first.
    pub(crate) fn wait(&self, is_done: impl Fn() -> bool) -> bool {
        let mut is_over = lock(&self.is_over);
        loop {
            if is_done() {
                return true;
            }
            if *is_over {
                return false;
            }
            is_over = wait(&self.changed, is_over);
        }
    }

    /// Whoever waits looks again.
    fn look(&self) {
        // Taken, so that nobody is between his look and his sleep.
        drop(lock(&self.is_over));
        self.changed.notify_all();
    }
}

/// What one worker does and did, for whoever does not wait for it too. The standard library's lock, also under a model
/// checker: nobody else takes it before the worker has ended.
pub(crate) type Log = sync::Mutex<Logged>;

#[derive(Default)]
pub(crate) struct Logged {
    record: Vec<Handout>,
    now: Option<InFlight>,
    has_ended: bool,
}

/// A step whose call has not returned.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) seq: u64,
    pub(crate) what: StepWhat,
    pub(crate) since: Tick,
}

fn logged(log: &Log) -> sync::MutexGuard<'_, Logged> {
    log.lock().unwrap_or_else(sync::PoisonError::into_inner)
}

/// What a run leaves behind, besides what its work holds.
pub(crate) struct Ended {
    pub(crate) record: Vec<Handout>,
    pub(crate) threads: u32,
    /// Steps that were not waited for, in dispatch order.
    pub(crate) stuck: Vec<InFlight>,
}

/// Runs to the end, by at most as many workers as the crew has.
///
/// Without `patience` the caller is one of them, and waits for all others. With it the caller only waits, and no longer than
/// the patience: a worker inside a call then is left behind, with all that its call needs.
pub(crate) fn run<W: Work>(control: &Arc<Control>, work: &Arc<W>, patience: Option<&Arc<Patience>>) -> Ended {
    let crew = &control.crew;
    let team = Team::new(control, work, patience);
    let own = patience.is_none().then(|| team.worker());
    // More than could be busy now are brought by those who see that there is more to do.
    let threads = control.dispatch.workers_max().min(crew.threads_max);
    while team.len() < threads && team.hire() {}
    let is_left = match (own, patience) {
        (None, Some(patience)) if team.len() > 0 => !crew.wait(patience, || team.has_ended()),
        // Where not one thread can be had, this one is kept by a call that never returns, whatever the patience.
        (own, _) => {
            crew.work(own.unwrap_or_else(|| team.worker()));
            false
        }
    };
    if !is_left {
        team.join();
    }
    team.ended()
}

/// The workers of a run.
pub(crate) struct Team<W> {
    control: Arc<Control>,
    work: Arc<W>,
    patience: Option<Arc<Patience>>,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    logs: Vec<Arc<Log>>,
    hired: Vec<Hired>,
    /// A thread could not be had.
    is_all: bool,
}

impl<W: Work> Team<W> {
    pub(crate) fn new(control: &Arc<Control>, work: &Arc<W>, patience: Option<&Arc<Patience>>) -> Arc<Team<W>> {
        let (control, work, patience) = (Arc::clone(control), Arc::clone(work), patience.cloned());
        Arc::new(Team { control, work, patience, members: Mutex::default() })
    }

    /// One more worker, for whoever drives it.
    pub(crate) fn worker(self: &Arc<Self>) -> Worker<W> {
        let mut members = lock(&self.members);
        let (id, log) = (WorkerId(members.len()), Arc::<Log>::default());
        members.logs.push(Arc::clone(&log));
        Worker { id, team: Arc::clone(self), log, at: At::Idle(None) }
    }

    /// One more worker, on a thread of its own. A thread that cannot be had is not missed: who is there does all of the work.
    fn hire(self: &Arc<Self>) -> bool {
        let worker = self.worker();
        // Where the caller only waits, his thread has the name of the first.
        let nth = worker.id.0 + u32::from(self.patience.is_some());
        let log = Arc::clone(&worker.log);
        // Without the lock, which whoever waits for the end takes while he holds the one that a dropped worker takes.
        let hired = self.control.crew.hire(format!("pinrail-{nth}"), worker);
        let mut members = lock(&self.members);
        match hired {
            Ok(hired) => members.hired.push(hired),
            Err(_) => {
                members.logs.retain(|other| !Arc::ptr_eq(other, &log));
                members.is_all = true;
            }
        }
        !members.is_all
    }

    /// A step could start and nobody waits: brings one more worker, unless one is on his way.
    fn hire_beside(self: &Arc<Self>, in_flight: u32) {
        let members = lock(&self.members);
        let wanted = members.len() <= in_flight && members.len() < self.control.crew.threads_max && !members.is_all;
        drop(members);
        if wanted {
            self.hire();
        }
    }

    fn len(&self) -> u32 {
        lock(&self.members).len()
    }

    fn has_ended(&self) -> bool {
        lock(&self.members).logs.iter().all(|log| logged(log).has_ended)
    }

    /// Waits for those who were hired, also by each other meanwhile.
    fn join(&self) {
        loop {
            let Some(next) = lock(&self.members).hired.pop() else { return };
            next.join();
        }
    }

    fn ended(&self) -> Ended {
        let members = lock(&self.members);
        let (mut record, mut stuck) = (Vec::new(), Vec::new());
        for log in &members.logs {
            let mut log = logged(log);
            record.append(&mut log.record);
            stuck.extend(log.now);
        }
        record.sort_unstable_by_key(|handout: &Handout| handout.seq);
        stuck.sort_unstable_by_key(|step: &InFlight| step.seq);
        Ended { record, threads: members.len(), stuck }
    }
}

impl Members {
    fn len(&self) -> u32 {
        u32::try_from(self.logs.len()).unwrap_or(u32::MAX)
    }
}

/// Takes step after step. It never blocks but in [`Worker::call`]: it says what it would wait for, and who drives it waits.
pub(crate) struct Worker<W: Work> {
    id: WorkerId,
    team: Arc<Team<W>>,
    log: Arc<Log>,
    at: At<W>,
}

/// What a worker wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// [`Worker::call`].
    Call,
    /// To go on at once.
    Go,
    /// To sleep in [`Control::parker`] until its epoch is another, or until then.
    Park(Epoch, Option<Instant>),
    /// To sleep in [`Control::pauses`] until its epoch is another, or until then.
    Pause(Epoch, Instant),
    /// Nothing.
    End,
}

enum At<W: Work> {
    /// Between steps, with what is to be reported of the last one.
    Idle(Option<(StepId, Outcome, Seen)>),
    Doing(Doing<W>),
    /// Before another attempt, until then.
    Pausing(Doing<W>, Instant),
    Ended,
}

/// A step that a worker has in hand.
struct Doing<W: Work> {
    step: StepId,
    what: StepWhat,
    seq: u64,
    in_flight: u32,
    started: Tick,
    /// `None` where there is nothing to do.
    call: Option<W::Call>,
    answer: Option<Result<W::Got, StepError>>,
    /// At this call.
    attempts: usize,
}

impl<W: Work> Worker<W> {
    /// Works to the end, on this thread.
    pub(crate) fn work(mut self) {
        loop {
            match self.next() {
                Next::Call => self.call(),
                Next::Go => {}
                Next::Park(epoch, until) => self.team.control.parker.park(epoch, until),
                Next::Pause(epoch, until) => self.team.control.pauses.park(epoch, Some(until)),
                Next::End => return,
            }
        }
    }

    /// Goes on as far as it can without waiting.
    pub(crate) fn next(&mut self) -> Next {
        match std::mem::replace(&mut self.at, At::Ended) {
            At::Idle(done) => self.take(done),
            At::Doing(doing) => self.returned(doing),
            At::Pausing(doing, until) => self.pause(doing, until),
            At::Ended => Next::End,
        }
    }

    /// Makes the call that [`Next::Call`] asked for.
    pub(crate) fn call(&mut self) {
        if let At::Doing(Doing { call: Some(call), answer, .. }) = &mut self.at {
            *answer = Some(self.team.work.call(call));
        }
    }

    fn take(&mut self, done: Option<(StepId, Outcome, Seen)>) -> Next {
        let control = &self.team.control;
        // Read before the take, so that a wake-up between the two is seen.
        let epoch = control.parker.epoch();
        if control.deadline.is_some() {
            control.is_stopped();
        }
        let (wake, take) = control.dispatch.done_and_take(self.id, done);
        control.parker.deliver(wake);
        let start = match take {
            Take::Finished => return Next::End,
            Take::Wait => {
                self.at = At::Idle(None);
                return Next::Park(epoch, control.deadline);
            }
            Take::Start(start) => start,
        };
        if start.wake {
            control.parker.deliver(Wake::One);
        } else if start.hire {
            self.team.hire_beside(start.in_flight);
        }
        let (what, started) = (control.dispatch.steps().what(start.step), control.tick());
        logged(&self.log).now = Some(InFlight { seq: start.seq, what, since: started });
        let (step, seq, in_flight) = (start.step, start.seq, start.in_flight);
        let call = self.team.work.begin(what);
        let next = if call.is_some() { Next::Call } else { Next::Go };
        self.at = At::Doing(Doing { step, what, seq, in_flight, started, call, answer: None, attempts: 0 });
        next
    }

    fn returned(&mut self, mut doing: Doing<W>) -> Next {
        doing.attempts += 1;
        let pause = PAUSES.get(doing.attempts - 1);
        match (&doing.answer, pause) {
            (Some(Err(error)), Some(&pause)) if error.may_pass() => {
                let until = self.team.control.crew.now() + pause;
                self.pause(doing, until)
            }
            _ => self.follow(doing),
        }
    }

    fn pause(&mut self, mut doing: Doing<W>, until: Instant) -> Next {
        let control = &self.team.control;
        // Read before the question, so that a stop between the two is seen.
        let epoch = control.pauses.epoch();
        if control.is_stopped() {
            // Nothing starts after a stop, also no further attempt.
            return self.follow(doing);
        }
        if control.crew.now() >= until {
            doing.answer = None;
            self.at = At::Doing(doing);
            return Next::Call;
        }
        let wake = control.deadline.map_or(until, |deadline| deadline.min(until));
        self.at = At::Pausing(doing, until);
        Next::Pause(epoch, wake)
    }

    fn follow(&mut self, doing: Doing<W>) -> Next {
        let Doing { step, what, seq, in_flight, started, call, answer, .. } = doing;
        let then = match call {
            Some(call) => {
                let answer = answer.expect("whoever drives this makes the calls it asks for");
                self.team.work.returned(what, seq, call, answer, &self.team.control)
            }
            None => Then::End(Outcome::Done),
        };
        match then {
            Then::Call(call) => {
                let call = Some(call);
                self.at = At::Doing(Doing { step, what, seq, in_flight, started, call, answer: None, attempts: 0 });
                Next::Call
            }
            Then::End(outcome) => {
                let done = self.ended(step, seq, in_flight, started, outcome);
                self.take(Some(done))
            }
        }
    }

    fn ended(&self, step: StepId, seq: u64, in_flight: u32, started: Tick, outcome: Outcome) -> (StepId, Outcome, Seen) {
        let now = self.team.control.tick();
        let mut log = logged(&self.log);
        log.now = None;
        log.record.push(Handout { seq, step, worker: self.id, start: started, end: now, ok: outcome == Outcome::Done });
        (step, outcome, Seen { now, started, in_flight })
    }
}

/// Says that a worker has ended, also by a panic.
impl<W: Work> Drop for Worker<W> {
    fn drop(&mut self) {
        logged(&self.log).has_ended = true;
        if let Some(patience) = &self.team.patience {
            patience.look();
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl<W: Work> crate::testing::stage::Drive for Worker<W> {
    fn next(&mut self) -> Next {
        Worker::next(self)
    }

    fn call(&mut self) {
        Worker::call(self);
    }

    fn control(&self) -> &Arc<Control> {
        &self.team.control
    }

    fn holds(&self) -> Option<(u64, StepId, StepWhat)> {
        match &self.at {
            At::Doing(doing) | At::Pausing(doing, _) => Some((doing.seq, doing.step, doing.what)),
            At::Idle(_) | At::Ended => None,
        }
    }

    fn done_since(&self, seq: Option<u64>) -> Vec<Handout> {
        logged(&self.log).record.iter().filter(|handout| Some(handout.seq) > seq).copied().collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use pinrail_core::{Cause, ChunkId, Group, Kind, Limits, RailId, RegisterError, Steps};
    use pinrail_policy::Control as Limiting;

    use super::*;

    /// Asks to be called again, for ever.
    #[derive(Default)]
    struct Again(AtomicUsize);

    impl Work for Again {
        type Call = ();
        type Got = ();
        fn begin(&self, _: StepWhat) -> Option<()> {
            Some(())
        }
        fn call(&self, (): &mut ()) -> Result<(), StepError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(RegisterError::new("again", Some(11), Cause::Again).into())
        }
        fn returned(&self, _: StepWhat, _: u64, (): (), answer: Result<(), StepError>, _: &Control) -> Then<()> {
            assert!(answer.is_err_and(|error| error.may_pass()), "the last answer is kept");
            Then::End(Outcome::Failed)
        }
    }

    fn attempts(deadline: Option<Duration>) -> usize {
        let sets: Arc<[Box<[RailId]>]> = Arc::new([Box::new([RailId(0)])]);
        let mut steps = Steps::new(Kind::Register, false, vec![NonZeroU32::MIN], sets).expect("one rail");
        steps.push(Group { chunk: ChunkId(0), set: 0, prepares: 0, bytes: 1 }).expect("one step");
        let dispatch = Dispatch::new(steps, Limits::NONE, Limiting::Fixed(Limits::NONE));
        let crew = Crew::default().of(1);
        let deadline = deadline.map(|after| crew.now() + after);
        let (control, work) = (Arc::new(Control::new(dispatch, crew, deadline)), Arc::new(Again::default()));
        let ended = run(&control, &work, None);
        assert_eq!((ended.record.len(), ended.threads), (1, 1));
        work.0.load(Ordering::Relaxed)
    }

    #[test]
    fn attempts_are_bounded() {
        assert_eq!(attempts(None), PAUSES.len() + 1);
    }

    #[test]
    fn no_attempt_is_made_after_a_stop() {
        // The deadline passes in one of the first pauses, at the latest in that of 16 ms.
        assert!((1..=PAUSES.len() - 2).contains(&attempts(Some(Duration::from_millis(8)))));
    }
}

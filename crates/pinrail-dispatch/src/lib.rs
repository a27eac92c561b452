#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **One mutex.** Hand-out, sequence number, limits, controller and dependencies change together, so that each hand-out
//!   can be held against an oracle. A registration takes tens of microseconds to seconds; the lock is held for tens of
//!   nanoseconds. Work-stealing deques were refused: they promise no order, and lanes of them cannot be peeked.
//! - **A lane a rail**, and one for preparations. A lane closes when its rail has as many calls as it takes in parallel,
//!   so that no worker parks inside the driver and service time stays service.
//! - **Wake-ups chain.** Nobody is woken without something to do: a start says whether to wake one more. Invariant: once
//!   the wake-ups it asked for are delivered, nobody waits while a step could start.
//!
//! # Not here
//!
//! What a step does, retries, deadlines, threads (`pinrail-engine`); which steps there are (`pinrail-plan`).

#![forbid(unsafe_code)]

/// Whether a test has planted this fault here; `false`, and no code, in every other build.
macro_rules! planted {
    ($canary:ident) => {{
        #[cfg(any(test, feature = "testing"))]
        let is_planted = crate::testing::Canary::$canary.is_planted();
        #[cfg(not(any(test, feature = "testing")))]
        let is_planted = false;
        is_planted
    }};
}

mod lane;
mod state;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use pinrail_core::{Limits, StepId, Steps, WorkerId};
use pinrail_policy::{Control, ControllerReport, Tick};

use state::State;
use sync::{Mutex, MutexGuard};

/// The steps of one run, handed out one at a time.
pub struct Dispatch {
    steps: Steps,
    state: Mutex<State>,
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// This step; [`Dispatch::done`] must follow.
    Start(Start),
    /// Nothing may start now. Park until woken, then take again.
    Wait,
    /// Nothing will start any more.
    Finished,
}

/// A step handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The step.
    pub step: StepId,
    /// Its place in the order of hand-outs, from 0.
    pub seq: u64,
    /// Steps in flight now, this one included.
    pub in_flight: u32,
    /// True when a worker waits and another step could start: wake one.
    pub wake: bool,
    /// True when no worker waits, another step could start, and limits that follow what is seen have let it: unless a worker
    /// is on his way already, one more would be busy. Under limits that are fixed, [`Dispatch::workers_max`] are enough.
    pub hire: bool,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Done,
    /// Not; the chunk's other steps go on.
    Failed,
    /// The same, because memory, descriptors or the like ran out: a controller may let fewer run.
    Exhausted,
    /// Not, and the chunk's steps that have not started are dropped: what a failed preparation means.
    Skip,
}

/// When a step ran, for the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Now.
    pub now: Tick,
    /// When the call began.
    pub started: Tick,
    /// [`Start::in_flight`] as it was handed out.
    pub in_flight: u32,
}

/// Whom to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a wake-up that is not delivered leaves a worker parked"]
pub enum Wake {
    /// Nobody.
    None,
    /// One waiting worker.
    One,
    /// Every waiting worker: the run has ended.
    All,
}

/// Why a run is stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The caller cancelled.
    Cancelled,
    /// The deadline passed.
    Deadline,
    /// A step failed and the caller wants no more attempts.
    Failure,
}

/// Where the steps of a run are; together they are all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Not started: ready, or waiting for others.
    pub pending: u32,
    /// Handed out.
    pub running: u32,
    /// Ended, well or not.
    pub finished: u32,
    /// Dropped by [`Outcome::Skip`]; never started.
    pub dropped: u32,
    /// The most that were running at once.
    pub peak_running: u32,
}

impl Dispatch {
    /// A run of `steps`. The limit in force is always the least of `ceiling`, the controller's and
    /// [`Dispatch::set_limits`]'s.
    #[must_use]
    pub fn new(steps: Steps, ceiling: Limits, control: Control) -> Dispatch {
        let state = Mutex::new(State::new(&steps, ceiling, control));
        Dispatch { steps, state }
    }

    /// The steps.
    #[must_use]
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Hands out the smallest step that may start.
    #[must_use]
    pub fn take(&self, worker: WorkerId) -> Take {
        self.lock().take(&self.steps, worker)
    }

    /// A step that was handed out has ended.
    ///
    /// # Panics
    /// For a step that is not running: reporting one twice would break every count.
    pub fn done(&self, step: StepId, outcome: Outcome, seen: Seen) -> Wake {
        let mut state = self.lock();
        state.done(&self.steps, step, outcome, seen);
        state.wake()
    }

    /// [`Dispatch::done`] and then [`Dispatch::take`] for the same worker, under one lock. The wake-up is for the others:
    /// what this worker takes itself needs none.
    ///
    /// # Panics
    /// As [`Dispatch::done`].
    pub fn done_and_take(&self, worker: WorkerId, done: Option<(StepId, Outcome, Seen)>) -> (Wake, Take) {
        let mut state = self.lock();
        if let Some((step, outcome, seen)) = done {
            state.done(&self.steps, step, outcome, seen);
        }
        let take = state.take(&self.steps, worker);
        let wake = if take == Take::Finished { state.wake() } else { Wake::None };
        (wake, take)
    }

    /// Replaces the caller's own limits.
    pub fn set_limits(&self, limits: Limits) -> Wake {
        let mut state = self.lock();
        state.set_limits(&self.steps, limits);
        state.wake()
    }

    /// Nothing starts after this. The first reason is kept.
    pub fn stop(&self, why: Stop) -> Wake {
        let mut state = self.lock();
        state.stop(why);
        state.wake()
    }

    /// Why the run was stopped, if it was.
    #[must_use]
    pub fn stopped(&self) -> Option<Stop> {
        self.lock().stopped()
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.lock().limits()
    }

    /// Where the steps are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts()
    }

    /// What the controller did; `None` where limits are fixed.
    #[must_use]
    pub fn report(&self) -> Option<ControllerReport> {
        self.lock().report()
    }

    /// The most workers that can ever be busy at once under the limits in force now.
    #[must_use]
    pub fn workers_max(&self) -> u32 {
        self.lock().workers_max()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.state)
    }
}

impl Take {
    /// The start, if it is one.
    #[must_use]
    pub fn start(self) -> Option<Start> {
        match self {
            Take::Start(start) => Some(start),
            Take::Wait | Take::Finished => None,
        }
    }
}

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use pinrail_dispatch::{Counts, Stop};

use crate::run::{Control, Patience};
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::{Failure, Registration};

/// A registration that goes on in the background.
///
/// Dropping it cancels; it does not wait, and never frees memory under a call: what is in flight ends, and everything
/// is undone, in the background.
#[must_use = "a handle that is dropped cancels its registration"]
pub struct Handle {
    steering: Arc<Steering>,
    result: Arc<Slot>,
}

/// Cancels a registration from anywhere: a signal handler's thread, another task.
#[derive(Clone)]
pub struct Canceller(Arc<Steering>);

/// Leads to the run that goes on now: a batch may take more than one.
pub(crate) struct Steering {
    steered: Mutex<Steered>,
    /// How long the runs' end is waited for.
    pub(crate) patience: Arc<Patience>,
}

struct Steered {
    now: Arc<Control>,
    is_cancelled: bool,
}

impl Steering {
    pub(crate) fn new(control: Arc<Control>) -> Steering {
        Steering { steered: Mutex::new(Steered { now: control, is_cancelled: false }), patience: Arc::default() }
    }

    /// The next run; one that was cancelled before it began stops at once.
    pub(crate) fn turn_to(&self, control: Arc<Control>) {
        let mut steered = lock(&self.steered);
        if steered.is_cancelled {
            control.stop(Stop::Cancelled);
        }
        steered.now = control;
    }

    pub(crate) fn cancel(&self) {
        let mut steered = lock(&self.steered);
        steered.is_cancelled = true;
        steered.now.stop(Stop::Cancelled);
    }

    /// Cancels, and waits for no call that has not returned.
    pub(crate) fn let_go(&self) {
        self.cancel();
        self.patience.end();
    }
}

type Outcome = Result<Registration, Box<Failure>>;

#[derive(Default)]
pub(crate) struct Slot {
    result: Mutex<Option<thread::Result<Outcome>>>,
    filled: Condvar,
}

impl Slot {
    /// Runs it and keeps what comes of it, a panic too: whoever waits must not wait for ever.
    pub(crate) fn fill(&self, run: impl FnOnce() -> Outcome) {
        let result = catch_unwind(AssertUnwindSafe(run));
        *lock(&self.result) = Some(result);
        self.filled.notify_all();
    }
}

impl Handle {
    pub(crate) fn new(steering: Arc<Steering>, result: Arc<Slot>) -> Handle {
        Handle { steering, result }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn steering(&self) -> Arc<Steering> {
        Arc::clone(&self.steering)
    }

    /// What [`Canceller::cancel`] can be called on from elsewhere.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.steering))
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Counts {
        lock(&self.steering.steered).now.dispatch.counts()
    }

    /// Waits for the end, the rollback included.
    ///
    /// # Errors
    /// As [`Engine::register`](crate::Engine::register).
    ///
    /// # Panics
    /// With the panic of the background thread, where the engine has a defect.
    pub fn wait(self) -> Result<Registration, Box<Failure>> {
        let mut result = lock(&self.result.result);
        loop {
            match result.take() {
                Some(result) => return result.unwrap_or_else(|panic| resume_unwind(panic)),
                None => result = wait(&self.result.filled, result),
            }
        }
    }

    /// Cancels, and waits for no call that has not returned: for when one is stuck in a provider for ever. What is
    /// registered is handed back as [`Failure::kept`], whole buffers or not; what is stuck is listed in
    /// [`Failure::stuck`], and its threads and memory are left to it. In a rollback, what is not yet undone is
    /// [`Failure::quarantine`]. Where nothing was stuck this is a cancel.
    ///
    /// # Errors
    /// [`Failure`], unless everything was registered before.
    pub fn detach(self) -> Result<Registration, Box<Failure>> {
        self.steering.let_go();
        self.wait()
    }

    /// True once [`Handle::wait`] would return at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        lock(&self.result.result).is_some()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.steering.cancel();
    }
}

impl Canceller {
    /// Returns at once. Nothing starts after it; calls in flight end, and what was registered is undone.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::crew::Crew;

    #[test]
    fn a_defect_in_the_background_reaches_whoever_waits() {
        let sets = std::sync::Arc::new([]);
        let steps = pinrail_core::Steps::new(pinrail_core::Kind::Register, false, Vec::new(), sets).unwrap();
        let none = pinrail_core::Limits::NONE;
        let dispatch = pinrail_dispatch::Dispatch::new(steps, none, pinrail_policy::Control::Fixed(none));
        let handle =
            Handle::new(Arc::new(Steering::new(Arc::new(Control::new(dispatch, Crew::default(), None)))), Arc::default());
        handle.result.fill(|| resume_unwind(Box::new("planted")));
        assert!(handle.is_finished());
        let panic = catch_unwind(AssertUnwindSafe(|| handle.wait())).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"planted"));
    }
}

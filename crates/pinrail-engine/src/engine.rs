use std::sync::Arc;
use std::time::Duration;

use pinrail_core::{PinsCounted, Prepare, Rail, Registrar};
use pinrail_memory::Memlock;
use pinrail_plan::Plan;

use crate::crew::Crew;
use crate::failure::{Failure, Refusal};
use crate::handle::{Handle, Slot, Steering};
use crate::register;
use crate::registration::Registration;
use crate::run::{Control, Patience};

/// Runs plans on a registrar.
#[derive(Clone)]
pub struct Engine {
    registrar: Arc<dyn Registrar>,
    prepare: Arc<dyn Prepare>,
    crew: Crew,
}

/// How a plan is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What happens to what was registered when something fails.
    pub on_failure: OnFailure,
    /// Whether the rest is still tried then.
    pub attempts: Attempts,
    /// After how long the run is cancelled.
    pub deadline: Option<Duration>,
    /// Most threads, the caller's among them; the policy's limits usually stay far below.
    pub threads_max: u32,
}

/// What happens to what was registered when something fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Everything is undone.
    #[default]
    RollBack,
    /// Buffers that are wholly registered stay; the pieces of others are undone. A cancelled run is undone all the same.
    KeepComplete,
}

/// Whether the rest is still tried after a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attempts {
    /// Every step is tried: the error lists all that is wrong.
    #[default]
    All,
    /// Nothing starts after the first failure.
    StopEarly,
}

impl Default for Options {
    fn default() -> Options {
        Options { on_failure: OnFailure::RollBack, attempts: Attempts::All, deadline: None, threads_max: 1024 }
    }
}

impl Engine {
    /// An engine that registers with `registrar` and makes memory ready with `prepare`.
    #[must_use]
    pub fn new(registrar: Arc<dyn Registrar>, prepare: Arc<dyn Prepare>) -> Engine {
        Engine { registrar, prepare, crew: Crew::default() }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn on(registrar: Arc<dyn Registrar>, prepare: Arc<dyn Prepare>, crew: Crew) -> Engine {
        Engine { registrar, prepare, crew }
    }

    /// The registrar.
    #[must_use]
    pub fn registrar(&self) -> &Arc<dyn Registrar> {
        &self.registrar
    }

    /// Registers a plan: all of it or nothing. The caller's thread works too.
    ///
    /// Where a registration that several buffers share is refused as such, the batch is undone and tried again with those
    /// buffers in registrations of their own.
    ///
    /// # Errors
    /// [`Failure`]; what was registered is undone unless [`OnFailure::KeepComplete`] was asked for.
    pub fn register(&self, plan: impl Into<Arc<Plan>>, options: &Options) -> Result<Registration, Box<Failure>> {
        let plan = plan.into();
        let (control, steering) = self.begin(&plan, options)?;
        self.carry_out(plan, control, &steering, options, None)
    }

    /// Registers a plan in the background, as [`Engine::register`] does.
    ///
    /// # Errors
    /// [`Failure`] with [`Reason::Refused`](crate::Reason::Refused) when it cannot begin; later failures are the handle's to tell.
    pub fn start(&self, plan: impl Into<Arc<Plan>>, options: &Options) -> Result<Handle, Box<Failure>> {
        let plan = plan.into();
        let tasks = plan.tasks();
        let (control, steering) = self.begin(&plan, options)?;
        let slot = Arc::new(Slot::default());
        let handle = Handle::new(Arc::clone(&steering), Arc::clone(&slot));
        let (engine, options) = (self.clone(), *options);
        let run = move || slot.fill(|| engine.carry_out(plan, control, &steering, &options, Some(&steering.patience)));
        match self.crew.background("pinrail-0".to_owned(), run) {
            Ok(()) => Ok(handle),
            Err(no_thread) => Err(Failure::refused(Refusal::NoThread(no_thread), tasks)),
        }
    }

    fn begin(&self, plan: &Plan, options: &Options) -> Result<(Arc<Control>, Arc<Steering>), Box<Failure>> {
        self.check(plan)?;
        // A deadline beyond the clock's end is none.
        let crew = self.crew.of(options.threads_max);
        let deadline = options.deadline.and_then(|after| crew.now().checked_add(after));
        let control = register::control(plan, crew, deadline).map_err(|refusal| Failure::refused(refusal, plan.tasks()))?;
        let control = Arc::new(control);
        Ok((Arc::clone(&control), Arc::new(Steering::new(control))))
    }

    fn carry_out(
        &self,
        mut plan: Arc<Plan>,
        mut control: Arc<Control>,
        steering: &Steering,
        options: &Options,
        patience: Option<&Arc<Patience>>,
    ) -> Result<Registration, Box<Failure>> {
        loop {
            let (crew, deadline) = (control.crew.clone(), control.deadline());
            let (registrar, prepare) = (Arc::clone(&self.registrar), Arc::clone(&self.prepare));
            let mut failure = match register::register(Arc::clone(&plan), registrar, prepare, control, options, patience) {
                Err(failure) => failure,
                done => return done,
            };
            // Each round has fewer shared registrations, so this ends.
            let Some(apart) = failure.with_refused_apart(&plan) else { return Err(failure) };
            let Ok(next) = register::control(&apart, crew, deadline) else { return Err(failure) };
            // What was kept for its completeness is undone before it is registered again.
            if !register::undo_kept(&mut failure, patience) {
                return Err(failure);
            }
            (plan, control) = (Arc::new(apart), Arc::new(next));
            steering.turn_to(Arc::clone(&control));
        }
    }

    /// Refuses what is certain to fail, before any call. A plan of imagined memory will do, so that this can be asked
    /// before memory is allocated; [`Engine::register`] and [`Engine::start`] ask it themselves.
    ///
    /// # Errors
    /// [`Failure`] with [`Reason::Refused`](crate::Reason::Refused).
    pub fn check(&self, plan: &Plan) -> Result<(), Box<Failure>> {
        self.preflight(plan).map_err(|refusal| Failure::refused(refusal, plan.tasks()))
    }

    fn preflight(&self, plan: &Plan) -> Result<(), Refusal> {
        let names = |rails: &[Rail]| rails.iter().map(|rail| rail.name.as_str()).collect::<Vec<_>>().join(", ");
        let (planned, have) = (names(plan.rails()), names(self.registrar.rails()));
        if planned != have {
            return Err(Refusal::OtherRails { plan: planned, registrar: have });
        }
        let needs = plan.needs();
        for (bytes, counted) in
            [(needs.memlock_process_bytes, PinsCounted::Process), (needs.memlock_user_bytes, PinsCounted::User)]
        {
            if bytes > 0 {
                Memlock::read()?.precheck(bytes, counted).map_err(Refusal::Memlock)?;
            }
        }
        Ok(())
    }
}

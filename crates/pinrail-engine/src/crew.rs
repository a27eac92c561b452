//! Who does the steps, and in whose time.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::clock;
use crate::run::{Patience, Work, Worker};
#[cfg(any(test, feature = "testing"))]
use crate::testing::stage::{Actor, Stage};

/// Threads of this process, by its clock. Under test a stage in virtual time can stand in for both.
#[derive(Clone, Default)]
pub(crate) struct Crew {
    /// Most workers at once.
    pub(crate) threads_max: u32,
    #[cfg(any(test, feature = "testing"))]
    stage: Option<Stage>,
}

/// A worker that was started and has to be waited for.
pub(crate) enum Hired {
    Thread(JoinHandle<()>),
    #[cfg(any(test, feature = "testing"))]
    Actor(Stage, Actor),
}

impl Crew {
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn on(stage: Stage) -> Crew {
        Crew { threads_max: 0, stage: Some(stage) }
    }

    pub(crate) fn of(&self, threads_max: u32) -> Crew {
        let mut crew = self.clone();
        crew.threads_max = threads_max;
        crew
    }

    pub(crate) fn now(&self) -> Instant {
        #[cfg(any(test, feature = "testing"))]
        if let Some(stage) = &self.stage {
            return stage.now();
        }
        clock::now()
    }

    /// Starts a worker of its own.
    pub(crate) fn hire<W: Work>(&self, name: String, worker: Worker<W>) -> io::Result<Hired> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(stage) = &self.stage {
            return stage.hire(Box::new(worker)).map(|actor| Hired::Actor(stage.clone(), actor));
        }
        thread::Builder::new().name(name).spawn(move || worker.work()).map(Hired::Thread)
    }

    /// Works as this worker, to its end.
    pub(crate) fn work<W: Work>(&self, worker: Worker<W>) {
        #[cfg(any(test, feature = "testing"))]
        if let Some(stage) = &self.stage {
            let own = stage.admit(Box::new(worker));
            return stage.play_to_end_of(own);
        }
        worker.work();
    }

    /// Waits for the end of others, as long as the patience lasts; false where it ended first.
    pub(crate) fn wait(&self, patience: &Patience, is_done: impl Fn() -> bool) -> bool {
        #[cfg(any(test, feature = "testing"))]
        if let Some(stage) = &self.stage {
            stage.play(|| is_done() || patience.is_over());
            return is_done();
        }
        patience.wait(is_done)
    }

    /// Goes on with this beside the caller.
    pub(crate) fn background(&self, name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(stage) = &self.stage {
            return stage.later(Box::new(run));
        }
        thread::Builder::new().name(name).spawn(run).map(drop)
    }
}

impl Hired {
    /// Waits for its end.
    pub(crate) fn join(self) {
        match self {
            Hired::Thread(thread) => {
                if let Err(panic) = thread.join() {
                    // Calls of others are caught where they are made: this is a defect of the engine, and hiding it would
                    // lose steps.
                    std::panic::resume_unwind(panic);
                }
            }
            #[cfg(any(test, feature = "testing"))]
            Hired::Actor(stage, actor) => stage.play_to_end_of(actor),
        }
    }
}

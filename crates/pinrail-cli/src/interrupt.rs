//! Ctrl-C: a cancel, whatever the command is doing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use pinrail_core::{Diagnosis, ErrorKind};
use pinrail_engine::Canceller;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

use crate::error::Error;

/// Whether Ctrl-C was pressed, and what it cancels.
///
/// From [`Interrupt::listen`] on the signal no longer ends the process. The first one cancels: calls in flight end, and
/// what is registered is deregistered. A second one changes nothing: ending in the middle of that is what kill -9 is
/// for, after which the kernel takes everything back.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    seen: AtomicBool,
    cancels: Mutex<Option<Canceller>>,
}

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Interrupt, Error> {
        let interrupt = Interrupt::default();
        let failed = |error: std::io::Error| Error::io("cannot listen for Ctrl-C", &error);
        let mut signals = Signals::new([SIGINT]).map_err(failed)?;
        let listener = interrupt.clone();
        let listen = move || signals.forever().for_each(|_| listener.arrived());
        thread::Builder::new().name("pinrail-signals".to_owned()).spawn(listen).map_err(failed)?;
        Ok(interrupt)
    }

    /// What a signal cancels from now on; one that has come already cancels at once.
    pub(crate) fn cancels(&self, canceller: Canceller) {
        *self.0.cancels.lock().unwrap_or_else(PoisonError::into_inner) = Some(canceller);
        if self.came() {
            self.cancel();
        }
    }

    /// True once Ctrl-C was pressed.
    pub(crate) fn came(&self) -> bool {
        self.0.seen.load(Ordering::SeqCst)
    }

    /// An error once Ctrl-C was pressed.
    pub(crate) fn check(&self, state: &str) -> Result<(), Error> {
        if self.came() { Err(Diagnosis::new(ErrorKind::Cancelled, format!("cancelled; {state}")).into()) } else { Ok(()) }
    }

    fn arrived(&self) {
        // In this order, so that a canceller stored meanwhile sees the signal or is seen here.
        self.0.seen.store(true, Ordering::SeqCst);
        self.cancel();
    }

    fn cancel(&self) {
        if let Some(canceller) = &*self.0.cancels.lock().unwrap_or_else(PoisonError::into_inner) {
            canceller.cancel();
        }
    }
}

//! Every call into a backend, with its panics caught: a third party's bug is an error of one step.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use pinrail_core::{
    Cause, Chunk, DeregisterError, Mr, Prepare, PrepareError, PrepareStep, Prepared, RailId, RegisterError, Registrar,
};

use crate::clock;
use crate::run::Control;

/// Pauses before the second, third, … attempt at a call that answers EAGAIN.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(16),
    Duration::from_millis(64),
    Duration::from_millis(256),
];

pub(crate) fn prepare(by: &dyn Prepare, step: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
    caught(|| by.prepare(step)).unwrap_or_else(|cause| Err(PrepareError::new("Prepare::prepare", None, cause)))
}

/// Registers, and tries again, bounded, when the provider asks for it.
/// Registers, and tries again, bounded, when the provider asks for it.
pub(crate) fn register(by: &dyn Registrar, rail: RailId, chunk: &Chunk<'_>, control: &Control) -> Result<Mr, RegisterError> {
    let failed = |cause| Err(RegisterError::new("Registrar::register", None, cause));
    again(control, RegisterError::may_pass, || caught(|| by.register(rail, chunk)).unwrap_or_else(failed))
}

/// Deregisters, and tries again, bounded, when the provider asks for it. The MR is live exactly when this fails.
pub(crate) fn deregister(by: &dyn Registrar, mr: &mut Mr, control: &Control) -> Result<(), DeregisterError> {
    let failed = |cause| Err(DeregisterError::new("Registrar::deregister", None, cause));
    let result = again(control, DeregisterError::may_pass, || {
        match caught(|| by.deregister(mr)).unwrap_or_else(failed) {
            // Believing a backend that says done and keeps the MR would lose it.
            Ok(()) if mr.is_live() => failed(Cause::Other { what: "reported success and kept the MR live".to_owned() }),
            result => result,
        }
    });
    // Whoever fails after it has retired the MR has deregistered it all the same.
    if mr.is_live() { result } else { Ok(()) }
}

fn again<T, E>(control: &Control, may_pass: impl Fn(&E) -> bool, mut once: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for pause in PAUSES {
        match once() {
            Err(error) if may_pass(&error) && !control.is_stopped() => control.pause(clock::now() + pause),
            result => return result,
        }
    }
    once()
}

fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Cause> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Cause::Panicked { what: message(panic.as_ref()) })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

//! Every call into a backend or a policy, with its panics caught: a third party's bug is an error of one step.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use pinrail_core::{
    Cause, Chunk, DeregisterError, Kind, Mr, Prepare, PrepareError, PrepareStep, Prepared, RailId, RegisterError, Registrar,
};
use pinrail_plan::Plan;
use pinrail_policy::Control as Limiting;

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

/// The limits of a policy for a run.
pub(crate) fn begin(plan: &Plan, tasks: Kind) -> Result<Limiting, Cause> {
    caught(|| plan.policy().concurrency.begin(&plan.shape(tasks)))
}

pub(crate) fn prepare(by: &dyn Prepare, step: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
    caught(|| by.prepare(step)).unwrap_or_else(|cause| Err(PrepareError::new("Prepare::prepare", None, cause)))
}

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
    let mut result = once();
    for pause in PAUSES {
        match &result {
            // Nothing starts after a stop, also no further attempt.
            Err(error) if may_pass(error) && control.pause(clock::now() + pause) => result = once(),
            _ => break,
        }
    }
    result
}

fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Cause> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Cause::Panicked { what: message(panic.as_ref()) })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use pinrail_core::{ChunkId, Group, Limits, Steps};
    use pinrail_dispatch::Dispatch;

    use super::*;

    #[test]
    fn no_attempt_is_made_after_a_stop() {
        let sets: Arc<[Box<[RailId]>]> = Arc::new([Box::new([RailId(0)])]);
        let mut steps = Steps::new(Kind::Register, false, vec![NonZeroU32::MIN], sets).unwrap();
        steps.push(Group { chunk: ChunkId(0), set: 0, prepares: 0, bytes: 1 }).unwrap();
        let dispatch = Dispatch::new(steps, Limits::NONE, Limiting::Fixed(Limits::NONE));
        // The deadline passes in one of the first pauses, at the latest in that of 16 ms.
        let control = Control::new(dispatch, Some(clock::now() + Duration::from_millis(8)));
        let mut calls = 0usize;
        let result: Result<(), usize> = again(
            &control,
            |_| true,
            || {
                calls += 1;
                assert!(calls == 1 || !control.is_stopped(), "attempt {calls} began after the stop");
                Err(calls)
            },
        );
        assert!(result.unwrap_err() <= PAUSES.len() && control.is_stopped());
    }
}

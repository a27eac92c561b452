//! Every call into a backend or a policy, with its panics caught: a third party's bug is an error of one step.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pinrail_core::{
    Cause, Chunk, DeregisterError, Kind, Mr, Prepare, PrepareError, PrepareStep, Prepared, RailId, RegisterError, Registrar,
};
use pinrail_plan::Plan;
use pinrail_policy::Control as Limiting;

/// The limits of a policy for a run.
pub(crate) fn begin(plan: &Plan, tasks: Kind) -> Result<Limiting, Cause> {
    caught(|| plan.policy().concurrency.begin(&plan.shape(tasks)))
}

pub(crate) fn prepare(by: &dyn Prepare, step: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
    caught(|| by.prepare(step)).unwrap_or_else(|cause| Err(PrepareError::new("Prepare::prepare", None, cause)))
}

pub(crate) fn register(by: &dyn Registrar, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
    let failed = |cause| Err(RegisterError::new("Registrar::register", None, cause));
    caught(|| by.register(rail, chunk)).unwrap_or_else(failed)
}

/// The MR is live exactly when this fails.
pub(crate) fn deregister(by: &dyn Registrar, mr: &mut Mr) -> Result<(), DeregisterError> {
    let failed = |cause| Err(DeregisterError::new("Registrar::deregister", None, cause));
    let result = caught(|| by.deregister(mr)).unwrap_or_else(failed);
    match (result, mr.is_live()) {
        // Believing a backend that says done and keeps the MR would lose it.
        (Ok(()), true) => failed(Cause::Other { what: "reported success and kept the MR live".to_owned() }),
        // Whoever fails after it has retired the MR has deregistered it all the same.
        (_, false) => Ok(()),
        (failed, true) => failed,
    }
}

fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Cause> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Cause::Panicked { what: message(panic.as_ref()) })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

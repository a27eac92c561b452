//! `pinrail register`: registers a batch in memory of its own, and undoes it.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use pinrail_conformance::{Target, Verified, verify};
use pinrail_core::{Diagnosis, ErrorKind, Identity, Source};
use pinrail_engine::{Attempts, Engine, Failure, OnFailure, Options, Registration, Report};
use pinrail_memory::{Pages, Populate};
use pinrail_plan::Plan;

use crate::args::{BatchArgs, MachineArgs, PolicyArgs};
use crate::backend::{Backend, Opened};
use crate::clock::{self, Stopwatch};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::{batch, memory, output, progress};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who registers: uring, libfabric, libfabric:PROVIDER (as in libfabric:tcp), verbs.
    #[arg(long, value_name = "BACKEND")]
    backend: Backend,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    /// The state of the memory before the clock starts.
    #[arg(long, value_enum, default_value_t)]
    memory: MemoryState,
    /// The pages of the memory: 4k, thp (transparent huge), 2m or 1g (out of the hugetlb pool).
    #[arg(long, value_name = "PAGES", default_value_t = Pages::Small)]
    pages: Pages,
    /// Move a pattern through both ends of every registration and across every seam.
    #[arg(long)]
    verify: bool,
    /// What happens to what is registered when something fails.
    #[arg(long, value_enum, default_value_t)]
    on_failure: WhenItFails,
    /// Start nothing more after the first failure; without it everything is tried.
    #[arg(long)]
    stop_early: bool,
    /// Cancel after that many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    deadline: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum MemoryState {
    /// Mapped and never used: the first touch is part of what is measured.
    #[default]
    Untouched,
    /// Used before.
    Resident,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum WhenItFails {
    /// Everything is undone.
    #[default]
    Rollback,
    /// Buffers that are wholly registered stay until the end.
    KeepComplete,
}

/// Bounds one transfer of --verify: a fabric that lost it would never say so.
const TRANSFER_WAIT: Duration = Duration::from_secs(10);

/// What was done and where the time went.
pub(crate) struct Ran {
    pub(crate) policy: String,
    pub(crate) identity: Identity,
    pub(crate) rails: usize,
    pub(crate) tasks: u64,
    pub(crate) allocate: Duration,
    pub(crate) registered: Report,
    pub(crate) deregistered: Report,
    /// CPU time of the whole process while it registered.
    pub(crate) cpu: Duration,
    pub(crate) verified: Option<Verified>,
    /// Steps that failed, where the rest was kept.
    pub(crate) failed: Vec<Diagnosis>,
    pub(crate) failure: Option<Error>,
}

pub(crate) fn run(args: &Args) -> Result<Ran, Error> {
    let interrupt = Interrupt::listen()?;
    let policy = args.policy.read()?;
    let batch = batch::on_pages(args.batch.read()?, args.pages);
    let Opened { registrar, mut machine } = args.backend.open(args.machine.read()?)?;
    batch.limit_rails(&mut machine)?;
    let layout = batch.layout()?;
    let engine = Engine::new(Arc::clone(&registrar), Arc::new(Populate::new()));
    engine.check(&Plan::new(layout.imagined()?, &machine, &policy)?)?;

    let watch = Stopwatch::start();
    let memory::Mapped { memories, notes } = memory::map(&layout, args.pages)?;
    if args.memory == MemoryState::Resident {
        memory::make_resident(&layout, &memories, &interrupt)?;
    }
    let allocate = watch.elapsed();
    output::note(&notes);

    let plan = Arc::new(Plan::new(layout.buffers(&memories)?, &machine, &policy)?);
    let cpu_before = clock::cpu();
    let handle = engine.start(Arc::clone(&plan), &args.options())?;
    interrupt.cancels(handle.canceller());
    progress::watch(&handle, &interrupt);
    let result = handle.wait();
    let cpu = clock::cpu().saturating_sub(cpu_before);

    let (registration, failure) = match result {
        Ok(registration) => (registration, None),
        Err(mut failure) => match failure.kept.take() {
            Some(kept) => (kept, Some(failure)),
            None => return Err(failure.into()),
        },
    };
    let registered = registration.report().clone();
    let verified = if args.verify { Some(moved(&registration, registrar.as_ref())?) } else { None };
    let deregistered = registration.deregister()?;
    interrupt.check("everything that was registered has been deregistered")?;
    Ok(Ran {
        policy: plan.policy().spec(),
        identity: registrar.identity(),
        rails: machine.rails.len(),
        tasks: plan.tasks(),
        allocate,
        registered,
        deregistered,
        cpu,
        verified,
        failed: failure.iter().flat_map(|failure| &failure.failed).map(|step| step.diagnosis()).collect(),
        failure: failure.map(Box::<Failure>::into),
    })
}

impl Args {
    fn options(&self) -> Options {
        Options {
            on_failure: match self.on_failure {
                WhenItFails::Rollback => OnFailure::RollBack,
                WhenItFails::KeepComplete => OnFailure::KeepComplete,
            },
            attempts: if self.stop_early { Attempts::StopEarly } else { Attempts::All },
            deadline: self.deadline,
            ..Options::default()
        }
    }
}

/// Moves bytes through everything that is live.
fn moved(registration: &Registration, registrar: &dyn pinrail_core::Registrar) -> Result<Verified, Error> {
    let mover = registrar.mover().ok_or_else(|| {
        let message = "this backend cannot move bytes by itself, so --verify has nothing to verify with";
        Diagnosis::new(ErrorKind::NotSupported, message)
    })?;
    let (plan, source) = (registration.plan(), Source::Address);
    let target = |(id, mr)| {
        let buffer = &plan.buffer_of(id).name;
        Target { buffer, id, chunk: plan.chunk(id, &source), mr }
    };
    let targets: Vec<Target<'_>> = registration.mrs().map(target).collect();
    verify(mover, &targets, TRANSFER_WAIT).map_err(|error| error.diagnosis().into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no number of seconds above zero, as in 2.5");
    let seconds = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).ok().filter(|after| !after.is_zero()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_a_finite_time_to_come() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        for text in ["", "0", "-1", "inf", "NaN", "1e30", "1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}

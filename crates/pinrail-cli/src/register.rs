//! `pinrail register`: registers a batch in memory of its own, and undoes it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, ValueEnum};
use pinrail_bench::memory::{self, Mapped};
use pinrail_conformance::{Target, Verified, verify};
use pinrail_core::batch::{Allocation, BatchSpec, Layout};
use pinrail_core::size::Bytes;
use pinrail_core::{ChunkId, Diagnosis, ErrorKind, Identity, Machine, Memory, Place, Registrar, Source};
use pinrail_engine::{Attempts, Engine, Failure, OnFailure, Options, Registration, Report};
use pinrail_memory::Pages;
use pinrail_plan::{Plan, PlanDocument};
use pinrail_policy::Policy;

use crate::args::{BatchArgs, TermsArgs};
use crate::backend::{Backend, Opened, Workload};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::machine::Wanted;
use crate::policy::usable_cores;
use crate::{batch, clock, output, plan, progress};

#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("what").required(true).args(["batch", "plan"])))]
pub(crate) struct Args {
    /// Who registers: uring, libfabric, libfabric:PROVIDER (as in libfabric:tcp), verbs, sim:PROFILE (in real time; as in
    /// sim:efa-p5/joint@100, a hundred times as fast).
    #[arg(long, value_name = "BACKEND")]
    backend: Backend,
    #[command(flatten)]
    batch: Option<BatchArgs>,
    /// Instead of planning a batch, register what `pinrail plan --json` has planned: its batch, rails and policy. Rails
    /// are opened by the names they have there.
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    terms: TermsArgs,
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
    /// The time in which it was used.
    pub(crate) cpu_over: Duration,
    pub(crate) verified: Option<Verified>,
    /// Steps that failed, where the rest was kept.
    pub(crate) failed: Vec<Diagnosis>,
    pub(crate) failure: Option<Error>,
}

pub(crate) fn run(args: &Args) -> Result<Ran, Error> {
    // Files are read while Ctrl-C still ends the process: nothing else interrupts a pipe that nobody writes to.
    let Asked { batch, policy, rails, document } = args.read()?;
    let interrupt = Interrupt::listen()?;
    let resident = args.memory == MemoryState::Resident;
    let workload = Workload { batch: &batch, policies: slice::from_ref(&policy), batches: 1, resident };
    let Opened { registrar, prepare, mut machine, .. } = args.backend.open(rails, &workload)?;
    batch.limit_rails(&mut machine)?;
    let layout = batch.layout()?;
    match &document {
        Some(document) => drop(document.plan(layout.imagined()?)?.on(&machine)?),
        None => check_as_written(&layout, &machine, &policy)?,
    }

    let is_simulated = args.backend.is_simulated();
    let map = || if is_simulated { imagine(&layout) } else { Ok(memory::map(&layout, args.pages)?) };
    let (mapped, mapping) = clock::timed(map);
    let Mapped { memories, notes } = mapped?;
    output::note(&notes);
    let plan = || -> Result<Plan, Error> {
        let buffers = layout.buffers(&memories)?;
        match &document {
            // What was planned is done, wherever the pages lie now.
            Some(document) => Ok(document.plan(buffers)?.on(&machine)?),
            None => Ok(Plan::new(memory::placed(buffers, &machine), &machine, &policy)?),
        }
    };
    let engine = Engine::new(Arc::clone(&registrar), prepare);
    let mut touching = Duration::ZERO;
    if resident && !is_simulated {
        // What cannot be is refused before pages are touched, unless only the touch decides which rails are near.
        if document.is_some() || !memory::decides_rails(&machine) {
            engine.check(&plan()?)?;
        }
        let (touched, took) =
            clock::timed(|| memory::make_resident(&memories, args.pages, usable_cores(), &|| !interrupt.came()));
        interrupt.check("nothing had been registered")?;
        touched?;
        touching = took;
    }

    let plan = Arc::new(plan()?);
    let cpu_before = clock::cpu();
    let (result, cpu_over) = clock::timed(|| -> Result<_, Error> {
        let handle = engine.start(Arc::clone(&plan), &args.options())?;
        interrupt.cancels(handle.canceller());
        progress::watch(&handle, &interrupt);
        Ok(handle.wait())
    });
    let (result, cpu) = (result?, clock::cpu().saturating_sub(cpu_before));

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
        allocate: mapping + touching,
        registered,
        deregistered,
        cpu,
        cpu_over,
        verified,
        failed: failure.iter().flat_map(|failure| &failure.failed).map(|step| step.diagnosis()).collect(),
        failure: failure.map(Box::<Failure>::into),
    })
}

/// Memory without bytes, as the simulator takes it.
fn imagine(layout: &Layout) -> Result<Mapped, Error> {
    let imagined = |Allocation { span, .. }: &Allocation| Memory::imagined(span.start, span.end - span.start);
    let memories = layout.allocations.iter().map(imagined).collect::<Result<_, _>>();
    // The layout has checked every extent.
    let memories = memories.map_err(|error| Diagnosis::new(ErrorKind::Batch, error.to_string()))?;
    Ok(Mapped { memories, notes: Vec::new() })
}

/// What is to be registered where, as the arguments say it.
struct Asked {
    batch: BatchSpec,
    policy: Policy,
    rails: Wanted,
    /// The plan, where one was made before.
    document: Option<PlanDocument>,
}

impl Args {
    fn read(&self) -> Result<Asked, Error> {
        let rails = self.terms.machine.read()?;
        let (Some(path), machine) = (&self.plan, &self.terms.machine) else {
            let batch =
                self.batch.as_ref().ok_or_else(|| Error::usage("there is nothing to register: name a batch or a plan"))?;
            let policy = self.terms.policy.read()?;
            return Ok(Asked { batch: batch::on_pages(batch.read()?, self.pages), policy, rails, document: None });
        };
        let document = plan::read(path)?;
        let planned = document.plan(document.batch().layout()?.imagined()?).map_err(|error| plan::about(path, &error))?;
        self.check_pages(&planned)?;
        let (batch, policy) = (document.batch().clone(), planned.policy().clone());
        let rails = if machine.is_given() { rails } else { Wanted::Machine(document.machine().clone()) };
        let mut here = rails.clone().machine();
        batch.limit_rails(&mut here)?;
        planned.on(&here)?;
        Ok(Asked { batch, policy, rails, document: Some(document) })
    }

    /// The memory will have the pages that the plan counts.
    fn check_pages(&self, plan: &Plan) -> Result<(), Error> {
        let have = self.pages.page_size();
        let hosts = plan.buffers().iter().filter(|buffer| !matches!(buffer.place, Place::Gpu(_)));
        match hosts.map(|buffer| buffer.page_size).find(|planned| *planned != have) {
            None => Ok(()),
            Some(planned) => {
                let message =
                    format!("the plan counts pages of {}, and --pages {} has {}", Bytes(planned), self.pages, Bytes(have));
                let hint = "name the pages of the plan (--pages 4k, 2m or 1g)";
                Err(Diagnosis::new(ErrorKind::Usage, message).hint(hint).into())
            }
        }
    }

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

/// What is wrong with the batch as it is written is said before it gets memory of its own, where addresses that overlap
/// would not.
fn check_as_written(layout: &Layout, machine: &Machine, policy: &Policy) -> Result<(), Error> {
    let buffers = layout.imagined()?;
    if buffers.iter().any(|buffer| matches!(buffer.place, Place::Gpu(_))) {
        // Memory of devices is not made here, so all that can be said of it is said now.
        Plan::new(buffers, machine, policy)?;
    } else {
        Plan::new(buffers, &Machine::of_rails(1), &Policy::new(NonZeroU32::MIN))?;
    }
    Ok(())
}

/// Moves bytes through everything that is live.
fn moved(registration: &Registration, registrar: &dyn Registrar) -> Result<Verified, Error> {
    let mover = registrar.mover().ok_or_else(|| {
        let message = "this backend cannot move bytes by itself, so --verify has nothing to verify with";
        Diagnosis::new(ErrorKind::NotSupported, message)
    })?;
    let (plan, source) = (registration.plan(), Source::Address);
    let names = names_by_chunk(plan);
    let target = |(id, mr): (ChunkId, _)| Target { buffer: names[id.index()], id, chunk: plan.chunk(id, &source), mr };
    let targets: Vec<Target<'_>> = registration.mrs().map(target).collect();
    verify(mover, &targets, TRANSFER_WAIT).map_err(|error| {
        let rail = &plan.rails()[error.place().rail.index()].name;
        error.diagnosis().rail(rail).into()
    })
}

/// A buffer's name for each chunk. Chunks that share a buffer have the same, so that the seam between them is found.
fn names_by_chunk(plan: &Plan) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::with_capacity(plan.chunks().len());
    let mut last = None;
    for id in plan.chunk_ids() {
        let members = plan.buffers_of(id);
        let shared = names.last().filter(|_| last == members.first().copied());
        names.push(shared.copied().unwrap_or(&plan.buffer_of(id).name));
        last = members.last().copied();
    }
    names
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

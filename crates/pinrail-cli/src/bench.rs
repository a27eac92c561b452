//! `pinrail bench`: compares policies and references on real registrations.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal as _, Write, stderr, stdin, stdout};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;
use pinrail_bench::{BenchError, Clock, Comparison, Event, MemoryState, Processes, Results, Skew, Spec, Sweep, Variant};
use pinrail_core::Diagnosis;
use pinrail_memory::Pages;
use pinrail_policy::Policy;
use serde_json::Value;

use crate::args::{BatchArgs, MachineArgs};
use crate::backend::{Backend, Opened, Workload};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::output::{Answer, Document};
use crate::{batch, file, policy};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    of: Option<Of>,
    #[command(flatten)]
    run: Option<RunArgs>,
    /// A shape (kimi-k3, kimi-k3/N for every size divided by N, COUNTxSIZE as in 48x391MiB) or a batch file (JSON).
    #[arg(long, value_name = "SHAPE|FILE", required_unless_present = "sweep")]
    batch: Option<OsString>,
    // Beside the others and not among them: a group of arguments with groups in it is never seen to be there.
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Debug, Subcommand)]
enum Of {
    /// Say what became faster or slower between two runs that --json has written.
    Compare {
        /// The run before.
        before: PathBuf,
        /// The run after.
        after: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Who registers: uring, libfabric, libfabric:PROVIDER (as in libfabric:tcp), verbs, sim:PROFILE (in real time).
    #[arg(long, value_name = "BACKEND")]
    backend: Backend,
    /// The state of the memory before the clock starts: untouched or resident [default: untouched; a sweep is of resident].
    #[arg(long, value_name = "STATE", value_parser = memory_state)]
    memory: Option<MemoryState>,
    /// The pages of the memory: 4k, thp (transparent huge), 2m or 1g (out of the hugetlb pool).
    #[arg(long, value_name = "PAGES", default_value_t = Pages::Small)]
    pages: Pages,
    /// A policy to compare: terms joined by +, as in ascending+capped=16. May be given again.
    #[arg(long = "policy", value_name = "SPEC")]
    policies: Vec<String>,
    /// What others do, to compare with: rails-in-series-one-by-one, all-rails-at-once, thread-per-buffer, bounded-pool=N,
    /// prefault-then-at-once=N. May be given again.
    #[arg(long = "reference", value_name = "NAME")]
    references: Vec<String>,
    /// Trials of each; 8 is the least that allows a verdict.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: u32,
    /// What the order of trials is drawn from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Processes that register at once, one engine each; the slowest is the result.
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
    /// What the first process does otherwise: it starts late, has the batch four times (heavy), or does nothing (idle).
    #[arg(long, value_name = "late|heavy|idle")]
    skew: Option<Skew>,
    /// Instead of comparing, measure one buffer on ever fuller rails: what a call costs by what is registered already.
    /// Without --batch 33 buffers of 8 MiB: the last is measured, the others fill.
    #[arg(long, value_name = "prior-bytes", conflicts_with_all = ["policies", "references", "processes", "skew", "trace"])]
    sweep: Option<SweepOf>,
    /// Write the last trial of each as a Chrome trace (chrome://tracing, ui.perfetto.dev).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Be one of several processes: the other end of standard input and output says what to do.
    #[arg(long, hide = true)]
    as_process: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SweepOf {
    /// By the bytes that a rail holds already.
    PriorBytes,
}

fn memory_state(text: &str) -> Result<MemoryState, String> {
    match text {
        "untouched" => Ok(MemoryState::Untouched),
        "resident" => Ok(MemoryState::Resident),
        _ => Err("it is untouched or resident".to_owned()),
    }
}

/// What a bench answers.
pub(crate) struct Measured(pub(crate) Results);

/// What two runs come to.
pub(crate) struct Compared(pub(crate) Vec<Comparison>);

/// What a sweep answers.
pub(crate) struct Swept(pub(crate) Sweep);

/// A process among others has said what it has to say already.
struct Nothing;

impl Document for Nothing {
    fn json(&self) -> Value {
        Value::Null
    }

    fn human(&self, _: &mut dyn Write, _: usize) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a sweep measures where no batch is named.
const SWEEP_BATCH: &str = "33x8MiB";

/// Most bytes of a record that is read back.
const RECORD_BYTES_MAX: u64 = 1 << 30;

pub(crate) fn run(args: &Args) -> Answer {
    match (&args.of, &args.run) {
        (Some(Of::Compare { before, after }), _) => {
            let read = |path: &Path| -> Result<Results, Error> {
                let bytes = file::read(path, RECORD_BYTES_MAX, "record")?;
                let results = pinrail_bench::read(&String::from_utf8_lossy(&bytes));
                results.map_err(|error| Error::usage(format!("{}: {error}", path.display())))
            };
            Ok(Box::new(Compared(pinrail_bench::compare(&read(before)?, &read(after)?)?)))
        }
        (None, Some(run)) => {
            let batch = args.batch.clone().unwrap_or_else(|| SWEEP_BATCH.into());
            measure(run, &BatchArgs { batch }, &args.machine)
        }
        (None, None) => Err(Error::usage("there is nothing to measure: name a backend and a batch")),
    }
}

fn measure(args: &RunArgs, batch: &BatchArgs, machine: &MachineArgs) -> Answer {
    // Files are read while Ctrl-C still ends the process: nothing else interrupts a pipe that nobody writes to.
    let spec = args.spec(batch)?;
    if args.backend.is_simulated() && spec.memory == MemoryState::Untouched {
        let message = "the bench touches real pages and the simulator has none: sim:PROFILE takes --memory resident";
        return Err(Error::usage(message));
    }
    let wanted = machine.read()?;
    let interrupt = Interrupt::listen()?;
    let policies: Vec<_> = args.policies.iter().filter_map(|of| Policy::new(spec.cores).with(of).ok()).collect();
    // The heavy one of several processes has the batch four times.
    let batches = if args.skew == Some(Skew::Heavy) { 4 } else { 1 };
    let workload = Workload { batch: &spec.batch, policies: &policies, batches, resident: true };
    // An error of the command's own keeps its exit code past the library, which knows diagnoses only.
    let own = RefCell::new(None);
    let open = || {
        let opened =
            args.backend.open(wanted.clone(), &workload).and_then(|Opened { registrar, mut machine, notes, cached, .. }| {
                spec.batch.limit_rails(&mut machine)?;
                Ok(pinrail_bench::Opened { registrar, machine, notes, cached })
            });
        opened.map_err(|error| {
            let diagnosis = error.diagnosis.clone();
            *own.borrow_mut() = Some(error);
            diagnosis
        })
    };
    let failed = |error: BenchError| own.take().unwrap_or_else(|| error.into());
    if args.as_process {
        pinrail_bench::work(&spec, &open, &mut stdin().lock(), &mut stdout().lock()).map_err(failed)?;
        return Ok(Box::new(Nothing));
    }
    // Opened before the run: what cannot be written is said before minutes were spent.
    let unwritable = |path: &Path, error: &std::io::Error| Error::io(&format!("trace {}", path.display()), error);
    let mut trace = match args.trace.as_deref() {
        Some(path) => Some((path, File::create(path).map_err(|error| unwritable(path, &error))?)),
        None => None,
    };
    let mut progress = Progress::new();
    let mut see = |event: &Event<'_>| {
        progress.see(event);
        if interrupt.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    if args.sweep.is_some() {
        let sweep = pinrail_bench::prior_bytes(&spec, &open, &mut see);
        progress.end();
        return Ok(Box::new(Swept(sweep.map_err(failed)?)));
    }
    let processes = Processes { count: args.processes, skew: args.skew, command: &one_of_several };
    let several = (args.processes > 1).then_some(&processes);
    let results = pinrail_bench::run(&spec, &open, several, &mut see);
    progress.end();
    let results = results.map_err(failed)?;
    if let Some((path, to)) = &mut trace {
        let text = pinrail_bench::chrome(&results).to_string();
        to.write_all(text.as_bytes()).map_err(|error| unwritable(path, &error))?;
    }
    Ok(Box::new(Measured(results)))
}

/// This program once more, with the same arguments.
fn one_of_several() -> Command {
    // Where the program cannot be found again, starting it says so.
    let mut command = Command::new(std::env::current_exe().unwrap_or_default());
    command.args(std::env::args_os().skip(1).filter(|argument| argument != "--json")).arg("--as-process");
    // Ctrl-C of a terminal is for the first process, which lets the others end their trial.
    command.process_group(0);
    command
}

impl RunArgs {
    fn spec(&self, batch: &BatchArgs) -> Result<Spec, Error> {
        let cores = policy::usable_cores();
        let mut variants = Vec::new();
        for name in &self.references {
            variants.push(Variant::reference(name)?);
        }
        for spec in &self.policies {
            variants.push(Variant::policy(spec, cores)?);
        }
        if variants.is_empty() && self.sweep.is_none() {
            let message = "there is nothing to compare: name policies (--policy) or references (--reference)";
            return Err(Error::usage(message));
        }
        if self.skew.is_some() && self.processes < 2 {
            return Err(Error::usage("--skew is about one of several processes: it needs --processes 2 or more"));
        }
        Ok(Spec {
            backend: self.backend.to_string(),
            batch_name: batch.batch.to_string_lossy().into_owned(),
            batch: batch::on_pages(batch.read()?, self.pages),
            memory: self.memory.unwrap_or(if self.sweep.is_some() { MemoryState::Resident } else { MemoryState::Untouched }),
            pages: self.pages,
            variants,
            trials: self.trials,
            seed: self.seed,
            cores,
            clock: Clock::wall(),
        })
    }
}

impl From<BenchError> for Error {
    fn from(error: BenchError) -> Error {
        match error {
            BenchError::Plan(error) => error.into(),
            error => Diagnosis::into(error.diagnosis()),
        }
    }
}

/// How far it is: a line that changes on a terminal, a line a block elsewhere.
struct Progress {
    terminal: bool,
    /// Trials of the block so far: name and milliseconds.
    block: Vec<String>,
}

impl Progress {
    fn new() -> Progress {
        Progress { terminal: stderr().is_terminal(), block: Vec::new() }
    }

    fn see(&mut self, event: &Event<'_>) {
        match event {
            Event::WarmUp { name } if self.terminal => self.show(&format!("warming up: {name}")),
            Event::Trial { block, blocks, name, stages } => {
                let ms = stages.total_s * 1e3;
                if self.terminal {
                    return self.show(&format!("trial {} of {blocks}: {name} {ms:.1} ms", block + 1));
                }
                if self.block.first().is_some_and(|first| !first.starts_with(&format!("trial {} ", block + 1))) {
                    self.end();
                }
                if self.block.is_empty() {
                    self.block.push(format!("trial {} of {blocks}, total in ms:", block + 1));
                }
                self.block.push(format!("{name} {ms:.1}"));
            }
            _ => {}
        }
    }

    fn show(&self, line: &str) {
        // A terminal that went away is no reason to stop measuring.
        write!(stderr().lock(), "\r\x1b[K{line}").ok();
        stderr().flush().ok();
    }

    fn end(&mut self) {
        if self.terminal {
            return self.show("");
        }
        let block = std::mem::take(&mut self.block);
        if let Some((head, trials)) = block.split_first() {
            writeln!(stderr().lock(), "{head} {}", trials.join(", ")).ok();
        }
    }
}

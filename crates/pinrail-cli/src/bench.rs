//! `pinrail bench`: compares policies and references on real registrations.

use std::cell::RefCell;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::ops::ControlFlow;

use pinrail_bench::{BenchError, Event, MemoryState, Results, Spec, Variant};
use pinrail_core::Diagnosis;
use pinrail_memory::Pages;

use crate::args::{BatchArgs, MachineArgs};
use crate::backend::{Backend, Opened};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::{batch, policy};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who registers: uring, libfabric, libfabric:PROVIDER (as in libfabric:tcp), verbs.
    #[arg(long, value_name = "BACKEND")]
    backend: Backend,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// The state of the memory before the clock starts.
    #[arg(long, value_name = "STATE", default_value = "untouched", value_parser = memory_state)]
    memory: MemoryState,
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

pub(crate) fn run(args: &Args) -> Result<Measured, Error> {
    let interrupt = Interrupt::listen()?;
    let spec = args.spec()?;
    let wanted = args.machine.read()?;
    // An error of the command's own keeps its exit code past the library, which knows diagnoses only.
    let own = RefCell::new(None);
    let open = || {
        let opened = args.backend.open(wanted.clone()).and_then(|Opened { registrar, mut machine }| {
            spec.batch.limit_rails(&mut machine)?;
            Ok(pinrail_bench::Opened { registrar, machine, notes: Vec::new(), cached: false })
        });
        opened.map_err(|error| {
            let diagnosis = (*error.diagnosis).clone();
            *own.borrow_mut() = Some(error);
            diagnosis
        })
    };
    let mut progress = Progress::new();
    let mut see = |event: &Event<'_>| {
        progress.see(event);
        if interrupt.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let results = pinrail_bench::run(&spec, &open, &mut see);
    progress.end();
    results.map(Measured).map_err(|error| own.take().unwrap_or_else(|| error.into()))
}

impl Args {
    fn spec(&self) -> Result<Spec, Error> {
        let cores = policy::usable_cores();
        let mut variants = Vec::new();
        for name in &self.references {
            variants.push(Variant::reference(name)?);
        }
        for spec in &self.policies {
            variants.push(Variant::policy(spec, cores)?);
        }
        if variants.is_empty() {
            let message = "there is nothing to compare: name policies (--policy) or references (--reference)";
            return Err(Error::usage(message));
        }
        Ok(Spec {
            backend: self.backend.to_string(),
            batch_name: self.batch.batch.to_string_lossy().into_owned(),
            batch: batch::on_pages(self.batch.read()?, self.pages),
            memory: self.memory,
            pages: self.pages,
            variants,
            trials: self.trials,
            seed: self.seed,
            cores,
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

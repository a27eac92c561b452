//! The deployed shape: several processes register at once, one engine each, and the slowest is the result.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use pinrail_core::batch::{BatchSpec, BufferSpec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::error::BenchError;
use crate::run::{Here, Trials, Tried};
use crate::spec::Spec;
use crate::trial::{Open, Purpose};

/// Several processes that register at once.
pub struct Processes<'p> {
    /// How many.
    pub count: u32,
    /// What the first of them does otherwise.
    pub skew: Option<Skew>,
    /// A process that calls [`work`] on its standard input and output with the same [`Spec`].
    pub command: &'p dyn Fn() -> Command,
}

/// What one process, the first, does otherwise than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Skew {
    /// It starts late: after half of the time that the slowest took in the warm-up.
    Late,
    /// It has the batch four times.
    Heavy,
    /// It opens rails and has memory, and registers nothing.
    Idle,
}

/// What Ctrl-C sends.
const SIGINT: i32 = 2;

/// How many times a heavy process has the batch.
const HEAVY: u32 = 4;

impl FromStr for Skew {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Skew, BenchError> {
        match text {
            "late" => Ok(Skew::Late),
            "heavy" => Ok(Skew::Heavy),
            "idle" => Ok(Skew::Idle),
            _ => Err(BenchError::Usage { what: format!("skew {text:?} is none of late, heavy and idle") }),
        }
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Skew::Late => "late",
            Skew::Heavy => "heavy",
            Skew::Idle => "idle",
        })
    }
}

impl Processes<'_> {
    /// How many times all processes together have the batch.
    pub(crate) fn batches(&self) -> u64 {
        let more = if self.skew == Some(Skew::Heavy) { HEAVY - 1 } else { 0 };
        u64::from(self.count) + u64::from(more)
    }
}

/// What a process is told first.
#[derive(Serialize, Deserialize)]
struct Task {
    variant: usize,
    purpose: Purpose,
    skew: Option<Skew>,
}

/// What it is told when all are ready.
#[derive(Serialize, Deserialize)]
struct Go {
    after_s: f64,
}

/// What it answers, twice: ready, and what it did.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Ready,
    Tried(Box<Tried>),
    Failed(String),
}

/// The trials of a run, each in processes of its own.
pub(crate) struct Crowd<'c> {
    pub(crate) processes: &'c Processes<'c>,
    /// By variant: half of what the slowest process took in the warm-up.
    pub(crate) half_s: Vec<f64>,
}

impl Trials for Crowd<'_> {
    fn try_once(&mut self, variant: usize, purpose: Purpose) -> Result<Vec<Tried>, BenchError> {
        let skew = |process: u32| self.processes.skew.filter(|_| process == 0);
        let mut members = Vec::new();
        for process in 0..self.processes.count {
            let mut member = Member::start(process, (self.processes.command)())?;
            member.tell(&Task { variant, purpose, skew: skew(process) })?;
            members.push(member);
        }
        for member in &mut members {
            match member.answer()? {
                Answer::Ready => {}
                _ => return Err(member.failed("it did not get ready")),
            }
        }
        for member in &mut members {
            let late = skew(member.process) == Some(Skew::Late) && purpose == Purpose::Measure;
            let after_s = if late { self.half_s[variant] } else { 0.0 };
            member.tell(&Go { after_s })?;
        }
        let mut tried = Vec::new();
        for member in &mut members {
            match member.answer()? {
                Answer::Tried(of) => tried.push(*of),
                _ => return Err(member.failed("it told nothing of its trial")),
            }
        }
        if purpose == Purpose::WarmUp {
            self.half_s[variant] = tried.iter().map(|of| of.trial.stages.total_s).fold(0.0, f64::max) / 2.0;
        }
        Ok(tried)
    }
}

/// One process of a trial. Dropped early, it sees the end of its input and ends; it is waited for in any case.
struct Member {
    process: u32,
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Member {
    fn start(process: u32, mut command: Command) -> Result<Member, BenchError> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            spawned.map_err(|error| BenchError::Process { process, what: format!("it cannot be started: {error}") })?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to), Some(from)) => Ok(Member { process, child, to: Some(to), from: BufReader::new(from) }),
            _ => Err(BenchError::Process { process, what: "it has no pipes".to_owned() }),
        }
    }

    fn failed(&self, what: &str) -> BenchError {
        BenchError::Process { process: self.process, what: what.to_owned() }
    }

    fn tell(&mut self, message: &impl Serialize) -> Result<(), BenchError> {
        if self.to.as_mut().is_some_and(|to| write_line(to, message).is_ok()) {
            return Ok(());
        }
        // Why it is gone it has told, or its standard error has.
        self.answer().and_then(|_| Err(self.failed("it ended early")))
    }

    fn answer(&mut self) -> Result<Answer, BenchError> {
        match read_line(&mut self.from) {
            Ok(Some(Answer::Failed(what))) => Err(self.failed(&what)),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => {
                drop(self.to.take());
                let status = self.child.wait().map_err(BenchError::Host)?;
                if status.signal() == Some(SIGINT) {
                    // Ctrl-C can reach a process that has only just begun and does not listen yet.
                    return Err(BenchError::Cancelled);
                }
                Err(self.failed(&format!("it ended without a word ({status})")))
            }
            Err(what) => Err(self.failed(&what)),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.to.take());
        // It deregisters, and ends by itself when its input does; nobody is left behind.
        self.child.wait().ok();
    }
}

/// What a process of [`Processes`] does: one trial, as the other end of `input` and `output` says. Ends early, and quietly,
/// when `input` does.
///
/// # Errors
/// What could not be written. A trial that fails is told to the other end.
pub fn work(spec: &Spec, open: &Open<'_>, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<(), BenchError> {
    let Some(Task { variant, purpose, skew }) = read_line(input).map_err(|what| BenchError::Usage { what })? else {
        return Ok(());
    };
    let spec = match skew {
        Some(Skew::Heavy) => Spec { batch: repeated(&spec.batch), ..spec.clone() },
        _ => spec.clone(),
    };
    let mut here = Here::new(&spec, open, crate::check::Check::ALL.into())?;
    let (mut went, mut late_s) = (true, 0.0);
    let mut ready = || {
        write_line(output, &Answer::Ready).map_err(BenchError::Host)?;
        match read_line::<Go>(input).map_err(|what| BenchError::Usage { what })? {
            Some(Go { after_s }) => {
                late_s = wait(after_s);
                Ok(())
            }
            None => {
                went = false;
                Err(BenchError::Cancelled)
            }
        }
    };
    let tried = match skew {
        Some(Skew::Idle) => here.idle(&mut ready),
        _ => here.once(variant, purpose, &mut ready),
    };
    if !went {
        return Ok(());
    }
    let answer = match tried {
        Ok(mut tried) => {
            tried.trial.late_s = late_s;
            Answer::Tried(Box::new(tried))
        }
        Err(error) => Answer::Failed(error.to_string()),
    };
    write_line(output, &answer).map_err(BenchError::Host)
}

/// Waits at least so long; the seconds that it was.
fn wait(seconds: f64) -> f64 {
    let clock = Clock::wall().start();
    while let Some(rest) = Some(seconds - clock.seconds()).filter(|rest| *rest > 0.0) {
        thread::park_timeout(Duration::from_secs_f64(rest));
    }
    clock.seconds()
}

/// The batch several times over, each time in allocations of its own.
fn repeated(batch: &BatchSpec) -> BatchSpec {
    let copy = |nth: u32| {
        let rename = move |buffer: &BufferSpec| BufferSpec {
            name: format!("{}-{nth}", buffer.name),
            allocation: buffer.allocation.as_ref().map(|name| format!("{name}-{nth}")),
            addr: None,
            ..buffer.clone()
        };
        batch.buffers.iter().map(rename)
    };
    BatchSpec { buffers: (0..HEAVY).flat_map(copy).collect(), rail_limits: batch.rail_limits.clone() }
}

fn write_line(to: &mut dyn Write, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// The next message; `None` at the end.
fn read_line<T: DeserializeOwned>(from: &mut dyn BufRead) -> Result<Option<T>, String> {
    let mut line = String::new();
    match from.read_line(&mut line) {
        // Also in the middle of a line: who was killed while it wrote has not answered.
        Ok(_) if !line.ends_with('\n') => Ok(None),
        Ok(_) => serde_json::from_str(&line).map(Some).map_err(|error| format!("its message is none: {error}")),
        Err(error) => Err(format!("its messages cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heavy_process_has_every_buffer_four_times() {
        let batch = BatchSpec::shape("3x4096").unwrap();
        let heavy = repeated(&batch);
        assert_eq!((heavy.buffers.len(), heavy.bytes()), (12, Some(4 * 3 * 4096)));
        assert!(heavy.layout().is_ok(), "names are unique");
    }

    #[test]
    fn a_skew_reads_back() {
        for skew in [Skew::Late, Skew::Heavy, Skew::Idle] {
            assert_eq!(skew.to_string().parse::<Skew>().unwrap(), skew);
        }
        assert!("".parse::<Skew>().is_err());
    }
}

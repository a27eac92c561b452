//! All that is printed. Nothing else in this crate writes to standard output.
//!
//! With `--json` standard output has one document, an error too; without, results go to standard output and errors to
//! standard error. Notes are for people and go to standard error in both.

mod bench;
mod failure;
mod plan;
mod run;
mod sim;
mod table;
#[cfg(feature = "topology")]
mod topo;

use std::io::{self, Write, stderr, stdout};
use std::process::ExitCode;

use clap::error::ErrorKind as Wrong;
use pinrail_core::{Rail, RailId};
use serde_json::{Value, json};

use crate::error::Error;

/// What a command answers.
pub(crate) trait Document {
    /// For programs.
    fn json(&self) -> Value;

    /// For people, on lines of at most `width` characters where words and numbers allow it.
    fn human(&self, to: &mut dyn Write, width: usize) -> io::Result<()>;

    /// What failed, where there is a result all the same.
    fn failure(&self) -> Option<&Error> {
        None
    }
}

/// What a command answers, or why it has no answer.
pub(crate) type Answer = Result<Box<dyn Document>, Error>;

/// For whom it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Human,
    Json,
}

impl Form {
    pub(crate) fn of(json: bool) -> Form {
        if json { Form::Json } else { Form::Human }
    }

    /// Prints what a command answered; the process's exit code.
    pub(crate) fn show(self, answer: Answer) -> ExitCode {
        match answer {
            Err(error) => self.show_error(&error),
            Ok(document) => {
                let failure = document.failure();
                let written = match self {
                    Form::Human => print(|to| document.human(to, width())),
                    Form::Json => {
                        let mut whole = document.json();
                        if let Some(error) = failure {
                            whole["error"] = failure::json(&error.diagnosis);
                        }
                        print(|to| writeln!(to, "{whole}"))
                    }
                };
                if let (Some(error), Form::Human) = (failure, self) {
                    failure::human(&error.diagnosis);
                }
                written.unwrap_or_else(|| ExitCode::from(failure.map_or(0, |error| error.exit)))
            }
        }
    }

    /// Prints what is wrong with the arguments, or the help that they asked for.
    pub(crate) fn show_usage(self, wrong: &clap::Error) -> ExitCode {
        match wrong.kind() {
            Wrong::DisplayHelp | Wrong::DisplayVersion => {
                print(|to| write!(to, "{}", wrong.render())).unwrap_or(ExitCode::SUCCESS)
            }
            _ => self.show_error(&failure::of_arguments(&wrong.render().to_string())),
        }
    }

    fn show_error(self, error: &Error) -> ExitCode {
        let written = match self {
            Form::Human => {
                failure::human(&error.diagnosis);
                None
            }
            Form::Json => print(|to| writeln!(to, "{}", json!({ "error": failure::json(&error.diagnosis) }))),
        };
        written.unwrap_or(ExitCode::from(error.exit))
    }
}

/// Says what was wanted and could not be had, on standard error.
pub(crate) fn note(notes: &[String]) {
    const SHOWN: usize = 3;
    let mut to = stderr().lock();
    for note in notes.iter().take(SHOWN) {
        writeln!(to, "note: {note}").ok();
    }
    if notes.len() > SHOWN {
        writeln!(to, "note: and {} more like these", notes.len() - SHOWN).ok();
    }
}

/// Writes to standard output, whole or not at all as far as that lies with us; an exit code where that failed. Whoever
/// reads may stop reading: that is no failure.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Option<ExitCode> {
    let mut text = Vec::new();
    let written = write(&mut text).and_then(|()| {
        let mut to = stdout().lock();
        to.write_all(&text)?;
        to.flush()
    });
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let error = Error::io("standard output", &error);
            failure::human(&error.diagnosis);
            Some(ExitCode::from(error.exit))
        }
        _ => None,
    }
}

/// So many of something.
fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Some of a machine's rails by name.
fn names(all: &[Rail], chosen: &[RailId]) -> String {
    const SHOWN: usize = 32;
    if chosen.len() > 1 && chosen.len() == all.len() {
        return format!("all {}", chosen.len());
    }
    let shown: Vec<&str> = chosen.iter().take(SHOWN).map(|rail| all[rail.index()].name.as_str()).collect();
    let hidden = if chosen.len() > SHOWN { format!(" … ({} in all)", chosen.len()) } else { String::new() };
    format!("{}{hidden}", shown.join(" "))
}

/// How wide the terminal is; what is no terminal has room for everything.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(usize::MAX)
}

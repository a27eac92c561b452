//! `cargo xtask sim`: the engine's logic in virtual time, a world of things that go wrong for each seed.

use std::process::ExitCode;

use crate::workspace::Workspace;
use crate::{Result, command::Line};

/// So many of the seeds also run in the build that checks arithmetic, which must do the same.
const IN_BOTH_BUILDS_MAX: u64 = 200;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    seeds: u64,
    from: u64,
}

impl Asked {
    /// `None` where it is not understood.
    pub(crate) fn parse(given: &[&str]) -> Option<Asked> {
        let (mut seeds, mut from) = (None, None);
        for pair in given.chunks(2) {
            let &[option, number] = pair else { return None };
            let place = match option {
                "--seeds" => &mut seeds,
                "--from" => &mut from,
                _ => return None,
            };
            if place.replace(number.parse().ok()?).is_some() {
                return None;
            }
        }
        Some(Asked { seeds: seeds.filter(|seeds| *seeds > 0)?, from: from.unwrap_or(0) })
    }
}

pub(crate) fn run(workspace: &Workspace, asked: &Asked) -> Result<ExitCode> {
    std::env::set_current_dir(&workspace.root).map_err(|why| format!("cannot enter the workspace: {why}"))?;
    let few = asked.seeds.min(IN_BOTH_BUILDS_MAX);
    let (checked, released) = (traced(&line(false, few, asked.from))?, traced(&line(true, few, asked.from))?);
    if let (Some(checked), Some(released)) = (&checked, &released)
        && checked != released
    {
        println!("the builds differ: trace {checked} with checked arithmetic, {released} released");
        return Ok(ExitCode::FAILURE);
    }
    let all = line(true, asked.seeds, asked.from);
    println!("$ {all}");
    let passed = all.show()?.success() && checked.is_some() && released.is_some();
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(is_released: bool, seeds: u64, from: u64) -> Line {
    let line = Line::new("cargo run --quiet --locked --package pinrail-engine --features testing --example seeds");
    let line = if is_released { line.word("--release") } else { line };
    line.word("--").word(seeds.to_string()).word(from.to_string())
}

/// The trace of a run that kept every promise; what a run says that did not is shown.
fn traced(line: &Line) -> Result<Option<String>> {
    println!("$ {line}");
    let (succeeded, said) = line.said()?;
    print!("{said}");
    Ok(trace_of(&said).filter(|_| succeeded))
}

fn trace_of(said: &str) -> Option<String> {
    let (_, trace) = said.lines().find_map(|line| line.split_once(" trace "))?;
    Some(trace.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_asked_for_by_number() {
        assert_eq!(Asked::parse(&["--seeds", "10", "--from", "7"]), Some(Asked { seeds: 10, from: 7 }));
        assert_eq!(Asked::parse(&["--seeds", "1"]), Some(Asked { seeds: 1, from: 0 }));
        for wrong in
            [&[][..], &["--from", "1"], &["--seeds"], &["--seeds", "0"], &["--seeds", "-1"], &["--seeds", "1", "--seeds", "2"]]
        {
            assert_eq!(Asked::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_trace_is_read_from_what_the_program_says() {
        let said = "200 seeds from 0: 0 broke a promise, 7 calls, trace 00ff\n0.1 s on 2 cores, 2000 seeds a second\n";
        assert_eq!(trace_of(said).as_deref(), Some("00ff"));
        assert_eq!(trace_of("error: could not compile"), None);
    }
}

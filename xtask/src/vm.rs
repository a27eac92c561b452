//! `cargo xtask vm`: a Debian kernel in QEMU with soft-RoCE devices, and the host's root, read-only, as its own. So what
//! is built here runs there, with real libibverbs and a real kernel behind it, and nothing is copied.

mod initrd;
mod kernel;
mod machine;
mod packages;
mod suite;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kernel::Kernel;
use suite::{Built, SUITES};

use crate::steps::SKIPPED;
use crate::workspace::Workspace;
use crate::{Result, clock, command::Line};

/// The guest's second part, in its shared folder.
const GUEST: &str = include_str!("../vm/guest");

/// Seconds after which a guest is stopped. The suites take a tenth of it on two idle cores, and half where ten other jobs run.
const GUEST_S_MAX: u32 = 600;

/// What the command was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked<'a> {
    /// Rails of the guest; `None` for the suites' own choice.
    rails: Option<u8>,
    install: bool,
    /// What to run in the place of the suites.
    command: Option<&'a [&'a str]>,
}

impl<'a> Asked<'a> {
    /// `None` where the arguments are wrong.
    pub(crate) fn parse(mut arguments: &'a [&'a str]) -> Option<Asked<'a>> {
        let mut asked = Asked { rails: None, install: true, command: None };
        loop {
            arguments = match arguments {
                [] => return Some(asked),
                ["--", command @ ..] if !command.is_empty() => {
                    asked.command = Some(command);
                    return Some(asked);
                }
                ["--rails", rails, rest @ ..] => {
                    asked.rails = Some(rails.parse().ok().filter(|rails| (1..=machine::RAILS_MAX).contains(rails))?);
                    rest
                }
                ["--no-install", rest @ ..] => {
                    asked.install = false;
                    rest
                }
                _ => return None,
            };
        }
    }
}

/// Boots a guest for the command, or one for the suites on one rail and one on four.
pub(crate) fn run(workspace: &Workspace, asked: &Asked<'_>) -> Result<ExitCode> {
    std::env::set_current_dir(&workspace.root).map_err(|why| format!("cannot enter the workspace: {why}"))?;
    let folder = workspace.target.join("xtask-vm");
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let kernel = match packages::get(&folder, asked.install).and_then(|()| Kernel::get(&folder)) {
        Ok(kernel) => kernel,
        Err(why) => {
            println!("skipped: there is no virtual machine here: {why}");
            return Ok(ExitCode::from(SKIPPED));
        }
    };
    if let Some(command) = asked.command {
        let root = Line::new("cd").word(workspace.root.to_string_lossy());
        let script = format!("{root}\n{}\n", Line::new("").words(command.iter().copied()));
        let guest = Guest::run(&kernel, &folder.join("command"), asked.rails.unwrap_or(1), &script)?;
        return Ok(ExitCode::from(guest.status));
    }
    let suites: Vec<Built> = SUITES.iter().map(suite::Suite::build).collect::<Result<_>>()?;
    let (mut all_passed, mut tests) = (true, 0);
    for rails in asked.rails.map_or_else(|| vec![1, 4], |rails| vec![rails]) {
        let started = clock::now();
        let share = folder.join(format!("rails-{rails}"));
        let suites: Vec<&Built> = suites.iter().filter(|suite| suite.rails_min <= rails).collect();
        let guest = Guest::run(&kernel, &share, rails, &suite::command(&suites, &machine::nodes(rails)))?;
        let took = started.elapsed().as_secs_f64();
        for suite in suites {
            let log = guest.share.join(format!("{}.log", suite.name));
            let said = fs::read_to_string(&log).map_err(|why| format!("{}: {why}", log.display()))?;
            if let Err(why) = suite::judge(suite, &said) {
                println!("{said}{why}; its output is above and in {}", log.display());
                all_passed = false;
            } else {
                // In the words of the test runner, so that it is counted with the others.
                println!(
                    "Summary [{took:>8.3}s] {0} tests run: {0} passed, 0 skipped (all {0} of {1}, in a guest with rails: {rails})",
                    suite.tests, suite.name
                );
                tests += suite.tests;
            }
        }
        all_passed &= guest.status == 0;
    }
    println!("{tests} tests passed in the guests{}", if all_passed { ": all that their programs list here" } else { "" });
    Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A guest that has run.
struct Guest {
    share: PathBuf,
    /// What its command ended with.
    status: u8,
}

impl Guest {
    /// Boots a machine that runs a shell script and ends; its console is ours.
    fn run(kernel: &Kernel, share: &Path, rails: u8, script: &str) -> Result<Guest> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |why: std::io::Error| format!("{path}: {why}")
        };
        if share.exists() {
            fs::remove_dir_all(share).map_err(failed(share))?;
        }
        fs::create_dir(share).map_err(failed(share))?;
        for (name, contents) in [("guest", GUEST), ("command", script)] {
            fs::write(share.join(name), contents).map_err(failed(&share.join(name)))?;
        }
        let initrd = share.join("initrd");
        kernel.initrd(&initrd)?;
        let machine = machine::qemu(&kernel.image(), &initrd, share, rails);
        let line = Line::new("timeout --kill-after 5").word(GUEST_S_MAX.to_string()).words(machine.into_words());
        println!("$ {line}");
        let ended = line.show()?;
        // QEMU's own status tells nothing of the guest's, which may have panicked.
        let status = share.join("status");
        let status = fs::read_to_string(&status).map_err(|_| format!("the guest did not come to its end (`{line}`: {ended})"))?;
        let status = status.trim().parse().map_err(|_| format!("the guest's status {status:?} is none"))?;
        Ok(Guest { share: share.to_owned(), status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_others_refused() {
        let asked = |rails, install, command| Some(Asked { rails, install, command });
        assert_eq!(Asked::parse(&[]), asked(None, true, None));
        assert_eq!(Asked::parse(&["--rails", "4"]), asked(Some(4), true, None));
        let words = ["--no-install", "--rails", "2", "--", "ls", "--rails"];
        assert_eq!(Asked::parse(&words), asked(Some(2), false, Some(&["ls", "--rails"])));
        for wrong in [&["--"][..], &["--rails"], &["--rails", "0"], &["--rails", "9"], &["ls"]] {
            assert_eq!(Asked::parse(wrong), None, "{wrong:?}");
        }
    }
}

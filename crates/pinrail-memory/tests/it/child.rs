//! Runs one test of this binary in a process of its own: as another user, or where a limit is to be reached.
//! Such tests are ignored otherwise.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{raw, skip};

/// Runs the ignored test `name` in a child.
pub(crate) fn run(name: &str) {
    finish(name, Command::new(std::env::current_exe().unwrap()));
}

/// Runs it as the user nobody, if we may choose; without capabilities in any case.
pub(crate) fn run_as_nobody(name: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if raw::is_root() {
        command.uid(65534).gid(65534);
    }
    finish(name, command);
}

/// Runs it under `wrapper`, whose last argument is a shell line that ends in `exec "$0" "$@"`.
pub(crate) fn run_under(name: &str, wrapper: &[&str]) {
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(std::env::current_exe().unwrap());
    finish(name, command);
}

fn finish(name: &str, mut command: Command) {
    let output = match command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]).output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("{name} could not be started: {error}")),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if err.contains("SKIPPED") || !out.contains("running 1 test") && err.contains("not permitted") {
        return skip(&format!("{name}: {err}"));
    }
    assert!(output.status.success() && out.contains("1 passed"), "{name}: {}\n{out}\n{err}", output.status);
}

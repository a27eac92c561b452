//! Runs one ignored test of this binary as a process of a node.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::node::Node;
use crate::skip;

fn command(node: &Node, wrapper: &[&str], name: &str) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match wrapper {
        [] => Command::new(this),
        [program, rest @ ..] => {
            let mut command = Command::new(program);
            command.args(rest).arg(this);
            command
        }
    };
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]).current_dir(node.folder());
    command
}

/// Starts it, to be killed.
pub(crate) fn start(node: &Node, name: &str) -> Child {
    command(node, &[], name).stdout(Stdio::null()).spawn().unwrap()
}

/// Runs it to its end under `wrapper`, whose last argument is a shell line that ends in `exec "$0" "$@"`.
pub(crate) fn run(node: &Node, wrapper: &[&str], name: &str) {
    finish(command(node, wrapper, name), name);
}

/// Runs it as the user nobody; false where we may not.
pub(crate) fn run_as_nobody(node: &Node, name: &str) -> bool {
    if !is_root() {
        return false;
    }
    let mut command = command(node, &[], name);
    command.uid(65534).gid(65534);
    finish(command, name);
    true
}

/// Runs it in a namespace where a line of the shell has prepared the mounts.
pub(crate) fn run_unshared(node: &Node, line: &str, name: &str) {
    let line = format!(r#"{line} || {{ echo SKIPPED: no mount >&2; exit 0; }}; cd "$PWD"; exec "$0" "$@""#);
    run(node, &["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &line], name);
}

fn finish(mut command: Command, name: &str) {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("{name} could not be started: {error}")),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if err.contains("SKIPPED") || !out.contains("running 1 test") && err.contains("not permitted") {
        return skip(&format!("{name}: {err}"));
    }
    assert!(output.status.success() && out.contains("1 passed"), "{name}: {}\n{out}\n{err}", output.status);
}

pub(crate) fn is_root() -> bool {
    // The owner of our own entry.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0)
}

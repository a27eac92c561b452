//! Running the command, and what every run of it must fulfil.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pinrail_core::PinsCounted;
use pinrail_memory::Memlock;
use serde_json::Value;

/// The command as a user starts it: without the variables that keep libraries of this workspace's tests quiet.
pub(crate) fn pinrail() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinrail"));
    command.env_remove("IPATH_NO_BACKTRACE").env_remove("HFI_NO_BACKTRACE");
    command
}

/// What a run printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).expect("the command prints UTF-8");
        let ran = Ran { exit: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
        assert!(!ran.err.contains("panicked"), "{ran:?}");
        ran
    }
}

impl Ran {
    /// The one document of a run with --json.
    pub(crate) fn document(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error object of a failed run with --json.
    pub(crate) fn error(&self, kind: &str, exit: i32) -> Value {
        let error = self.document()["error"].clone();
        assert_eq!((error["kind"].as_str(), self.exit), (Some(kind), Some(exit)), "{self:?}");
        let fields: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["api", "buffer", "errno", "hint", "kind", "limit", "message", "need", "rail"]);
        error
    }
}

pub(crate) fn run(command: &mut Command) -> Ran {
    command.output().expect("the command starts").into()
}

/// Runs with --json, successfully; the document.
pub(crate) fn json<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Value {
    let ran = run(pinrail().args(arguments).arg("--json"));
    assert_eq!(ran.exit, Some(0), "{ran:?}");
    ran.document()
}

/// Runs what is refused, for people and for programs: one clear line, the kind, the exit code. The error object.
pub(crate) fn refused<S: AsRef<OsStr> + Copy>(arguments: &[S], kind: &str, exit: i32) -> Value {
    let human = run(pinrail().args(arguments));
    let lines: Vec<&str> = human.err.lines().collect();
    assert!(human.exit == Some(exit) && human.out.is_empty(), "{human:?}");
    assert!(
        lines[0].starts_with(&format!("error ({kind}): ")) && lines[1..].iter().all(|line| line.starts_with("hint: ")),
        "{human:?}"
    );
    assert!(lines.len() <= 2, "{human:?}");
    let program = run(pinrail().args(arguments).arg("--json"));
    assert_eq!(program.err, "", "with --json the document says all");
    let error = program.error(kind, exit);
    assert!(human.err.contains(&error["message"].as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")));
    error
}

/// A folder of a test's own, empty.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A batch file with this text.
pub(crate) fn batch(name: &str, text: &str) -> PathBuf {
    let path = folder(&format!("batch-{name}")).join("batch.json");
    fs::write(&path, text).unwrap();
    path
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Whether this process may pin that much on io_uring; says so where not.
pub(crate) fn can_pin(bytes: u64) -> bool {
    let refused = Memlock::read().unwrap().precheck(bytes, PinsCounted::User).err();
    if let Some(why) = &refused {
        eprintln!("SKIPPED: {why}");
    }
    refused.is_none()
}

//! Memlock, as an ordinary user meets it: too small a limit, and one that another process of the user has used up.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::getuid;
use serde_json::{Value, json};

use crate::signals::held;
use crate::support::run;

const LIMIT_BYTES: u64 = 8 << 20;

/// A user without CAP_IPC_LOCK and with 8 MiB of memlock. Without root it is the user who runs the tests.
pub(crate) struct User {
    uid: u32,
    /// A copy of the command where any user can start it: a build folder may be closed to others.
    command: PathBuf,
}

impl User {
    /// Each test has a user of its own, since the kernel counts what rings pin by user.
    pub(crate) fn new(uid: u32) -> User {
        let command = std::env::temp_dir().join(format!("pinrail-test-{uid}-{}", std::process::id()));
        fs::copy(env!("CARGO_BIN_EXE_pinrail"), &command).unwrap();
        fs::set_permissions(&command, PermissionsExt::from_mode(0o755)).unwrap();
        User { uid, command }
    }

    /// As [`User::new`]; says so where only root can have users, so that nothing else is pinned by this one.
    pub(crate) fn who_pins_nothing_else(uid: u32) -> Option<User> {
        if !getuid().is_root() {
            eprintln!("SKIPPED: what one user pins in all is tested by root, who can run the command as a user of its own");
            return None;
        }
        Some(User::new(uid))
    }

    /// `register` on a ring with --json.
    pub(crate) fn register(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("prlimit");
        command.arg(format!("--memlock={LIMIT_BYTES}:{LIMIT_BYTES}"));
        if getuid().is_root() {
            command.args(["setpriv", "--clear-groups"]).arg(format!("--reuid={}", self.uid)).arg(format!("--regid={}", self.uid));
        }
        command.arg(&self.command).args(["register", "--backend", "uring", "--json"]).args(arguments);
        command
    }
}

impl Drop for User {
    fn drop(&mut self) {
        fs::remove_file(&self.command).ok();
    }
}

#[test]
fn what_certainly_does_not_fit_is_refused_before_any_call() {
    let user = User::new(65_534);
    let ran = run(&mut user.register(&["--batch", "4x64MiB", "--rails", "2"]));
    let error = ran.error("memlock", 1);
    let rings_bytes = 2 * ring_bytes();
    assert_eq!((&error["limit"], &error["need"]), (&json!(LIMIT_BYTES), &json!(2 * 4 * (64u64 << 20) + rings_bytes)));
    assert_eq!((&error["api"], &error["errno"]), (&Value::Null, &Value::Null), "no call was made: {error}");
    assert!(error["hint"].as_str().unwrap().contains("ulimit -l"), "{error}");
    assert!(ran.err.is_empty(), "{ran:?}");
}

/// What the kernel charges for an open ring: nothing before 6.18, as far as is known.
fn ring_bytes() -> u64 {
    let rings = pinrail_uring::Uring::open(&pinrail_core::Machine::of_rails(1).rails).unwrap();
    pinrail_core::Registrar::rails(&rings)[0].own_pinned_bytes
}

/// A batch that needs all of the limit but for the rings fits, and a page more is refused before any call.
#[test]
fn what_the_rings_have_pinned_for_themselves_is_counted() {
    let Some(user) = User::who_pins_nothing_else(64_502) else { return };
    let most = LIMIT_BYTES - 2 * ring_bytes();
    let of = |bytes: u64| run(&mut user.register(&["--batch", &format!("1x{}", bytes / 2), "--rails", "2"]));
    assert_eq!(of(most).exit, Some(0));
    let error = of(most + 8192).error("memlock", 1);
    assert_eq!((&error["need"], &error["errno"]), (&json!(LIMIT_BYTES + 8192), &Value::Null), "{error}");
}

/// 6 MiB of the user's 8 are pinned by another process; this one needs 4 and has no way to know.
#[test]
fn what_another_process_has_pinned_is_met_by_the_call_and_all_is_undone() {
    let Some(user) = User::who_pins_nothing_else(64_501) else { return };
    let holder = held(|| user.register(&["--batch", "1536x4KiB", "--verify"]), 6 << 20);
    let four = ["--batch", "4x1MiB", "--policy", "capped=1"];

    let ran = run(&mut user.register(&four));
    let error = ran.error("memlock", 1);
    assert_eq!((&error["limit"], &error["need"]), (&json!(LIMIT_BYTES), &json!(1 << 20)));
    assert_eq!((&error["errno"], &error["rail"], &error["buffer"]), (&json!(12), &json!("rail0"), &json!("buffer1")), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("other processes of this user") && message.contains("(and 2 more failures)"), "{message}");
    assert!(message.ends_with("1 registrations were undone, 0 not attempted"), "{message}");

    let early = run(user.register(&four).arg("--stop-early"));
    let message = early.error("memlock", 1)["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("1 registrations were undone, 2 not attempted"), "{message}");

    let kept = run(user.register(&four).args(["--on-failure", "keep-complete", "--verify"]));
    assert_eq!(kept.error("memlock", 1)["buffer"], "buffer1");
    let ran = &kept.document()["runs"][0];
    let failed: Vec<_> = ran["failed"].as_array().unwrap().iter().map(|failed| failed["buffer"].clone()).collect();
    assert_eq!((failed, &ran["verified"]["mrs"]), (vec![json!("buffer1"), json!("buffer2"), json!("buffer3")], &json!(1)));
    drop(holder);
}

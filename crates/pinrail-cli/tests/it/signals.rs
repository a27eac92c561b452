//! Ctrl-C and kill -9, in the middle.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::limits::User;
use crate::support::{Ran, can_pin, folder, pinrail, run};

/// A run of the command that is ended with the test at the latest.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts"))
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// A file of the kernel's about it; nothing once it has ended.
    fn proc(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap_or_default()
    }

    /// True once it has ended, also where nobody has looked yet.
    pub(crate) fn has_ended(&self) -> bool {
        let stat = self.proc("stat");
        stat.is_empty() || stat.contains(") Z ")
    }

    fn pinned_bytes(&self) -> u64 {
        let status = self.proc("status");
        let kib = status.lines().find_map(|line| line.strip_prefix("VmPin:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }

    /// True once it has pinned that much, false if it ended or let go before that was seen.
    pub(crate) fn pins(&self, bytes: u64) -> bool {
        loop {
            match self.pinned_bytes() {
                pinned if pinned >= bytes => return true,
                _ if self.has_ended() => return false,
                _ => std::thread::yield_now(),
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn end(mut self) -> Ran {
        let taken = (self.0.stdout.take(), self.0.stderr.take());
        let read = |pipe: Option<&mut dyn std::io::Read>| {
            let mut bytes = Vec::new();
            pipe.expect("piped").read_to_end(&mut bytes).unwrap();
            bytes
        };
        let (mut out, mut err) = taken;
        let stdout = read(out.as_mut().map(|pipe| pipe as _));
        let stderr = read(err.as_mut().map(|pipe| pipe as _));
        std::process::Output { status: self.0.wait().unwrap(), stdout, stderr }.into()
    }
}

/// A run that is stopped while it holds at least that many bytes pinned.
pub(crate) fn held(command: impl Fn() -> Command, bytes: u64) -> Running {
    // On a busy machine a whole run may pass between two looks.
    for _ in 0..50 {
        let running = Running::start(&mut command());
        if running.pins(bytes) {
            running.send(Signal::STOP);
            while !running.proc("stat").contains(") T ") && !running.proc("stat").contains(") Z ") {
                std::thread::yield_now();
            }
            if running.pinned_bytes() >= bytes {
                return running;
            }
        }
    }
    panic!("50 runs and none was caught while it held {bytes} bytes pinned");
}

#[expect(clippy::disallowed_methods, reason = "how long the kernel took is what is tested")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The processes whose parent it is.
pub(crate) fn children(pid: u32) -> Vec<String> {
    let stats = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let parent = |stat: &String| stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok();
    stats.filter(|stat| parent(stat) == Some(pid)).collect()
}

/// Open files that would have a name on a disk.
fn open_files(pid: u32) -> Vec<String> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let links = links.map(|link| link.display().to_string());
    let of_the_kernel = |link: &String| ["/dev/", "/proc/", "/memfd:"].iter().any(|start| link.starts_with(start));
    links.filter(|link| link.starts_with('/') && !of_the_kernel(link)).collect()
}

/// A user with 8 MiB of memlock registers nearly 6: what the kernel kept of the first run would not leave room for the
/// second.
#[test]
fn kill_9_in_the_middle_leaves_nothing_and_the_batch_can_be_registered_again() {
    let Some(user) = User::who_pins_nothing_else(64_502) else { return };
    const BATCH: [&str; 3] = ["--batch", "1500x4KiB", "--verify"];
    let folder = folder("killed");
    let command = || {
        let mut command = user.register(&BATCH);
        command.current_dir(&folder).env("HOME", &folder).env("TMPDIR", &folder);
        command
    };
    let running = held(command, 4 << 20);
    let pid = running.id();
    assert_eq!((children(pid), open_files(pid)), (Vec::new(), Vec::new()));
    running.send(Signal::KILL);
    let killed = running.end();
    assert_eq!(killed.exit, None, "ended by the signal: {killed:?}");
    let since = now();
    let again = loop {
        let again = run(&mut user.register(&BATCH));
        if again.exit == Some(0) || since.elapsed() > Duration::from_secs(1) {
            break again;
        }
    };
    assert_eq!(again.document()["runs"][0]["verified"]["mrs"], 1500, "{again:?}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "a file was left");
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// How many registrations were undone, and how many not attempted.
fn undone(error: &serde_json::Value) -> (u64, u64) {
    let message = error["message"].as_str().unwrap();
    let counts = message.strip_prefix("cancelled; ").and_then(|rest| rest.strip_suffix(" not attempted"));
    let counts = counts.and_then(|counts| counts.split_once(" registrations were undone, "));
    let (undone, not_attempted) = counts.unwrap_or_else(|| panic!("{message}"));
    (undone.parse().unwrap(), not_attempted.parse().unwrap())
}

#[test]
fn ctrl_c_ends_what_is_in_flight_and_undoes_the_rest_however_often_it_is_pressed() {
    if !can_pin(8 << 30) {
        return;
    }
    for presses in [1, 3] {
        let arguments =
            ["register", "--backend", "uring", "--batch", "kimi-k3/8", "--rails", "4", "--policy", "capped=1", "--json"];
        let running = Running::start(pinrail().args(arguments));
        assert!(running.pins(1 << 20), "it ended before it was interrupted");
        for _ in 0..presses {
            running.send(Signal::INT);
        }
        let ran = running.end();
        let (undone, not_attempted) = undone(&ran.error("cancelled", 130));
        assert!(undone > 0 && not_attempted > 0, "{undone} undone, {not_attempted} not attempted");
        assert!(undone + not_attempted <= 728 && ran.err.is_empty(), "{ran:?}");
    }
}

#[test]
fn ctrl_c_before_anything_is_registered_says_so() {
    if !can_pin(3 << 30) {
        return;
    }
    let arguments = ["register", "--backend", "uring", "--batch", "1x3GiB", "--rails", "1", "--memory", "resident", "--json"];
    let running = Running::start(pinrail().args(arguments));
    let resident = |running: &Running| {
        let status = running.proc("status");
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0)
    };
    while resident(&running) < 64 << 10 {
        std::thread::yield_now();
    }
    running.send(Signal::INT);
    let ran = running.end();
    assert_eq!(ran.error("cancelled", 130)["message"], "cancelled; nothing had been registered");
}

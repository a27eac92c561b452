//! A line on the terminal while a batch is registered.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::thread;
use std::time::Duration;

use pinrail_dispatch::Counts;
use pinrail_engine::Handle;

use crate::interrupt::Interrupt;

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(100);

/// Shows how far it is, until it is finished. Returns at once where nobody looks on.
pub(crate) fn watch(handle: &Handle, interrupt: &Interrupt) {
    if !stderr().is_terminal() {
        return;
    }
    while !handle.is_finished() {
        write(&line(handle.progress(), interrupt.came()));
        thread::park_timeout(EVERY);
    }
    write("");
}

fn line(Counts { pending, running, finished, dropped, .. }: Counts, cancelled: bool) -> String {
    let all = u64::from(pending) + u64::from(running) + u64::from(finished) + u64::from(dropped);
    match cancelled {
        false => format!("{finished} of {all} steps, {running} in flight"),
        true => format!("cancelled after {finished} of {all} steps; what was registered is being undone"),
    }
}

fn write(line: &str) {
    // A terminal that went away is no reason to stop registering.
    write!(stderr().lock(), "\r\x1b[K{line}").ok();
    stderr().flush().ok();
}

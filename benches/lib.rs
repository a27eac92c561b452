//! What the benches share: ways to hand out tasks to threads, ours and the public ones.
//!
//! Each runs a task a given number of times on a given number of threads and nothing else; what they promise differs,
//! and is said beside each.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_deque::{Injector, Steal};

/// Worker counts that are compared.
pub const WORKERS: [u32; 4] = [1, 2, 4, 16];

/// One thread for each task, all at once: what engines do that spawn per buffer. No order, no limit.
pub fn thread_per_task(tasks: usize, task: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for at in 0..tasks {
            let task = &task;
            scope.spawn(move || task(at));
        }
    });
}

/// A bounded pool that shares an index: the public state of the art. No order but the list's, no dependencies, no
/// limits but the number of threads, no record.
pub fn shared_index(workers: u32, tasks: usize, task: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    on_threads(workers, |_| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= tasks {
                return;
            }
            task(at);
        }
    });
}

/// A FIFO of crossbeam-deque. First in is about first out; no dependencies, no limits, no record.
pub fn fifo(workers: u32, tasks: usize, task: impl Fn(usize) + Sync) {
    let queue = Injector::new();
    (0..tasks).for_each(|at| queue.push(at));
    on_threads(workers, |_| {
        loop {
            match queue.steal() {
                Steal::Success(at) => task(at),
                Steal::Empty => return,
                Steal::Retry => {}
            }
        }
    });
}

/// Runs `worker` on so many threads, the caller's among them.
pub fn on_threads(workers: u32, worker: impl Fn(u32) + Sync) {
    std::thread::scope(|scope| {
        for id in 1..workers {
            let worker = &worker;
            scope.spawn(move || worker(id));
        }
        worker(0);
    });
}

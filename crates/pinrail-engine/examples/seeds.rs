//! Runs the worlds of many seeds on all cores, as `cargo xtask sim` does: `seeds COUNT FIRST`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its user")]

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use pinrail_engine::testing::seeds::{self, Found};

/// So many worlds that broke a promise are told; the first few say it all.
const TOLD_MAX: usize = 10;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Option<Vec<u64>> = given.iter().map(|number| number.parse().ok()).collect();
    let Some([count, first]) = numbers.as_deref() else {
        eprintln!("usage: seeds COUNT FIRST");
        return ExitCode::from(2);
    };
    let (count, first) = (*count, *first);
    // Panics are how a world ends that broke a promise: each is told once, below.
    std::panic::set_hook(Box::new(|_| {}));
    let (next, calls) = (AtomicU64::new(0), AtomicU64::new(0));
    // Of all hashes, whatever the order in which the seeds have run.
    let hash = AtomicU64::new(0);
    let found: Mutex<Vec<Box<Found>>> = Mutex::default();
    let started = now();
    let work = || {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= count {
                return;
            }
            match seeds::run(first.wrapping_add(nth)) {
                Ok(passed) => {
                    calls.fetch_add(passed.calls, Ordering::Relaxed);
                    hash.fetch_xor(passed.hash, Ordering::Relaxed);
                }
                Err(broke) => found.lock().unwrap_or_else(PoisonError::into_inner).push(broke),
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 1..cores {
            // A thread that cannot be had is not missed.
            drop(thread::Builder::new().spawn_scoped(scope, work));
        }
        work();
    });
    let took_s = started.elapsed().as_secs_f64();
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|broke| broke.seed);
    found.iter().take(TOLD_MAX).for_each(|broke| println!("{broke}\n"));
    #[expect(clippy::cast_precision_loss, reason = "a rate is read by people")]
    let rate = count as f64 / took_s;
    let (calls, hash) = (calls.into_inner(), hash.into_inner());
    println!("{count} seeds from {first}: {} broke a promise, {calls} calls, trace {hash:016x}", found.len());
    println!("{took_s:.1} s on {cores} cores, {rate:.0} seeds a second");
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::disallowed_methods, reason = "this program measures itself")]
fn now() -> Instant {
    Instant::now()
}

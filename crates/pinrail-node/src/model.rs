//! Threads of processes under a model checker: every interleaving of their locks, up to a few preemptions.
//!
//! `cargo xtask deep loom` builds this with `--cfg loom`. A thread that sleeps for ever is a deadlock there and fails the
//! model; time-outs never come, so that none hides a bell that was not rung.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use loom::thread;

use crate::node_file::{Kernel, NodeFile};
use crate::tokens::Tokens;
use crate::{Config, NodeBudget};

/// Each more multiplies the interleavings; the canary needs two.
const PREEMPTIONS_MAX: usize = 2;

#[allow(clippy::print_stdout, reason = "how many interleavings there were says what was proved")]
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} interleavings", runs.load(Ordering::Relaxed));
}

fn processes<const N: usize>(tokens: u32) -> [Arc<NodeBudget>; N] {
    let kernel = Arc::new(Kernel::default());
    let config = Config::new(NonZeroU32::new(tokens).unwrap());
    let mut place = 0;
    [(); N].map(|()| {
        place += 1;
        Arc::new(NodeBudget::with(config.clone(), Ok(NodeFile::of(&kernel, place))))
    })
}

/// Runs each of these in a thread, the last one here. That a count is right is the loom's business only through the code
/// under test: counters of the model are the standard library's.
fn together(threads: Vec<impl FnOnce() + Send + 'static>) {
    let mut threads: Vec<_> = threads.into_iter().collect();
    let here = threads.pop().unwrap();
    let others: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    here();
    for other in others {
        other.join().unwrap();
    }
}

/// Takes a token, looks whether more are out than there may be, and gives it back.
fn takes_one(budget: &Arc<NodeBudget>, running: &Arc<AtomicU32>, most: u32) -> impl FnOnce() + Send + 'static + use<> {
    let (budget, running) = (Arc::clone(budget), Arc::clone(running));
    move || {
        let token = budget.acquire();
        assert!(running.fetch_add(1, Ordering::SeqCst) < most, "more are running than there are tokens and processes");
        thread::yield_now();
        running.fetch_sub(1, Ordering::SeqCst);
        drop(token);
    }
}

#[test]
fn model_threads_of_one_process() {
    check(|| {
        let [process] = processes(1);
        let running = Arc::new(AtomicU32::new(0));
        together((0..3).map(|_| takes_one(&process, &running, 2)).collect());
        assert!(process.degraded().is_none());
    });
}

#[test]
fn model_two_processes_on_one_token() {
    check(|| {
        let [one, other] = processes(1);
        let running = Arc::new(AtomicU32::new(0));
        together([&one, &one, &other].map(|process| takes_one(process, &running, 3)).into());
        let all = [one.try_acquire(), one.try_acquire(), other.try_acquire()];
        assert!(all.iter().all(Option::is_some), "a token was lost");
    });
}

#[test]
fn model_both_processes_wait() {
    check(|| {
        let [one, other] = processes(1);
        let running = Arc::new(AtomicU32::new(0));
        together([&one, &one, &other, &other].map(|process| takes_one(process, &running, 3)).into());
    });
}

/// Only a process's own token comes back here, and whoever sleeps for one of the node's must hear of it.
#[test]
fn model_the_nodes_tokens_are_all_taken() {
    check(|| {
        let [one, other] = processes(1);
        let taken = [other.acquire(), other.acquire()];
        let running = Arc::new(AtomicU32::new(0));
        together((0..3).map(|_| takes_one(&one, &running, 1)).collect());
        drop(taken);
    });
}

/// A thread that gives a token back, one of its process that takes one, and another process.
fn on_a_byte(give_back: fn(&Tokens, u32)) {
    let kernel = Arc::new(Kernel::default());
    let [ours, theirs] = [1, 2].map(|place| Arc::new(Tokens::new(NodeFile::of(&kernel, place), 1)));
    let holders = Arc::new(AtomicU32::new(1));
    assert_eq!(ours.take(0), Ok(Some(0)));
    let takes = |tokens: &Arc<Tokens>| {
        let (tokens, holders) = (Arc::clone(tokens), Arc::clone(&holders));
        move || {
            if tokens.take(0) == Ok(Some(0)) {
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "a token is out twice");
                thread::yield_now();
                holders.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    let others = [takes(&ours), takes(&theirs)].map(thread::spawn);
    holders.fetch_sub(1, Ordering::SeqCst);
    give_back(&ours, 0);
    others.map(|other| other.join().unwrap());
}

#[test]
fn model_a_token_changes_hands() {
    check(|| on_a_byte(Tokens::give_back));
}

/// The canary: with bit and byte the other way round a token is out twice, or the checker sees nothing.
#[test]
#[should_panic(expected = "a token is out twice")]
fn model_canary() {
    check(|| on_a_byte(Tokens::give_back_bit_first));
}

//! Every fault at every step of a small batch, and every pair of them, under every way to run and to fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use pinrail_core::Cause;
use pinrail_engine::{Attempts, Engine, Failure, OnFailure, Options, Quarantine, Reason, Registration};

use crate::fake::{Fake, Fault, Held, Slices, Task, machine, plan, tasks};

const PAGES: [u64; 3] = [2, 1, 3];

/// What goes wrong, and where.
#[derive(Clone, Debug)]
enum Planted {
    Prepare { address: u64, panics: bool },
    Register(Task, Fault),
    Deregister(Task, Fault),
}

impl Planted {
    /// A call; of two faults at one call only one could be met.
    fn call(&self) -> (u8, Task) {
        match self {
            Planted::Prepare { address, .. } => (0, (0, *address)),
            Planted::Register(task, _) => (1, *task),
            Planted::Deregister(task, _) => (2, *task),
        }
    }
}

fn all_faults() -> Vec<Planted> {
    let tasks = tasks(&plan(&machine(2, 1), &PAGES, ""));
    let fails = || Fault::Fails(Cause::Exhausted { what: "planted".into() }, u32::MAX);
    let mut all = Vec::new();
    for &task in &tasks {
        all.extend([fails(), Fault::Panics, Fault::Fails(Cause::Again, 1)].map(|fault| Planted::Register(task, fault)));
        all.extend([fails(), Fault::Panics, Fault::Lies].map(|fault| Planted::Deregister(task, fault)));
    }
    for &(_, address) in tasks.iter().filter(|(rail, _)| *rail == 0) {
        all.extend([false, true].map(|panics| Planted::Prepare { address, panics }));
    }
    all
}

fn run(faults: &[&Planted], spec: &str, options: &Options) -> (Arc<Fake>, Result<Registration, Box<Failure>>) {
    let machine = machine(2, 1);
    let (fake, slices) = (Fake::new(&machine), Arc::new(Slices::default()));
    for fault in faults {
        match fault {
            Planted::Prepare { address, panics: false } => drop(slices.fail_at.lock().unwrap().insert(*address)),
            Planted::Prepare { address, panics: true } => drop(slices.panic_at.lock().unwrap().insert(*address)),
            Planted::Register(task, fault) => fake.fail_register(*task, fault.clone()),
            Planted::Deregister(task, fault) => fake.fail_deregister(*task, fault.clone()),
        }
    }
    let engine = Engine::new(fake.clone(), slices);
    let result = engine.register(plan(&machine, &PAGES, spec), options);
    (fake, result)
}

/// How often each task is in a list.
fn counted(tasks: Vec<Task>) -> BTreeMap<Task, u32> {
    let mut counts = BTreeMap::new();
    tasks.into_iter().for_each(|task| *counts.entry(task).or_default() += 1);
    counts
}

/// Nothing is lost: each task is in one list, what is live is held, and can be deregistered once the faults are gone.
fn check(faults: &[&Planted], spec: &str, options: &Options) {
    let of = || format!("{faults:?} {spec} {options:?}");
    let (fake, result) = run(faults, spec, options);
    let is_fatal = |fault: &&Planted| {
        matches!(fault, Planted::Prepare { .. } | Planted::Register(_, Fault::Panics | Fault::Fails(Cause::Exhausted { .. }, _)))
    };
    assert_eq!(result.is_err(), faults.iter().any(is_fatal), "{}", of());
    let held = match result {
        Ok(registration) => {
            assert_eq!(registration.live(), 6, "{}", of());
            vec![Held::Kept(registration)]
        }
        Err(failure) => {
            let failed = failure.failed.iter().filter(|failed| failed.rail.is_some()).count() as u64;
            let live =
                failure.kept.as_ref().map_or(0, Registration::live) + failure.quarantine.as_ref().map_or(0, Quarantine::live);
            let listed = failed + failure.rolled_back + failure.not_attempted + live;
            assert_eq!(listed, 6, "every task is in exactly one of the lists: {} {failure:?}", of());
            assert!(matches!(&failure.reason, Reason::Step(first) if *first == failure.failed[0]), "{}", of());
            assert!(failure.failed.is_sorted_by_key(|failed| failed.seq), "{}", of());
            Held::of(*failure)
        }
    };
    assert_eq!(held.iter().map(|held| held.live()).sum::<u64>(), fake.live() as u64, "what is live is held: {}", of());
    for held in held {
        // The faults are still there: what fails again is given back again.
        if let Err(still) = held.deregister() {
            assert_eq!(still.left.live(), fake.live() as u64, "{}", of());
            assert_eq!(still.failed.len(), fake.live(), "{}", of());
            fake.heal();
            still.left.deregister().unwrap_or_else(|still| panic!("{still}: {}", of()));
        }
    }
    assert_eq!(fake.live(), 0, "{}", of());
    assert_eq!(counted(fake.registered()), counted(fake.deregistered()), "{}", of());
}

fn ways() -> impl Iterator<Item = (&'static str, Options)> {
    let specs = ["capped=1", "unbounded", "rails-in-series+capped=2"];
    let attempts = [Attempts::All, Attempts::StopEarly];
    let on_failure = [OnFailure::RollBack, OnFailure::KeepComplete];
    specs.into_iter().flat_map(move |spec| {
        attempts
            .into_iter()
            .flat_map(move |attempts| on_failure.map(|on_failure| (spec, Options { attempts, on_failure, ..Options::default() })))
    })
}

#[test]
fn no_fault_and_no_pair_of_faults_loses_an_mr_or_a_worker() {
    let all = all_faults();
    let mut pairs = 0;
    for (spec, options) in ways() {
        check(&[], spec, &options);
        for (at, first) in all.iter().enumerate() {
            check(&[first], spec, &options);
            for second in all[at + 1..].iter().filter(|second| second.call() != first.call()) {
                check(&[first, second], spec, &options);
                pairs += 1;
            }
        }
    }
    // 42 faults at 6 registrations, 6 deregistrations (3 kinds each) and 3 preparations (2 kinds), in 12 ways.
    assert_eq!(pairs, 12 * (42 * 41 / 2 - 12 * 3 - 3));
}

/// A dropped registration asks nobody: what it cannot deregister it leaks, and nothing else.
#[test]
fn a_dropped_registration_leaks_no_more_than_what_cannot_be_deregistered() {
    let all = all_faults();
    let stuck: Vec<&Planted> = all.iter().filter(|fault| matches!(fault, Planted::Deregister(..))).collect();
    for (at, first) in stuck.iter().enumerate() {
        for second in &stuck[at..] {
            let (fake, result) = run(&[first, second], "", &Options::default());
            drop(result.unwrap());
            let tasks = [first, second].map(|fault| if let Planted::Deregister(task, _) = fault { Some(task) } else { None });
            assert_eq!(fake.live(), if tasks[0] == tasks[1] { 1 } else { 2 }, "{first:?} {second:?}");
        }
    }
}

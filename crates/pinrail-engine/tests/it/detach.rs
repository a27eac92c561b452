//! Calls that never return.

use std::sync::{Arc, Condvar, Mutex};

use pinrail_core::{Cause, Chunk, DeregisterError, Identity, Mr, Rail, RailId, RegisterError, Registrar};
use pinrail_engine::{Engine, Options, Reason};

use crate::fake::{Fake, Fault, Slices, engine, machine, plan, tasks};

#[test]
fn a_stuck_registration_is_left_behind_and_the_rest_handed_back() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let plan = plan(&machine, &[1; 3], "no-prefault+no-coalesce");
    let stuck = tasks(&plan)[2];
    let memory = plan.buffers()[1].memory.clone();
    fake.hold(stuck);
    let handle = engine(&fake).start(plan, &Options::default()).unwrap();
    // All of rail 1, and of rail 0 the first and the one that is stuck.
    fake.wait_for_calls(5);
    while handle.progress().running > 1 {
        std::thread::yield_now();
    }
    let failure = handle.detach().unwrap_err();
    assert!(matches!(failure.reason, Reason::Detached), "{failure}");
    assert_eq!(failure.stuck.len(), 1);
    assert_eq!((failure.stuck[0].buffer.as_str(), failure.stuck[0].rail.as_ref().unwrap().0), ("buffer1", RailId(0)));
    assert_eq!((failure.not_attempted, failure.rolled_back), (1, 0));
    let kept = failure.kept.unwrap();
    assert_eq!((kept.live(), fake.live()), (4, 4));
    kept.deregister().unwrap();
    // The call returns after all: what it registered is undone by whoever it kept.
    fake.release();
    while fake.deregistered().len() < 5 {
        std::thread::yield_now();
    }
    assert_eq!((fake.live(), fake.calls()), (0, 5));
    assert_eq!(memory.len(), 4096);
}

#[test]
fn nothing_stuck_is_a_cancel_that_keeps_what_is_registered() {
    let machine = machine(1, 1);
    let fake = Fake::new(&machine);
    let handle = engine(&fake).start(plan(&machine, &[1; 3], "no-coalesce"), &Options::default()).unwrap();
    while !handle.is_finished() {
        std::thread::yield_now();
    }
    assert_eq!(handle.detach().unwrap().live(), 3, "it was done before");
}

/// Deregistrations on rail 0 do not return while it is shut.
struct Shut {
    inner: Arc<Fake>,
    is_shut: Mutex<bool>,
    changed: Condvar,
}

impl Registrar for Shut {
    fn identity(&self) -> Identity {
        self.inner.identity()
    }
    fn rails(&self) -> &[Rail] {
        self.inner.rails()
    }
    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        self.inner.register(rail, chunk)
    }
    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        if mr.rail() == RailId(0) {
            let shut = self.is_shut.lock().unwrap();
            drop(self.changed.wait_while(shut, |shut| *shut).unwrap());
        }
        self.inner.deregister(mr)
    }
}

#[test]
fn a_rollback_that_is_stuck_is_left_behind_too() {
    let machine = machine(2, 1);
    let fake = Fake::new(&machine);
    let shut = Arc::new(Shut { inner: Arc::clone(&fake), is_shut: Mutex::new(true), changed: Condvar::new() });
    let plan = plan(&machine, &[1; 3], "no-prefault+no-coalesce");
    fake.fail_register(tasks(&plan)[5], Fault::Fails(Cause::Exhausted { what: "planted".into() }, u32::MAX));
    let handle = Engine::new(shut.clone(), Arc::new(Slices::default())).start(plan, &Options::default()).unwrap();
    // Two of rail 1 are undone; of three on rail 0 one is stuck, and two wait for their turn.
    while fake.deregistered().len() < 2 {
        std::thread::yield_now();
    }
    let failure = handle.detach().unwrap_err();
    assert!(matches!(failure.reason, Reason::Step(_)), "{failure}");
    let left = failure.quarantine.as_ref().unwrap().live();
    assert_eq!(failure.stuck.len() as u64 + left, 3);
    assert_eq!(failure.rolled_back, 2);
    *shut.is_shut.lock().unwrap() = false;
    shut.changed.notify_all();
    failure.quarantine.unwrap().deregister().unwrap();
    while fake.live() > 0 {
        std::thread::yield_now();
    }
}

//! What a plan keeps, counted by the allocator: a binary of its own, because a process has one allocator.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::System;
use std::num::NonZeroU32;

use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{Kind, Machine};
use pinrail_plan::Plan;
use pinrail_policy::Policy;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes a chunk and bytes a task may keep.
const CHUNK_BYTES: usize = 64;
const TASK_BYTES: usize = 8;

/// What is made, and the bytes that stay allocated for it.
fn kept<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let region = Region::new(ALLOCATOR);
    let made = make();
    let change = region.change();
    (made, change.bytes_allocated - change.bytes_deallocated)
}

#[test]
fn a_plan_keeps_at_most_64_bytes_a_chunk_and_its_steps_8_a_task() {
    let (rails, machine) = (32, Machine::of_rails(32));
    // As many chunks from many buffers as from few that are cut.
    for (buffers, max_mr_size) in [(50_000u64, None), (500, Some(4096))] {
        let len = 4096 * 50_000 / buffers;
        let specs = (0..buffers).map(|at| BufferSpec::new(at.to_string(), len));
        let buffers = BatchSpec::of(specs).layout().unwrap().imagined().unwrap();
        let mut machine = machine.clone();
        machine.rails.iter_mut().for_each(|rail| rail.limits.max_mr_size = max_mr_size);
        let policy = Policy::new(NonZeroU32::MIN).with("ascending").unwrap();
        // What the caller has anyway is not the plan's: the buffers, and a copy of the machine.
        let (copy, of_machine) = kept(|| machine.clone());
        let (plan, of_plan) = kept(|| Plan::new(buffers, &copy, &policy).unwrap());
        let (chunks, tasks) = (plan.chunks().len(), usize::try_from(plan.tasks()).unwrap());
        assert_eq!((chunks, tasks), (50_000, 50_000 * rails));
        let of_plan = of_plan - of_machine;
        assert!(of_plan <= CHUNK_BYTES * chunks + 16_384, "{of_plan} bytes for {chunks} chunks");
        let (steps, of_steps) = kept(|| plan.steps(Kind::Register).unwrap());
        assert!(of_plan + of_steps <= CHUNK_BYTES * chunks + TASK_BYTES * tasks, "{of_steps} bytes for {tasks} tasks");
        drop(steps);
    }
}

//! What handing a step out costs, with dependencies, a limit on every rail and a record, beside the public ways.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::num::NonZeroU32;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pinrail_benches::{WORKERS, fifo, on_threads, shared_index, thread_per_task};
use pinrail_core::{ChunkId, Group, Kind, Limits, RailId, Steps, WorkerId};
use pinrail_dispatch::{Dispatch, Outcome, Seen, Take, Wake};
use pinrail_policy::Control;

/// Steps of 182 buffers on one rail, of 182 on 32 rails, and a million.
const SIZES: [(usize, u16); 3] = [(182, 1), (5_824, 32), (1_000_000, 32)];

/// Every chunk has one preparation, which its tasks wait for; together about `n` steps.
fn steps(n: usize, rails: u16) -> Steps {
    let lane = NonZeroU32::new(4).expect("not zero");
    let all: Box<[RailId]> = (0..rails).map(RailId).collect();
    let each = usize::from(rails) + 1;
    let mut steps = Steps::new(Kind::Register, false, vec![lane; usize::from(rails)], [all].into()).expect("rails have lanes");
    for chunk in (0..).take(n.div_ceil(each)) {
        steps.push(Group { chunk: ChunkId(chunk), set: 0, prepares: 1, bytes: 1 }).expect("fits");
    }
    steps
}

/// The engine's loop without a backend, a clock or a deadline.
fn dispatched(dispatch: &Dispatch, workers: u32, task: impl Fn(usize) + Sync) {
    let (epoch, moved) = (Mutex::new(0u64), Condvar::new());
    let deliver = |wake: Wake| match wake {
        Wake::None => {}
        Wake::One => {
            *epoch.lock().expect("no panic") += 1;
            moved.notify_one();
        }
        Wake::All => {
            *epoch.lock().expect("no panic") += 1;
            moved.notify_all();
        }
    };
    on_threads(workers, |id| {
        let mut record = Vec::new();
        let mut done = None;
        loop {
            let seen = *epoch.lock().expect("no panic");
            let (wake, take) = dispatch.done_and_take(WorkerId(id), done.take());
            deliver(wake);
            match take {
                Take::Finished => break,
                Take::Wait => {
                    let mut now = epoch.lock().expect("no panic");
                    while *now == seen {
                        now = moved.wait(now).expect("no panic");
                    }
                }
                Take::Start(start) => {
                    if start.wake {
                        deliver(Wake::One);
                    }
                    task(start.step.index());
                    record.push((start.seq, start.step));
                    done = Some((start.step, Outcome::Done, Seen::default()));
                }
            }
        }
        std::hint::black_box(record);
    });
}

fn spin_a_microsecond(_: usize) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(1) {
        std::hint::spin_loop();
    }
}

/// Processor time of the process: what a way of handing out costs, whatever the threads wait for.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn no_op(criterion: &mut Criterion) {
    for (n, rails) in SIZES {
        let mut group = criterion.benchmark_group(format!("no-op/{n}"));
        group.sample_size(10).throughput(criterion::Throughput::Elements(n as u64));
        group.measurement_time(Duration::from_secs(if n > 100_000 { 8 } else { 3 }));
        for workers in WORKERS {
            group.bench_function(BenchmarkId::new("dispatch", workers), |bencher| {
                bencher.iter_batched(
                    || Dispatch::new(steps(n, rails), Limits::NONE, Control::Fixed(Limits::NONE)),
                    |dispatch| {
                        dispatched(&dispatch, workers, |at| {
                            std::hint::black_box(at);
                        });
                        dispatch
                    },
                    criterion::BatchSize::PerIteration,
                );
            });
            group.bench_function(BenchmarkId::new("shared-index", workers), |bencher| {
                bencher.iter(|| {
                    shared_index(workers, n, |at| {
                        std::hint::black_box(at);
                    })
                });
            });
            group.bench_function(BenchmarkId::new("fifo", workers), |bencher| {
                bencher.iter(|| {
                    fifo(workers, n, |at| {
                        std::hint::black_box(at);
                    })
                });
            });
        }
        if n <= 5_824 {
            group.bench_function(BenchmarkId::new("thread-per-task", n), |bencher| {
                bencher.iter(|| {
                    thread_per_task(n, |at| {
                        std::hint::black_box(at);
                    })
                });
            });
        }
        group.finish();
    }
}

/// Processor time with steps of a microsecond: what dispatch adds to the shared index.
fn microsecond_steps(criterion: &mut Criterion) {
    let (n, rails) = SIZES[1];
    let mut group = criterion.benchmark_group("cpu-of-1us-steps/5824");
    group.sample_size(10).throughput(criterion::Throughput::Elements(n as u64)).measurement_time(Duration::from_secs(3));
    for workers in WORKERS {
        group.bench_function(BenchmarkId::new("dispatch", workers), |bencher| {
            bencher.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| {
                        let dispatch = Dispatch::new(steps(n, rails), Limits::NONE, Control::Fixed(Limits::NONE));
                        let before = cpu();
                        dispatched(&dispatch, workers, spin_a_microsecond);
                        cpu() - before
                    })
                    .sum()
            });
        });
        group.bench_function(BenchmarkId::new("shared-index", workers), |bencher| {
            bencher.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| {
                        let before = cpu();
                        shared_index(workers, n, spin_a_microsecond);
                        cpu() - before
                    })
                    .sum()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, no_op, microsecond_steps);
criterion_main!(benches);

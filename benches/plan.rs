//! What planning costs: 182 buffers as one process of a server has them, and a hundred thousand on 32 rails.

use std::num::NonZeroU32;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{Buffer, Kind, Machine};
use pinrail_plan::Plan;
use pinrail_policy::Policy;

fn buffers(batch: &BatchSpec) -> Vec<Buffer> {
    batch.layout().and_then(|layout| layout.imagined()).expect("a bench's own batch")
}

fn planning(criterion: &mut Criterion) {
    let policy = Policy::new(NonZeroU32::MIN).with("ascending").expect("a bench's own policy");
    let kimi = buffers(&BatchSpec::shape("kimi-k3").expect("a known shape"));
    let many = BatchSpec::of((0..100_000).map(|at| BufferSpec::new(BufferSpec::default_name(at), 4096 * (1 + at as u64 % 97))));
    let many = buffers(&many);
    let mut group = criterion.benchmark_group("plan");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for (name, buffers, rails) in [("kimi-k3 x 4", &kimi, 4), ("kimi-k3 x 32", &kimi, 32), ("100000 x 32", &many, 32)] {
        let machine = Machine::of_rails(rails);
        group.throughput(Throughput::Elements(buffers.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || buffers.clone(),
                |buffers| Plan::new(buffers, &machine, &policy).expect("no limits"),
                criterion::BatchSize::PerIteration,
            );
        });
    }
    let plan = Plan::new(kimi, &Machine::of_rails(32), &policy).expect("no limits");
    group.throughput(Throughput::Elements(plan.tasks()));
    group.bench_function("steps of kimi-k3 x 32", |bencher| bencher.iter(|| plan.steps(Kind::Register).expect("counted")));
    group.finish();
}

criterion_group!(benches, planning);
criterion_main!(benches);

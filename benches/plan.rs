//! What planning costs: 182 buffers as one process of a server has them, and a hundred thousand on 32 rails; beside what a
//! peer's bookkeeping comes to, which writes a list of buffers x rails and looks at no limit, seam, share or order.

use std::num::NonZeroU32;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{Buffer, Gpu, Kind, Machine, PciAddress, Place};
use pinrail_plan::Plan;
use pinrail_policy::Policy;

/// 8 switches with a GPU and 4 rails each, as a p5 has them.
fn with_gpus() -> Machine {
    let mut machine = Machine::of_rails(32);
    let at_switch = |at: usize| ["root".to_owned(), format!("switch{at}"), "port".to_owned()].to_vec();
    for (at, rail) in machine.rails.iter_mut().enumerate() {
        rail.bridges = at_switch(at / 4);
    }
    for at in 0..8u8 {
        let pci = PciAddress::new(0, 0x40 + at, 0, 0).expect("device and function are 0");
        machine.gpus.push(Gpu { pci, node: None, bridges: at_switch(at.into()) });
    }
    machine
}

/// The list of tasks that a peer makes: the address, length and rail of each.
fn task_list(buffers: &[Buffer], rails: u16) -> Vec<(u64, u64, u16)> {
    let of = |buffer: &Buffer| (buffer.extent().start(), buffer.len());
    buffers.iter().map(of).flat_map(|(start, len)| (0..rails).map(move |rail| (start, len, rail))).collect()
}

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
    let gpus = with_gpus();
    let on_gpus = |(at, buffer): (usize, &Buffer)| buffer.clone().with_place(Place::Gpu(gpus.gpus[at % 8].pci));
    let kimi_on_gpus: Vec<Buffer> = kimi.iter().enumerate().map(on_gpus).collect();
    for (name, buffers, machine) in [
        ("kimi-k3 x 4", &kimi, Machine::of_rails(4)),
        ("kimi-k3 x 32", &kimi, Machine::of_rails(32)),
        ("kimi-k3 on 8 GPUs", &kimi_on_gpus, gpus.clone()),
        ("100000 x 32", &many, Machine::of_rails(32)),
    ] {
        group.throughput(Throughput::Elements(buffers.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || buffers.clone(),
                |buffers| Plan::new(buffers, &machine, &policy).expect("no limits"),
                criterion::BatchSize::PerIteration,
            );
        });
    }
    for (name, buffers) in [("a list of kimi-k3 x 32", &kimi), ("a list of 100000 x 32", &many)] {
        group.throughput(Throughput::Elements(buffers.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| task_list(buffers, 32)));
    }
    let plan = Plan::new(kimi, &Machine::of_rails(32), &policy).expect("no limits");
    group.throughput(Throughput::Elements(plan.tasks()));
    group.bench_function("steps of kimi-k3 x 32", |bencher| bencher.iter(|| plan.steps(Kind::Register).expect("counted")));
    group.finish();
}

criterion_group!(benches, planning);
criterion_main!(benches);

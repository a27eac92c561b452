//! Steps that the simulator runs in a second of one core: the published node of 8 processes, 46,592 registrations.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pinrail_sim::Scenario;

fn sim(c: &mut Criterion) {
    let scenario = Scenario::named("p5-k3").expect("it comes with the crate").set("profile=efa-p5/joint").expect("a profile");
    let mut group = c.benchmark_group("sim");
    for spec in ["all-rails+rails-in-series+capped=16", "all-rails+rails-in-series+unbounded"] {
        let policies = scenario.policies(&[spec.to_owned()]).expect("a spec");
        let run = || scenario.run(&policies, 1, &|file| Err(format!("{file}: no files here"))).expect("it runs");
        group.throughput(Throughput::Elements(run()[0].steps));
        group.bench_function(spec, |b| b.iter(run));
    }
    group.finish();
}

criterion_group! { name = benches; config = Criterion::default().sample_size(10); targets = sim }
criterion_main!(benches);

//! What a whole batch costs on a backend that does nothing: threads, dispatch, record, registration and its end.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pinrail_benches::{WORKERS, shared_index};
use pinrail_core::batch::BatchSpec;
use pinrail_core::{
    Chunk, DeregisterError, Identity, Keys, Machine, Mr, Prepare, PrepareError, PrepareStep, Prepared, Rail, RailId,
    RegisterError, Registrar, Source,
};
use pinrail_engine::{Engine, Options};
use pinrail_plan::Plan;
use pinrail_policy::Policy;

struct Nothing(Vec<Rail>);
struct Token;

impl Registrar for Nothing {
    fn identity(&self) -> Identity {
        Identity { backend: "nothing".into(), provider: "nothing".into(), library: "nothing".into() }
    }
    fn rails(&self) -> &[Rail] {
        &self.0
    }
    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        Ok(Mr::new(rail, Keys::default(), Token, chunk))
    }
    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        mr.retire::<Token>();
        Ok(())
    }
}

impl Prepare for Nothing {
    fn prepare(&self, _: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        Ok(Prepared::Skipped)
    }
}

fn plan(rails: u16, spec: &str) -> Plan {
    let buffers = BatchSpec::shape("kimi-k3").and_then(|batch| batch.layout()?.imagined()).expect("a known shape");
    let policy = Policy::new(NonZeroU32::MIN).with(spec).expect("a bench's own policy");
    Plan::new(buffers, &Machine::of_rails(rails), &policy).expect("no limits")
}

fn a_whole_batch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("register and deregister kimi-k3 x 32");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for workers in WORKERS {
        let plan = Arc::new(plan(32, &format!("ascending+capped={workers}")));
        let backend = Arc::new(Nothing(plan.rails().to_vec()));
        let engine = Engine::new(backend.clone(), backend.clone());
        group.throughput(Throughput::Elements(plan.tasks()));
        group.bench_function(BenchmarkId::new("engine", workers), |bencher| {
            bencher.iter(|| {
                let registration = engine.register(Arc::clone(&plan), &Options::default()).expect("nothing fails");
                registration.deregister().expect("nothing fails")
            });
        });
        let tasks: Vec<_> =
            plan.chunk_ids().flat_map(|chunk| plan.rails_of(chunk).iter().map(move |&rail| (chunk, rail))).collect();
        group.bench_function(BenchmarkId::new("shared-index", workers), |bencher| {
            bencher.iter(|| {
                shared_index(workers, tasks.len(), |at| {
                    let (chunk, rail) = tasks[at];
                    let mut mr = backend.register(rail, &plan.chunk(chunk, &Source::Address)).expect("nothing fails");
                    backend.deregister(&mut mr).expect("nothing fails");
                });
            });
        });
    }
    group.finish();
}

criterion_group!(benches, a_whole_batch);
criterion_main!(benches);

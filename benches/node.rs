//! What a token of the node costs a process that is alone, and what it costs to be told that there is none.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pinrail_node::{Config, NodeBudget};

const TOKENS: NonZeroU32 = NonZeroU32::new(192).unwrap();

fn tokens(c: &mut Criterion) {
    let path = PathBuf::from(format!("/dev/shm/pinrail-benches-{}", std::process::id()));
    let open = || NodeBudget::open(Config { path: path.clone(), ..Config::new(TOKENS) });
    let budget = open();
    assert_eq!(budget.degraded(), None, "nothing is shared, so nothing is measured");
    let mut group = c.benchmark_group("token");
    group.bench_function("the process's own", |b| b.iter(|| drop(budget.acquire())));
    let own = budget.acquire();
    group.bench_function("one of the node's", |b| b.iter(|| drop(budget.acquire())));
    let all: Vec<_> = (0..TOKENS.get()).map(|_| budget.acquire()).collect();
    group.bench_function("none of 192, known", |b| b.iter(|| black_box(budget.try_acquire().is_none())));
    drop((own, all));

    let other = open();
    let all: Vec<_> = (0..=TOKENS.get()).map(|_| budget.acquire()).collect();
    let own = other.acquire();
    // Another word than the one before the last search makes what that found worthless.
    let file = std::fs::File::options().write(true).open(&path).expect("we made it");
    let mut word = 0_u32;
    let mut ring = || {
        word += 1 << 12;
        file.write_all_at(&word.to_ne_bytes(), 0).expect("it has room for a word");
    };
    group.bench_function("none of 192, searched", |b| {
        b.iter_batched(&mut ring, |()| black_box(other.try_acquire().is_none()), BatchSize::PerIteration);
    });
    group.finish();
    drop((own, all));
    std::fs::remove_file(&path).ok();
}

criterion_group!(benches, tokens);
criterion_main!(benches);

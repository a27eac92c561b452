//! What a look-up costs among 100,000 chunks on 4 rails, each at an address that depends on the last answer, beside maps
//! as others keep them; the same while batches come and go; what publishing costs; what a whole batch's books cost.
//!
//! Times are CPU time of the thread for the comparison (a shared machine's other work is not ours) and wall time for the
//! percentiles.

#![allow(clippy::cast_possible_truncation, reason = "indices of small tables that the bench made itself")]
#![allow(clippy::print_stdout, reason = "percentiles are printed: criterion has no place for them")]

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pinrail_core::{
    Buffer, Chunk, DeregisterError, Extent, Identity, Keys, Machine, Memory, Mr, Prepare, PrepareError, PrepareStep, Prepared,
    Rail, RailId, RegisterError, Registrar,
};
use pinrail_engine::registry::{Claim, Claimed, Held, Overlap, Registry};
use pinrail_engine::{Engine, Options};
use pinrail_plan::Plan;
use pinrail_policy::Policy;
use rustix::time::{ClockId, clock_gettime};

const CHUNKS: u64 = 100_000;
const RAILS: u16 = 4;
const BASE: u64 = 0x7f00_0000_0000;
const BATCH: u64 = 182;

/// CPU time of the thread, in nanoseconds.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = u64;
    type Value = u64;

    fn start(&self) -> u64 {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
    }
    fn end(&self, start: u64) -> u64 {
        self.start() - start
    }
    fn add(&self, a: &u64, b: &u64) -> u64 {
        a + b
    }
    fn zero(&self) -> u64 {
        0
    }
    fn to_f64(&self, value: &u64) -> f64 {
        Duration::from_nanos(*value).as_secs_f64() * 1e9
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// A registrar whose keys are random numbers, as those of NICs are to whoever looks them up.
struct Random(Vec<Rail>, KeyBytes);
struct Token;

/// Bytes of a local key and of a remote key: 4 in verbs, up to 8 in libfabric.
type KeyBytes = u32;

impl Registrar for Random {
    fn identity(&self) -> Identity {
        Identity { backend: "random".into(), provider: "none".into(), library: "none".into() }
    }
    fn rails(&self) -> &[Rail] {
        &self.0
    }
    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        Ok(Mr::new(rail, keys(chunk.extent().start(), rail, self.1), Token, chunk))
    }
    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        mr.retire::<Token>();
        Ok(())
    }
}

impl Prepare for Random {
    fn prepare(&self, _: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        Ok(Prepared::Skipped)
    }
}

fn keys(start: u64, rail: RailId, bytes: KeyBytes) -> Keys {
    let local = mix(start ^ u64::from(rail.0)) >> (64 - 8 * bytes);
    Keys { local, remote: mix(local).to_le_bytes()[..bytes as usize].into() }
}

fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Chunks end to end from `base` on, 4 KiB to 388 KiB each.
fn extents(base: u64, count: u64) -> Vec<Extent> {
    let mut at = base;
    let next = |nth: u64| {
        let extent = Extent::new(at, 4096 * (1 + mix(nth) % 97)).expect("far from the end");
        at = extent.end();
        extent
    };
    (0..count).map(next).collect()
}

fn policy() -> Policy {
    Policy::new(NonZeroU32::MIN).with("no-prefault+no-coalesce").expect("a bench's own policy")
}

/// One batch whose buffers are these, each an allocation of its own.
fn plan(machine: &Machine, extents: &[Extent]) -> Plan {
    let buffer = |extent: &Extent| {
        let memory = Memory::imagined(extent.start(), extent.len()).expect("an extent");
        Buffer::new("buffer", memory, 0..extent.len()).expect("the whole of it")
    };
    Plan::new(extents.iter().map(buffer).collect(), machine, &policy()).expect("no limits")
}

fn registry(machine: &Machine, bytes: KeyBytes) -> Registry {
    let backend = Arc::new(Random(machine.rails.clone(), bytes));
    Registry::new(Engine::new(backend.clone(), backend)).expect("four rails")
}

fn register(registry: &Registry, plan: Plan) -> Held {
    registry.register(plan, Overlap::Refuse, &Options { threads_max: 1, ..Options::default() }).expect("nothing fails")
}

/// A region as engines with several NICs keep it: the keys of all in a vector.
struct Region {
    end: u64,
    keys: Vec<Keys>,
}

/// What others use: one map behind a lock, a region for each first address.
struct Map(RwLock<BTreeMap<u64, Region>>);

/// What others use too: a map for each NIC, found by its name, of regions that whoever uses them shares.
struct MapForEachRail {
    names: Vec<String>,
    rails: HashMap<String, RwLock<BTreeMap<u64, Arc<Region>>>>,
}

/// The best that can be made of a map, where the number of NICs is known when it is compiled: their keys inside.
struct MapKeysInside(RwLock<BTreeMap<u64, (u64, [Keys; RAILS as usize])>>);

impl Map {
    fn new(extents: &[Extent], bytes: KeyBytes) -> Map {
        let region = |extent: &Extent| {
            let keys = (0..RAILS).map(|rail| keys(extent.start(), RailId(rail), bytes)).collect();
            (extent.start(), Region { end: extent.end(), keys })
        };
        Map(RwLock::new(inserted(extents, region)))
    }

    fn find<R>(&self, address: u64, rail: usize, with: impl FnOnce(&Keys, u64) -> R) -> Option<R> {
        let map = self.0.read().ok()?;
        let (start, region) = map.range(..=address).next_back()?;
        (address < region.end).then(|| with(&region.keys[rail], address - start))
    }
}

impl MapForEachRail {
    fn new(extents: &[Extent], bytes: KeyBytes) -> MapForEachRail {
        let names: Vec<String> = (0..RAILS).map(|rail| format!("rdmap{}s0", 79 + rail)).collect();
        let map = |rail| {
            let keys = |extent: &Extent| vec![keys(extent.start(), RailId(rail), bytes)];
            let region = |extent: &Extent| Arc::new(Region { end: extent.end(), keys: keys(extent) });
            RwLock::new(inserted(extents, |extent| (extent.start(), region(extent))))
        };
        let rails = names.iter().cloned().zip(0..).map(|(name, rail)| (name, map(rail))).collect();
        MapForEachRail { names, rails }
    }

    fn find(&self, address: u64, rail: usize) -> Option<(Arc<Region>, u64)> {
        let map = self.rails.get(&self.names[rail])?.read().ok()?;
        let (start, region) = map.range(..=address).next_back()?;
        (address < region.end).then(|| (Arc::clone(region), address - start))
    }
}

impl MapKeysInside {
    fn new(extents: &[Extent], bytes: KeyBytes) -> MapKeysInside {
        let all = |extent: &Extent| (extent.end(), std::array::from_fn(|rail| keys(extent.start(), RailId(rail as u16), bytes)));
        MapKeysInside(RwLock::new(inserted(extents, |extent| (extent.start(), all(extent)))))
    }

    fn find<R>(&self, address: u64, rail: usize, with: impl FnOnce(&Keys, u64) -> R) -> Option<R> {
        let map = self.0.read().ok()?;
        let (start, (end, keys)) = map.range(..=address).next_back()?;
        (address < *end).then(|| with(&keys[rail], address - start))
    }
}

/// A map as it is after regions were registered one after the other: built in one piece, its nodes would be full.
fn inserted<T>(extents: &[Extent], region: impl Fn(&Extent) -> (u64, T)) -> BTreeMap<u64, T> {
    let mut map = BTreeMap::new();
    map.extend(shuffled(extents).iter().map(region));
    map
}

/// Batches come in any order of addresses.
fn shuffled(extents: &[Extent]) -> Vec<Extent> {
    let mut shuffled = extents.to_vec();
    shuffled.sort_by_key(|extent| mix(extent.start()));
    shuffled
}

/// So many look-ups, each at an address that the last one's key decides.
fn chase(seed: u64, lookups: u64, span: u64, mut find: impl FnMut(u64, u16) -> u64) -> u64 {
    (0..lookups).fold(seed, |seed, _| {
        let address = BASE + u64::try_from((u128::from(seed) * u128::from(span)) >> 64).unwrap_or(0);
        mix(seed ^ find(address, (seed & 3) as u16))
    })
}

fn look_ups(criterion: &mut Criterion<CpuTime>) {
    let machine = Machine::of_rails(RAILS);
    let extents = extents(BASE, CHUNKS);
    let span = extents[extents.len() - 1].end() - BASE;
    for bytes in [4, 8] {
        let registry = registry(&machine, bytes);
        // Published as batches are, not in one piece.
        let held: Vec<Held> =
            shuffled(&extents).chunks(BATCH as usize).map(|batch| register(&registry, plan(&machine, batch))).collect();
        let mut reader = registry.reader();
        let map = Map::new(&extents, bytes);
        let (for_each, inside) = (MapForEachRail::new(&extents, bytes), MapKeysInside::new(&extents, bytes));
        let mut group = criterion.benchmark_group(format!("look up among 100000 chunks x 4 rails, keys of {bytes} bytes"));
        group.throughput(Throughput::Elements(100_000)).sample_size(20).measurement_time(Duration::from_secs(4));
        // Twice round, so that a machine that others use too is seen to be.
        for round in ["", " again"] {
            group.bench_function(format!("RwLock<BTreeMap>{round}"), |bencher| {
                let find = |address, rail: u16| map.find(address, rail.into(), |keys, at| keys.local ^ at).expect("end to end");
                bencher.iter(|| chase(black_box(1), 100_000, span, find));
            });
            group.bench_function(format!("RwLock<BTreeMap> for each rail, by name{round}"), |bencher| {
                let find = |address, rail: u16| {
                    let (region, at) = for_each.find(address, rail.into()).expect("chunks lie end to end");
                    region.keys[0].local ^ at
                };
                bencher.iter(|| chase(black_box(1), 100_000, span, find));
            });
            group.bench_function(format!("RwLock<BTreeMap>, keys inside{round}"), |bencher| {
                let find =
                    |address, rail: u16| inside.find(address, rail.into(), |keys, at| keys.local ^ at).expect("end to end");
                bencher.iter(|| chase(black_box(1), 100_000, span, find));
            });
            group.bench_function(format!("registry{round}"), |bencher| {
                bencher.iter(|| {
                    chase(black_box(1), 100_000, span, |address, rail| {
                        let one = Extent::new(address, 1).expect("far from the end");
                        let pieces = reader.range(one, RailId(rail)).expect("chunks lie end to end");
                        pieces[0].local_key ^ pieces[0].at
                    })
                });
            });
        }
        group.finish();
        percentiles(&registry, &machine, span);
        drop(held);
    }
}

/// Percentiles of the time for 16 dependent look-ups, idle and while 182 chunks come and go 100 times a second.
fn percentiles(registry: &Registry, machine: &Machine, span: u64) {
    let mut reader = registry.reader();
    let mut run = |for_: Duration| {
        let (mut times, mut seed, begun) = (Vec::new(), 1, now());
        while begun.elapsed() < for_ {
            let start = now();
            seed = chase(seed, 16, span, |address, rail| {
                let one = Extent::new(address, 1).expect("far from the end");
                reader.range(one, RailId(rail)).map_or(0, |pieces| pieces[0].local_key)
            });
            times.push(start.elapsed().as_nanos() / 16);
        }
        times.sort_unstable();
        [50, 99].map(|percent| times[times.len() * percent / 100])
    };
    for _ in 0..3 {
        let idle = run(Duration::from_secs(2));
        let stop = AtomicBool::new(false);
        let busy = std::thread::scope(|scope| {
            let publishing = scope.spawn(|| {
                let (mut published, mut held) = (0u64, None);
                while !stop.load(Ordering::Relaxed) {
                    let begun = now();
                    // Beside the others, in addresses of its own.
                    held = Some(register(registry, plan(machine, &extents(BASE + (1 << 44), BATCH))));
                    published += 1;
                    std::thread::park_timeout(Duration::from_millis(10).saturating_sub(begun.elapsed()));
                    drop(held.take());
                }
                drop(held);
                published
            });
            let busy = run(Duration::from_secs(2));
            stop.store(true, Ordering::Relaxed);
            println!("{} batches of {BATCH} published in 2 s", publishing.join().expect("nothing fails"));
            busy
        });
        println!("ns a look-up: idle p50 {} p99 {}; while publishing p50 {} p99 {}", idle[0], idle[1], busy[0], busy[1]);
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}

/// What publishing a batch costs with so much live already.
fn publish(criterion: &mut Criterion<CpuTime>) {
    let machine = Machine::of_rails(RAILS);
    let mut group = criterion.benchmark_group("publish 182 chunks x 4 rails");
    group.throughput(Throughput::Elements(BATCH)).sample_size(20).measurement_time(Duration::from_secs(2));
    for live in [1_000, 10_000, 100_000] {
        let registry = registry(&machine, 4);
        // Every other chunk is live, so that a batch's chunks lie between them.
        let all = extents(BASE, 2 * live);
        let every_other: Vec<Extent> = all.iter().copied().step_by(2).collect();
        let held = register(&registry, plan(&machine, &every_other));
        let free: Vec<Extent> = all.iter().copied().skip(1).step_by(2).collect();
        for (where_, batch) in [
            ("neighbours", free.iter().copied().take(BATCH as usize).collect::<Vec<_>>()),
            ("anywhere", shuffled(&free).into_iter().take(BATCH as usize).collect()),
        ] {
            let plan = Arc::new(plan(&machine, &batch));
            let engine = Engine::new(Arc::new(Random(machine.rails.clone(), 4)), Arc::new(Random(Vec::new(), 4)));
            let claimed = || -> (Claim, _) {
                let Ok(Claimed::New(claim)) = registry.claim(Arc::clone(&plan), Overlap::Refuse) else { unreachable!("free") };
                let registration = engine.register(Arc::clone(claim.plan()), &Options { threads_max: 1, ..Options::default() });
                (claim, registration.expect("nothing fails"))
            };
            group.bench_function(format!("{where_}, {live} live"), |bencher| {
                bencher.iter_batched(
                    claimed,
                    |(claim, registration)| claim.publish(registration).expect("short keys"),
                    BatchSize::PerIteration,
                );
            });
        }
        drop(held);
    }
    group.finish();
}

/// What the books of a whole batch cost a buffer, from plan to release: flat, however many there are.
fn books(criterion: &mut Criterion<CpuTime>) {
    let machine = Machine::of_rails(1);
    let mut group = criterion.benchmark_group("register and release on a backend that does nothing");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for count in [182, 1_820, 18_200, 100_000] {
        let plan = Arc::new(plan(&machine, &extents(BASE, count)));
        let registry = registry(&machine, 4);
        let options = Options { threads_max: 1, ..Options::default() };
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("{count} buffers"), |bencher| {
            bencher.iter(|| {
                let held = registry.register(Arc::clone(&plan), Overlap::Refuse, &options).expect("nothing fails");
                held.release().expect("nothing fails")
            });
        });
    }
    group.finish();
}

criterion_group!(name = benches; config = Criterion::default().with_measurement(CpuTime); targets = look_ups, publish, books);
criterion_main!(benches);

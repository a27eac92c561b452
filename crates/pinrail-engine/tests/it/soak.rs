//! Round after round of registering and deregistering: nothing grows, and no round is slower than those before.

use std::sync::Arc;
use std::time::Duration;

use pinrail_core::{Buffer, Memory, Registrar};
use pinrail_engine::Options;
use pinrail_memory::{Mapping, Pages};

use crate::real::{alone, engine, memlock_forbids, pinned_bytes, planned, skipped, uring};

/// Bytes of a buffer: 200 KB, so 49 pages of which the last is shared with the next buffer.
const LEN: u64 = 200_000;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Pages of this process in memory, besides those that are registered.
fn resident_pages() -> u64 {
    std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Hundredths of a second for which this process has had a core, all of its threads together.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name in parentheses may have spaces; utime and stime are the 12th and 13th words after it.
    let (_, words) = stat.rsplit_once(')').unwrap();
    words.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// What one round took, without planning: wall time, and the CPU clock at its end.
type Round = (Duration, u64);

/// Runs the rounds and answers what each took.
fn rounds(rounds: usize, buffers: u64) -> Option<Vec<Round>> {
    if memlock_forbids(buffers * 50 * 4096) {
        return None;
    }
    let uring = uring(1);
    let memory = match Mapping::anonymous(buffers * LEN, Pages::Small, None) {
        Ok(mapping) => Memory::new(mapping),
        Err(error) => {
            skipped(&error.to_string());
            return None;
        }
    };
    let buffer = |nth: u64| Buffer::new(format!("b{nth}"), memory.clone(), nth * LEN..(nth + 1) * LEN).unwrap();
    let plan = Arc::new(planned(&uring, (0..buffers).map(buffer).collect(), "no-coalesce"));
    let engine = engine(&uring);
    let before = pinned_bytes();
    let mut took = Vec::new();
    let mut first = None;
    for round in 0..rounds {
        let registration = engine.register(Arc::clone(&plan), &Options::default()).unwrap();
        assert_eq!(registration.live(), buffers, "round {round}");
        let registered = registration.report().total;
        let deregistered = registration.deregister().unwrap().total;
        took.push((registered + deregistered, cpu()));
        assert_eq!(pinned_bytes(), before, "round {round}: everything is unpinned");
        // The first round touches the memory and fills the allocator's own stock.
        let now = (descriptors(), resident_pages());
        let (descriptors_first, resident_first) = *first.get_or_insert(now);
        assert_eq!(now.0, descriptors_first, "round {round}: descriptors");
        assert!(now.1 <= resident_first + 2048, "round {round}: {} pages after {resident_first}", now.1);
    }
    // Every slot came back: the table can be filled to its limit.
    let slots = uring.rails()[0].limits.max_mrs.unwrap();
    let page = Memory::new(Mapping::anonymous(slots * 8, Pages::Small, None).unwrap());
    let small = (0..slots).map(|nth| Buffer::new(format!("s{nth}"), page.clone(), nth * 8..(nth + 1) * 8).unwrap()).collect();
    let all = engine.register(planned(&uring, small, "no-coalesce"), &Options::default()).unwrap();
    assert_eq!(all.live(), slots);
    all.deregister().unwrap();
    Some(took)
}

#[test]
fn a_few_rounds_leave_nothing_behind() {
    let _alone = alone();
    rounds(4, 200);
}

#[test]
#[ignore = "pins 2 GB sixty times over: `cargo xtask deep soak`"]
#[allow(clippy::print_stdout, reason = "the figures are what it is run for")]
fn sixty_rounds() {
    let _alone = alone();
    let Some(took) = rounds(60, 10_000) else { panic!("nothing was shown here") };
    let median = |rounds: &[Round]| {
        let mut rounds: Vec<Duration> = rounds.iter().map(|(wall, _)| *wall).collect();
        rounds.sort_unstable();
        rounds[rounds.len() / 2]
    };
    let (first, last) = (median(&took[..10]), median(&took[50..]));
    // The first round touches the memory, so ten are counted from its end, and ten before the last one's.
    let (cpu_first, cpu_last) = (took[10].1 - took[0].1, took[59].1 - took[49].1);
    println!("medians: first ten rounds {first:?}, last ten {last:?}, all {:?}", median(&took));
    println!("CPU of ten rounds: first {cpu_first} cs, last {cpu_last} cs");
    assert!(last.as_secs_f64() <= first.as_secs_f64() * 1.1, "the rounds become slower (on an idle machine that is ours)");
}

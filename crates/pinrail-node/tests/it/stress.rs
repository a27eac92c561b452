//! Many threads of many processes on few tokens, some of which are killed at any moment.
//!
//! Each writes down when it surely held a token: after it had it, before it gave it back, and with `write`, which outlives
//! the process. What lies between was held, so no moment may have more of it than there are tokens and living processes.

use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroU32;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::child;
use crate::node::{Node, config_here};

/// How many of what, and for how long.
struct Extent {
    processes: u32,
    /// Of these, so many are killed again and again, and others come in their place.
    killed: u32,
    threads: u32,
    tokens: u32,
    lasts: Duration,
}

/// How long a token is held.
const HOLD: Duration = Duration::from_micros(200);

#[test]
fn few_processes_for_a_moment() {
    let lasts = Duration::from_millis(1500);
    run(&Extent { processes: 4, killed: 1, threads: 4, tokens: 2, lasts });
}

#[test]
#[ignore = "a minute: cargo xtask deep node"]
fn eight_processes_of_sixteen_threads() {
    run(&Extent { processes: 8, killed: 3, threads: 16, tokens: 2, lasts: Duration::from_mins(1) });
}

/// Nanoseconds of a clock that all processes share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// One life of a process.
struct Life {
    process: Child,
    born_ns: u64,
    killed_ns: u64,
}

impl Life {
    fn begin(node: &Node) -> Life {
        Life { born_ns: now_ns(), process: child::start(node, "stress::child_works"), killed_ns: u64::MAX }
    }

    fn end(&mut self) {
        assert!(self.process.try_wait().unwrap().is_none(), "a process ended by itself");
        // Read first: until it is sent, whatever was held is held.
        self.killed_ns = now_ns();
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn run(extent: &Extent) {
    let node = Node::new();
    fs::write(node.folder().join("extent"), format!("{} {}", extent.tokens, extent.threads)).unwrap();
    let mut living: Vec<Life> = (0..extent.processes).map(|_| Life::begin(&node)).collect();
    let mut dead = Vec::new();
    let end = Instant::now() + extent.lasts;
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    while Instant::now() < end {
        // xorshift: as good as any, and the same each time.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(random % 100));
        let victim = usize::try_from(random / 128 % u64::from(extent.killed)).unwrap();
        living[victim].end();
        dead.push(std::mem::replace(&mut living[victim], Life::begin(&node)));
    }
    living.iter_mut().for_each(Life::end);

    let survivors = living.split_off(extent.killed as usize);
    let steady = survivors.iter().map(|life| held(&node, life)).collect::<Vec<_>>();
    let brief = dead.iter().chain(&living).map(|life| held(&node, life)).collect::<Vec<_>>();
    let all: Vec<(u64, u64)> = steady.iter().chain(&brief).flatten().copied().collect();
    let lives: Vec<&Life> = survivors.iter().chain(&dead).chain(&living).collect();

    // A process holds while it lives, so that a life and its own token cancel each other: what is left are the node's.
    let mut changes: Vec<(u64, i32)> = Vec::new();
    for (from, to) in &all {
        changes.extend([(*from, 1), (*to, -1)]);
    }
    for life in &lives {
        changes.extend([(life.born_ns, -1), (life.killed_ns, 1)]);
    }
    // At the same moment: first what lowers the count.
    changes.sort_unstable();
    let peak = changes.iter().scan(0, |beyond, (_, change)| {
        *beyond += change;
        Some(*beyond)
    });
    let peak = peak.max().unwrap();
    assert!(peak <= i32::try_from(extent.tokens).unwrap(), "{peak} more were running than processes lived");

    let counts: Vec<usize> = steady.iter().map(Vec::len).collect();
    let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    let longest_gap_ns = steady.iter().flat_map(|held| held.windows(2).map(|two| two[1].0.saturating_sub(two[0].0))).max();
    let longest_gap = Duration::from_nanos(longest_gap_ns.unwrap());
    let line = format!(
        "{} lives, {} killed in between, {} tokens taken, peak {peak} beyond the living of {} tokens; of the survivors \
         {least} to {most} each, fairness {:.2}, longest gap {longest_gap:?}",
        lives.len(),
        dead.len(),
        all.len(),
        extent.tokens,
        least as f64 / most as f64
    );
    eprintln!("{line}");
    assert!(least * 10 >= most * 7, "unfair: {line}");
    assert!(longest_gap < Duration::from_secs(2), "stuck: {line}");

    // Nothing is left behind by the dead.
    let budget = node.open(extent.tokens);
    let soon = Instant::now() + Duration::from_millis(100);
    let free: Vec<_> = (0..=extent.tokens).filter_map(|_| budget.acquire_until(soon)).collect();
    assert_eq!(free.len(), extent.tokens as usize + 1, "{line}");
    assert_eq!((budget.processes(), budget.degraded()), (NonZeroU32::MIN, None));
}

/// When a process surely held a token.
fn held(node: &Node, life: &Life) -> Vec<(u64, u64)> {
    let mut held = Vec::new();
    for thread in 0.. {
        let Ok(text) = fs::read_to_string(node.folder().join(format!("held-{}-{thread}", life.process.id()))) else { break };
        let mut moments = text.lines().map(|line| line.parse::<u64>().unwrap());
        while let Some(from) = moments.next() {
            let to = moments.next().unwrap_or(u64::MAX).min(life.killed_ns);
            held.extend((from < to).then_some((from, to)));
        }
    }
    held.sort_unstable();
    held
}

#[test]
#[ignore = "started, and killed, by another test"]
fn child_works() {
    let extent = fs::read_to_string("extent").unwrap();
    let (tokens, threads) = extent.split_once(' ').unwrap();
    let budget = pinrail_node::NodeBudget::open(config_here(tokens.parse().unwrap()));
    let logs: Vec<File> = (0..threads.parse::<u32>().unwrap())
        .map(|thread| File::create(format!("held-{}-{thread}", std::process::id())).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for mut log in logs {
            let budget = &budget;
            scope.spawn(move || {
                loop {
                    let token = budget.acquire();
                    // Whole lines: a moment that is written is written wholly.
                    log.write_all(format!("{:020}\n", now_ns()).as_bytes()).unwrap();
                    std::thread::sleep(HOLD);
                    log.write_all(format!("{:020}\n", now_ns()).as_bytes()).unwrap();
                    drop(token);
                }
            });
        }
    });
}

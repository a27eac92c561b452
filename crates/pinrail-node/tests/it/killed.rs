//! A process that is killed gives back what it held, at once and by itself.

use std::time::{Duration, Instant};

use crate::child;
use crate::node::{Node, config_here, soon};

const TOKENS: u32 = 8;

#[test]
fn all_tokens_of_a_killed_process_come_back_within_100_ms() {
    let node = Node::new();
    let ours = node.open(TOKENS);
    let mut longest = Duration::ZERO;
    for _ in 0..5 {
        let mut holder = child::start(&node, "killed::child_holds_all");
        let taken = soon(Duration::from_secs(20), || node.folder().join("holding").exists());
        assert!(taken, "the child has not taken them");
        let own = ours.acquire();
        assert!(ours.try_acquire().is_none());
        assert_eq!(ours.processes().get(), 2);

        let killed = Instant::now();
        holder.kill().unwrap();
        let back: Vec<_> = (0..TOKENS).filter_map(|_| ours.acquire_until(killed + Duration::from_secs(5))).collect();
        longest = longest.max(killed.elapsed());
        assert_eq!((back.len(), ours.processes().get()), (TOKENS as usize, 1));
        holder.wait().unwrap();
        std::fs::remove_file(node.folder().join("holding")).unwrap();
        drop(own);
    }
    assert!(longest < Duration::from_millis(100), "{longest:?}");
    eprintln!("all {TOKENS} tokens back after {longest:?} at most");
}

#[test]
#[ignore = "started, and killed, by another test"]
fn child_holds_all() {
    let budget = pinrail_node::NodeBudget::open(config_here(TOKENS));
    let all: Vec<_> = (0..=TOKENS).map(|_| budget.acquire()).collect();
    std::fs::write("holding", "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
    drop(all);
}

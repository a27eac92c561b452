//! Fewer processes than promised, and tokens that do not come: each keeps to its share and says so.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use pinrail_node::{Config, Degraded, NodeBudget};

use crate::child;
use crate::node::{Node, config, config_here, soon};

fn promised(config: Config, peers: u32) -> NodeBudget {
    NodeBudget::open(Config { peers: NonZeroU32::new(peers), ..config })
}

fn missing(present: u32, promised: u32) -> Option<Degraded> {
    let number = |n| NonZeroU32::new(n).unwrap();
    Some(Degraded::PeersMissing { present: number(present), promised: number(promised) })
}

#[test]
fn until_all_have_come_each_keeps_to_its_share() {
    let node = Node::new();
    let open = || promised(config(node.folder(), 8), 3);
    let one = open();
    assert_eq!((one.degraded(), one.processes().get(), one.share().get()), (missing(1, 3), 3, 2));
    let share: Vec<_> = (0..2).map(|_| one.try_acquire().unwrap()).collect();
    assert!(one.try_acquire().is_none());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| one.acquire_until(Instant::now() + Duration::from_secs(20)).is_some());
        let two = open();
        assert_eq!(two.degraded(), missing(2, 3));
        let three = open();
        assert!(waiting.join().unwrap(), "who waits is woken when the last one comes");
        drop((two, three));
    });
    // They have gone, and a process that is alone may have all.
    let rest: Vec<_> = (0..7).map(|_| one.try_acquire().unwrap()).collect();
    assert_eq!((rest.len() + share.len(), one.degraded()), (9, None));
}

#[test]
fn a_container_with_a_dev_shm_of_its_own_is_found_out() {
    let node = Node::new();
    let ours = promised(config(node.folder(), 8), 2);
    let line = r#"mount -t tmpfs tmpfs /dev/shm && mkdir -p "$PWD""#;
    child::run_unshared(&node, line, "peers::child_is_in_another_container");
    assert_eq!(ours.degraded(), missing(1, 2));
    // One that shares it is none.
    child::run(&node, &[], "peers::child_is_the_other_process");
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
#[ignore = "started in a namespace of its own"]
fn child_is_in_another_container() {
    let budget = promised(config_here(8), 2);
    assert_eq!(budget.degraded(), missing(1, 2));
    let share: Vec<_> = (0..4).map(|_| budget.try_acquire().unwrap()).collect();
    assert!(budget.try_acquire().is_none());
    drop(share);
}

#[test]
#[ignore = "started as a process of a node"]
fn child_is_the_other_process() {
    assert_eq!(promised(config_here(8), 2).degraded(), None);
}

#[test]
fn whoever_gets_no_token_for_a_second_keeps_to_his_share() {
    let node = Node::new();
    let (one, other) = (node.open(4), node.open(4));
    let all: Vec<_> = (0..5).map(|_| one.acquire()).collect();
    let own = other.acquire();
    let start = Instant::now();
    let second = other.acquire();
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(3), "{waited:?}");
    assert_eq!(second.of_node(), None);
    assert!(other.try_acquire().is_none(), "half of four");
    assert!(matches!(other.degraded(), Some(Degraded::Waited { waited_ms: 1000..3000 })), "{:?}", other.degraded());
    assert_eq!(one.processes().get(), 2, "it is still counted");
    drop((all, own, second));
    drop(other);
    assert!(soon(Duration::from_millis(100), || one.processes().get() == 1));
}

//! One token each, one more for each process, and whom a token that comes back wakes.

use std::time::{Duration, Instant};

use crate::node::Node;

#[test]
fn a_process_has_one_token_that_nobody_can_take() {
    let node = Node::new();
    let (one, other) = (node.open(2), node.open(2));
    let held: Vec<_> = (0..3).map(|_| one.try_acquire().unwrap()).collect();
    let mut of_node: Vec<_> = held.iter().filter_map(pinrail_node::Token::of_node).collect();
    of_node.sort_unstable();
    assert_eq!(of_node, [0, 1]);
    assert!(one.try_acquire().is_none());
    let own = other.try_acquire().expect("everybody advances");
    assert_eq!(own.of_node(), None);
    assert!(other.try_acquire().is_none());
    drop(held);
    assert!(other.try_acquire().is_some_and(|token| token.of_node().is_some()));
}

#[test]
fn a_deadline_is_kept() {
    let node = Node::new();
    let (one, other) = (node.open(1), node.open(1));
    let held = [one.acquire(), one.acquire()];
    let own = other.acquire();
    let start = Instant::now();
    assert!(other.acquire_until(start + Duration::from_millis(50)).is_none());
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(50) && waited < Duration::from_millis(500), "{waited:?}");
    assert!(other.acquire_until(start).is_none(), "also one that has passed");
    drop((held, own));
}

#[test]
fn whoever_waits_is_woken_by_a_thread_of_his_own_and_by_another_process() {
    let node = Node::new();
    let (one, other) = (node.open(1), node.open(1));
    for ours in [true, false] {
        let (from_node, own) = (one.acquire(), one.acquire());
        let (implicit, node_token) = if from_node.of_node().is_none() { (from_node, own) } else { (own, from_node) };
        let others = other.acquire();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| (if ours { &one } else { &other }).acquire().of_node().is_some());
            std::thread::sleep(Duration::from_millis(30));
            if ours {
                drop(implicit);
                assert!(!waiting.join().unwrap());
                drop(node_token);
            } else {
                drop(node_token);
                assert!(waiting.join().unwrap());
                drop(implicit);
            }
        });
        drop(others);
    }
}

#[test]
fn threads_of_one_process_share_what_it_has() {
    let node = Node::new();
    let budget = node.open(3);
    let running = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let _token = budget.acquire();
                    let now = running.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                    assert!(now <= 4, "{now} of 3 and our own");
                    std::thread::yield_now();
                    running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(budget.degraded(), None);
}

//! A folder in /dev/shm that stands for a node: its processes have it as their working folder.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pinrail_node::{Config, NodeBudget};

pub(crate) struct Node(PathBuf);

impl Node {
    pub(crate) fn new() -> Node {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!("/dev/shm/pinrail-node-it-{}-{next}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("these tests need a /dev/shm");
        Node(folder)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("budget")
    }

    pub(crate) fn open(&self, tokens: u32) -> NodeBudget {
        NodeBudget::open(config(&self.0, tokens))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The budget of a node whose folder this is.
pub(crate) fn config(folder: &Path, tokens: u32) -> Config {
    Config { path: folder.join("budget"), ..Config::new(NonZeroU32::new(tokens).unwrap()) }
}

/// The same in a child, whose working folder it is.
pub(crate) fn config_here(tokens: u32) -> Config {
    config(&std::env::current_dir().unwrap(), tokens)
}

/// True as soon as it holds, which may take so long.
pub(crate) fn soon(longest: Duration, holds: impl Fn() -> bool) -> bool {
    let until = Instant::now() + longest;
    while !holds() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

//! A file of a node in a model: locks, word and sleepers as the kernel has them, but for time-outs, which never come.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::FileError;
use crate::sync::{Condvar, Mutex, lock};

pub(crate) const TOKENS_MAX: u32 = 4095;

/// What the kernel knows.
#[derive(Default)]
pub(crate) struct Kernel {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    owners: [Option<u32>; 2],
    word: u32,
    next_sleeper: u32,
    /// By number and place, who has slept longest first.
    asleep: Vec<(u32, u32)>,
}

pub(crate) struct NodeFile {
    kernel: Arc<Kernel>,
    place: u32,
}

impl NodeFile {
    pub(crate) fn of(kernel: &Arc<Kernel>, place: u32) -> NodeFile {
        NodeFile { kernel: Arc::clone(kernel), place }
    }

    pub(crate) fn open(path: &Path) -> Result<NodeFile, FileError> {
        Err(FileError::NoPlace { path: path.to_owned(), most: 0 })
    }

    pub(crate) fn is_current(&self) -> bool {
        true
    }

    pub(crate) fn place(&self) -> u32 {
        self.place
    }

    pub(crate) fn others(&self) -> Result<u32, FileError> {
        Ok(0)
    }

    /// Locks of one open file do not exclude each other.
    pub(crate) fn try_lock(&self, token: u32) -> Result<bool, FileError> {
        let owner = &mut lock(&self.kernel.state).owners[token as usize];
        Ok(*owner.get_or_insert(self.place) == self.place)
    }

    pub(crate) fn unlock(&self, token: u32) {
        let owner = &mut lock(&self.kernel.state).owners[token as usize];
        owner.take_if(|owner| *owner == self.place);
    }

    pub(crate) fn word(&self) -> u32 {
        lock(&self.kernel.state).word
    }

    pub(crate) fn token_in(_: u32) -> Option<u32> {
        None
    }

    pub(crate) fn ring(&self, _: u32) {
        self.write_word();
        let mut state = lock(&self.kernel.state);
        if !state.asleep.is_empty() {
            state.asleep.remove(0);
        }
        self.kernel.rung.notify_all();
    }

    pub(crate) fn ring_ourselves(&self) {
        self.write_word();
        lock(&self.kernel.state).asleep.retain(|(_, place)| *place != self.place);
        self.kernel.rung.notify_all();
    }

    /// A moment of its own, as in the kernel.
    fn write_word(&self) {
        lock(&self.kernel.state).word += 1;
    }

    pub(crate) fn sleep(&self, word: u32, _: Duration) {
        let mut state = lock(&self.kernel.state);
        if state.word != word {
            return;
        }
        let sleeper = state.next_sleeper;
        state.next_sleeper += 1;
        state.asleep.push((sleeper, self.place));
        while state.asleep.iter().any(|(asleep, _)| *asleep == sleeper) {
            state = crate::sync::wait(&self.kernel.rung, state, None);
        }
    }
}

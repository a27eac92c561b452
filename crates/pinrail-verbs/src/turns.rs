//! One transfer at a time on a domain: the next waits for its turn, no longer than it was told to.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pinrail_core::MoveError;

use crate::deadline::Deadline;
use crate::pair::Pair;

/// Whether it is anybody's turn, and the pair that the last one has left.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    taken: bool,
    pair: Option<Pair>,
}

/// A turn. What it leaves in `pair` is there for the next.
pub(crate) struct Turn<'t> {
    turns: &'t Turns,
    pub(crate) pair: Option<Pair>,
}

impl Turns {
    /// Waits until it is the caller's turn.
    pub(crate) fn take(&self, api: &'static str, deadline: &Deadline) -> Result<Turn<'_>, MoveError> {
        let waited = self.ended.wait_timeout_while(self.state(), deadline.left(), |state| state.taken);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.taken {
            return Err(deadline.over(api));
        }
        state.taken = true;
        Ok(Turn { turns: self, pair: state.pair.take() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.turns.state() = State { taken: false, pair: self.pair.take() };
        self.turns.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_waits_too_long_gives_up_and_who_waits_long_enough_comes_next() {
        let turns = Turns::default();
        let after = |ms| Deadline::after(Duration::from_millis(ms));
        let first = turns.take("x", &after(0)).unwrap();
        let error = turns.take("x", &after(20)).err().unwrap();
        assert!(error.is_timeout(), "{error}");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| turns.take("x", &after(60_000)).is_ok());
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(turns.take("x", &after(0)).is_ok());
    }
}

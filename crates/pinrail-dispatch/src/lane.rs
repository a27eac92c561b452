use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

/// The ready steps of one rail, or the preparations, smallest first.
///
/// What is ready at the start is already in order and is read like a tape; what becomes ready later goes through a heap.
/// A million steps then cost as much each as a hundred.
pub(crate) struct Lane {
    tape: Vec<u32>,
    at: usize,
    late: BinaryHeap<Reverse<u32>>,
    /// Calls the rail makes progress on at once.
    parallel: NonZeroU32,
    pub(crate) running: u32,
}

/// What [`Lane::smallest`] says of an empty lane: no step has this number, a run has at most `u32::MAX` steps.
pub(crate) const EMPTY: u32 = u32::MAX;

impl Lane {
    pub(crate) fn new(parallel: NonZeroU32) -> Lane {
        Lane { tape: Vec::new(), at: 0, late: BinaryHeap::new(), parallel, running: 0 }
    }

    /// A step that is ready from the start; called in ascending order.
    pub(crate) fn ready_at_start(&mut self, step: u32) {
        debug_assert!(self.tape.last().is_none_or(|&last| last < step));
        self.tape.push(step);
    }

    pub(crate) fn ready(&mut self, step: u32) {
        self.late.push(Reverse(step));
    }

    /// The smallest ready step, or [`EMPTY`].
    pub(crate) fn smallest(&self) -> u32 {
        let tape = self.tape.get(self.at).copied().unwrap_or(EMPTY);
        self.late.peek().map_or(tape, |&Reverse(late)| late.min(tape))
    }

    /// Removes what [`Lane::smallest`] says.
    pub(crate) fn pop(&mut self) {
        if self.late.peek() == Some(&Reverse(self.smallest())) {
            self.late.pop();
        } else {
            self.at += 1;
        }
    }

    /// True when the rail has all the calls it may have.
    pub(crate) fn is_full(&self, per_rail: NonZeroU32) -> bool {
        let most = self.parallel.min(per_rail).get();
        self.running >= if planted!(LimitOffByOne) { most.saturating_add(1) } else { most }
    }

    pub(crate) fn parallel(&self) -> NonZeroU32 {
        self.parallel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_and_late_steps_come_out_smallest_first() {
        let mut lane = Lane::new(NonZeroU32::MIN);
        for step in [2, 5, 9] {
            lane.ready_at_start(step);
        }
        let mut seen = Vec::new();
        for late in [Some(7), Some(1), None, Some(3), None, None] {
            if let Some(step) = late {
                lane.ready(step);
            }
            seen.push(lane.smallest());
            lane.pop();
        }
        assert_eq!((seen, lane.smallest()), (vec![2, 1, 5, 3, 7, 9], EMPTY));
    }
}

//! Cores that everything which runs shares evenly, and the time that passes.
//!
//! Work is done at the rate `min(1, cores / load)`, the same for all of it. So there is one count of work that anybody who
//! has run all along has got (its own time, slower than the clock's), whatever ends is due at a fixed point of that count,
//! and a change of the load moves no entry of the queue: O(log n) an event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pinrail_policy::Tick;

/// The load of one thread that runs, in thousandths of a core.
pub(crate) const WHOLE: u64 = 1000;

pub(crate) struct Cores<T> {
    /// In thousandths, as the load.
    cores: u64,
    load: u64,
    now_ns: u64,
    /// What of a nanosecond has passed beyond `now_ns`, in units of 1 / `cores`.
    beyond: u64,
    /// Nanoseconds of work that each has got.
    given_ns: u64,
    /// Thousandths of nanoseconds that cores were busy.
    busy: u128,
    due: BinaryHeap<Reverse<(u64, u64, T)>>,
    /// What is due at the same moment comes in the order in which it was put there.
    next: u64,
}

impl<T: Ord> Cores<T> {
    pub(crate) fn new(cores: u32) -> Cores<T> {
        Cores {
            cores: u64::from(cores.max(1)) * WHOLE,
            load: 0,
            now_ns: 0,
            beyond: 0,
            given_ns: 0,
            busy: 0,
            due: BinaryHeap::new(),
            next: 0,
        }
    }

    pub(crate) fn now(&self) -> Tick {
        Tick(self.now_ns)
    }

    /// Core time used so far.
    pub(crate) fn busy_ns(&self) -> u64 {
        u64::try_from(self.busy / u128::from(WHOLE)).unwrap_or(u64::MAX)
    }

    /// More of the load.
    pub(crate) fn add(&mut self, load: u64) {
        self.load += load;
    }

    /// Less of it.
    pub(crate) fn remove(&mut self, load: u64) {
        self.load -= load;
    }

    /// `what` is due after so much work.
    pub(crate) fn after(&mut self, work_ns: u64, what: T) {
        self.due.push(Reverse((self.given_ns.saturating_add(work_ns), self.next, what)));
        self.next += 1;
    }

    /// Work left until the count of work stood at `due_ns`.
    pub(crate) fn left_ns(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.given_ns)
    }

    /// Where the count of work will stand after so much more.
    pub(crate) fn due_ns(&self, work_ns: u64) -> u64 {
        self.given_ns.saturating_add(work_ns)
    }

    /// What is due now.
    pub(crate) fn due_now(&mut self) -> Option<T> {
        let is_due = self.due.peek().is_some_and(|Reverse((at, ..))| *at <= self.given_ns);
        if is_due { self.due.pop().map(|Reverse((.., what))| what) } else { None }
    }

    /// Lets time pass until something is due; false when nothing ever will be.
    pub(crate) fn advance(&mut self) -> bool {
        let Some(&Reverse((at, ..))) = self.due.peek() else { return false };
        let work = u128::from(at.saturating_sub(self.given_ns));
        let passed = work * u128::from(self.load.max(self.cores)) + u128::from(self.beyond);
        self.now_ns = self.now_ns.saturating_add(u64::try_from(passed / u128::from(self.cores)).unwrap_or(u64::MAX));
        self.beyond = u64::try_from(passed % u128::from(self.cores)).unwrap_or(0);
        // Busy cores are min(load, cores), and time passes by work * max(load, cores) / cores: the product is this.
        self.busy += work * u128::from(self.load);
        self.given_ns = at;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_as_slowly_as_there_are_too_few_cores() {
        let mut cores = Cores::new(2);
        for (work, what) in [(30, 'c'), (10, 'a'), (10, 'b')] {
            cores.add(WHOLE);
            cores.after(work, what);
        }
        let mut seen = Vec::new();
        while cores.advance() {
            while let Some(what) = cores.due_now() {
                cores.remove(WHOLE);
                seen.push((what, cores.now().0));
            }
        }
        // Three on two cores for 10 of work each take 15, then one alone takes what is left of its 30.
        assert_eq!(seen, [('a', 15), ('b', 15), ('c', 35)]);
        assert_eq!(cores.busy_ns(), 50);
    }

    #[test]
    fn fractions_of_a_nanosecond_are_not_lost() {
        let mut cores = Cores::new(3);
        cores.add(4 * WHOLE);
        for at in 1..=300u64 {
            cores.after(at, at);
        }
        while cores.advance() {
            cores.due_now();
        }
        assert_eq!(cores.now().0, 400);
    }
}

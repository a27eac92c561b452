use std::collections::VecDeque;
use std::num::NonZeroU32;

/// Tokens that processes of a node share: who runs a step holds one. Each process has one of its own besides, so that
/// everyone always gets on. A token that becomes free goes to the process that holds the fewest.
pub(crate) struct Budget {
    free: u32,
    processes: Vec<Share>,
    /// By worker: what it holds.
    held: Vec<Option<Token>>,
}

#[derive(Clone, Default)]
struct Share {
    has_own: bool,
    /// Shared tokens that its workers hold.
    holds: u32,
    /// Workers without a token, longest waiting first.
    queue: VecDeque<usize>,
}

#[derive(Clone, Copy)]
enum Token {
    Shared(usize),
    Own(usize),
}

impl Budget {
    pub(crate) fn new(tokens: NonZeroU32, processes: usize) -> Budget {
        let share = Share { has_own: true, ..Share::default() };
        Budget { free: tokens.get(), processes: vec![share; processes], held: Vec::new() }
    }

    /// True when the worker holds a token now; else it waits, and [`Budget::release`] will name it.
    pub(crate) fn acquire(&mut self, worker: usize, process: usize) -> bool {
        if self.held.len() <= worker {
            self.held.resize(worker + 1, None);
        }
        if self.held[worker].is_some() {
            return true;
        }
        let share = &mut self.processes[process];
        let token = if std::mem::take(&mut share.has_own) {
            Token::Own(process)
        } else if self.free > 0 {
            self.free -= 1;
            share.holds += 1;
            Token::Shared(process)
        } else {
            share.queue.push_back(worker);
            return false;
        };
        self.held[worker] = Some(token);
        true
    }

    /// The worker holds no token any more; whoever waits and may have it holds it now.
    pub(crate) fn release(&mut self, worker: usize) -> Option<usize> {
        match self.held[worker].take()? {
            Token::Own(process) => {
                let next = self.processes[process].queue.pop_front();
                match next {
                    Some(next) => self.held[next] = Some(Token::Own(process)),
                    None => self.processes[process].has_own = true,
                }
                next
            }
            Token::Shared(process) => {
                self.processes[process].holds -= 1;
                let waiting = self.processes.iter_mut().enumerate().filter(|(_, share)| !share.queue.is_empty());
                let Some((process, share)) = waiting.min_by_key(|(_, share)| share.holds) else {
                    self.free += 1;
                    return None;
                };
                share.holds += 1;
                let next = share.queue.pop_front()?;
                self.held[next] = Some(Token::Shared(process));
                Some(next)
            }
        }
    }

    /// Whether somebody waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.processes.iter().any(|share| !share.queue.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_gets_on_and_the_rest_goes_to_who_holds_the_fewest() {
        let mut budget = Budget::new(NonZeroU32::new(2).unwrap(), 2);
        // Workers 0 to 3 of process 0 and 4 to 6 of process 1: a token of each process's own and two for all.
        let got =
            [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1)].map(|(worker, process)| budget.acquire(worker, process));
        assert_eq!(got, [true, true, true, false, true, false, false]);
        assert_eq!(budget.release(4), Some(5), "process 1's own");
        assert_eq!(budget.release(1), Some(6), "process 1 holds none of the shared ones");
        assert!(budget.acquire(6, 1), "it holds one");
        assert_eq!(budget.release(2), Some(3), "only process 0 waits");
        assert!(!budget.is_wanted());
        assert_eq!([budget.release(3), budget.release(6), budget.release(5), budget.release(0), budget.release(0)], [None; 5]);
        assert!(budget.acquire(0, 0) && budget.acquire(1, 0) && budget.acquire(2, 0) && !budget.acquire(3, 0));
    }
}

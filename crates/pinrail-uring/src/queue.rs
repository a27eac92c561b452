use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, squeue};

/// A ring of our own with its submission and completion queue, for one transfer at a time.
///
/// Registrations need none of this: they are calls on the descriptor, and no lock here is theirs.
pub(crate) struct Queue {
    ring: IoUring,
    state: Mutex<State>,
    freed: Condvar,
}

/// Whoever has this locked may touch the mapped queues. It is never locked while the kernel is waited for.
#[derive(Default)]
struct State {
    /// Somebody's transfer is being waited for. Two waiting at once could take each other's completion.
    taken: bool,
    /// The kernel would not take a request off the submission queue, and it cannot be taken back.
    stuck: bool,
    /// The last request's number.
    last: u64,
    /// Requests that nobody waits for any more and that may still move bytes.
    late: Vec<Late>,
}

struct Late {
    request: u64,
    slot: u32,
}

/// Why a transfer has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing came in time; the transfer may still happen.
    Timeout,
    /// `io_uring_enter` failed.
    Enter(i32),
    /// It failed earlier, and left a request in the queue.
    Stuck,
}

/// Submission queue entries of a ring: a transfer needs one.
const ENTRIES: u32 = 8;

impl Queue {
    pub(crate) fn open() -> std::io::Result<Queue> {
        // Without DONTFORK a forked child could write to the queues of a ring it shares with us.
        let ring = IoUring::builder().dontfork().build(ENTRIES)?;
        Ok(Queue { ring, state: Mutex::default(), freed: Condvar::new() })
    }

    /// Hands one request on `slot` to the kernel and waits for its result: a count of bytes or a negative errno.
    ///
    /// # Safety
    /// The entry must be a transfer between a descriptor, open until this returns, and the fixed buffer in `slot`.
    pub(crate) unsafe fn transfer(&self, entry: squeue::Entry, slot: u32, wait: Duration) -> Result<i32, Failure> {
        let deadline = now().checked_add(wait);
        let in_turn = self.freed.wait_timeout_while(self.state(), wait, |state| state.taken);
        let (mut state, waited) = in_turn.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Failure::Timeout);
        }
        if state.stuck {
            return Err(Failure::Stuck);
        }
        state.last += 1;
        let request = state.last;
        // SAFETY: the state is locked, and no other submission queue is made elsewhere.
        let mut submission = unsafe { self.ring.submission_shared() };
        // SAFETY: the caller promised what the entry names: the kernel takes its own hold of the descriptor when it is
        // handed over below, before we return, and of the fixed buffer, whose pages it has pinned.
        let pushed = unsafe { submission.push(&entry.user_data(request)) };
        drop(submission);
        if pushed.is_err() {
            return Err(Failure::Stuck);
        }
        state.taken = true;
        drop(state);

        let outcome = self.wait_for(request, deadline);

        let mut state = self.state();
        state.taken = false;
        if outcome.is_err() {
            // SAFETY: the state is locked, and no other submission queue is made elsewhere.
            let left_behind = !unsafe { self.ring.submission_shared() }.is_empty();
            if left_behind {
                state.stuck = true;
            } else {
                state.late.push(Late { request, slot });
            }
        }
        drop(state);
        self.freed.notify_one();
        outcome
    }

    /// True while a transfer that nobody waits for any more may still touch the slot's buffer.
    pub(crate) fn may_touch(&self, slot: u32) -> bool {
        let mut state = self.state();
        if !state.late.is_empty() && !state.taken {
            self.reap(&mut state, 0);
        }
        state.late.iter().any(|late| late.slot == slot)
    }

    fn wait_for(&self, request: u64, deadline: Option<Instant>) -> Result<i32, Failure> {
        // Within what the kernel's clock takes; a longer wait goes round again.
        const ROUND: Duration = Duration::from_secs(3600);
        loop {
            let left = deadline.map_or(ROUND, |deadline| deadline.saturating_duration_since(now())).min(ROUND);
            let timeout = Timespec::from(left);
            let entered = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout));
            if let Some(result) = self.reap(&mut self.state(), request) {
                return Ok(result);
            }
            match entered.map_err(|error| error.raw_os_error().unwrap_or_default()) {
                Ok(_) | Err(libc::ETIME | libc::EINTR) if left.is_zero() => return Err(Failure::Timeout),
                Ok(_) | Err(libc::ETIME | libc::EINTR) => {}
                Err(errno) => return Err(Failure::Enter(errno)),
            }
        }
    }

    /// Takes all completions there are, and answers with that of `request`. Those of late requests end there.
    fn reap(&self, state: &mut State, request: u64) -> Option<i32> {
        let mut found = None;
        // SAFETY: the state is locked, which our caller shows, and no other completion queue is made elsewhere.
        for done in unsafe { self.ring.completion_shared() } {
            if done.user_data() == request {
                found = Some(done.result());
            }
            state.late.retain(|late| late.request != done.user_data());
        }
        found
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a transfer's bound covers its turn and its rounds; nothing is measured or scheduled by it"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};
    use std::os::fd::AsRawFd;

    use io_uring::{opcode, types};
    use pinrail_core::{Access, Cause, Chunk, Machine, Memory, MoveBytes, Mr, RailId, Registrar, Source};
    use pinrail_memory::{Mapping, Pages};

    use super::*;
    use crate::Uring;
    use crate::uring::Token;

    const SOON: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(60);

    fn one_page() -> (Uring, Memory, Mr) {
        let uring = Uring::open(&Machine::of_rails(1).rails).unwrap();
        let memory = Memory::new(Mapping::anonymous(4096, Pages::Small, None).unwrap());
        let chunk = Chunk { memory: &memory, range: 0..4096, access: Access::FULL, source: &Source::Address };
        let mr = uring.register(RailId(0), &chunk).unwrap();
        (uring, memory, mr)
    }

    /// A transfer that ends when somebody writes four bytes into the pipe.
    fn from_pipe(mr: &Mr, pipe: &impl AsRawFd, wait: Duration) -> Result<i32, Failure> {
        let token = mr.token::<Token>().unwrap();
        let start = std::ptr::without_provenance_mut(usize::try_from(mr.extent().start()).unwrap());
        let entry = opcode::ReadFixed::new(types::Fd(pipe.as_raw_fd()), start, 4, u16::try_from(token.slot).unwrap()).build();
        // SAFETY: the pipe is open in our caller's frame, and the MR lives in the slot.
        unsafe { token.ring.queue().unwrap().transfer(entry, token.slot, wait) }
    }

    #[test]
    fn a_transfer_that_ran_out_of_time_keeps_the_memory_registered_until_it_has_ended() {
        let (uring, memory, mut mr) = one_page();
        let (from, mut to) = pipe().unwrap();
        assert_eq!(from_pipe(&mr, &from, SOON), Err(Failure::Timeout));
        let error = uring.deregister(&mut mr).unwrap_err();
        assert!(matches!(error.cause, Cause::Busy { .. }) && mr.is_live(), "{error}");

        // Another transfer does not take the late one's completion for its own, before or after that comes.
        uring.write(&mr, 100, b"other", LONG).unwrap();
        to.write_all(b"late").unwrap();
        let mut seen = [0; 5];
        uring.read(&mr, 100, &mut seen, LONG).unwrap();
        assert_eq!(&seen, b"other");

        deregister_when_ended(&uring, &mut mr);
        memory.read_at(0, &mut seen).unwrap();
        assert_eq!(&seen, b"late\0");
    }

    #[test]
    fn the_bound_covers_the_turn_on_the_ring() {
        let (uring, _memory, mut mr) = one_page();
        let (from, mut to) = pipe().unwrap();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| from_pipe(&mr, &from, LONG));
            let queue = mr.token::<Token>().unwrap().ring.queue().unwrap();
            while !queue.state().taken {
                std::thread::yield_now();
            }
            assert!(uring.write(&mr, 0, b"me", SOON).unwrap_err().is_timeout());
            to.write_all(b"done").unwrap();
            assert_eq!(waiting.join().unwrap(), Ok(4));
        });
        uring.write(&mr, 0, b"me", LONG).unwrap();
        uring.deregister(&mut mr).unwrap();
    }

    #[test]
    fn without_a_wait_it_is_a_try() {
        let (uring, _memory, mut mr) = one_page();
        let (from, mut to) = pipe().unwrap();
        assert_eq!(from_pipe(&mr, &from, Duration::ZERO), Err(Failure::Timeout));
        to.write_all(b"late").unwrap();
        to.write_all(b"more").unwrap();
        assert_eq!(from_pipe(&mr, &from, LONG), Ok(4));
        deregister_when_ended(&uring, &mut mr);
    }

    fn deregister_when_ended(uring: &Uring, mr: &mut Mr) {
        while let Err(error) = uring.deregister(mr) {
            assert!(matches!(error.cause, Cause::Busy { .. }), "{error}");
            std::thread::yield_now();
        }
    }
}

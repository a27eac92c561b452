//! A child that was forked shares its parent's open files, and so would keep the parent's tokens after its death.
//!
//! So in each child the descriptors of all budgets are made to refer to /dev/null, before the child does anything else.
//! They stay open: nobody closes the number of a file of somebody else's.
//!
//! The one global state of the crate, because forking is the process's and not any budget's.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::sys;

/// Files that one process may have open for budgets.
const FILES_MAX: usize = 64;
const NONE: i32 = -1;

static DESCRIPTORS: [AtomicI32; FILES_MAX] = [const { AtomicI32::new(NONE) }; FILES_MAX];
static NOTHING: OnceLock<File> = OnceLock::new();
/// How many times this process and those it came from were forked, since the first budget.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A number that is another one in a forked child.
pub(crate) fn generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let Some(nothing) = NOTHING.get() else { return };
    for descriptor in &DESCRIPTORS {
        let descriptor = descriptor.load(Ordering::Relaxed);
        if descriptor != NONE {
            sys::replace(descriptor, nothing.as_fd());
        }
    }
}

/// Keeps a file out of forked children; dropped before the file is.
pub(crate) struct KeptOut(&'static AtomicI32);

/// # Errors
/// What opening /dev/null or `pthread_atfork` reported; `OutOfMemory` beyond [`FILES_MAX`].
pub(crate) fn keep_out(file: &File) -> io::Result<KeptOut> {
    if NOTHING.get().is_none() {
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        // Another thread may have been faster; the handler is wanted once.
        if NOTHING.set(nothing).is_ok() {
            sys::call_in_forked_children(in_child)?;
        }
    }
    let free = |slot: &&AtomicI32| slot.compare_exchange(NONE, file.as_raw_fd(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
    DESCRIPTORS.iter().find(free).map(KeptOut).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Drop for KeptOut {
    fn drop(&mut self) {
        self.0.store(NONE, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use crate::sync::now;
    use crate::sys::forked::Forked;
    use crate::{Config, Degraded, NodeBudget};

    fn soon(holds: impl Fn() -> bool) -> bool {
        let until = now() + Duration::from_secs(10);
        while !holds() && now() < until {
            std::thread::yield_now();
        }
        holds()
    }

    #[test]
    fn a_forked_child_has_nothing_of_its_parents_and_keeps_nothing() {
        let path = std::path::PathBuf::from(format!("/dev/shm/pinrail-node-fork-{}", std::process::id()));
        let go_on = path.with_extension("go-on");
        let open = || NodeBudget::open(Config { path: path.clone(), ..Config::new(NonZeroU32::new(4).unwrap()) });
        let (ours, other) = (open(), open());
        let mut all = Some([(); 5].map(|()| ours.acquire()));
        let own = other.acquire();
        assert_eq!(ours.processes().get(), 2);

        let gives_back = Forked::start(|| {
            drop(all.take());
            ours.degraded() == Some(Degraded::Forked)
        });
        assert!(gives_back.said_true());
        assert!(other.try_acquire().is_none(), "a copy of a token is none");

        let stays = Forked::start(|| {
            let tokens = [(); 3].map(|()| ours.try_acquire());
            let share = tokens.each_ref().map(Option::is_some);
            share == [true, true, false] && open().degraded().is_none() && soon(|| go_on.exists())
        });
        drop(all.take());
        assert!(soon(|| other.try_acquire().is_some_and(|token| token.of_node().is_some())), "a child keeps them");
        std::fs::write(&go_on, "").unwrap();
        assert!(stays.said_true());
        drop(own);
        for file in [&path, &go_on] {
            std::fs::remove_file(file).unwrap();
        }
    }
}

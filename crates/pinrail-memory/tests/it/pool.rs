//! Huge pages for a test, put back afterwards.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pinrail_memory::HugePool;

use crate::skip;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A pool that had at least the pages asked for; none of this binary's other tests changes it meanwhile.
pub(crate) struct Pool {
    file: String,
    before: Option<u64>,
    _alone: MutexGuard<'static, ()>,
}

impl Pool {
    /// Adds `pages` pages; `None`, said loudly, where that is not allowed or there is no memory for them.
    pub(crate) fn with(pages: u64, page_size: u64) -> Option<Pool> {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let file = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", page_size >> 10);
        let Ok(now) = HugePool::read(page_size) else {
            skip(&format!("this kernel has no huge pages of {page_size} bytes"));
            return None;
        };
        let set = fs::write(&file, (now.total + pages).to_string());
        let pool = Pool { file, before: set.is_ok().then_some(now.total), _alone: alone };
        let available = HugePool::read(page_size).unwrap().available();
        if available < pages {
            skip(&format!(
                "{pages} huge pages of {page_size} bytes cannot be had ({available} available, setting them: {set:?})"
            ));
            return None;
        }
        Some(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            fs::write(&self.file, before.to_string()).unwrap();
        }
    }
}

use crate::FileError;
use crate::node_file::NodeFile;
use crate::sync::{AtomicU64, Ordering};

/// The tokens of a node as one process has them.
///
/// Locks of one open file never exclude each other, so which tokens are ours is written down here as well: a bit is set
/// before the byte is locked and cleared after it is unlocked. Bits are set by one thread at a time.
pub(crate) struct Tokens {
    pub(crate) file: NodeFile,
    ours: Vec<AtomicU64>,
    count: u32,
    /// Where the last token was found; a search begins there.
    last: AtomicU64,
}

impl Tokens {
    pub(crate) fn new(file: NodeFile, count: u32) -> Tokens {
        let ours = (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        // A node has about eight processes: each begins its first search elsewhere.
        let last = u64::from(file.place() % 8) * u64::from(count) / 8;
        Tokens { file, ours, count, last: AtomicU64::new(last) }
    }

    /// The token that was found last, if nobody has it. Not for two threads at once.
    pub(crate) fn take_again(&self) -> Result<Option<u32>, FileError> {
        let last = self.last();
        Ok(self.try_take(last)?.then_some(last))
    }

    /// A token that nobody has, if there is one; `word` says where to look first. Not for two threads at once.
    pub(crate) fn take(&self, word: u32) -> Result<Option<u32>, FileError> {
        let last = self.last();
        let rung = NodeFile::token_in(word).filter(|&token| token < self.count);
        for token in rung.into_iter().chain(last..self.count).chain(0..last) {
            if self.try_take(token)? {
                self.last.store(token.into(), Ordering::Relaxed);
                return Ok(Some(token));
            }
        }
        Ok(None)
    }

    fn last(&self) -> u32 {
        // Smaller than `count`, which is of 32 bits.
        u32::try_from(self.last.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn try_take(&self, token: u32) -> Result<bool, FileError> {
        let (word, bit) = self.bit(token);
        if word.load(Ordering::Acquire) & bit != 0 {
            return Ok(false);
        }
        word.fetch_or(bit, Ordering::Relaxed);
        let locked = self.file.try_lock(token);
        if !matches!(locked, Ok(true)) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        locked
    }

    pub(crate) fn give_back(&self, token: u32) {
        // In this order: a byte that a thread of ours locks anew must not be unlocked by the last holder.
        self.file.unlock(token);
        let (word, bit) = self.bit(token);
        word.fetch_and(!bit, Ordering::Release);
        self.file.ring(token);
    }

    #[cfg(all(test, loom))]
    pub(crate) fn give_back_bit_first(&self, token: u32) {
        let (word, bit) = self.bit(token);
        word.fetch_and(!bit, Ordering::Release);
        self.file.unlock(token);
    }

    fn bit(&self, token: u32) -> (&AtomicU64, u64) {
        (&self.ours[token as usize / 64], 1 << (token % 64))
    }
}

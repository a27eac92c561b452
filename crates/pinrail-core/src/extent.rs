use std::fmt;
use std::ops::Range;

/// A non-empty range of addresses that does not pass the end of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    start: u64,
    len: u64,
}

/// Why a range of addresses is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// Providers differ on zero lengths, some fail much later: refused here, before any call.
    #[error("length is zero")]
    ZeroLength,
    /// `start + len` does not fit in 64 bits.
    #[error("{len} bytes at {start:#x} pass the end of the address space")]
    Wrap {
        /// First address.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// The range is not inside the memory it was said to lie in.
    #[error("bytes {start}..{end} are outside the memory of {len} bytes")]
    Outside {
        /// First offset.
        start: u64,
        /// Offset after the last.
        end: u64,
        /// Bytes of the memory.
        len: u64,
    },
}

impl Extent {
    /// The range of `len` bytes from `start`.
    ///
    /// # Errors
    /// [`ExtentError::ZeroLength`] and [`ExtentError::Wrap`].
    pub fn new(start: u64, len: u64) -> Result<Extent, ExtentError> {
        if len == 0 {
            return Err(ExtentError::ZeroLength);
        }
        match start.checked_add(len) {
            Some(_) => Ok(Extent { start, len }),
            None => Err(ExtentError::Wrap { start, len }),
        }
    }

    /// First address.
    #[must_use]
    pub fn start(self) -> u64 {
        self.start
    }

    /// The address after the last.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start + self.len
    }

    /// Bytes; never zero.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an extent is never empty")]
    pub fn len(self) -> u64 {
        self.len
    }

    /// True if the two share a byte.
    #[must_use]
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// The pages of `page` bytes (a power of two) that the range touches: what a NIC must map and what gets pinned.
    #[must_use]
    pub fn pages(self, page: u64) -> u64 {
        debug_assert!(page.is_power_of_two());
        (self.end() - 1) / page - self.start / page + 1
    }

    /// The range as addresses.
    #[must_use]
    pub fn range(self) -> Range<u64> {
        self.start..self.end()
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{}", self.start, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_may_not_pass_the_last_address() {
        assert_eq!(Extent::new(u64::MAX - 4095, 8192), Err(ExtentError::Wrap { start: u64::MAX - 4095, len: 8192 }));
        // The last byte of the address space itself is refused too: its end has no address.
        assert!(Extent::new(u64::MAX, 1).is_err());
        assert_eq!(Extent::new(u64::MAX - 1, 1).unwrap().end(), u64::MAX);
    }

    #[test]
    fn a_page_is_counted_once_however_little_of_it_is_used() {
        assert_eq!(Extent::new(0, 1).unwrap().pages(4096), 1);
        assert_eq!(Extent::new(4095, 2).unwrap().pages(4096), 2);
        assert_eq!(Extent::new(4096, 8192).unwrap().pages(4096), 2);
        assert_eq!(Extent::new(100, 2 << 20).unwrap().pages(2 << 20), 2);
    }

    #[test]
    fn touching_ranges_do_not_overlap() {
        let left = Extent::new(0, 10).unwrap();
        assert!(!left.overlaps(Extent::new(10, 5).unwrap()));
        assert!(left.overlaps(Extent::new(9, 1).unwrap()));
    }
}

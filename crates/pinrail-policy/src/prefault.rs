use std::ops::Range;

/// What is done to host memory before it is registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preparation {
    /// Slices are made resident; a chunk's registrations wait for its slices.
    ///
    /// First touch is where cold registration spends its time (about 95 % on small pages), and it must not happen inside
    /// the registrations: on several rails at once they fault the same pages, 5 times slower than one after the other.
    #[default]
    Prefault,
    /// Nothing.
    NoPrefault,
}

impl Preparation {
    /// The term in a spec.
    #[must_use]
    pub fn spec(self) -> &'static str {
        match self {
            Preparation::Prefault => "prefault",
            Preparation::NoPrefault => "no-prefault",
        }
    }
}

/// How a range is cut into slices that are made resident one by one.
///
/// Many small slices keep every thread busy to the end and let a chunk's registration begin early; 32 MiB is 10 ms or
/// more of faulting, thousands of times what handing a slice out costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    bytes: u64,
}

impl Default for Slices {
    fn default() -> Slices {
        Slices { bytes: 32 << 20 }
    }
}

impl Slices {
    /// Slices of `bytes`, at least one.
    #[must_use]
    pub fn of(bytes: u64) -> Slices {
        Slices { bytes: bytes.max(1) }
    }

    /// How many slices a range of `len` bytes has whose pages have `page` bytes, counted from the start of its first page.
    #[must_use]
    pub fn count(self, len: u64, page: u64) -> u64 {
        len.div_ceil(self.step(page))
    }

    /// The `nth` slice of a range of addresses: they meet at page boundaries, also where the range begins inside a page.
    #[must_use]
    pub fn nth(self, range: &Range<u64>, page: u64, nth: u64) -> Range<u64> {
        let first_page = range.start - range.start % page.max(1);
        let start = first_page.saturating_add(nth.saturating_mul(self.step(page)));
        start.clamp(range.start, range.end)..start.saturating_add(self.step(page)).min(range.end)
    }

    /// At least one page, so that no page belongs to many slices.
    fn step(self, page: u64) -> u64 {
        self.bytes.max(page).next_multiple_of(page.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slices_tile_the_range(start in 0u64..1 << 40, len in 1u64..1 << 34, bytes in 1u64..1 << 30, page_shift in 12u32..31) {
            let (slices, range, page) = (Slices::of(bytes), start..start + len, 1u64 << page_shift);
            let count = slices.count(start % page + len, page);
            prop_assume!(count < 10_000);
            let mut at = range.start;
            for nth in 0..count {
                let slice = slices.nth(&range, page, nth);
                prop_assert_eq!(slice.start, at);
                prop_assert!(slice.end > slice.start);
                prop_assert!(slice.end == range.end || slice.end % page == 0);
                at = slice.end;
            }
            prop_assert_eq!(at, range.end);
        }
    }

    #[test]
    fn a_slice_is_never_smaller_than_a_page() {
        assert_eq!(Slices::default().count(3 << 30, 1 << 30), 3);
        assert_eq!(Slices::default().count(1, 4096), 1);
        assert_eq!(Slices::of(0).count(3 * 4096, 4096), 3);
    }

    #[test]
    fn slices_have_the_length_asked_for() {
        assert_eq!(Slices::of(8192).count(5 * 4096, 4096), 3);
        assert_eq!(Slices::of(8192).nth(&(0..5 * 4096), 4096, 2), 4 * 4096..5 * 4096);
    }
}

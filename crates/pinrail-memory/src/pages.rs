use std::fmt;
use std::str::FromStr;

use crate::sys;

/// The pages a [`Mapping`](crate::Mapping) is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pages {
    /// `4k`: base pages and no others (transparent huge pages are switched off for the mapping).
    #[default]
    Small,
    /// `thp`: base pages that the kernel may join to transparent huge pages of 2 MiB.
    Transparent,
    /// `2m`: pages of 2 MiB out of the hugetlb pool.
    Huge2M,
    /// `1g`: pages of 1 GiB out of the hugetlb pool.
    Huge1G,
}

impl Pages {
    /// Every kind.
    pub const ALL: [Pages; 4] = [Pages::Small, Pages::Transparent, Pages::Huge2M, Pages::Huge1G];

    /// The word on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Pages::Small => "4k",
            Pages::Transparent => "thp",
            Pages::Huge2M => "2m",
            Pages::Huge1G => "1g",
        }
    }

    /// Bytes of the pages that the memory certainly has: what a NIC's page entries must be reckoned with. Transparent
    /// huge pages are the kernel's choice and may be divided at any time, so they count as base pages.
    #[must_use]
    pub fn page_size(self) -> u64 {
        self.hugetlb().unwrap_or_else(sys::base_page)
    }

    /// Bytes to which a mapping of these pages begins and ends, so that huge pages fit: a good multiple for slices.
    #[must_use]
    pub fn alignment(self) -> u64 {
        match self {
            Pages::Small => sys::base_page(),
            Pages::Transparent => 2 << 20,
            Pages::Huge2M | Pages::Huge1G => self.page_size(),
        }
    }

    /// Bytes of the pool's pages, for the kinds that come out of a pool.
    pub(crate) const fn hugetlb(self) -> Option<u64> {
        match self {
            Pages::Small | Pages::Transparent => None,
            Pages::Huge2M => Some(2 << 20),
            Pages::Huge1G => Some(1 << 30),
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no kind of pages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no kind of pages: expected 4k, thp, 2m or 1g")]
pub struct ParsePagesError {
    word: String,
}

impl FromStr for Pages {
    type Err = ParsePagesError;

    fn from_str(word: &str) -> Result<Pages, ParsePagesError> {
        Pages::ALL
            .into_iter()
            .find(|pages| pages.as_str() == word)
            .ok_or_else(|| ParsePagesError { word: word.chars().take(40).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_leads_back_to_its_kind() {
        for pages in Pages::ALL {
            assert_eq!(pages.to_string().parse(), Ok(pages));
        }
        assert_eq!("4K".parse::<Pages>().unwrap_err().to_string(), "\"4K\" is no kind of pages: expected 4k, thp, 2m or 1g");
    }

    #[test]
    fn only_pool_pages_are_promised_to_be_huge() {
        assert_eq!(Pages::ALL.map(Pages::page_size), [4096, 4096, 2 << 20, 1 << 30]);
        assert_eq!(Pages::ALL.map(Pages::alignment), [4096, 2 << 20, 2 << 20, 1 << 30]);
    }
}

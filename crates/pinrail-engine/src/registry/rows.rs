//! The keys of neighbouring chunks as one run of bytes. A look-up among many chunks waits for caches and page walks, so
//! bytes that are not there are time that is not spent: integers are as wide as the widest of their run.

use std::sync::Arc;

use pinrail_core::{Extent, Keys, RailId};

/// Most rails a registry serves: which of them a row has keys for is one word.
pub(crate) const RAILS_MAX: usize = 128;

/// Bytes that a remote key may have: its length is one byte, and one value of it says that there is no key.
pub(crate) const REMOTE_KEY_BYTES_MAX: usize = 254;

/// Rows that are searched together: few cache lines, which are waited for at once. Twice as many take as long, and a change
/// would copy twice as much.
pub(super) const GROUP: usize = 4;

const NO_KEY: u8 = u8::MAX;

/// An integer is read as eight bytes of which those above its width are cut off: so many more lie behind the last row.
const WORD: usize = 8;

/// How rows are laid out: the low bytes of the range's first address, its length, then a cell for each rail: length of the
/// remote key, local key, remote key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// The rails that have a cell, a bit each.
    rails: u128,
    start: Width,
    len: Width,
    local: Width,
    /// Bytes of a remote key; shorter ones are padded.
    remote: u8,
}

/// Bytes of an integer, 1 to 8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Width(u8);

/// Rows of one layout. Clones are one run.
#[derive(Clone)]
pub(super) struct Rows {
    layout: Layout,
    /// What the first addresses have in common: their bytes above `layout.start`.
    high: u64,
    /// `layout.row_len()`, which a look-up need not count again.
    row_len: usize,
    len: usize,
    bytes: Arc<[u8]>,
}

/// One row of [`Rows`].
#[derive(Clone, Copy)]
pub(super) struct Row<'r> {
    rows: &'r Rows,
    /// From its first byte to the last of all rows.
    bytes: &'r [u8],
}

/// A key that cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong {
    pub(super) bytes: usize,
}

impl Width {
    /// The least in which a value can be written.
    fn of(value: u64) -> Width {
        let bytes = value.to_le_bytes();
        Width((1..8).rev().find(|&at: &u8| bytes[usize::from(at)] != 0).map_or(1, |at| at + 1))
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.0))
    }

    /// Reads the integer that `bytes` begin with.
    fn read(self, bytes: &[u8]) -> Option<u64> {
        bytes.first_chunk::<WORD>().map(|bytes| u64::from_le_bytes(*bytes) & self.mask())
    }

    fn push(self, bytes: &mut Vec<u8>, value: u64) {
        bytes.extend_from_slice(&value.to_le_bytes()[..usize::from(self.0)]);
    }
}

impl Layout {
    fn cells_at(self) -> usize {
        usize::from(self.start.0 + self.len.0)
    }

    fn cell_len(self) -> usize {
        1 + usize::from(self.local.0) + usize::from(self.remote)
    }

    fn row_len(self) -> usize {
        self.cells_at() + self.rails.count_ones() as usize * self.cell_len()
    }

    /// The least in which rows of either can be written, but for their first addresses.
    fn both(self, other: Layout) -> Layout {
        Layout {
            rails: self.rails | other.rails,
            start: self.start,
            len: self.len.max(other.len),
            local: self.local.max(other.local),
            remote: self.remote.max(other.remote),
        }
    }

    fn rails(self) -> impl Iterator<Item = RailId> {
        (0..).zip(0..RAILS_MAX).map(|(rail, _)| RailId(rail)).filter(move |rail| self.rails >> rail.0 & 1 == 1)
    }

    /// A rail's place among the cells.
    fn place(self, rail: RailId) -> Option<usize> {
        let bit = 1u128.checked_shl(rail.0.into())?;
        if self.rails & bit == 0 {
            return None;
        }
        // Where every rail below has a cell, as nearly always, counting them would be half of the work.
        let below = self.rails & (bit - 1);
        Some(if below == bit - 1 { rail.index() } else { below.count_ones() as usize })
    }

    fn push_row<'k>(self, bytes: &mut Vec<u8>, start: u64, len: u64, keys: impl Fn(RailId) -> Option<(u64, &'k [u8])>) {
        self.start.push(bytes, start);
        self.len.push(bytes, len);
        for rail in self.rails() {
            let end = bytes.len() + self.cell_len();
            match keys(rail) {
                Some((local, remote)) => {
                    bytes.push(u8::try_from(remote.len()).unwrap_or(NO_KEY));
                    self.local.push(bytes, local);
                    bytes.extend_from_slice(remote);
                }
                None => bytes.push(NO_KEY),
            }
            bytes.resize(end, 0);
        }
    }
}

impl Rows {
    /// A row alone: the rails of `keys` are below [`RAILS_MAX`].
    pub(super) fn one(extent: Extent, keys: &[(RailId, &Keys)]) -> Result<Rows, TooLong> {
        let longest = keys.iter().map(|(_, keys)| keys.remote.len()).max().unwrap_or(0);
        let remote = u8::try_from(longest).ok().filter(|_| longest <= REMOTE_KEY_BYTES_MAX).ok_or(TooLong { bytes: longest })?;
        let layout = Layout {
            rails: keys.iter().fold(0, |rails, (rail, _)| rails | 1 << rail.0),
            start: Width(1),
            len: Width::of(extent.len()),
            local: Width::of(keys.iter().fold(0, |all, (_, keys)| all | keys.local)),
            remote,
        };
        let mut bytes = Vec::with_capacity(layout.row_len() + WORD);
        layout.push_row(&mut bytes, extent.start(), extent.len(), |rail| {
            keys.iter().find(|(other, _)| *other == rail).map(|(_, keys)| (keys.local, keys.remote.as_slice()))
        });
        Ok(Rows::new(layout, extent.start(), 1, bytes))
    }

    /// These rows together.
    pub(super) fn of<'r>(parts: &[Row<'r>]) -> Rows {
        let layouts = parts.iter().map(|row| row.rows.layout);
        let first = parts.first().map_or(0, |row| row.start());
        let apart = parts.iter().fold(0, |apart, row| apart | (row.start() ^ first));
        let none = Layout { rails: 0, start: Width(1), len: Width(1), local: Width(1), remote: 0 };
        let layout = Layout { start: Width::of(apart), ..layouts.reduce(Layout::both).unwrap_or(none) };
        let mut bytes = Vec::with_capacity(layout.row_len() * parts.len() + WORD);
        for row in parts {
            if row.rows.layout == layout {
                bytes.extend_from_slice(&row.bytes[..layout.row_len()]);
            } else {
                layout.push_row(&mut bytes, row.start(), row.len(), |rail| row.keys(rail));
            }
        }
        Rows::new(layout, first, parts.len(), bytes)
    }

    fn new(layout: Layout, first: u64, len: usize, mut bytes: Vec<u8>) -> Rows {
        bytes.resize(bytes.len() + WORD, 0);
        Rows { layout, high: first & !layout.start.mask(), row_len: layout.row_len(), len, bytes: bytes.into() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, at: usize) -> Option<Row<'_>> {
        let bytes = self.bytes.get(at * self.row_len..).filter(|_| at < self.len)?;
        Some(Row { rows: self, bytes })
    }

    /// Of a group, the last row that begins at or before `address`.
    pub(super) fn last_before(&self, group: usize, address: u64) -> Option<Row<'_>> {
        let first = group * GROUP;
        let rows = first..self.len.min(first + GROUP);
        // Without a guess: none of the lines is waited for before the others.
        let before = rows.filter_map(|at| self.get(at)).fold(0, |before, row| before + usize::from(row.start() <= address));
        self.get(first + before.checked_sub(1)?)
    }
}

impl<'r> Row<'r> {
    /// The range's first address.
    pub(super) fn start(self) -> u64 {
        let Rows { layout, high, .. } = self.rows;
        high | layout.start.read(self.bytes).unwrap_or(0)
    }

    /// Its bytes.
    pub(super) fn width(self) -> usize {
        self.rows.row_len
    }

    /// The range's length.
    pub(super) fn len(self) -> u64 {
        let Layout { start, len, .. } = self.rows.layout;
        self.bytes.get(usize::from(start.0)..).and_then(|bytes| len.read(bytes)).unwrap_or(0)
    }

    /// The local and the remote key on a rail.
    pub(super) fn keys(self, rail: RailId) -> Option<(u64, &'r [u8])> {
        let layout = self.rows.layout;
        let cell = self.bytes.get(layout.cells_at() + layout.place(rail)? * layout.cell_len()..)?;
        let (&len, keys) = cell.split_first()?;
        if len == NO_KEY {
            return None;
        }
        let local = usize::from(layout.local.0);
        Some((layout.local.read(keys)?, keys.get(local..local + usize::from(len))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(local: u64, remote: &[u8]) -> Keys {
        Keys { local, remote: remote.into() }
    }

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(start, len).unwrap()
    }

    fn range(row: Row<'_>) -> (u64, u64) {
        (row.start(), row.len())
    }

    #[test]
    fn rows_of_other_rails_and_lengths_lie_together_and_keep_their_keys() {
        let (a, b, c) = (keys(u64::MAX, &[]), keys(2, &[7; 4]), keys(3, &[9; 254]));
        let one = Rows::one(extent(10, 1), &[(RailId(5), &a), (RailId(0), &b)]).unwrap();
        let other = Rows::one(extent(u64::MAX - 300, 300), &[(RailId(127), &c)]).unwrap();
        let both = Rows::of(&[one.get(0).unwrap(), other.get(0).unwrap()]);
        assert_eq!((both.len(), both.get(2).is_none()), (2, true));
        let (first, second) = (both.get(0).unwrap(), both.get(1).unwrap());
        assert_eq!((range(first), range(second)), ((10, 1), (u64::MAX - 300, 300)));
        assert_eq!((first.keys(RailId(5)), first.keys(RailId(0))), (Some((u64::MAX, &[][..])), Some((2, &[7; 4][..]))));
        assert_eq!((first.keys(RailId(127)), second.keys(RailId(5)), first.keys(RailId(6))), (None, None, None));
        assert_eq!(second.keys(RailId(127)), Some((3, &[9; 254][..])));
        assert_eq!(second.keys(RailId(u16::MAX)), None);
    }

    #[test]
    fn integers_are_as_wide_as_they_must_be() {
        for (value, width) in [(0, 1), (0xff, 1), (0x100, 2), (0xff_ffff, 3), (1 << 55, 7), (1 << 56, 8), (u64::MAX, 8)] {
            assert!(Width::of(value) == Width(width), "{value:#x}");
            let mut bytes = Vec::new();
            Width(width).push(&mut bytes, value);
            assert_eq!(bytes.len(), usize::from(width));
            bytes.resize(WORD + bytes.len(), 0xff);
            assert_eq!(Width(width).read(&bytes), Some(value));
        }
    }

    #[test]
    fn a_key_that_is_too_long_is_refused() {
        let long = keys(1, &[0; 255]);
        assert_eq!(Rows::one(extent(0, 1), &[(RailId(0), &long)]).err(), Some(TooLong { bytes: 255 }));
    }
}

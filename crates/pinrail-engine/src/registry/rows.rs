//! The keys of neighbouring chunks as one run of bytes: what a look-up reads of a chunk lies in one or two cache lines.

use pinrail_core::{Keys, RailId};

/// Most rails a registry serves: which of them a row has keys for is one word.
pub(crate) const RAILS_MAX: usize = 128;

/// Bytes that a remote key may have: its length is one byte, and one value of it says that there is no key.
pub(crate) const REMOTE_KEY_BYTES_MAX: usize = 254;

const END: usize = 8;
const LOCAL: usize = 8;
const NO_KEY: u8 = u8::MAX;

/// How rows are laid out: the end of the range, then a cell for each rail: local key, length of the remote key, remote
/// key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// The rails that have a cell, a bit each.
    rails: u128,
    /// Bytes of a remote key; shorter ones are padded.
    remote: u8,
}

/// Rows of one layout.
pub(super) struct Rows {
    layout: Layout,
    bytes: Box<[u8]>,
}

/// One row of [`Rows`].
#[derive(Clone, Copy)]
pub(super) struct Row<'r> {
    layout: Layout,
    bytes: &'r [u8],
}

/// A key that cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong {
    pub(super) bytes: usize,
}

impl Layout {
    fn cell_len(self) -> usize {
        LOCAL + 1 + usize::from(self.remote)
    }

    fn row_len(self) -> usize {
        END + self.rails.count_ones() as usize * self.cell_len()
    }

    fn both(self, other: Layout) -> Layout {
        Layout { rails: self.rails | other.rails, remote: self.remote.max(other.remote) }
    }

    fn rails(self) -> impl Iterator<Item = RailId> {
        (0..).zip(0..RAILS_MAX).map(|(rail, _)| RailId(rail)).filter(move |rail| self.rails >> rail.0 & 1 == 1)
    }
}

impl Rows {
    /// A row alone: `keys` are those of a range that ends at `end`; their rails are below [`RAILS_MAX`].
    pub(super) fn one(end: u64, keys: &[(RailId, &Keys)]) -> Result<Rows, TooLong> {
        let longest = keys.iter().map(|(_, keys)| keys.remote.len()).max().unwrap_or(0);
        let remote = u8::try_from(longest).ok().filter(|_| longest <= REMOTE_KEY_BYTES_MAX).ok_or(TooLong { bytes: longest })?;
        let layout = Layout { rails: keys.iter().fold(0, |rails, (rail, _)| rails | 1 << rail.0), remote };
        let mut bytes = Vec::with_capacity(layout.row_len());
        bytes.extend(end.to_le_bytes());
        for rail in layout.rails() {
            let keys = keys.iter().find(|(other, _)| *other == rail).map(|(_, keys)| (keys.local, keys.remote.as_slice()));
            push_cell(&mut bytes, layout, keys);
        }
        Ok(Rows { layout, bytes: bytes.into() })
    }

    pub(super) fn of<'r>(rows: impl Iterator<Item = Row<'r>> + Clone) -> Rows {
        let layout = rows.clone().map(|row| row.layout).reduce(Layout::both).unwrap_or(Layout { rails: 0, remote: 0 });
        let mut bytes = Vec::with_capacity(layout.row_len() * rows.size_hint().0);
        for row in rows {
            if row.layout == layout {
                bytes.extend_from_slice(row.bytes);
            } else {
                bytes.extend(row.end().to_le_bytes());
                layout.rails().for_each(|rail| push_cell(&mut bytes, layout, row.keys(rail)));
            }
        }
        Rows { layout, bytes: bytes.into() }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() / self.layout.row_len()
    }

    pub(super) fn get(&self, at: usize) -> Option<Row<'_>> {
        let len = self.layout.row_len();
        let start = at.checked_mul(len)?;
        Some(Row { layout: self.layout, bytes: self.bytes.get(start..start.checked_add(len)?)? })
    }
}

fn push_cell(bytes: &mut Vec<u8>, layout: Layout, keys: Option<(u64, &[u8])>) {
    let end = bytes.len() + layout.cell_len();
    match keys {
        Some((local, remote)) => {
            bytes.extend(local.to_le_bytes());
            bytes.push(u8::try_from(remote.len()).unwrap_or(NO_KEY));
            bytes.extend_from_slice(remote);
        }
        None => {
            bytes.extend([0; LOCAL]);
            bytes.push(NO_KEY);
        }
    }
    bytes.resize(end, 0);
}

impl<'r> Row<'r> {
    /// The address after the range's last.
    pub(super) fn end(self) -> u64 {
        word(self.bytes).unwrap_or(0)
    }

    /// The local and the remote key on a rail.
    pub(super) fn keys(self, rail: RailId) -> Option<(u64, &'r [u8])> {
        let bit = 1u128.checked_shl(rail.0.into())?;
        if self.layout.rails & bit == 0 {
            return None;
        }
        let nth = (self.layout.rails & (bit - 1)).count_ones() as usize;
        let cell = self.bytes.get(END + nth * self.layout.cell_len()..)?;
        let &len = cell.get(LOCAL)?;
        if len == NO_KEY {
            return None;
        }
        Some((word(cell)?, cell.get(LOCAL + 1..LOCAL + 1 + usize::from(len))?))
    }
}

fn word(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(local: u64, remote: &[u8]) -> Keys {
        Keys { local, remote: remote.into() }
    }

    #[test]
    fn rows_of_other_rails_and_lengths_lie_together_and_keep_their_keys() {
        let (a, b, c) = (keys(1, &[]), keys(2, &[7; 4]), keys(3, &[9; 254]));
        let one = Rows::one(10, &[(RailId(5), &a), (RailId(0), &b)]).unwrap();
        let other = Rows::one(20, &[(RailId(127), &c)]).unwrap();
        let both = Rows::of([one.get(0).unwrap(), other.get(0).unwrap()].into_iter());
        assert_eq!(both.len(), 2);
        let (first, second) = (both.get(0).unwrap(), both.get(1).unwrap());
        assert_eq!((first.end(), second.end()), (10, 20));
        assert_eq!((first.keys(RailId(5)), first.keys(RailId(0))), (Some((1, &[][..])), Some((2, &[7; 4][..]))));
        assert_eq!((first.keys(RailId(127)), second.keys(RailId(5)), first.keys(RailId(6))), (None, None, None));
        assert_eq!(second.keys(RailId(127)), Some((3, &[9; 254][..])));
        assert_eq!(second.keys(RailId(u16::MAX)), None);
    }

    #[test]
    fn a_key_that_is_too_long_is_refused() {
        let long = keys(1, &[0; 255]);
        assert_eq!(Rows::one(1, &[(RailId(0), &long)]).err(), Some(TooLong { bytes: 255 }));
    }
}

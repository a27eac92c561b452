//! What a peer must know to reach registered memory: ranges and their remote keys, by the names of the rails.
//!
//! ```
//! use pinrail_core::descriptor::{Descriptor, RemoteRange};
//! use pinrail_core::{Extent, Machine};
//!
//! // One side describes what it registered (pinrail-engine's `Registration::descriptor` does this) …
//! let range = RemoteRange { extent: Extent::new(0x10000, 8192)?, at: 0, keys: vec![Some([7; 4][..].into()), Some([8; 4][..].into())] };
//! let descriptor = Descriptor::new(vec!["rail0".into(), "rail1".into()], vec![range])?;
//!
//! // … and the other, which got it by whatever the two use to talk, asks by rail and address.
//! let pieces = descriptor.rail("rail1").expect("it has one").range(Extent::new(0x11000, 64)?)?;
//! assert_eq!((pieces.len(), pieces[0].key, pieces[0].at), (1, &[8; 4][..], 4096));
//!
//! // Sides with other rails are told so before anything is sent.
//! let mismatch = descriptor.matches(&Machine::of_rails(3).rails).unwrap_err();
//! assert_eq!((mismatch.ours, mismatch.theirs, mismatch.only_ours), (3, 2, vec!["rail2".to_owned()]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Keys are by name and not by position, because two hosts may have other rails, or the same ones in another order.
//! **Whoever reads a descriptor can reach the memory**: it goes to the peer and into no log; `Debug` shows no key. The
//! feature `files` gives it a text.

use std::collections::BTreeSet;
use std::fmt;

use smallvec::SmallVec;

use crate::{Diagnosis, ErrorKind, Extent, ExtentError, Rail};

/// Most rails of a descriptor.
pub const RAILS_MAX: usize = 128;

/// Most bytes of a rail's name.
pub const NAME_BYTES_MAX: usize = 255;

/// Most bytes of a remote key.
pub const KEY_BYTES_MAX: usize = 254;

/// Most ranges of a descriptor.
pub const RANGES_MAX: usize = 1 << 20;

/// Registered ranges and their remote keys, by rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    rails: Vec<String>,
    /// In ascending addresses; none overlaps with another.
    ranges: Vec<RemoteRange>,
}

/// A remote key, in the fabric's own bytes; empty where the fabric has no peers.
pub type RemoteKey = SmallVec<[u8; 16]>;

/// A range that one MR for each rail covers.
///
/// `Debug` shows no key.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteRange {
    /// The addresses.
    pub extent: Extent,
    /// The range's first byte, counted from the MR's first: what fabrics without virtual addresses name.
    pub at: u64,
    /// The key for each rail of the descriptor; `None` where it is not registered on that rail.
    pub keys: Vec<Option<RemoteKey>>,
}

/// One rail of a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRail<'d> {
    descriptor: &'d Descriptor,
    at: usize,
}

/// A part of a range that one key covers.
///
/// `Debug` shows no key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RemotePiece<'d> {
    /// What to name to the fabric.
    pub key: &'d [u8],
    /// The addresses.
    pub extent: Extent,
    /// The piece's first byte, counted from the MR's first.
    pub at: u64,
}

/// What is no descriptor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// More than is taken.
    #[error("a descriptor has {have} {what} and may have {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        have: usize,
        /// How many there may be.
        max: usize,
    },
    /// A rail without a name, or two of one.
    #[error("a descriptor's rail {name:?} has no name of its own")]
    Name {
        /// The name.
        name: String,
    },
    /// A range without a key for each rail.
    #[error("the range {extent} has {have} keys for {rails} rails: a rail without one has none written")]
    Keys {
        /// The range.
        extent: Extent,
        /// Keys it has.
        have: usize,
        /// Rails of the descriptor.
        rails: usize,
    },
    /// Two ranges with the same bytes: which key were theirs?
    #[error("the ranges {first} and {second} overlap: describe what overlaps apart")]
    Overlap {
        /// The lower one.
        first: Extent,
        /// The other.
        second: Extent,
    },
    /// A range that does not end before its MR's addresses do.
    #[error("the range {extent} cannot begin {at} bytes after its registration")]
    At {
        /// The range.
        extent: Extent,
        /// What is written.
        at: u64,
    },
}

impl DescriptorError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let kind = if let DescriptorError::Overlap { .. } = self { ErrorKind::Overlap } else { ErrorKind::Batch };
        Diagnosis::new(kind, self.to_string())
    }
}

/// Two sides whose rails are not the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the peer has {theirs} rails and we have {ours}; only the peer has [{}], only we have [{}]: use the rails of both by name, or give both sides the same",
    .only_theirs.join(", "), .only_ours.join(", ")
)]
pub struct RailMismatch {
    /// How many we have.
    pub ours: usize,
    /// How many the descriptor has.
    pub theirs: usize,
    /// Names that the descriptor does not have.
    pub only_ours: Vec<String>,
    /// Names that we do not have.
    pub only_theirs: Vec<String>,
}

/// Why a range has no remote keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteLookupError {
    /// Part of the range is not in the descriptor.
    #[error("address {address:#x} is not in the peer's descriptor")]
    NotDescribed {
        /// The first such address.
        address: u64,
    },
    /// Part of the range is there, but without a key for this rail.
    #[error("address {address:#x} has no key for the peer's rail {rail:?}")]
    NotOnRail {
        /// The first such address.
        address: u64,
        /// The rail.
        rail: String,
    },
    /// The range is none.
    #[error(transparent)]
    Extent(#[from] ExtentError),
}

impl Descriptor {
    /// A descriptor of these ranges, in any order, whose keys are in the order of `rails`.
    ///
    /// # Errors
    /// [`DescriptorError`].
    pub fn new(rails: Vec<String>, mut ranges: Vec<RemoteRange>) -> Result<Descriptor, DescriptorError> {
        let limit = |what, have, max| if have > max { Err(DescriptorError::TooMany { what, have, max }) } else { Ok(()) };
        limit("rails", rails.len(), RAILS_MAX)?;
        limit("ranges", ranges.len(), RANGES_MAX)?;
        let mut names = BTreeSet::new();
        for name in &rails {
            limit("bytes in a rail's name", name.len(), NAME_BYTES_MAX)?;
            if name.is_empty() || !names.insert(name) {
                return Err(DescriptorError::Name { name: name.clone() });
            }
        }
        for &RemoteRange { extent, at, ref keys } in &ranges {
            if keys.len() != rails.len() {
                return Err(DescriptorError::Keys { extent, have: keys.len(), rails: rails.len() });
            }
            keys.iter().flatten().try_for_each(|key| limit("bytes in a remote key", key.len(), KEY_BYTES_MAX))?;
            // The MR's first address is none below zero, and no byte of it lies beyond the last.
            if at > extent.start() {
                return Err(DescriptorError::At { extent, at });
            }
        }
        ranges.sort_by_key(|range| range.extent.start());
        match ranges.windows(2).find(|pair| pair[0].extent.overlaps(pair[1].extent)) {
            Some(pair) => Err(DescriptorError::Overlap { first: pair[0].extent, second: pair[1].extent }),
            None => Ok(Descriptor { rails, ranges }),
        }
    }

    /// The names of the peer's rails.
    #[must_use]
    pub fn rails(&self) -> &[String] {
        &self.rails
    }

    /// What is described, in ascending addresses.
    #[must_use]
    pub fn ranges(&self) -> &[RemoteRange] {
        &self.ranges
    }

    /// Whether both sides have the same rails, in whatever order.
    ///
    /// # Errors
    /// [`RailMismatch`]; [`Descriptor::rail`] answers all the same for the rails that both have.
    pub fn matches(&self, ours: &[Rail]) -> Result<(), RailMismatch> {
        let theirs: BTreeSet<&str> = self.rails.iter().map(String::as_str).collect();
        let names: BTreeSet<&str> = ours.iter().map(|rail| rail.name.as_str()).collect();
        let only = |these: &BTreeSet<&str>, those| these.difference(those).map(|&name| name.to_owned()).collect();
        if names == theirs && ours.len() == self.rails.len() {
            return Ok(());
        }
        let (only_ours, only_theirs) = (only(&names, &theirs), only(&theirs, &names));
        Err(RailMismatch { ours: ours.len(), theirs: self.rails.len(), only_ours, only_theirs })
    }

    /// The peer's rail of this name.
    #[must_use]
    pub fn rail(&self, name: &str) -> Option<RemoteRail<'_>> {
        let at = self.rails.iter().position(|rail| rail == name)?;
        Some(RemoteRail { descriptor: self, at })
    }
}

impl<'d> RemoteRail<'d> {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'d str {
        &self.descriptor.rails[self.at]
    }

    /// The keys of a range of the peer's addresses: one piece for each MR it touches, in order, together the whole range.
    ///
    /// # Errors
    /// [`RemoteLookupError`] with the first address that has no key.
    pub fn range(self, extent: Extent) -> Result<Vec<RemotePiece<'d>>, RemoteLookupError> {
        let ranges = &self.descriptor.ranges;
        let (mut pieces, mut address) = (Vec::with_capacity(1), extent.start());
        let mut next = ranges.partition_point(|range| range.extent.start() <= address).wrapping_sub(1);
        while address < extent.end() {
            let covers = ranges.get(next).filter(|range| range.extent.range().contains(&address));
            let Some(range) = covers else { return Err(RemoteLookupError::NotDescribed { address }) };
            let Some(key) = range.keys[self.at].as_deref() else {
                return Err(RemoteLookupError::NotOnRail { address, rail: self.name().to_owned() });
            };
            let piece = Extent::new(address, range.extent.end().min(extent.end()) - address)?;
            pieces.push(RemotePiece { key, extent: piece, at: range.at + (address - range.extent.start()) });
            address = piece.end();
            next = next.wrapping_add(1);
        }
        Ok(pieces)
    }
}

impl fmt::Debug for RemoteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteRange({} at {}, {} keys)", self.extent, self.at, self.keys.iter().flatten().count())
    }
}

impl fmt::Debug for RemotePiece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemotePiece({} at {})", self.extent, self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    fn range(start: u64, len: u64, keys: &[Option<&[u8]>]) -> RemoteRange {
        let keys = keys.iter().map(|key| key.map(RemoteKey::from_slice)).collect();
        RemoteRange { extent: Extent::new(start, len).unwrap(), at: 0, keys }
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_range_over_two_registrations_is_two_pieces_and_the_first_gap_is_named() {
        let ranges = vec![range(20, 10, &[Some(b"b"), None]), range(10, 10, &[Some(b"a"), Some(b"c")])];
        let descriptor = Descriptor::new(names(&["x", "y"]), ranges).unwrap();
        let (x, y) = (descriptor.rail("x").unwrap(), descriptor.rail("y").unwrap());
        let ask = |start, len| Extent::new(start, len).unwrap();
        let seen: Vec<_> = x.range(ask(15, 10)).unwrap().iter().map(|piece| (piece.key, piece.at, piece.extent)).collect();
        assert_eq!(seen, [(&b"a"[..], 5, ask(15, 5)), (&b"b"[..], 0, ask(20, 5))]);
        assert_eq!(x.range(ask(25, 6)), Err(RemoteLookupError::NotDescribed { address: 30 }));
        assert_eq!(x.range(ask(9, 2)), Err(RemoteLookupError::NotDescribed { address: 9 }));
        assert_eq!(y.range(ask(19, 2)), Err(RemoteLookupError::NotOnRail { address: 20, rail: "y".into() }));
        assert!(descriptor.rail("z").is_none());
    }

    /// Row 93: the same hosts with 32 and with 8 rails.
    #[test]
    fn keys_are_by_name_and_other_rails_are_a_typed_mismatch() {
        let keys: Vec<Option<&[u8]>> = vec![Some(b"k"); 8];
        let descriptor =
            Descriptor::new(Machine::of_rails(8).rails.into_iter().map(|rail| rail.name).collect(), vec![range(1, 1, &keys)])
                .unwrap();
        let (mut reversed, many) = (Machine::of_rails(8).rails, Machine::of_rails(32).rails);
        reversed.reverse();
        assert_eq!(descriptor.matches(&reversed), Ok(()), "the order is no identity");
        let mismatch = descriptor.matches(&many).unwrap_err();
        assert_eq!((mismatch.ours, mismatch.theirs, mismatch.only_ours.len(), mismatch.only_theirs.len()), (32, 8, 24, 0));
        let mut renamed = Machine::of_rails(8).rails;
        renamed[3].name = "other".into();
        let mismatch = descriptor.matches(&renamed).unwrap_err();
        assert_eq!((mismatch.only_ours, mismatch.only_theirs), (names(&["other"]), names(&["rail3"])));
        assert!(
            many.iter().all(|rail| descriptor.rail(&rail.name).is_some() == (rail.name.len() == 5 && rail.name < "rail8".into()))
        );
    }

    #[test]
    fn what_is_no_descriptor_is_refused() {
        let one = || vec![range(10, 10, &[Some(b"k")])];
        let refused = |rails: Vec<String>, ranges| Descriptor::new(rails, ranges).unwrap_err();
        let too_many = |what, have, max| DescriptorError::TooMany { what, have, max };
        assert_eq!(refused(names(&["a", "a"]), Vec::new()), DescriptorError::Name { name: "a".into() });
        assert_eq!(refused(names(&[""]), Vec::new()), DescriptorError::Name { name: String::new() });
        assert_eq!(refused(vec!["n".repeat(256)], Vec::new()), too_many("bytes in a rail's name", 256, 255));
        assert_eq!(refused((0..129).map(|at| at.to_string()).collect(), Vec::new()), too_many("rails", 129, 128));
        assert_eq!(refused(names(&["a"]), vec![range(1, 1, &[Some(&[0; 255])])]), too_many("bytes in a remote key", 255, 254));
        assert_eq!(
            refused(names(&["a"]), vec![range(1, 1, &[None]); RANGES_MAX + 1]),
            too_many("ranges", RANGES_MAX + 1, RANGES_MAX)
        );
        let extent = one()[0].extent;
        assert_eq!(refused(names(&["a", "b"]), one()), DescriptorError::Keys { extent, have: 1, rails: 2 });
        let overlap = refused(names(&["a"]), [one(), vec![range(19, 1, &[None])]].concat());
        assert_eq!(overlap, DescriptorError::Overlap { first: extent, second: Extent::new(19, 1).unwrap() });
        assert_eq!(overlap.diagnosis().kind, ErrorKind::Overlap);
        let ranges = vec![RemoteRange { at: 11, ..one().remove(0) }];
        assert_eq!(refused(names(&["a"]), ranges), DescriptorError::At { extent, at: 11 });
    }

    #[test]
    fn no_key_reaches_debug_output() {
        let descriptor = Descriptor::new(names(&["a"]), vec![range(16, 16, &[Some(&[0xde, 0xad])])]).unwrap();
        let pieces = descriptor.rail("a").unwrap().range(Extent::new(16, 1).unwrap()).unwrap();
        let text = format!("{descriptor:?} {pieces:?} {:?}", descriptor.rail("a"));
        assert!(!text.contains("222") && !text.contains("dead") && !text.contains("173"), "{text}");
    }
}

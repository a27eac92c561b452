//! What readers see: one version of everything that is registered.

use std::fmt;
use std::iter;
use std::ops::Deref;

use pinrail_core::{Extent, RailId};
use smallvec::SmallVec;

use super::tree::{Edit, Tree};
use crate::LookupError;

/// Layers of ranges that do not overlap within one; the second and later ones exist only where overlaps were allowed, or
/// where registrations share the pages at their ends.
#[derive(Clone, Default)]
pub(super) struct Index {
    first: Tree,
    more: Vec<Tree>,
}

/// A part of a range that one MR covers, and its keys.
///
/// `Debug` shows no key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyPiece<'r> {
    /// What local operations name.
    pub local_key: u64,
    /// What a peer names; empty where the fabric has no peers.
    pub remote_key: &'r [u8],
    /// The addresses.
    pub extent: Extent,
    /// The piece's first byte, counted from the MR's first.
    pub at: u64,
}

/// The pieces of a range in ascending addresses, together the whole of it.
#[derive(Clone, Debug)]
pub struct KeyPieces<'r>(SmallVec<[KeyPiece<'r>; 1]>);

impl Index {
    pub(super) fn pieces(&self, extent: Extent, rail: RailId) -> Result<KeyPieces<'_>, LookupError> {
        let mut pieces = SmallVec::new();
        let (mut at, end) = (extent.start(), extent.end());
        while at < end {
            let (covers, local_key, remote_key) = self.key_at(at, rail)?;
            let piece = Extent::new(at, covers.end().min(end) - at)?;
            pieces.push(KeyPiece { local_key, remote_key, extent: piece, at: at - covers.start() });
            at = piece.end();
        }
        Ok(KeyPieces(pieces))
    }

    /// The key that reaches furthest from `address` on.
    fn key_at(&self, address: u64, rail: RailId) -> Result<(Extent, u64, &[u8]), LookupError> {
        let (mut best, mut is_covered) = (None, false);
        for layer in iter::once(&self.first).chain(&self.more) {
            let Some((extent, row)) = layer.covering(address) else { continue };
            is_covered = true;
            let is_further = best.is_none_or(|(best, _, _): (Extent, _, _)| best.end() < extent.end());
            if let (Some((local, remote)), true) = (row.keys(rail), is_further) {
                best = Some((extent, local, remote));
            }
        }
        best.ok_or(if is_covered { LookupError::NotOnRail { address, rail } } else { LookupError::NotRegistered { address } })
    }

    /// The version with these changes, by layer.
    pub(super) fn with(&self, edits: &[Vec<Edit<'_>>]) -> Index {
        let mut index = self.clone();
        for (layer, edits) in edits.iter().enumerate().filter(|(_, edits)| !edits.is_empty()) {
            match layer.checked_sub(1) {
                None => index.first = index.first.with(edits),
                Some(at) => {
                    index.more.resize_with(index.more.len().max(layer), Tree::default);
                    index.more[at] = index.more[at].with(edits);
                }
            }
        }
        index
    }
}

impl<'r> Deref for KeyPieces<'r> {
    type Target = [KeyPiece<'r>];

    fn deref(&self) -> &[KeyPiece<'r>] {
        &self.0
    }
}

impl fmt::Debug for KeyPiece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPiece({} at {})", self.extent, self.at)
    }
}

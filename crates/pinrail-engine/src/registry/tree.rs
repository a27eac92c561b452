//! An immutable map from ranges of addresses that do not overlap to their keys: a new version shares all nodes that its
//! changes do not touch.

use std::sync::Arc;

use pinrail_core::Extent;

use super::rows::{GROUP, Row, Rows};

/// Most children of a branch, and most groups of a leaf: as many first addresses are compared at once.
const WIDTH: usize = 64;
/// How full nodes are made when one has to be divided, in parts of [`WIDTH`]: room for a few more before the next division.
const FILL: usize = 48;
/// First addresses of a cache line.
const LINE: usize = 8;
/// About how many bytes of rows a leaf has: what a change to it copies.
const LEAF_BYTES: usize = 24 << 10;

/// One version.
#[derive(Clone, Default)]
pub(super) struct Tree {
    root: Option<Node>,
}

#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "leaves lie in their branch, so that a look-up turns one page less")]
enum Node {
    Branch(Arc<Branch>),
    Leaf(Leaf),
}

struct Branch {
    starts: Starts,
    children: Vec<Node>,
}

#[derive(Clone)]
struct Leaf {
    codes: Codes,
    rows: Rows,
}

/// The first addresses of a leaf's groups of rows, in four bytes each, so that those of all leaves fit into a near cache and
/// are compared four at a time: how far from the first, without the low bits that do not fit. Addresses that are near each
/// other may have one code.
#[derive(Clone)]
#[repr(align(64))]
struct Codes {
    /// Unused places hold what no address comes to.
    all: [i32; WIDTH],
    first: u64,
    shift: u32,
}

/// First addresses in ascending order; unused places hold an address that no range begins at.
#[repr(align(64))]
struct Starts {
    lines: [u64; LINE],
    all: [[u64; LINE]; LINE],
}

/// A change; all of one call come in ascending addresses.
pub(super) enum Edit<'e> {
    Put(Row<'e>),
    Remove(u64),
}

impl Edit<'_> {
    pub(super) fn start(&self) -> u64 {
        match *self {
            Edit::Put(row) => row.start(),
            Edit::Remove(start) => start,
        }
    }
}

impl Starts {
    fn new(starts: impl Iterator<Item = u64>) -> Starts {
        let mut all = [[u64::MAX; LINE]; LINE];
        all.as_flattened_mut().iter_mut().zip(starts).for_each(|(place, start)| *place = start);
        Starts { lines: all.map(|line| line[0]), all }
    }

    /// How many begin at or before `address`: without a branch that could be guessed wrong, in two cache lines.
    fn rank(&self, address: u64) -> usize {
        let count = |starts: &[u64]| starts.iter().fold(0, |count, &start| count + usize::from(start <= address));
        // The first line is the one to look in also when it begins behind the address.
        let line = count(&self.lines[1..]);
        line * LINE + count(&self.all[line])
    }

    fn first(&self) -> u64 {
        self.lines[0]
    }

    fn get(&self, at: usize) -> u64 {
        self.all[at / LINE][at % LINE]
    }
}

impl Codes {
    /// What unused places hold. Signed, because that is what every x86-64 compares four at a time.
    const NONE: i32 = i32::MAX;

    fn new(starts: impl Iterator<Item = u64> + Clone) -> Codes {
        let first = starts.clone().next().unwrap_or(0);
        let span = starts.clone().last().unwrap_or(0) - first;
        // No code reaches that of unused places.
        let shift = (u64::BITS - span.leading_zeros()).saturating_sub(i32::BITS - 2);
        let mut codes = Codes { all: [Codes::NONE; WIDTH], first, shift };
        starts.enumerate().for_each(|(at, start)| codes.all[at] = codes.of(start));
        codes
    }

    fn of(&self, address: u64) -> i32 {
        i32::try_from(address.saturating_sub(self.first) >> self.shift).unwrap_or(Codes::NONE).min(Codes::NONE - 1)
    }

    /// How many groups begin at or before `address`, or at a later one of the same code.
    fn rank(&self, address: u64) -> usize {
        let code = self.of(address);
        self.all.iter().fold(0, |count, &other| count + u32::from(other <= code)) as usize
    }
}

impl Tree {
    /// The range that `address` lies in, and its keys.
    pub(super) fn covering(&self, address: u64) -> Option<(Extent, Row<'_>)> {
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Branch(branch) => {
                    node = branch.children.get(branch.starts.rank(address).wrapping_sub(1))?;
                }
                Node::Leaf(leaf) => {
                    let mut group = leaf.codes.rank(address);
                    let row = loop {
                        group = group.checked_sub(1)?;
                        // A group of the address's own code may begin behind it.
                        if let Some(row) = leaf.rows.last_before(group, address) {
                            break row;
                        }
                    };
                    let start = row.start();
                    let extent = Extent::new(start, row.len()).ok()?;
                    return (address < extent.end()).then_some((extent, row));
                }
            }
        }
    }

    /// The version with these changes: what it copies is bounded by their number, not by what is in the tree.
    pub(super) fn with(&self, edits: &[Edit<'_>]) -> Tree {
        let mut nodes = match &self.root {
            Some(root) => root.with(edits),
            None => leaves(&edits.iter().filter_map(put).collect::<Vec<_>>()),
        };
        while nodes.len() > 1 {
            nodes = branches(nodes);
        }
        let mut root = nodes.pop();
        // A root with one child is a level for nothing.
        while let Some(Node::Branch(branch)) = &root {
            let [child] = branch.children.as_slice() else { break };
            root = Some(child.clone());
        }
        Tree { root }
    }
}

fn put<'e>(edit: &Edit<'e>) -> Option<Row<'e>> {
    match edit {
        Edit::Put(row) => Some(*row),
        Edit::Remove(_) => None,
    }
}

impl Node {
    fn first(&self) -> u64 {
        match self {
            Node::Branch(branch) => branch.starts.first(),
            Node::Leaf(leaf) => leaf.codes.first,
        }
    }

    /// What takes this node's place: nodes of the same height, none if nothing is left.
    fn with(&self, edits: &[Edit<'_>]) -> Vec<Node> {
        match self {
            Node::Leaf(leaf) => leaf.with(edits),
            Node::Branch(branch) => branch.with(edits),
        }
    }

    /// Both in one, where that leaves it at most half full.
    fn joined(&self, next: &Node) -> Option<Node> {
        match (self, next) {
            (Node::Leaf(a), Node::Leaf(b)) => {
                let rows: Vec<Row<'_>> = a.rows().chain(b.rows()).collect();
                if rows.len() > rows_max(&rows) / 2 { None } else { leaves(&rows).pop() }
            }
            (Node::Branch(a), Node::Branch(b)) if a.children.len() + b.children.len() <= WIDTH / 2 => {
                branches(a.children.iter().chain(&b.children).cloned().collect()).pop()
            }
            _ => None,
        }
    }
}

impl Leaf {
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows.len()).filter_map(|at| self.rows.get(at))
    }

    fn with(&self, edits: &[Edit<'_>]) -> Vec<Node> {
        let mut rows = Vec::with_capacity(self.rows.len() + edits.len());
        let mut old = self.rows().peekable();
        for edit in edits {
            rows.extend(std::iter::from_fn(|| old.next_if(|row| row.start() < edit.start())));
            // What begins where a change is made is replaced or removed.
            old.next_if(|row| row.start() == edit.start());
            rows.extend(put(edit));
        }
        rows.extend(old);
        leaves(&rows)
    }
}

impl Branch {
    fn with(&self, mut edits: &[Edit<'_>]) -> Vec<Node> {
        let mut children: Vec<Node> = Vec::with_capacity(WIDTH + 1);
        let mut touched = false;
        for (at, child) in self.children.iter().enumerate() {
            let end = if at + 1 < WIDTH { self.starts.get(at + 1) } else { u64::MAX };
            let (here, rest) = edits.split_at(edits.partition_point(|edit| edit.start() < end));
            edits = rest;
            // A child that shrank joins its neighbour, so that removals do not leave a tree of crumbs.
            let joins = touched || !here.is_empty();
            let mut push = |node: Node| match children.last_mut().filter(|_| joins) {
                Some(last) => match last.joined(&node) {
                    Some(joined) => *last = joined,
                    None => children.push(node),
                },
                None => children.push(node),
            };
            if here.is_empty() {
                push(child.clone());
            } else {
                child.with(here).into_iter().for_each(push);
            }
            touched = !here.is_empty();
        }
        branches(children)
    }
}

fn leaves(rows: &[Row<'_>]) -> Vec<Node> {
    let leaf = |rows: &[Row<'_>]| {
        let codes = Codes::new(rows.iter().step_by(GROUP).map(|row| row.start()));
        Node::Leaf(Leaf { codes, rows: Rows::of(rows) })
    };
    evenly(rows.len(), rows_max(rows)).map(|range| leaf(&rows[range])).collect()
}

/// Most rows of one leaf, where these are among them.
fn rows_max(rows: &[Row<'_>]) -> usize {
    let widest = rows.iter().map(|row| row.width()).max().unwrap_or(1);
    (LEAF_BYTES / widest / GROUP).clamp(1, WIDTH) * GROUP
}

fn branches(nodes: Vec<Node>) -> Vec<Node> {
    let parts = evenly(nodes.len(), WIDTH);
    let mut nodes = nodes.into_iter();
    let branch = |len| {
        let children: Vec<Node> = nodes.by_ref().take(len).collect();
        Node::Branch(Arc::new(Branch { starts: Starts::new(children.iter().map(Node::first)), children }))
    };
    parts.map(|part| part.len()).map(branch).collect()
}

/// `0..len` in one part if it is no more than `max`, else in parts that leave some room.
fn evenly(len: usize, max: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let parts = if len <= max { len.min(1) } else { len.div_ceil(max * FILL / WIDTH) };
    (0..parts).map(move |part| len * part / parts..len * (part + 1) / parts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pinrail_core::{Keys, RailId};
    use proptest::prelude::*;

    use super::*;

    /// Applies the same changes to a plain map and compares every answer.
    fn follow(batches: &[Vec<(u16, Option<u8>)>]) {
        let (mut tree, mut oracle) = (Tree::default(), BTreeMap::new());
        for batch in batches {
            // Ranges lie in slots of 16 bytes, so that they never overlap, and in five places that are far from each other,
            // so that a leaf between two of them has one code for many.
            let start = |slot: u16| (u64::from(slot % 5) << 60) + u64::from(slot / 5) * 16;
            let changes: BTreeMap<u64, Option<u64>> =
                batch.iter().map(|&(slot, len)| (start(slot), len.map(|len| 1 + u64::from(len % 16)))).collect();
            // Some keys are long, so that leaves have few rows and are divided and joined.
            let remote = |start: u64| smallvec::SmallVec::from_elem(1, if start % 7 == 6 { 200 } else { 4 });
            let keys: Vec<Keys> =
                changes.iter().map(|(start, len)| Keys { local: start ^ len.unwrap_or(0), remote: remote(*start) }).collect();
            let rows: Vec<Rows> = changes
                .iter()
                .zip(&keys)
                .map(|((start, len), keys)| {
                    Rows::one(Extent::new(*start, len.unwrap_or(1)).unwrap(), &[(RailId(0), keys)]).unwrap()
                })
                .collect();
            let edits: Vec<Edit<'_>> = changes
                .iter()
                .zip(&rows)
                .map(|((&start, len), rows)| len.map_or(Edit::Remove(start), |_| Edit::Put(rows.get(0).unwrap())))
                .collect();
            tree = tree.with(&edits);
            for (start, len) in changes {
                match len {
                    Some(len) => oracle.insert(start, len),
                    None => oracle.remove(&start),
                };
            }
            for (&start, &len) in &oracle {
                for address in [start, start + len - 1] {
                    let (extent, row) = tree.covering(address).unwrap();
                    assert_eq!((extent.start(), extent.len()), (start, len));
                    assert_eq!(row.keys(RailId(0)).unwrap().0, start ^ len);
                }
                assert!(tree.covering(start + len).is_none_or(|(extent, _)| extent.start() == start + 16));
            }
            assert_eq!(tree.root.as_ref().map_or(0, count), oracle.len());
            if let Some(root) = &tree.root {
                height(root);
            }
        }
    }

    fn count(node: &Node) -> usize {
        match node {
            Node::Leaf(leaf) => leaf.rows.len(),
            Node::Branch(branch) => branch.children.iter().map(count).sum(),
        }
    }

    /// All leaves are equally deep and no node is empty.
    fn height(node: &Node) -> usize {
        match node {
            Node::Leaf(leaf) => {
                assert!((1..=WIDTH * GROUP).contains(&leaf.rows.len()));
                0
            }
            Node::Branch(branch) => {
                assert!((1..=WIDTH).contains(&branch.children.len()));
                let heights: Vec<usize> = branch.children.iter().map(height).collect();
                assert!(heights.windows(2).all(|pair| pair[0] == pair[1]));
                heights[0] + 1
            }
        }
    }

    #[test]
    fn three_levels_grow_and_go_again() {
        let all: Vec<u16> = (0..60_000).map(|at: u32| u16::try_from(at * 7919 % 60_013).unwrap()).collect();
        let mut batches: Vec<Vec<_>> =
            all.chunks(20_000).map(|slots| slots.iter().map(|&slot| (slot, Some(7))).collect()).collect();
        batches.extend(all.chunks(15_000).map(|slots| slots.iter().map(|&slot| (slot, None)).collect::<Vec<_>>()));
        follow(&batches);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_version_answers_like_a_plain_map(batches in prop::collection::vec(prop::collection::vec((0u16..1500, prop::option::weighted(0.6, any::<u8>())), 0..500), 1..12)) {
            follow(&batches);
        }
    }
}

//! An immutable map from ranges of addresses that do not overlap to their keys: a new version shares all nodes that its
//! changes do not touch.

use std::sync::Arc;

use pinrail_core::Extent;

use super::rows::{Row, Rows};

/// Most children of a branch and rows of a leaf: eight cache lines of first addresses.
const WIDTH: usize = 64;
const GROUP: usize = 8;
/// How full nodes are made when one has to be divided: room for a few more before the next division.
const FILL: usize = 48;

/// One version.
#[derive(Clone, Default)]
pub(super) struct Tree {
    root: Option<Node>,
}

#[derive(Clone)]
enum Node {
    Branch(Arc<Branch>),
    Leaf(Arc<Leaf>),
}

struct Branch {
    starts: Starts,
    children: [Option<Node>; WIDTH],
}

struct Leaf {
    starts: Starts,
    rows: Rows,
}

/// First addresses in ascending order; unused places hold an address that no range begins at.
#[repr(align(64))]
struct Starts {
    groups: [u64; GROUP],
    all: [[u64; GROUP]; GROUP],
}

/// A change; all of one call come in ascending addresses.
pub(super) enum Edit<'e> {
    Put(u64, Row<'e>),
    Remove(u64),
}

impl Edit<'_> {
    pub(super) fn start(&self) -> u64 {
        match *self {
            Edit::Put(start, _) | Edit::Remove(start) => start,
        }
    }
}

impl Starts {
    fn new(starts: impl Iterator<Item = u64>) -> Starts {
        let mut all = [[u64::MAX; GROUP]; GROUP];
        all.as_flattened_mut().iter_mut().zip(starts).for_each(|(place, start)| *place = start);
        Starts { groups: all.map(|group| group[0]), all }
    }

    /// How many begin at or before `address`: without a branch that could be guessed wrong, in two cache lines.
    fn rank(&self, address: u64) -> usize {
        let count = |starts: &[u64]| starts.iter().fold(0, |count, &start| count + usize::from(start <= address));
        // The first group is the one to look in also when it begins behind the address.
        let group = count(&self.groups[1..]);
        group * GROUP + count(&self.all[group])
    }

    fn first(&self) -> u64 {
        self.groups[0]
    }

    fn get(&self, at: usize) -> u64 {
        self.all[at / GROUP][at % GROUP]
    }
}

impl Tree {
    /// The range that `address` lies in, and its keys.
    pub(super) fn covering(&self, address: u64) -> Option<(Extent, Row<'_>)> {
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Branch(branch) => {
                    node = branch.children.get(branch.starts.rank(address).wrapping_sub(1))?.as_ref()?;
                }
                Node::Leaf(leaf) => {
                    let at = leaf.starts.rank(address).wrapping_sub(1);
                    let row = leaf.rows.get(at)?;
                    let (start, end) = (leaf.starts.get(at), row.end());
                    let covers = address < end;
                    return if covers { Some((Extent::new(start, end - start).ok()?, row)) } else { None };
                }
            }
        }
    }

    /// The version with these changes: what it copies is bounded by their number, not by what is in the tree.
    pub(super) fn with(&self, edits: &[Edit<'_>]) -> Tree {
        let mut nodes = match &self.root {
            Some(root) => root.with(edits),
            None => leaves(edits.iter().filter_map(put).collect()),
        };
        while nodes.len() > 1 {
            nodes = branches(nodes);
        }
        let mut root = nodes.pop();
        // A root with one child is a level for nothing.
        while let Some(Node::Branch(branch)) = &root {
            let [Some(child), None, ..] = &branch.children else { break };
            root = Some(child.clone());
        }
        Tree { root }
    }
}

fn put<'e>(edit: &Edit<'e>) -> Option<(u64, Row<'e>)> {
    match edit {
        Edit::Put(start, row) => Some((*start, *row)),
        Edit::Remove(_) => None,
    }
}

impl Node {
    fn first(&self) -> u64 {
        match self {
            Node::Branch(branch) => branch.starts.first(),
            Node::Leaf(leaf) => leaf.starts.first(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Node::Branch(branch) => branch.children.iter().flatten().count(),
            Node::Leaf(leaf) => leaf.rows.len(),
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
        if self.len() + next.len() > WIDTH / 2 {
            return None;
        }
        match (self, next) {
            (Node::Leaf(a), Node::Leaf(b)) => leaves(a.rows().chain(b.rows()).collect()).pop(),
            (Node::Branch(a), Node::Branch(b)) => {
                branches(a.children.iter().chain(&b.children).flatten().cloned().collect()).pop()
            }
            _ => None,
        }
    }
}

impl Leaf {
    fn rows(&self) -> impl Iterator<Item = (u64, Row<'_>)> {
        (0..self.rows.len()).filter_map(|at| Some((self.starts.get(at), self.rows.get(at)?)))
    }

    fn with(&self, edits: &[Edit<'_>]) -> Vec<Node> {
        let mut rows = Vec::with_capacity(self.rows.len() + edits.len());
        let mut old = self.rows().peekable();
        for edit in edits {
            rows.extend(std::iter::from_fn(|| old.next_if(|(start, _)| *start < edit.start())));
            // What begins where a change is made is replaced or removed.
            old.next_if(|(start, _)| *start == edit.start());
            rows.extend(put(edit));
        }
        rows.extend(old);
        leaves(rows)
    }
}

impl Branch {
    fn with(&self, mut edits: &[Edit<'_>]) -> Vec<Node> {
        let mut children: Vec<Node> = Vec::with_capacity(WIDTH + edits.len() / FILL);
        let mut touched = false;
        for (at, child) in self.children.iter().flatten().enumerate() {
            let end = if at + 1 < WIDTH { self.starts.get(at + 1) } else { u64::MAX };
            let (here, rest) = edits.split_at(edits.partition_point(|edit| edit.start() < end));
            edits = rest;
            let replaced = if here.is_empty() { vec![child.clone()] } else { child.with(here) };
            for node in replaced {
                // A child that shrank joins its neighbour, so that removals do not leave a tree of crumbs.
                let joins = touched || !here.is_empty();
                match children.last().filter(|_| joins).and_then(|last| last.joined(&node)) {
                    Some(joined) => *children.last_mut().expect("there is a last child") = joined,
                    None => children.push(node),
                }
            }
            touched = !here.is_empty();
        }
        branches(children)
    }
}

fn leaves(rows: Vec<(u64, Row<'_>)>) -> Vec<Node> {
    let leaf = |rows: &[(u64, Row<'_>)]| {
        let starts = Starts::new(rows.iter().map(|(start, _)| *start));
        Node::Leaf(Arc::new(Leaf { starts, rows: Rows::of(rows.iter().map(|(_, row)| *row)) }))
    };
    evenly(rows.len()).map(|range| leaf(&rows[range])).collect()
}

fn branches(nodes: Vec<Node>) -> Vec<Node> {
    let branch = |nodes: &[Node]| {
        let starts = Starts::new(nodes.iter().map(Node::first));
        Node::Branch(Arc::new(Branch { starts, children: std::array::from_fn(|at| nodes.get(at).cloned()) }))
    };
    evenly(nodes.len()).map(|range| branch(&nodes[range])).collect()
}

/// `0..len` in one part if it fits into a node, else in parts of about [`FILL`].
fn evenly(len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let parts = if len <= WIDTH { len.min(1) } else { len.div_ceil(FILL) };
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
            // Ranges lie in slots of 16 bytes, so that they never overlap.
            let changes: BTreeMap<u64, Option<u64>> =
                batch.iter().map(|&(slot, len)| (u64::from(slot) * 16, len.map(|len| 1 + u64::from(len % 16)))).collect();
            let keys: Vec<Keys> =
                changes.iter().map(|(start, len)| Keys { local: start ^ len.unwrap_or(0), ..Keys::default() }).collect();
            let rows: Vec<Rows> = changes
                .iter()
                .zip(&keys)
                .map(|((start, len), keys)| Rows::one(start + len.unwrap_or(1), &[(RailId(0), keys)]).unwrap())
                .collect();
            let edits: Vec<Edit<'_>> = changes
                .iter()
                .zip(&rows)
                .map(|((&start, len), rows)| len.map_or(Edit::Remove(start), |_| Edit::Put(start, rows.get(0).unwrap())))
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
            Node::Branch(branch) => branch.children.iter().flatten().map(count).sum(),
        }
    }

    /// All leaves are equally deep and no node is empty.
    fn height(node: &Node) -> usize {
        assert!(node.len() > 0 && node.len() <= WIDTH);
        match node {
            Node::Leaf(_) => 0,
            Node::Branch(branch) => {
                let heights: Vec<usize> = branch.children.iter().flatten().map(height).collect();
                assert!(heights.windows(2).all(|pair| pair[0] == pair[1]));
                heights[0] + 1
            }
        }
    }

    #[test]
    fn three_levels_grow_and_go_again() {
        let all: Vec<u16> = (0..20_000).map(|at: u32| u16::try_from(at * 7919 % 20_011).unwrap()).collect();
        let mut batches: Vec<Vec<_>> =
            all.chunks(5_000).map(|slots| slots.iter().map(|&slot| (slot, Some(7))).collect()).collect();
        batches.extend(all.chunks(4_000).map(|slots| slots.iter().map(|&slot| (slot, None)).collect::<Vec<_>>()));
        follow(&batches);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_version_answers_like_a_plain_map(batches in prop::collection::vec(prop::collection::vec((0u16..600, prop::option::weighted(0.6, any::<u8>())), 0..200), 1..12)) {
            follow(&batches);
        }
    }
}

pub(crate) mod ascending;
pub(crate) mod caller_order;
pub(crate) mod descending;

use pinrail_core::{BufferId, ChunkId};

use crate::PolicyError;

/// In which order chunks are registered.
///
/// Chunks come in the caller's order. The answer lists each of them once; chunks that the order does not tell apart keep
/// the caller's order. It decides what is handed out first and nothing else: no rail set, seam, key or result order.
pub trait Order: Send + Sync {
    /// The positions of `chunks` in the wanted order.
    fn order(&self, chunks: &[ChunkInfo]) -> Vec<u32>;

    /// The term in a spec.
    fn spec(&self) -> String;
}

/// A chunk as an order policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// The chunk.
    pub chunk: ChunkId,
    /// The (first) buffer it belongs to.
    pub buffer: BufferId,
    /// Bytes.
    pub len: u64,
    /// Rails it is registered on.
    pub rails: u32,
}

/// An order that was checked: every chunk once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation(Vec<u32>);

impl Permutation {
    /// Asks a policy and checks its answer.
    ///
    /// # Errors
    /// [`PolicyError::NotAPermutation`] naming the policy.
    pub fn ask(policy: &dyn Order, chunks: &[ChunkInfo]) -> Result<Permutation, PolicyError> {
        let answer = policy.order(chunks);
        let wrong = |what: String| PolicyError::NotAPermutation { policy: policy.spec(), chunks: chunks.len(), what };
        if answer.len() != chunks.len() {
            return Err(wrong(format!("it has {} entries", answer.len())));
        }
        let mut seen = vec![false; chunks.len()];
        for &at in &answer {
            match seen.get_mut(at as usize) {
                None => return Err(wrong(format!("there is no chunk {at}"))),
                Some(true) => return Err(wrong(format!("chunk {at} comes twice"))),
                Some(unseen) => *unseen = true,
            }
        }
        Ok(Permutation(answer))
    }

    /// The positions in order.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }
}

#[cfg(test)]
pub(crate) fn infos(lens: &[u64]) -> Vec<ChunkInfo> {
    (0..).zip(lens).map(|(at, &len)| ChunkInfo { chunk: ChunkId(at), buffer: BufferId(at), len, rails: 1 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Says(&'static [u32]);

    impl Order for Says {
        fn order(&self, _: &[ChunkInfo]) -> Vec<u32> {
            self.0.to_vec()
        }
        fn spec(&self) -> String {
            "says".to_owned()
        }
    }

    #[test]
    fn nonsense_is_an_error_that_names_the_policy() {
        let chunks = infos(&[1, 2, 3]);
        for (answer, what) in [
            (&[0, 1][..], "it has 2 entries"),
            (&[0, 1, 2, 2], "it has 4 entries"),
            (&[0, 1, 1], "chunk 1 comes twice"),
            (&[0, 1, 3], "there is no chunk 3"),
        ] {
            let error = Permutation::ask(&Says(answer), &chunks).unwrap_err();
            assert_eq!(error, PolicyError::NotAPermutation { policy: "says".into(), chunks: 3, what: what.into() });
        }
        assert_eq!(Permutation::ask(&Says(&[2, 0, 1]), &chunks).unwrap().as_slice(), [2, 0, 1]);
        assert_eq!(Permutation::ask(&Says(&[]), &[]).unwrap().as_slice(), [0u32; 0]);
    }
}

use crate::{ChunkInfo, Order};

/// Longest first, equal lengths in the caller's order: `descending`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descending;

impl Order for Descending {
    fn order(&self, chunks: &[ChunkInfo]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..).take(chunks.len()).collect();
        // A stable sort: it is what keeps equal lengths in the caller's order.
        order.sort_by_key(|&at| std::cmp::Reverse(chunks[at as usize].len));
        order
    }

    fn spec(&self) -> String {
        "descending".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::infos;

    #[test]
    fn longest_first_and_equal_lengths_as_the_caller_listed_them() {
        assert_eq!(Descending.order(&infos(&[2, 3, 1, 2])), [1, 0, 3, 2]);
        assert_eq!(Descending.order(&[]), [0u32; 0]);
    }
}

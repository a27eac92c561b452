use crate::{ChunkInfo, Order};

/// As the caller listed them: `caller-order`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallerOrder;

impl Order for CallerOrder {
    fn order(&self, chunks: &[ChunkInfo]) -> Vec<u32> {
        (0..).take(chunks.len()).collect()
    }

    fn spec(&self) -> String {
        "caller-order".to_owned()
    }
}

use std::collections::BTreeMap;

use pinrail_core::Extent;

/// Ranges that may overlap: as many layers as lie above each other anywhere, none of which overlaps in itself.
pub(super) struct Layers<T>(Vec<BTreeMap<u64, (Extent, T)>>);

/// Which layer a range lies in.
pub(super) type Layer = usize;

impl<T> Default for Layers<T> {
    fn default() -> Layers<T> {
        Layers(Vec::new())
    }
}

impl<T: Copy> Layers<T> {
    /// Puts a range into the first layer where it overlaps with nothing.
    pub(super) fn insert(&mut self, extent: Extent, value: T) -> Layer {
        let free = self.0.iter().position(|layer| last_overlap(layer, extent).is_none()).unwrap_or(self.0.len());
        if free == self.0.len() {
            self.0.push(BTreeMap::new());
        }
        self.0[free].insert(extent.start(), (extent, value));
        free
    }

    pub(super) fn remove(&mut self, layer: Layer, start: u64) {
        self.0[layer].remove(&start);
    }

    /// All that share a byte with a range.
    pub(super) fn overlapping(&self, extent: Extent) -> impl Iterator<Item = (Extent, T)> {
        self.0.iter().flat_map(move |layer| {
            let before = layer.range(..extent.end()).rev();
            before.map(|(_, found)| *found).take_while(move |(found, _)| found.overlaps(extent))
        })
    }
}

fn last_overlap<T: Copy>(layer: &BTreeMap<u64, (Extent, T)>, extent: Extent) -> Option<(Extent, T)> {
    let (_, &found) = layer.range(..extent.end()).next_back()?;
    found.0.overlaps(extent).then_some(found)
}

use pinrail_core::descriptor::{Descriptor, DescriptorError, RemoteRange};
use pinrail_core::{BufferId, ChunkId, Extent, Rail};

use crate::Registration;

/// Describes buffers: their own bytes, not those that were registered around them, in as few ranges as there are MRs.
pub(crate) fn of<'r>(
    rails: &[Rail],
    buffers: impl Iterator<Item = (&'r Registration, BufferId)>,
) -> Result<Descriptor, DescriptorError> {
    let mut parts: Vec<(Extent, &Registration, ChunkId)> = Vec::new();
    for (registration, buffer) in buffers {
        let (plan, whole) = (registration.plan(), registration.plan().buffers()[buffer.index()].extent());
        for chunk in plan.chunks_of(buffer).map(ChunkId) {
            let covers = plan.extent(chunk);
            let start = whole.start().max(covers.start());
            let len = whole.end().min(covers.end()).saturating_sub(start);
            parts.extend(Extent::new(start, len).ok().map(|part| (part, registration, chunk)));
        }
    }
    parts.sort_by_key(|(part, ..)| part.start());
    // Neighbours in one registration are one range.
    parts.dedup_by(|(part, registration, chunk), (before, of, at)| {
        let is_next = std::ptr::eq(*registration, *of) && chunk == at && before.end() == part.start();
        let both = Extent::new(before.start(), before.len() + part.len()).ok().filter(|_| is_next);
        both.is_some_and(|both| {
            *before = both;
            true
        })
    });
    let range = |&(extent, registration, chunk): &(Extent, &Registration, ChunkId)| {
        let ids = registration.plan().machine().ids();
        let keys = ids.map(|rail| registration.mr(chunk, rail).map(|mr| mr.keys().remote.clone())).collect();
        RemoteRange { extent, at: extent.start() - registration.plan().extent(chunk).start(), keys }
    };
    Descriptor::new(rails.iter().map(|rail| rail.name.clone()).collect(), parts.iter().map(range).collect())
}

use pinrail_core::Kind;
use pinrail_policy::Coalescing;
use pinrail_policy::spec::Term;

use super::{Fault, Seen};

/// `coalesce` that was typed: some registration covers several buffers; `no-coalesce`: none does.
pub(super) fn joining(seen: &Seen<'_>) -> Option<Fault> {
    let typed = seen.typed().iter().find_map(|term| if let Term::Coalescing(of) = term { Some(*of) } else { None })?;
    let mut buffers: Vec<(u64, u64)> =
        seen.evidence.batch.iter().map(|buffer| (buffer.extent().start(), buffer.extent().end())).collect();
    buffers.sort_unstable();
    // By registration of several buffers: the bytes in it that are of no buffer.
    let between: Vec<u64> = seen
        .evidence
        .calls
        .iter()
        .filter(|call| call.kind == Kind::Register)
        .filter_map(|call| {
            let end = call.start + call.len;
            let first = buffers.partition_point(|buffer| buffer.1 <= call.start);
            let inside = &buffers[first..buffers.partition_point(|buffer| buffer.0 < end).max(first)];
            (inside.len() > 1).then(|| inside.windows(2).map(|pair| pair[1].0 - pair[0].1).sum())
        })
        .collect();
    let name = typed.spec();
    match typed {
        Coalescing::None if !between.is_empty() => Some(Fault::Broken(format!("{name}: a registration covers several buffers"))),
        Coalescing::None if buffers.windows(2).all(|pair| pair[0].1 != pair[1].0) => {
            Some(Fault::Idle(format!("{name} changed nothing: no buffers of the batch touch in one allocation")))
        }
        Coalescing::Adjacent if between.is_empty() => {
            Some(Fault::Idle(format!("{name} changed nothing: no buffers of the batch touch in one allocation")))
        }
        Coalescing::Gaps if between.iter().all(|bytes| *bytes == 0) => {
            Some(Fault::Idle(format!("{name} changed nothing: no gap between buffers was bridged")))
        }
        _ => None,
    }
}

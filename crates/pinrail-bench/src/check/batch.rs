use super::{Fault, Seen};

/// The buffers, and the order in which they come, are the caller's: a harness that sorts for one variant measures its own
/// sort.
pub(super) fn same(seen: &Seen<'_>) -> Option<Fault> {
    let wanted = || seen.spec.batch.buffers.iter().map(|buffer| (buffer.name.as_str(), buffer.len));
    let given = seen.evidence.batch.iter().map(|buffer| (&*buffer.name, buffer.len()));
    if !wanted().eq(given) {
        return Some(Fault::Broken("it was given other buffers than the batch has, or in another order".to_owned()));
    }
    let dispatched = seen.evidence.ran.dispatched.iter().flat_map(|run| &run.buffers).map(|name| &**name);
    let reordered = !seen.evidence.ran.dispatched.is_empty() && !wanted().map(|(name, _)| name).eq(dispatched);
    reordered.then(|| Fault::Broken("it handed the buffers on in another order than the caller's".to_owned()))
}

/// The whole batch at once: whoever calls once a buffer shows an order policy lists of one.
pub(super) fn whole(seen: &Seen<'_>) -> Option<Fault> {
    let runs = seen.evidence.ran.dispatched.len();
    let buffers = seen.evidence.batch.len();
    (runs > 1)
        .then(|| Fault::Broken(format!("the batch of {buffers} buffers was registered in {runs} calls: no policy saw it whole")))
}

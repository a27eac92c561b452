use super::{Fault, Seen};
use crate::spec::MemoryState;

/// Rails of its own for every trial: what is registered already can make the next registration dearer.
pub(super) fn rails(seen: &Seen<'_>) -> Option<Fault> {
    if seen.evidence.reused {
        return Some(Fault::Broken("the rails of an earlier trial were used again".to_owned()));
    }
    let pinned = seen.evidence.trial.pinned_before_bytes;
    (pinned > 0).then(|| Fault::Broken(format!("{pinned} bytes of something else were pinned when a trial began")))
}

/// Memory in the state that was asked for, looked at just before the clock starts.
pub(super) fn memory(seen: &Seen<'_>) -> Option<Fault> {
    let (there, all) = seen.evidence.resident_before;
    let right = match seen.spec.memory {
        MemoryState::Untouched => there == 0,
        MemoryState::Resident => there == all,
    };
    (!right).then(|| {
        Fault::Broken(format!(
            "{there} of {all} bytes were resident when the clock started, and {} was asked for",
            seen.spec.memory
        ))
    })
}

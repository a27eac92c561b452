use pinrail_core::Kind;
use pinrail_policy::Preparation;
use pinrail_policy::spec::Term;

use super::{Fault, Seen};
use crate::spec::MemoryState;

/// Where memory is prepared, preparation touches it first, and the registrations' times are theirs alone; `prefault` and
/// `no-prefault` that were typed do what they say.
pub(super) fn preparation(seen: &Seen<'_>) -> Option<Fault> {
    let evidence = seen.evidence;
    let typed = seen.typed().iter().find_map(|term| if let Term::Preparation(of) = term { Some(*of) } else { None });
    let prepares = evidence.calls.iter().filter(|call| call.kind == Kind::Prepare).count();
    let populated = evidence.trial.populated_bytes;
    let bytes: u64 = evidence.batch.iter().map(pinrail_core::Buffer::len).sum();
    let claimed = prepares > 0 || typed == Some(Preparation::Prefault);
    match typed {
        Some(Preparation::NoPrefault) if prepares > 0 => {
            Some(Fault::Broken(format!("no-prefault: {prepares} preparations were made")))
        }
        // Half, because buffers share pages and a huge page is larger than what was asked for.
        _ if claimed && seen.spec.memory == MemoryState::Untouched && populated < bytes / 2 => Some(Fault::Broken(format!(
            "preparation made {populated} of {bytes} bytes resident: the rest was first touched inside registrations"
        ))),
        Some(Preparation::Prefault) if populated == 0 => {
            Some(Fault::Idle("prefault changed nothing: all memory was resident before".to_owned()))
        }
        _ => None,
    }
}

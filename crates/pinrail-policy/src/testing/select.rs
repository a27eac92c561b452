use std::collections::BTreeSet;

use pinrail_core::{Buffer, Machine};

use super::{Verdict, check_spec, for_all, strategies};
use crate::{PolicyError, SelectRails};

/// Checks that a choice of rails is one: at least one rail, each once, all of the machine's, with a reason; that it
/// depends on nothing but its arguments, and on a buffer's place alone where it says so; and that it is refused only for
/// want of a rail or of a device that was named.
///
/// # Panics
/// With the smallest case in which a promise is broken.
pub fn check_select(select: &dyn SelectRails) {
    check_spec(&select.spec());
    for_all(&(strategies::buffers(), strategies::machines(), strategies::buffers()), |(buffer, machine, other)| {
        case(select, buffer, machine, other)
    });
}

fn case(select: &dyn SelectRails, buffer: &Buffer, machine: &Machine, other: &Buffer) -> Verdict {
    let broken = |what: String| Err(format!("{} {what}", select.spec()));
    let answer = select.select(buffer, machine);
    drop(select.select(other, machine));
    if select.select(buffer, machine) != answer {
        return broken("answers one thing and then another".to_owned());
    }
    if select.is_by_place() && select.select(&other.clone().with_place(buffer.place), machine).ok() != answer.clone().ok() {
        return broken("goes by more than the place, which it denies".to_owned());
    }
    let selection = match answer {
        Ok(selection) => selection,
        Err(PolicyError::UnknownRail { .. } | PolicyError::UnknownDevice { .. }) => return Ok(()),
        Err(PolicyError::NoRail { .. }) if machine.usable().next().is_none() => return Ok(()),
        Err(error) => return broken(format!("refuses although a rail is usable: {error}")),
    };
    let distinct: BTreeSet<_> = selection.rails.iter().collect();
    if selection.rails.is_empty() {
        broken("answers no rail".to_owned())
    } else if distinct.len() < selection.rails.len() {
        broken(format!("answers a rail twice: {:?}", selection.rails))
    } else if let Some(rail) = distinct.into_iter().find(|rail| rail.index() >= machine.rails.len()) {
        broken(format!("answers {rail} and the machine has {}", machine.rails.len()))
    } else if selection.why.is_empty() || selection.fallback.as_deref() == Some("") {
        broken("gives no reason".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::{AtomicU64, Ordering};

    use pinrail_core::{Place, RailId};

    use super::super::finds;
    use super::*;
    use crate::{AllRails, DeviceLocal, Local, NamedRails, RailLocal, Selection, Share};

    #[test]
    fn the_crates_own_choices_keep_every_promise() {
        check_select(&AllRails);
        check_select(&NamedRails(vec!["rail3".to_owned(), "rail0".to_owned()]));
        for share in [Share::Fair, Share::All] {
            for max in [None, NonZeroU32::new(1), NonZeroU32::new(3)] {
                check_select(&RailLocal(Local { share, max }));
                check_select(&DeviceLocal(Local { share, max }));
            }
        }
    }

    struct Bad<F>(F);

    impl<F: Fn(&Buffer, &Machine) -> Vec<RailId> + Send + Sync> SelectRails for Bad<F> {
        fn select(&self, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
            Ok(Selection { rails: (self.0)(buffer, machine), path: None, why: "planted".into(), fallback: None })
        }
        fn spec(&self) -> String {
            "bad".to_owned()
        }
    }

    fn usable(machine: &Machine) -> Vec<RailId> {
        machine.ids().collect()
    }

    #[test]
    fn a_buffer_without_a_rail_is_found() {
        let none_for_gpus = |buffer: &Buffer, machine: &Machine| match buffer.place {
            Place::Gpu(_) => Vec::new(),
            _ => usable(machine),
        };
        finds(|| check_select(&Bad(none_for_gpus)), "bad answers no rail");
    }

    #[test]
    fn a_rail_that_comes_twice_and_one_that_is_not_there_are_found() {
        let twice = |_: &Buffer, machine: &Machine| [usable(machine), vec![RailId(0)]].concat();
        finds(|| check_select(&Bad(twice)), "bad answers");
        let beyond = |_: &Buffer, _: &Machine| vec![RailId(11)];
        finds(|| check_select(&Bad(beyond)), "bad answers rail 11 and the machine has");
    }

    #[test]
    fn a_choice_that_remembers_is_found() {
        let seen = AtomicU64::new(0);
        let round_robin = |_: &Buffer, machine: &Machine| {
            let next = seen.fetch_add(1, Ordering::Relaxed);
            let rails = usable(machine);
            rails.get(usize::try_from(next).unwrap() % rails.len().max(1)).copied().into_iter().collect()
        };
        finds(AssertUnwindSafe(|| check_select(&Bad(round_robin))), "bad answers");
    }

    struct ByLength;

    impl SelectRails for ByLength {
        fn select(&self, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
            let mut selection = Selection::all_usable(self, buffer, machine)?;
            // Every other length goes to the first rail only.
            selection.rails.truncate(if buffer.len().is_multiple_of(2) { 1 } else { usize::MAX });
            Ok(selection)
        }
        fn spec(&self) -> String {
            "by-length".to_owned()
        }
        fn is_by_place(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_choice_by_more_than_the_place_is_found() {
        finds(|| check_select(&ByLength), "by-length goes by more than the place");
    }

    struct Refuses;

    impl SelectRails for Refuses {
        fn select(&self, buffer: &Buffer, _: &Machine) -> Result<Selection, PolicyError> {
            Err(PolicyError::NoRail { policy: self.spec(), buffer: buffer.name.to_string(), why: "planted".into() })
        }
        fn spec(&self) -> String {
            "refuses".to_owned()
        }
    }

    #[test]
    fn a_refusal_without_need_is_found() {
        finds(|| check_select(&Refuses), "refuses although a rail is usable");
    }
}

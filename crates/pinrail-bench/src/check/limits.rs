use std::collections::BTreeMap;

use pinrail_core::{Kind, RailId};
use pinrail_policy::spec::Term;

use super::{Fault, Seen};
use crate::trial;
use crate::watch::Call;

/// `capped=N` that was typed: never more in flight, and once that many.
pub(super) fn process(seen: &Seen<'_>) -> Option<Fault> {
    let cap = seen.typed().iter().find_map(|term| if let Term::Capped(n) = term { Some(n.get()) } else { None })?;
    let evidence = seen.evidence;
    let said = evidence.trial.peak_in_flight;
    let most = said.max(trial::in_flight(&evidence.calls)).max(trial::in_flight(&evidence.undone));
    if most > cap {
        return Some(Fault::Broken(format!("capped={cap}: {most} steps were in flight at once")));
    }
    (said < cap).then(|| Fault::Idle(format!("capped={cap} was never reached: at most {said} steps were in flight")))
}

/// `unbounded` that was typed: sometimes more than one in flight, where there is more than one to start.
pub(super) fn unbounded(seen: &Seen<'_>) -> Option<Fault> {
    let evidence = seen.evidence;
    let typed = seen.typed().contains(&Term::Unbounded);
    (typed && evidence.trial.peak_in_flight < 2)
        .then(|| Fault::Idle("unbounded changed nothing: no two steps were ever in flight at once".to_owned()))
}

/// `per-rail=N` that was typed: the same on each rail, and less than the rail takes by itself.
pub(super) fn rail(seen: &Seen<'_>) -> Option<Fault> {
    let limit = seen.typed().iter().find_map(|term| if let Term::PerRail(n) = term { Some(*n) } else { None })?;
    let mut by_rail: BTreeMap<RailId, Vec<Call>> = BTreeMap::new();
    for call in seen.evidence.calls.iter().filter(|call| call.kind == Kind::Register) {
        by_rail.entry(call.rail?).or_default().push(*call);
    }
    let most = by_rail.values().map(|calls| trial::in_flight(calls)).max().unwrap_or(0);
    if most > limit.get() {
        return Some(Fault::Broken(format!("per-rail={limit}: {most} registrations were in flight on one rail")));
    }
    if seen.evidence.machine.rails.iter().all(|rail| rail.calls_in_parallel <= limit) {
        return Some(Fault::Idle(format!("per-rail={limit} changed nothing: no rail takes more calls at once")));
    }
    (most < limit.get()).then(|| Fault::Idle(format!("per-rail={limit} was never reached: at most {most} were in flight")))
}

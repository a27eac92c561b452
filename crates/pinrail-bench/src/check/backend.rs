use pinrail_core::{Identity, Machine, PinsCounted};

use super::{Fault, Seen};
use crate::clock::Clock;

/// The backend that ran is the one that was named: a fallback is refused, not measured.
pub(super) fn named(seen: &Seen<'_>) -> Option<Fault> {
    other_backend(&seen.spec.backend, &seen.evidence.identity).map(Fault::Broken)
}

/// That another backend runs than the one that was named, if so.
pub(crate) fn other_backend(named: &str, identity: &Identity) -> Option<String> {
    let (backend, provider) = named.split_once(':').map_or((named, None), |(backend, provider)| (backend, Some(provider)));
    // A provider is also right with a layer of its own library over it, as in tcp;ofi_rxm.
    let is_provider = |wanted: &str| identity.provider == wanted || identity.provider.starts_with(&format!("{wanted};"));
    let right = identity.backend == backend && provider.is_none_or(is_provider);
    (!right).then(|| format!("{named} was asked for and {} ({}) ran", identity.backend, identity.provider))
}

/// A provider that pins nothing says nothing about what registration costs.
pub(super) fn pins(seen: &Seen<'_>) -> Option<Fault> {
    pins_nothing(&seen.spec.clock, &seen.evidence.identity, &seen.evidence.machine).map(Fault::Broken)
}

/// That nothing is pinned, if so. What a simulation charges is not what it does.
pub(crate) fn pins_nothing(clock: &Clock, identity: &Identity, machine: &Machine) -> Option<String> {
    let nothing =
        clock.is_wall() && !machine.rails.is_empty() && machine.rails.iter().all(|rail| rail.pins == PinsCounted::Nothing);
    nothing.then(|| format!("{} pins nothing: its times say nothing about registration", identity.provider))
}

/// A registration that a cache answers was not made.
pub(super) fn cache(seen: &Seen<'_>) -> Option<Fault> {
    may_be_cached(&seen.evidence.identity, seen.evidence.cached).map(Fault::Broken)
}

/// That a cache may have answered, if so.
pub(crate) fn may_be_cached(identity: &Identity, cached: bool) -> Option<String> {
    cached.then(|| format!("{} may answer registrations from a cache of its own", identity.provider))
}

use pinrail_core::{Identity, PinsCounted};

use super::{Fault, Seen};

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
    let rails = &seen.evidence.machine.rails;
    let pins_nothing = !rails.is_empty() && rails.iter().all(|rail| rail.pins == PinsCounted::Nothing);
    let provider = &seen.evidence.identity.provider;
    pins_nothing.then(|| Fault::Broken(format!("{provider} pins nothing: its times say nothing about registration")))
}

/// A registration that a cache answers was not made.
pub(super) fn cache(seen: &Seen<'_>) -> Option<Fault> {
    let provider = &seen.evidence.identity.provider;
    seen.evidence.cached.then(|| Fault::Broken(format!("{provider} may answer registrations from a cache of its own")))
}

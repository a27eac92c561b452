//! libfabric's domains as rails.

use pinrail_core::{Diagnosis, ErrorKind, RailId, Registrar as _};
use pinrail_libfabric::{Libfabric, MrCache, OpenError, Rails, Wanted as Domains};

use crate::error::Error;
use crate::machine::Wanted;

/// The providers of RDMA hardware, tried in this order where none is named. Software is never a fallback: who wants it
/// names it.
const HARDWARE: [&str; 3] = ["efa", "cxi", "verbs;ofi_rxm"];

/// Whether any rail's registrations are answered from a cache; one of which that is not known is in the notes.
pub(super) fn is_cached(fabric: &Libfabric) -> bool {
    (0..).map(RailId).take(fabric.rails().len()).any(|rail| fabric.mr_cache(rail) == Some(MrCache::On))
}

pub(super) fn open(provider: Option<&str>, wanted: &Wanted) -> Result<Libfabric, Error> {
    let rails = match wanted {
        Wanted::Count(rails) => Rails::Count(*rails),
        Wanted::Machine(machine) => Rails::Named(&machine.rails),
    };
    let open = |provider| Libfabric::open_all(&[Domains { provider, rails, device_memory: false }]);
    if let Some(provider) = provider {
        return Ok(open(provider)?);
    }
    for provider in HARDWARE {
        match open(provider) {
            Err(OpenError::NoProvider { .. }) => {}
            opened => return Ok(opened?),
        }
    }
    let message = format!("libfabric has no RDMA hardware here (looked for {})", HARDWARE.join(", "));
    Err(Diagnosis::new(ErrorKind::NotSupported, message).hint("name a software provider, as in libfabric:tcp").into())
}

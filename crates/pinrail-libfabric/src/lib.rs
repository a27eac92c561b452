#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **The exact provider or none.** `fi_getinfo` answers a request for `tcp` with `tcp;ofi_rxm` too. A caller who
//!   measures one thing and names another is misled, so only the provider that was named is opened.
//! - **Keys by the provider where it insists, else by us.** Of the two ways to fulfil FI_MR_PROV_KEY's absence, a
//!   counter with a set of live keys was taken over random keys: unique by construction, and a freed key returns last.
//! - **Nothing is retried here.** EAGAIN of a registration is [`pinrail_core::Cause::Again`], for the
//!   engine to act upon; only the mover, whose waits are bounded by its caller, calls again.
//! - **The mover gives its endpoints up after any failure** and opens new ones: an operation that did not complete may
//!   still write to its buffer until its endpoint is closed. After a time-out they are leaked, and so is their domain when
//!   its last user goes: `ofi_rxm` over verbs was seen to crash after such a close, and not without it.
//!
//! # Not here
//!
//! No retry, no thread, no plan. No choice between providers: that is the caller's.

mod cache;
mod cause;
mod deadline;
mod domain;
mod error;
mod ffi;
mod ibverbs;
mod info;
mod keys;
mod limits;
mod pair;
mod rails;
mod signals;
mod sysfs;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

pub use cache::MrCache;
pub use error::OpenError;
/// The bindings, whose types the handles have.
pub use libfabric_sys as sys;
use pinrail_core::{
    Access, Cause, Chunk, DeregisterError, Identity, MoveBytes, MoveError, Mr, Rail, RailId, RegisterError, Registrar,
};
pub use signals::default_signals;
use sys::bindgen::{fi_info, fid_domain, fid_ep, fid_fabric};

use crate::deadline::Deadline;
use crate::domain::{Domain, Registered};
use crate::pair::{Bytes, Pair};

/// A [`Registrar`] whose rails are libfabric domains.
#[derive(Debug)]
pub struct Libfabric {
    rails: Vec<Rail>,
    domains: Vec<Arc<Domain>>,
}

/// Rails to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The provider, exactly as it calls itself: `tcp`, `tcp;ofi_rxm`, `efa`.
    pub provider: &'a str,
    /// Which domains of it, and how many.
    pub rails: Rails<'a>,
    /// True to open domains that register device memory (FI_HMEM).
    pub device_memory: bool,
}

/// Which of a provider's domains become rails. A provider without devices (tcp, shm, sockets) opens its domains as often
/// as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rails<'a> {
    /// So many, in the provider's order, named after their devices.
    Count(u16),
    /// These, in this order: devices are found by name or PCI address. Names that are no device's are taken as they are
    /// where the provider has none.
    Named(&'a [Rail]),
}

impl Rails<'_> {
    fn len(&self) -> usize {
        match self {
            Rails::Count(count) => usize::from(*count),
            Rails::Named(named) => named.len(),
        }
    }
}

/// A domain that the caller opened, and keeps open.
#[derive(Clone, Debug)]
pub struct Borrowed {
    /// The rail's name.
    pub name: String,
    /// The entry the domain was opened with.
    pub info: *const fi_info,
    /// The domain.
    pub domain: NonNull<fid_domain>,
    /// The endpoint that registrations are bound to, where the provider wants that (FI_MR_ENDPOINT). It is enabled.
    pub endpoint: Option<NonNull<fid_ep>>,
    /// The keys that are left to Pinrail, where the provider does not choose them itself (no FI_MR_PROV_KEY).
    pub keys: Option<RangeInclusive<u64>>,
}

/// Handles of one rail, for endpoints of the caller's own.
///
/// They are valid while the [`Libfabric`] they come from, or an MR of it, lives; what was opened on them is closed before.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
    /// The entry the domain was opened from.
    pub info: *const fi_info,
    /// The domain.
    pub domain: *mut fid_domain,
    /// Its fabric; `None` for a borrowed domain.
    pub fabric: Option<*mut fid_fabric>,
}

impl Libfabric {
    /// Opens `rails` domains of one provider for host memory, each with a fabric of its own.
    ///
    /// # Errors
    /// As [`Libfabric::open_all`].
    pub fn open(provider: &str, rails: u16) -> Result<Libfabric, OpenError> {
        Libfabric::open_all(&[Wanted { provider, rails: Rails::Count(rails), device_memory: false }])
    }

    /// Opens domains of several providers; the rails come in this order.
    ///
    /// # Errors
    /// [`OpenError::NoProvider`], [`OpenError::TooFewDomains`], [`OpenError::NoSuchDevice`], [`OpenError::TooManyRails`], or
    /// the call that failed.
    pub fn open_all(wanted: &[Wanted<'_>]) -> Result<Libfabric, OpenError> {
        let rails = wanted.iter().map(|wanted| wanted.rails.len()).sum();
        if rails > Rail::MAX {
            return Err(OpenError::TooManyRails { rails, max: Rail::MAX });
        }
        let mut domains = Vec::new();
        for wanted in wanted {
            for (name, info) in rails::choose(info::discover(wanted.provider, wanted.device_memory)?, wanted)? {
                domains.push((name, Domain::open(info)?));
            }
        }
        Ok(Libfabric::of(domains))
    }

    /// Registers on domains that the caller opened: the only ones on which the keys are worth anything to the caller's
    /// endpoints. They are never closed here.
    ///
    /// # Errors
    /// [`OpenError::NotThreadSafe`] for a domain opened without FI_THREAD_SAFE, [`OpenError::NotSupported`] where its
    /// mr_mode needs what is missing here.
    ///
    /// # Safety
    /// Of each: `info` points to the valid entry that `domain` was opened with, and during this call nobody changes it.
    /// `domain`, and `endpoint` where there is one, are open, and stay open until the returned value and all MRs made by
    /// it are gone. `endpoint` belongs to `domain`.
    pub unsafe fn borrow(domains: &[Borrowed]) -> Result<Libfabric, OpenError> {
        if domains.len() > Rail::MAX {
            return Err(OpenError::TooManyRails { rails: domains.len(), max: Rail::MAX });
        }
        let borrow = |borrowed| {
            // SAFETY: the caller's promise for each of them.
            let domain = unsafe { Domain::borrow(borrowed) }?;
            Ok((Some(borrowed.name.as_str()), domain))
        };
        Ok(Libfabric::of(domains.iter().map(borrow).collect::<Result<_, OpenError>>()?))
    }

    fn of(domains: Vec<(Option<&str>, Domain)>) -> Libfabric {
        let mut taken = BTreeSet::new();
        let rails = domains.iter().map(|(name, domain)| rails::rail(domain, *name, &mut taken)).collect();
        Libfabric { rails, domains: domains.into_iter().map(|(_, domain)| Arc::new(domain)).collect() }
    }

    /// The handles of a rail; `None` for a rail this registrar does not have.
    #[must_use]
    pub fn handles(&self, rail: RailId) -> Option<Handles> {
        let domain = self.domains.get(rail.index())?;
        Some(Handles { info: domain.info.as_ptr(), domain: domain.as_ptr(), fabric: domain.fabric() })
    }

    /// What a peer adds to an offset within the MR to name a byte of it: the address of its first byte, or 0 where the
    /// provider counts from there. `None` for an MR that is not live, or not libfabric's.
    #[must_use]
    pub fn remote_base(mr: &Mr) -> Option<u64> {
        mr.token::<Registered>().map(|registered| registered.base)
    }

    /// Whether a rail's registrations may go through a cache of its provider: a measurement through one is worthless.
    /// `None` for a rail this registrar does not have.
    #[must_use]
    pub fn mr_cache(&self, rail: RailId) -> Option<MrCache> {
        self.domains.get(rail.index()).map(|domain| MrCache::of(&domain.facts))
    }

    /// What a reader of the rails should know: where the figure of max_mr_size comes from, and any cache.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let note = |(rail, domain): (&Rail, &Arc<Domain>)| {
            let size = match rail.limits.max_mr_size {
                Some(bytes) => format!("one registration has at most {bytes} bytes ({})", domain.max_mr_size.source),
                None => format!("no limit of one registration ({})", domain.max_mr_size.source),
            };
            let cache = match MrCache::of(&domain.facts) {
                MrCache::Off => "no registration cache",
                MrCache::On => "registrations go through the provider's cache unless FI_MR_CACHE_MONITOR=disabled is set",
                MrCache::Unknown => "whether the provider caches registrations is not known",
            };
            format!("rail {}: {size}; {cache}", rail.name)
        };
        self.rails.iter().zip(&self.domains).map(note).collect()
    }

    /// The MR's domain and state, if it is live and of this registrar.
    fn ours<'m>(&self, mr: &'m Mr) -> Option<(&Arc<Domain>, &'m Registered)> {
        let domain = self.domains.get(mr.rail().index())?;
        let registered = mr.token::<Registered>()?;
        Arc::ptr_eq(domain, registered.domain()).then_some((domain, registered))
    }

    fn transfer(&self, mr: &Mr, at: u64, bytes: Bytes<'_>, wait: Duration) -> Result<(), MoveError> {
        let (api, len) = match &bytes {
            Bytes::In(from) => ("fi_write", from.len()),
            Bytes::Out(into) => ("fi_read", into.len()),
        };
        let (domain, registered) = self.ours(mr).ok_or_else(|| MoveError::new(api, None, Cause::NotOurs))?;
        let extent = mr.extent();
        if at.checked_add(len as u64).is_none_or(|end| end > extent.len()) {
            let what = format!("{len} bytes at offset {at} are outside the registration of {} bytes", extent.len());
            return Err(MoveError::new(api, None, Cause::Other { what }));
        }
        // Not every provider refuses what was not granted, and one that does may never say so.
        let needs = match &bytes {
            Bytes::In(_) => Access::REMOTE_WRITE,
            Bytes::Out(_) => Access::REMOTE_READ,
        };
        if !registered.access.contains(needs) {
            let (asked, why) = (registered.access.to_string(), format!("a peer's transfer needs {needs}"));
            return Err(MoveError::new(api, None, Cause::Access { asked, why }));
        }
        let deadline = Deadline::after(wait);
        let pairs = || domain.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = pairs().pop();
        let pair = match idle {
            Some(pair) => pair,
            None => Pair::open(domain, &deadline)?,
        };
        let at = registered.base.wrapping_add(at);
        let pair = pair.transfer(domain, registered.base, &mr.keys().remote, at, bytes, &deadline)?;
        pairs().push(pair);
        Ok(())
    }
}

impl Registrar for Libfabric {
    fn identity(&self) -> Identity {
        let (major, minor) = ffi::library();
        let mut providers: Vec<&str> = self.domains.iter().map(|domain| domain.facts.provider.as_str()).collect();
        providers.dedup();
        Identity { backend: "libfabric".to_owned(), provider: providers.join(","), library: format!("libfabric {major}.{minor}") }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        let no_such_rail = || RegisterError::no_such_rail("fi_mr_regattr", rail, self.rails.len());
        let made = self.domains.get(rail.index()).ok_or_else(no_such_rail)?.register(chunk)?;
        Ok(Mr::new(rail, made.keys, made.token, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        let (domain, registered) = self.ours(mr).ok_or_else(|| DeregisterError::new("fi_close", None, Cause::NotOurs))?;
        // SAFETY: live, as it still has its token; it is retired right after a success, and `mr` is ours alone.
        unsafe { domain.deregister(registered) }.map_err(|failed| cause::of_deregister(failed, domain))?;
        mr.retire::<Registered>();
        Ok(())
    }

    /// `None` where a rail's registrations are bound to the caller's endpoint, or a borrowed domain's endpoints would have
    /// to be connected: there the caller moves the bytes.
    fn mover(&self) -> Option<&dyn MoveBytes> {
        self.domains.iter().all(|domain| domain.moves()).then_some(self)
    }
}

impl MoveBytes for Libfabric {
    fn write(&self, mr: &Mr, at: u64, from: &[u8], wait: Duration) -> Result<(), MoveError> {
        self.transfer(mr, at, Bytes::In(from), wait)
    }

    fn read(&self, mr: &Mr, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError> {
        self.transfer(mr, at, Bytes::Out(into), wait)
    }
}

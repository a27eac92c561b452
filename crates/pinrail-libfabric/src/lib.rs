#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **The exact provider or none.** `fi_getinfo` answers a request for `tcp` with `tcp;ofi_rxm` too. A caller who
//!   measures one thing and names another is misled, so only the provider that was named is opened.
//! - **Keys by the provider where it insists, else by us.** Of the two ways to fulfil FI_MR_PROV_KEY's absence, a
//!   counter with a set of live keys was taken over random keys: unique by construction, and a freed key returns last.
//! - **Nothing is retried here.** EAGAIN of a registration is [`Cause::Again`](pinrail_core::Cause::Again), for the
//!   engine to act upon; only the mover, whose waits are bounded by its caller, calls again.
//! - **The mover gives its endpoints up after any failure** and opens new ones: an operation that did not complete may
//!   still write to its buffer until its endpoint is closed.
//!
//! # Not here
//!
//! No retry, no thread, no plan. No choice between providers: that is the caller's.

mod cause;
mod deadline;
mod domain;
mod error;
mod ffi;
mod info;
mod keys;
mod pair;
mod rails;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

pub use error::OpenError;
/// The bindings whose handles [`Libfabric::handles`] hands out.
pub use libfabric_sys as sys;
use pinrail_core::{
    Cause, Chunk, DeregisterError, Identity, Keys, MoveBytes, MoveError, Mr, Rail, RailId, RegisterError, Registrar,
};

use crate::deadline::Deadline;
use crate::domain::{Domain, Registered};
use crate::pair::{Bytes, Pair};

/// A [`Registrar`] whose rails are libfabric domains.
#[derive(Debug)]
pub struct Libfabric {
    rails: Vec<Rail>,
    domains: Vec<Arc<Domain>>,
}

/// Handles of one rail, for endpoints of the caller's own.
///
/// They are valid while the [`Libfabric`] they come from, or an MR of it, lives; what was opened on them is closed before.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
    /// The entry the domain was opened from.
    pub info: *const sys::bindgen::fi_info,
    /// The domain.
    pub domain: *mut sys::bindgen::fid_domain,
    /// Its fabric; `None` for a borrowed domain.
    pub fabric: Option<*mut sys::bindgen::fid_fabric>,
}

impl Libfabric {
    /// Opens `rails` domains of one provider, each with a fabric of its own.
    ///
    /// Devices are taken in the provider's order, one rail each. A provider without devices (tcp, shm, sockets) opens
    /// as many domains as are asked for.
    ///
    /// # Errors
    /// [`OpenError::NoProvider`], [`OpenError::TooFewDomains`], or the call that failed.
    pub fn open(provider: &str, rails: u16) -> Result<Libfabric, OpenError> {
        let found = rails::choose(info::discover(provider, false)?, provider, rails)?;
        let (mut rails, mut domains) = (Vec::new(), Vec::new());
        for (rail, info) in found {
            let domain = Domain::open(info, rail.limits.max_mr_size)?;
            domains.push(Arc::new(domain));
            rails.push(rail);
        }
        Ok(Libfabric { rails, domains })
    }

    /// The handles of a rail; `None` for a rail this registrar does not have.
    #[must_use]
    pub fn handles(&self, rail: RailId) -> Option<Handles> {
        let domain = self.domains.get(rail.index())?;
        Some(Handles { info: domain.info.as_ptr(), domain: domain.as_ptr(), fabric: domain.fabric() })
    }

    /// What a peer adds to an offset within the MR to name a byte of it: the address of its first byte, or 0 where the
    /// provider counts from there. `None` for an MR that is not live here.
    #[must_use]
    pub fn remote_base(&self, mr: &Mr) -> Option<u64> {
        self.ours(mr).map(|(_, registered)| registered.base)
    }

    /// The MR's domain and state, if it is live and of this registrar.
    fn ours<'m>(&self, mr: &'m Mr) -> Option<(&Arc<Domain>, &'m Registered)> {
        let domain = self.domains.get(mr.rail().index())?;
        let registered = mr.token::<Registered>()?;
        Arc::ptr_eq(domain, &registered.domain).then_some((domain, registered))
    }

    fn transfer(&self, mr: &Mr, at: u64, bytes: Bytes<'_>, wait: Duration) -> Result<(), MoveError> {
        let (api, len) = match &bytes {
            Bytes::In(from) => ("fi_write", from.len()),
            Bytes::Out(into) => ("fi_read", into.len()),
        };
        let (domain, _) = self.ours(mr).ok_or_else(|| MoveError::new(api, None, Cause::NotOurs))?;
        let extent = mr.extent();
        if at.checked_add(len as u64).is_none_or(|end| end > extent.len()) {
            let what = format!("{len} bytes at offset {at} are outside the registration of {} bytes", extent.len());
            return Err(MoveError::new(api, None, Cause::Other { what }));
        }
        let deadline = Deadline::after(wait);
        let mut held = domain.pair.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pair = match held.take() {
            Some(pair) => pair,
            None => Pair::open(domain, &deadline)?,
        };
        pair.transfer(domain, mr, at, bytes, &deadline)?;
        *held = Some(pair);
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
        Ok(Mr::new(rail, Keys { local: made.local, remote: made.remote }, made.token, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        let (domain, registered) = self.ours(mr).ok_or_else(|| DeregisterError::new("fi_close", None, Cause::NotOurs))?;
        domain.deregister(registered).map_err(|failed| cause::of_deregister(failed, domain))?;
        mr.retire::<Registered>();
        Ok(())
    }

    fn mover(&self) -> Option<&dyn MoveBytes> {
        Some(self)
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

use std::fmt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use pinrail_core::{
    Cause, Chunk, DeregisterError, Extent, Identity, MoveBytes, MoveError, Mr, Rail, RailId, RailState, RegisterError, Registrar,
};
use pinrail_memory::Maps;
use rdma_sys as sys;

use crate::deadline::Deadline;
use crate::device::{self, Devices};
use crate::domain::{self, Domain, Registered};
use crate::pair::{Bytes, Pair};
use crate::{OpenError, cause};

/// A [`Registrar`] whose rails are protection domains, each of another RDMA device.
///
/// It may be dropped while MRs live; they keep their domains open, but nothing can deregister them any more.
pub struct Verbs {
    rails: Vec<Rail>,
    domains: Vec<Arc<Domain>>,
    relaxed_ordering: bool,
}

/// A PD of the caller's, and the rail that it shall be.
#[derive(Clone, Debug)]
pub struct CallersPd {
    /// The rail. What it does not know (its PCI function, its node) is taken from the device; of two limits the smaller
    /// holds.
    pub rail: Rail,
    /// The PD.
    pub pd: NonNull<sys::ibv_pd>,
}

/// Handles of one rail, for queues and queue pairs of the caller's own.
///
/// They are valid while the [`Verbs`] they come from, or an MR of it, lives. What was made on them is destroyed before:
/// otherwise device and PD stay open until the process ends, because closing them would pull it away.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
    /// The open device.
    pub context: NonNull<sys::ibv_context>,
    /// The PD that registrations are made on.
    pub pd: NonNull<sys::ibv_pd>,
}

/// The RDMA devices of this machine as rails, in the order of libibverbs. None is opened, so their limits are not known
/// yet.
///
/// # Errors
/// [`OpenError::NoVerbs`].
pub fn devices() -> Result<Vec<Rail>, OpenError> {
    Ok(Devices::list()?.rails())
}

impl Verbs {
    /// Opens the device of each rail, in their order, with a PD each. A rail with a PCI address is the device there, any
    /// other the device of its name.
    ///
    /// Names and places of the rails are kept as given. Of their limits and the device's own the smaller holds.
    ///
    /// # Errors
    /// [`OpenError::NoVerbs`], [`OpenError::NoDevice`], [`OpenError::SeveralDevices`], [`OpenError::OneDevice`],
    /// [`OpenError::TooManyRails`], or the call that failed. Nothing is left open.
    pub fn open(rails: &[Rail]) -> Result<Verbs, OpenError> {
        let devices = Devices::list()?;
        let chosen = device::assign(rails, &devices.rails())?;
        Verbs::of(rails.iter().zip(chosen), |(rail, at)| {
            // SAFETY: an entry of the list, which is freed after this.
            let (domain, offered) = unsafe { Domain::open(devices.all()[at]) }?;
            Ok((rail, domain, offered))
        })
    }

    /// Opens the first devices of the machine.
    ///
    /// # Errors
    /// [`OpenError::TooFewDevices`]; else as [`Verbs::open`].
    pub fn open_first(rails: u16) -> Result<Verbs, OpenError> {
        let (found, rails) = (devices()?, usize::from(rails));
        match found.get(..rails) {
            Some(first) => Verbs::open(first),
            None => Err(OpenError::TooFewDevices { devices: found.len(), rails }),
        }
    }

    /// Registers on PDs that the caller has: the only ones on which the keys are worth anything to the caller's queue
    /// pairs. They are never closed here.
    ///
    /// # Errors
    /// [`OpenError::TooManyRails`], or [`OpenError::Call`] where a device does not state its limits.
    ///
    /// # Safety
    /// Each PD is open, and stays so until the returned value and all MRs made by it are gone. (`ibv_dealloc_pd` answers
    /// EBUSY as long as one of them lives; closing the device does not ask.)
    pub unsafe fn over(pds: &[CallersPd]) -> Result<Verbs, OpenError> {
        Verbs::of(pds.iter(), |CallersPd { rail, pd }| {
            // SAFETY: the caller's promise.
            let (domain, offered) = unsafe { Domain::over(*pd) }?;
            Ok((rail, domain, offered))
        })
    }

    fn of<'r, T>(
        rails: impl ExactSizeIterator<Item = T>,
        open: impl Fn(T) -> Result<(&'r Rail, Domain, Rail), OpenError>,
    ) -> Result<Verbs, OpenError> {
        if rails.len() > Rail::MAX {
            return Err(OpenError::TooManyRails { rails: rails.len(), max: Rail::MAX });
        }
        let mut verbs = Verbs { rails: Vec::new(), domains: Vec::new(), relaxed_ordering: false };
        for rail in rails {
            let (wanted, domain, offered) = open(rail)?;
            verbs.rails.push(filled(wanted, &offered));
            verbs.domains.push(Arc::new(domain));
        }
        Ok(verbs)
    }

    /// Asks for relaxed ordering of every registration from now on (`IBV_ACCESS_RELAXED_ORDERING`): the NIC's writes may
    /// pass each other on PCI, which is faster on some machines. Where the device or the kernel does not offer it, it is
    /// left out without an error, as libibverbs has it.
    ///
    /// It is off by default because it changes what a caller may conclude: the last byte of a message may be there before
    /// the first. Whoever waits for bytes in memory instead of a completion must leave it off.
    #[must_use]
    pub fn with_relaxed_ordering(self) -> Verbs {
        Verbs { relaxed_ordering: true, ..self }
    }

    /// The handles of a rail; `None` for a rail this registrar does not have.
    #[must_use]
    pub fn handles(&self, rail: RailId) -> Option<Handles> {
        let domain = self.domains.get(rail.index())?;
        Some(Handles { context: domain.context(), pd: domain.pd() })
    }

    /// The MR's state, if it is live and of this registrar.
    fn ours<'m>(&self, mr: &'m Mr) -> Option<&'m Registered> {
        let domain = self.domains.get(mr.rail().index())?;
        mr.token::<Registered>().filter(|registered| Arc::ptr_eq(domain, registered.domain()))
    }

    fn transfer(&self, mr: &Mr, at: u64, bytes: Bytes<'_>, wait: Duration) -> Result<(), MoveError> {
        let api = bytes.api();
        let registered = self.ours(mr).ok_or_else(|| MoveError::new(api, None, Cause::NotOurs))?;
        let deadline = Deadline::after(wait);
        let mut turn = registered.domain().turns.take(api, &deadline)?;
        // After a failure it is not put back: a broken connection is of no use, and a request that is still under way ends
        // with its queue pair.
        let pair = match turn.pair.take() {
            Some(pair) => pair,
            None => Pair::open(registered.domain())?,
        };
        // No range is checked here. It is the NIC that refuses what the key does not cover, and no address outside the
        // registration is inside it, wrapped around or not.
        pair.transfer(registered.rkey(), mr.extent().start().wrapping_add(at), bytes, &deadline)?;
        turn.pair = Some(pair);
        Ok(())
    }
}

/// A rail as its owner has it, with what only the device knows.
fn filled(wanted: &Rail, offered: &Rail) -> Rail {
    let mut rail = wanted.clone();
    rail.tighten(offered);
    rail.pci = rail.pci.or(offered.pci);
    rail.node = rail.node.or(offered.node);
    rail.mbps = rail.mbps.or(offered.mbps);
    if rail.state == RailState::Unknown {
        rail.state = offered.state;
    }
    rail
}

impl Registrar for Verbs {
    fn identity(&self) -> Identity {
        let mut drivers: Vec<String> = self.domains.iter().map(|domain| device::driver(&domain.device)).collect();
        drivers.dedup();
        Identity { backend: "verbs".to_owned(), provider: drivers.join(","), library: library() }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        let api = domain::api_of(chunk.source);
        let (Some(domain), Some(limits)) = (self.domains.get(rail.index()), self.rails.get(rail.index()).map(|rail| rail.limits))
        else {
            return Err(RegisterError::no_such_rail(api, rail, self.rails.len()));
        };
        let refuse = |cause| RegisterError::new(api, None, cause);
        let extent = chunk.check().map_err(|wrong| refuse(wrong.into()))?;
        if chunk.memory.is_imagined() {
            return Err(refuse(Cause::NotSupported { what: "imagined memory has no pages that could be pinned".into() }));
        }
        if let Some(limit) = limits.max_mr_size.filter(|&limit| extent.len() > limit) {
            return Err(refuse(Cause::MrSize { limit, need: extent.len() }));
        }
        let registered = domain.register(chunk, limits.max_mrs, self.relaxed_ordering)?;
        Ok(Mr::new(rail, registered.keys(), registered, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        const API: &str = "ibv_dereg_mr";
        let registered = self.ours(mr).ok_or_else(|| DeregisterError::new(API, None, Cause::NotOurs))?;
        // SAFETY: live, as it still has its token; it is retired right after a success, and `mr` is ours alone.
        unsafe { registered.deregister() }
            .map_err(|errno| DeregisterError::new(API, Some(errno), cause::of_deregister(errno, &registered.domain().device)))?;
        // The memory is let go here, after the kernel has let go of its pages.
        drop(mr.retire::<Registered>());
        Ok(())
    }

    fn mover(&self) -> Option<&dyn MoveBytes> {
        Some(self)
    }
}

/// Bytes go over the rail to itself: from one queue pair of the MR's device to another, by RDMA write and read with the
/// MR's remote key. So it is the NIC that refuses a key or an offset that is wrong, and access that was not granted.
///
/// A rail's first transfer makes the queue pairs, on the rail's PD, and pins 64 KiB for them, both for as long as the
/// domain lives.
impl MoveBytes for Verbs {
    fn write(&self, mr: &Mr, at: u64, from: &[u8], wait: Duration) -> Result<(), MoveError> {
        self.transfer(mr, at, Bytes::In(from), wait)
    }

    fn read(&self, mr: &Mr, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError> {
        self.transfer(mr, at, Bytes::Out(into), wait)
    }
}

/// The file that the calls go to: libibverbs has no call that tells its version, but its file's name does.
fn library() -> String {
    let address = (sys::ibv_dereg_mr as *const ()).addr() as u64;
    let file = || {
        let maps = Maps::read().ok()?;
        let region = maps.overlapping(Extent::new(address, 1).ok()?).next()?;
        Path::new(&region.name).file_name().map(|name| name.to_string_lossy().into_owned())
    };
    file().unwrap_or_else(|| "libibverbs".to_owned())
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verbs ")?;
        f.debug_list().entries(self.rails.iter().map(|rail| &rail.name)).finish()
    }
}

//! What `fi_getinfo` offers, and which of it is taken.

use std::ffi::{CString, c_int};
use std::ptr::NonNull;

use libfabric_sys::bindgen as fi;
use pinrail_core::PciAddress;

use crate::OpenError;
use crate::ffi::{self, Failed, check, string};

/// The mr_mode bits this crate fulfils; a provider that needs another one is not offered to us.
pub(crate) const MR_MODE: u32 = fi::FI_MR_LOCAL
    | fi::FI_MR_RAW
    | fi::FI_MR_VIRT_ADDR
    | fi::FI_MR_ALLOCATED
    | fi::FI_MR_PROV_KEY
    | fi::FI_MR_ENDPOINT
    | fi::FI_MR_HMEM;

/// One domain's `fi_info`, ours to free.
#[derive(Debug)]
pub(crate) struct Info(NonNull<fi::fi_info>);

// SAFETY: a plain structure in memory; nothing changes it after it was made.
unsafe impl Send for Info {}
// SAFETY: as above.
unsafe impl Sync for Info {}

impl Info {
    /// A deep copy of one entry.
    ///
    /// # Safety
    /// `info` points to a valid `fi_info` that nobody changes during the call.
    pub(crate) unsafe fn copy(info: *const fi::fi_info) -> Result<Info, Failed> {
        // SAFETY: the caller's promise; fi_dupinfo copies one entry and leaves `next` null.
        let copy = unsafe { fi::fi_dupinfo(info) };
        NonNull::new(copy).map(Info).ok_or(Failed { api: "fi_dupinfo", errno: libc::ENOMEM })
    }

    /// Takes over an entry that the library made for us; `None` for null.
    ///
    /// # Safety
    /// `info` is null or an entry that is ours to free, and nobody else's.
    pub(crate) unsafe fn take(info: *mut fi::fi_info) -> Option<Info> {
        NonNull::new(info).map(Info)
    }

    /// A copy whose endpoint will connect to `address`.
    pub(crate) fn towards(&self, address: &[u8]) -> Result<Info, Failed> {
        // SAFETY: our own valid entry.
        let copy = unsafe { Info::copy(self.as_ptr()) }?;
        // SAFETY: malloc has no preconditions.
        let held = unsafe { libc::malloc(address.len()) };
        if held.is_null() {
            return Err(Failed { api: "malloc", errno: libc::ENOMEM });
        }
        // SAFETY: `held` has room for exactly these bytes and is fresh.
        unsafe { std::ptr::copy_nonoverlapping(address.as_ptr(), held.cast(), address.len()) };
        let info = copy.0.as_ptr();
        // SAFETY: our own copy, not yet shared.
        let old = unsafe { std::mem::replace(&mut (*info).dest_addr, held) };
        // SAFETY: null or what fi_dupinfo allocated with malloc; the structure no longer points to it.
        unsafe { libc::free(old) };
        // SAFETY: our own copy, not yet shared.
        unsafe { (*info).dest_addrlen = address.len() };
        Ok(copy)
    }

    pub(crate) fn as_ptr(&self) -> *mut fi::fi_info {
        self.0.as_ptr()
    }

    /// What it says.
    pub(crate) fn facts(&self) -> Facts {
        // SAFETY: a complete entry: made by the library from one that `fi_getinfo` or the caller filled.
        unsafe { Facts::read(self.0.as_ptr()) }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: made by fi_dupinfo and freed once.
        unsafe { fi::fi_freeinfo(self.0.as_ptr()) };
    }
}

/// The parts of an `fi_info` that decide how a domain is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The provider, as it calls itself.
    pub(crate) provider: String,
    /// The domain's name.
    pub(crate) domain: String,
    /// How endpoints of it are used.
    pub(crate) endpoint: EndpointType,
    /// FI_MR_*: what registration must observe.
    pub(crate) mr_mode: u32,
    /// Bytes of a key.
    pub(crate) mr_key_size: usize,
    /// Registrations, as far as the provider says.
    pub(crate) mr_cnt: Option<u64>,
    /// True when any thread may call on any object.
    pub(crate) thread_safe: bool,
    /// True where registrations of device memory are offered (FI_HMEM).
    pub(crate) device_memory: bool,
    /// Bytes of one transfer.
    pub(crate) max_msg_size: usize,
    /// The device behind it, where there is one.
    pub(crate) nic: Option<Nic>,
}

/// The device behind a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nic {
    pub(crate) name: Option<String>,
    pub(crate) pci: Option<PciAddress>,
    /// Bits a second.
    pub(crate) speed: Option<u64>,
    pub(crate) up: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointType {
    /// Reliable and unconnected.
    Rdm,
    /// Connected.
    Msg,
    /// Without reliable remote access: datagrams and what else there may be.
    Other,
}

impl Facts {
    /// # Safety
    /// `info` points to a valid entry whose attribute pointers are null or valid.
    unsafe fn read(info: *const fi::fi_info) -> Facts {
        // SAFETY: valid by the caller's promise; nobody changes it.
        let info = unsafe { &*info };
        // SAFETY: null or valid by the caller's promise.
        let fabric = unsafe { info.fabric_attr.as_ref() };
        // SAFETY: as above.
        let domain = unsafe { info.domain_attr.as_ref() };
        // SAFETY: as above.
        let endpoint = unsafe { info.ep_attr.as_ref() };
        // SAFETY: names are null or strings that live as long as the entry.
        let provider = fabric.and_then(|fabric| unsafe { string(fabric.prov_name) });
        // SAFETY: as above.
        let name = domain.and_then(|domain| unsafe { string(domain.name) });
        Facts {
            provider: provider.unwrap_or_default(),
            domain: name.unwrap_or_default(),
            endpoint: match endpoint.map(|endpoint| endpoint.type_) {
                Some(fi::fi_ep_type_FI_EP_RDM) => EndpointType::Rdm,
                Some(fi::fi_ep_type_FI_EP_MSG) => EndpointType::Msg,
                _ => EndpointType::Other,
            },
            mr_mode: domain.map_or(0, |domain| effective(domain.mr_mode)),
            mr_key_size: domain.map_or(8, |domain| domain.mr_key_size),
            mr_cnt: domain.map(|domain| domain.mr_cnt as u64).filter(|&count| count > 0),
            thread_safe: domain.is_some_and(|domain| domain.threading == fi::fi_threading_FI_THREAD_SAFE),
            device_memory: info.caps & fi::FI_HMEM != 0,
            max_msg_size: endpoint.map_or(0, |endpoint| endpoint.max_msg_size),
            // SAFETY: null or valid by the caller's promise.
            nic: unsafe { info.nic.as_ref() }.map(|nic| unsafe { Nic::read(nic) }),
        }
    }
}

/// FI_MR_BASIC and FI_MR_SCALABLE, of the interface before libfabric 1.5; the headers of 2.0 no longer name them.
const MR_BASIC: u32 = 1;
const MR_SCALABLE: u32 = 2;

/// The bits that count: FI_MR_BASIC, with which old applications ask for three of them, means those three.
fn effective(mr_mode: c_int) -> u32 {
    let mr_mode = mr_mode.cast_unsigned();
    if mr_mode == MR_BASIC {
        return fi::FI_MR_VIRT_ADDR | fi::FI_MR_ALLOCATED | fi::FI_MR_PROV_KEY;
    }
    mr_mode & !MR_SCALABLE
}

impl Nic {
    /// # Safety
    /// The attribute pointers are null or valid.
    unsafe fn read(nic: &fi::fid_nic) -> Nic {
        // SAFETY: null or valid by the caller's promise.
        let device = unsafe { nic.device_attr.as_ref() };
        // SAFETY: as above.
        let bus = unsafe { nic.bus_attr.as_ref() };
        // SAFETY: as above.
        let link = unsafe { nic.link_attr.as_ref() };
        let pci = bus.filter(|bus| bus.bus_type == fi::fi_bus_type_FI_BUS_PCI).and_then(|bus| {
            // SAFETY: the bus type says that this member of the union was filled.
            let pci = unsafe { bus.attr.pci };
            PciAddress::new(u32::from(pci.domain_id), pci.bus_id, pci.device_id, pci.function_id)
        });
        Nic {
            // SAFETY: null or a string that lives as long as the entry.
            name: device.and_then(|device| unsafe { string(device.name) }),
            pci,
            speed: link.map(|link| link.speed as u64).filter(|&speed| speed > 0),
            up: link.and_then(|link| match link.state {
                fi::fi_link_state_FI_LINK_UP => Some(true),
                fi::fi_link_state_FI_LINK_DOWN => Some(false),
                _ => None,
            }),
        }
    }
}

/// Asks for every domain of `provider` and keeps those of exactly that provider.
///
/// `fi_getinfo` answers `tcp` with `tcp;ofi_rxm` too; a caller who asked for one provider and got another would measure
/// what it did not name, so only the exact name is kept. Of endpoint types the unconnected one is preferred.
pub(crate) fn discover(provider: &str, device_memory: bool) -> Result<Vec<Info>, OpenError> {
    // Delivery-complete transfers are what proves bytes; a provider that has none is asked again without.
    let mut found = query(provider, device_memory, true)?;
    if !found.iter().any(|info| is(info, provider)) {
        found.extend(query(provider, device_memory, false)?);
    }
    let others: std::collections::BTreeSet<String> = found.iter().map(|info| info.facts().provider).collect();
    found.retain(|info| is(info, provider));
    for endpoint in [EndpointType::Rdm, EndpointType::Msg] {
        if found.iter().any(|info| info.facts().endpoint == endpoint) {
            found.retain(|info| info.facts().endpoint == endpoint);
            return Ok(found);
        }
    }
    Err(OpenError::NoProvider { provider: provider.to_owned(), others: others.into_iter().collect() })
}

fn is(info: &Info, provider: &str) -> bool {
    info.facts().provider.eq_ignore_ascii_case(provider)
}

fn query(provider: &str, device_memory: bool, delivery_complete: bool) -> Result<Vec<Info>, OpenError> {
    let name = CString::new(provider).map_err(|_| OpenError::Provider { provider: provider.to_owned() })?;
    // SAFETY: fi_allocinfo has no preconditions; it returns null or an entry with all attributes allocated and zero.
    let hints = unsafe { fi::fi_allocinfo() };
    let hints = Info(NonNull::new(hints).ok_or(Failed { api: "fi_allocinfo", errno: libc::ENOMEM })?);
    // SAFETY: fresh, ours alone.
    let entry = unsafe { &mut *hints.as_ptr() };
    entry.caps = u64::from(fi::FI_RMA) | if device_memory { fi::FI_HMEM } else { 0 };
    // Contexts are provided by the mover; without receives no buffer is needed for remote completion data.
    entry.mode = fi::FI_CONTEXT | fi::FI_CONTEXT2 | fi::FI_RX_CQ_DATA;
    // SAFETY: allocated by fi_allocinfo.
    let fabric = unsafe { &mut *entry.fabric_attr };
    // SAFETY: a NUL-terminated string; the copy is malloc's, as fi_freeinfo expects.
    fabric.prov_name = unsafe { libc::strdup(name.as_ptr()) };
    // SAFETY: allocated by fi_allocinfo.
    let domain = unsafe { &mut *entry.domain_attr };
    domain.threading = fi::fi_threading_FI_THREAD_SAFE;
    domain.mr_mode = MR_MODE.cast_signed();
    if delivery_complete {
        // SAFETY: allocated by fi_allocinfo.
        let transmit = unsafe { &mut *entry.tx_attr };
        transmit.op_flags = u64::from(fi::FI_DELIVERY_COMPLETE);
    }
    let mut list = std::ptr::null_mut();
    // SAFETY: hints is a valid entry, node and service may be null, the result is stored through a valid pointer.
    let returned = unsafe { fi::fi_getinfo(ffi::API, std::ptr::null(), std::ptr::null(), 0, hints.as_ptr(), &raw mut list) };
    match check("fi_getinfo", returned) {
        Ok(()) => {}
        Err(none) if none.errno == libc::ENODATA => return Ok(Vec::new()),
        Err(failed) => return Err(failed.into()),
    }
    let mut found = Vec::new();
    let mut at = list;
    let copied = loop {
        // SAFETY: null at the end, else an entry of the list just returned.
        let Some(entry) = (unsafe { at.as_ref() }) else { break Ok(found) };
        // SAFETY: an entry of the list, valid and unchanged.
        match unsafe { Info::copy(entry) } {
            Ok(copy) => found.push(copy),
            Err(failed) => break Err(failed.into()),
        }
        at = entry.next;
    };
    if !list.is_null() {
        // SAFETY: the list fi_getinfo returned; every entry was copied, none is referred to any more.
        unsafe { fi::fi_freeinfo(list) };
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_provider_that_was_named_is_found() {
        for provider in ["tcp", "tcp;ofi_rxm", "shm", "sockets"] {
            let found = discover(provider, false).unwrap();
            assert!(!found.is_empty());
            for info in found {
                let facts = info.facts();
                assert_eq!(facts.provider, provider);
                assert!(facts.thread_safe, "FI_THREAD_SAFE was asked for");
                assert_eq!(facts.mr_mode & !MR_MODE, 0, "only bits that were offered");
            }
        }
    }

    #[test]
    fn an_unknown_provider_is_refused_by_name() {
        let error = discover("no-such-provider", false).unwrap_err();
        assert!(error.to_string().contains("no-such-provider"), "{error}");
        let diagnosis = error.diagnosis();
        assert_eq!((diagnosis.api.as_deref(), diagnosis.errno), (Some("fi_getinfo"), Some(libc::ENODATA)));
        assert!(matches!(discover("a\0b", false), Err(OpenError::Provider { .. })));
    }

    #[test]
    fn a_nic_says_its_name_its_place_and_its_speed() {
        let of = |bus_type, state, speed| {
            let mut device = fi::fi_device_attr { name: c"rdmap0s6".as_ptr().cast_mut(), ..Default::default() };
            let mut bus = fi::fi_bus_attr { bus_type, ..Default::default() };
            bus.attr.pci = fi::fi_pci_attr { domain_id: 1, bus_id: 0x4f, device_id: 3, function_id: 2 };
            let mut link = fi::fi_link_attr { speed, state, ..Default::default() };
            let (device_attr, bus_attr, link_attr) = (&raw mut device, &raw mut bus, &raw mut link);
            // SAFETY: the attributes live until the end of the call.
            unsafe { Nic::read(&fi::fid_nic { device_attr, bus_attr, link_attr, ..Default::default() }) }
        };
        let (name, pci) = (Some("rdmap0s6".to_owned()), "0001:4f:03.2".parse().ok());
        let up = of(fi::fi_bus_type_FI_BUS_PCI, fi::fi_link_state_FI_LINK_UP, 100_000_000_000);
        assert_eq!(up, Nic { name: name.clone(), pci, speed: Some(100_000_000_000), up: Some(true) });
        let down = of(fi::fi_bus_type_FI_BUS_UNKNOWN, fi::fi_link_state_FI_LINK_DOWN, 0);
        assert_eq!(down, Nic { name, pci: None, speed: None, up: Some(false) }, "a bus of another kind is no place");
        // SAFETY: null attributes are allowed.
        assert_eq!(unsafe { Nic::read(&fi::fid_nic::default()) }, Nic::default());
    }

    #[test]
    fn basic_registration_means_three_bits() {
        assert_eq!(effective(MR_BASIC.cast_signed()), fi::FI_MR_VIRT_ADDR | fi::FI_MR_ALLOCATED | fi::FI_MR_PROV_KEY);
        assert_eq!(effective(MR_SCALABLE.cast_signed()), 0);
        assert_eq!(effective(0x10), fi::FI_MR_VIRT_ADDR);
    }
}

//! Which domains become rails, and what is known about each.

use std::collections::BTreeSet;
use std::path::Path;

use pinrail_core::{DevicePath, PciAddress, PinsCounted, Rail, RailState};

use crate::domain::Domain;
use crate::info::{Facts, Info, Nic};
use crate::{OpenError, Rails, Wanted, sysfs};

/// Takes the wanted domains out of what the provider offers, each with the name its rail shall have, if one was given.
pub(crate) fn choose<'a>(found: Vec<Info>, wanted: &Wanted<'a>) -> Result<Vec<(Option<&'a str>, Info)>, OpenError> {
    let provider = || wanted.provider.to_owned();
    // One entry for each domain: the others differ in address format or protocol.
    let mut domains: Vec<(Facts, Info)> = Vec::new();
    for info in found {
        let facts = info.facts();
        if !domains.iter().any(|(known, _)| known.domain == facts.domain) {
            domains.push((facts, info));
        }
    }
    let devices = domains.iter().any(|(facts, _)| facts.nic.is_some());
    let rails = wanted.rails.len();
    if devices && domains.len() < rails {
        return Err(OpenError::TooFewDomains { provider: provider(), domains: domains.len(), rails });
    }
    // SAFETY: an entry of ours, which nobody changes.
    let copy = |info: &Info| unsafe { Info::copy(info.as_ptr()) };
    let in_order = domains.iter().cycle().take(rails);
    match wanted.rails {
        Rails::Count(_) => in_order.map(|(_, info)| Ok((None, copy(info)?))).collect(),
        Rails::Named(named) => {
            let choose = |(rail, next): (&'a Rail, &(Facts, Info))| {
                let info = match domains.iter().find(|(facts, _)| is(facts, rail)) {
                    Some((_, info)) => info,
                    // Without devices any domain will do: they are all this machine's memory.
                    None if !devices => &next.1,
                    None => {
                        let domains = domains.iter().map(|(facts, _)| label(facts).to_owned()).collect();
                        return Err(OpenError::NoSuchDevice { provider: provider(), rail: rail.name.clone(), domains });
                    }
                };
                Ok((Some(rail.name.as_str()), copy(info)?))
            };
            named.iter().zip(in_order).map(choose).collect()
        }
    }
}

/// True if a rail, as somebody else describes it, is this domain: by its name or by its device's place.
fn is(facts: &Facts, rail: &Rail) -> bool {
    let pci = facts.nic.as_ref().and_then(pci_of);
    label(facts) == rail.name || facts.domain == rail.name || (pci.is_some() && pci == rail.pci)
}

/// The device's name, else the domain's.
fn label(facts: &Facts) -> &str {
    facts.nic.as_ref().and_then(|nic| nic.name.as_deref()).unwrap_or(&facts.domain)
}

/// True if an RDMA device of this machine is that NIC: by its name, or by its PCI function, as a provider may call it
/// otherwise.
pub(crate) fn is_same_device(nic: &Nic, device: &str) -> bool {
    let at_its_place = || nic.pci.is_some() && nic.pci == sysfs::pci_of_rdma_device(Path::new(SYS), device);
    nic.name.as_deref() == Some(device) || at_its_place()
}

fn pci_of(nic: &Nic) -> Option<PciAddress> {
    nic.pci.or_else(|| sysfs::pci_of_rdma_device(Path::new(SYS), nic.name.as_deref()?))
}

const SYS: &str = "/sys";

/// A rail as its domain describes itself. `named` is the name it shall have; by default the device's, else the domain's.
pub(crate) fn rail(domain: &Domain, named: Option<&str>, taken: &mut BTreeSet<String>) -> Rail {
    let facts = &domain.facts;
    let nic = facts.nic.clone().unwrap_or_default();
    let name = unique(&plain(named.unwrap_or(label(facts))), taken);
    let mut rail = Rail::named(name);
    rail.pci = pci_of(&nic);
    rail.node = rail.pci.and_then(|pci| sysfs::node_of(Path::new(SYS), pci));
    rail.mbps = nic.speed.map(|speed| speed / 1_000_000);
    rail.state = match nic.up {
        Some(true) => RailState::Up,
        Some(false) => RailState::Down,
        None => RailState::Unknown,
    };
    rail.limits.max_mr_size = domain.max_mr_size.least();
    rail.limits.max_mrs = facts.mr_cnt;
    rail.pins = domain.pins;
    rail.device = if facts.device_memory && cfg!(fi_mr_dmabuf) { DevicePath::DmaBuf } else { DevicePath::None };
    rail
}

/// Whose memlock budget the provider's pins count against. The core provider decides: utility providers are layered on
/// it and named after it.
pub(crate) fn pins(provider: &str) -> PinsCounted {
    match provider.split(';').next().unwrap_or_default() {
        "tcp" | "net" | "sockets" | "udp" | "shm" => PinsCounted::Nothing,
        // Both register through ibv_reg_mr, for which the kernel charges the process.
        "verbs" | "efa" => PinsCounted::Process,
        _ => PinsCounted::Unknown,
    }
}

/// The name with only the characters that a policy spec may hold, and short enough for a number to follow.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.:@".contains(c) { c } else { '-' };
    let name: String = name.chars().map(plain).take(56).collect();
    if name.is_empty() { "domain".to_owned() } else { name }
}

/// The name, or the name with the first number that no other rail has.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (1u32..).map(|nth| format!("{name}.{nth}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_a_policy_spec_and_stays_unique() {
        let mut taken = BTreeSet::new();
        assert_eq!(plain("rdmap0s6-rdm"), "rdmap0s6-rdm");
        assert_eq!(plain("a+b,c"), "a-b-c");
        assert_eq!(plain(""), "domain");
        let names: Vec<String> = (0..3).map(|_| unique("lo", &mut taken)).collect();
        assert_eq!(names, ["lo", "lo.1", "lo.2"]);
    }

    #[test]
    fn the_core_provider_tells_who_is_charged() {
        assert_eq!(pins("tcp;ofi_rxm"), PinsCounted::Nothing);
        assert_eq!(pins("verbs;ofi_rxm"), PinsCounted::Process);
        assert_eq!(pins("cxi"), PinsCounted::Unknown);
    }
}

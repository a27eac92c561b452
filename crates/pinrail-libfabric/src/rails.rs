//! Which domains become rails, and what is known about each.

use std::collections::BTreeSet;
use std::path::Path;

use pinrail_core::{DevicePath, PinsCounted, Rail, RailState};

use crate::domain::Domain;
use crate::info::{Facts, Info};
use crate::{OpenError, Wanted, sysfs};

/// Takes the wanted number of domains out of what the provider offers, in its order.
pub(crate) fn choose(found: Vec<Info>, wanted: &Wanted<'_>) -> Result<Vec<Info>, OpenError> {
    // One entry for each domain: the others differ in address format or protocol.
    let mut domains: Vec<(Facts, Info)> = Vec::new();
    for info in found {
        let facts = info.facts();
        if !domains.iter().any(|(known, _)| known.domain == facts.domain) {
            domains.push((facts, info));
        }
    }
    let rails = usize::from(wanted.rails);
    if domains.len() < rails && domains.iter().any(|(facts, _)| facts.nic.is_some()) {
        return Err(OpenError::TooFewDomains { provider: wanted.provider.to_owned(), domains: domains.len(), rails });
    }
    // SAFETY: an entry of ours, which nobody changes.
    domains.iter().cycle().take(rails).map(|(_, info)| Ok(unsafe { Info::copy(info.as_ptr()) }?)).collect()
}

/// A rail as its domain describes itself. `named` is the name it shall have; by default the device's, else the domain's.
pub(crate) fn rail(domain: &Domain, named: Option<&str>, taken: &mut BTreeSet<String>) -> Rail {
    let facts = &domain.facts;
    let nic = facts.nic.clone().unwrap_or_default();
    let name = unique(&plain(named.or(nic.name.as_deref()).unwrap_or(&facts.domain)), taken);
    let mut rail = Rail::named(name);
    let sys = Path::new("/sys");
    rail.pci = nic.pci.or_else(|| sysfs::pci_of_rdma_device(sys, nic.name.as_deref()?));
    rail.node = rail.pci.and_then(|pci| sysfs::node_of(sys, pci));
    rail.mbps = nic.speed.map(|speed| speed / 1_000_000);
    rail.state = match nic.up {
        Some(true) => RailState::Up,
        Some(false) => RailState::Down,
        None => RailState::Unknown,
    };
    rail.limits.max_mr_size = domain.max_mr_size.least();
    rail.limits.max_mrs = facts.mr_cnt;
    rail.pins = pins(&facts.provider);
    rail.device = if facts.device_memory && cfg!(fi_mr_dmabuf) { DevicePath::DmaBuf } else { DevicePath::None };
    rail
}

/// Whose memlock budget the provider's pins count against. The core provider decides: utility providers are layered on
/// it and named after it.
fn pins(provider: &str) -> PinsCounted {
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

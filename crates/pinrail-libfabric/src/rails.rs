//! Which domains become rails, and what is known about each.

use std::collections::BTreeMap;

use pinrail_core::{DevicePath, PinsCounted, Rail, RailState};

use crate::OpenError;
use crate::info::{Facts, Info};

/// Takes `rails` domains out of what the provider offers, in its order.
pub(crate) fn choose(found: Vec<Info>, provider: &str, rails: u16) -> Result<Vec<(Rail, Info)>, OpenError> {
    // One entry for each domain: the others differ in address format or protocol.
    let mut domains: Vec<(Facts, Info)> = Vec::new();
    for info in found {
        let facts = info.facts();
        if !domains.iter().any(|(known, _)| known.domain == facts.domain) {
            domains.push((facts, info));
        }
    }
    let (rails, max) = (usize::from(rails), Rail::MAX);
    if rails > max {
        return Err(OpenError::TooManyRails { rails, max });
    }
    if domains.len() < rails && domains.iter().any(|(facts, _)| facts.nic.is_some()) {
        return Err(OpenError::TooFewDomains { provider: provider.to_owned(), domains: domains.len(), rails });
    }
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    let mut chosen = Vec::new();
    for (facts, info) in domains.iter().cycle().take(rails) {
        let rail = rail(facts);
        let nth = uses.entry(rail.name.clone()).and_modify(|nth| *nth += 1).or_insert(0);
        let name = if *nth == 0 { rail.name.clone() } else { format!("{}.{nth}", rail.name) };
        // SAFETY: an entry of ours, which nobody changes.
        let info = unsafe { Info::copy(info.as_ptr()) }?;
        chosen.push((Rail { name, ..rail }, info));
    }
    Ok(chosen)
}

/// A rail as its domain describes itself.
pub(crate) fn rail(facts: &Facts) -> Rail {
    let nic = facts.nic.clone().unwrap_or_default();
    let mut rail = Rail::named(name(nic.name.as_deref().unwrap_or(&facts.domain)));
    rail.pci = nic.pci;
    rail.mbps = nic.speed.map(|speed| speed / 1_000_000);
    rail.state = match nic.up {
        Some(true) => RailState::Up,
        Some(false) => RailState::Down,
        None => RailState::Unknown,
    };
    rail.limits.max_mrs = facts.mr_cnt;
    rail.pins = pins(&facts.provider);
    rail.device = DevicePath::None;
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

/// The name with only the characters that a policy spec may hold.
fn name(domain: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.:@".contains(c) { c } else { '-' };
    let name: String = domain.chars().map(plain).take(48).collect();
    if name.is_empty() { "domain".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info;

    #[test]
    fn a_software_provider_opens_as_many_domains_as_are_asked_for() {
        let chosen = choose(info::discover("shm", false).unwrap(), "shm", 3).unwrap();
        let names: Vec<&str> = chosen.iter().map(|(rail, _)| rail.name.as_str()).collect();
        assert_eq!(names, ["shm", "shm.1", "shm.2"]);
        assert!(chosen.iter().all(|(rail, _)| rail.pins == PinsCounted::Nothing && rail.pci.is_none()));
    }

    #[test]
    fn a_name_survives_a_policy_spec() {
        assert_eq!(name("rdmap0s6-rdm"), "rdmap0s6-rdm");
        assert_eq!(name("a+b,c"), "a-b-c");
        assert_eq!(name(""), "domain");
    }
}

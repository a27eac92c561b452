//! What this host's topology knows of a registrar's rails: where they are attached, how fast they are, which GPUs and
//! nodes there are. A policy that goes by distance needs it where no machine file was given.

use pinrail_core::{Machine, Rail};

/// The machine of these rails, as far as the host tells; what it does not tell is a note.
pub(super) fn described(rails: &[Rail], notes: &mut Vec<String>) -> Machine {
    let own = Machine { rails: rails.to_vec(), ..Machine::default() };
    match pinrail_topology::discover() {
        Ok(found) => joined(own, found.machine),
        Err(error) => {
            notes.push(format!("the host's topology is not known, so no rail is near to anything: {error}"));
            own
        }
    }
}

/// The rails of one machine with the surroundings of the other.
fn joined(mut own: Machine, found: Machine) -> Machine {
    for rail in &mut own.rails {
        // By name where both go by the RDMA device's, else by PCI function: a provider may call its domains otherwise.
        let by_name = found.rails.iter().find(|known| known.name == rail.name);
        let by_pci = || found.rails.iter().find(|known| rail.pci.is_some() && known.pci == rail.pci);
        if let Some(known) = by_name.or_else(by_pci) {
            rail.pci = rail.pci.or(known.pci);
            rail.node = rail.node.or(known.node);
            rail.mbps = rail.mbps.or(known.mbps);
            rail.vf_of = rail.vf_of.or(known.vf_of);
            rail.state = known.state;
            rail.bridges.clone_from(&known.bridges);
        }
    }
    Machine { gpus: found.gpus, nodes: found.nodes, notes: found.notes, ..own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinrail_core::{NodeId, RailState};

    #[test]
    fn a_rail_is_found_by_name_or_by_address_and_keeps_what_its_provider_said() {
        let mut found = Machine::of_rails(2);
        (found.rails[0].name, found.rails[0].node) = ("mlx5_0".into(), Some(NodeId(1)));
        found.rails[0].state = RailState::Down;
        (found.rails[1].pci, found.rails[1].mbps) = (Some("4f:00.0".parse().unwrap()), Some(400_000));
        let mut own = Machine::of_rails(3);
        (own.rails[0].name, own.rails[0].limits.max_mrs) = ("mlx5_0".into(), Some(7));
        (own.rails[1].name, own.rails[1].pci) = ("rdmap79s0-rdm".into(), Some("4f:00.0".parse().unwrap()));
        own.rails[2].name = "elsewhere".into();
        let machine = joined(own, found);
        assert_eq!((machine.rails[0].node, machine.rails[0].state), (Some(NodeId(1)), RailState::Down));
        assert_eq!(machine.rails[0].limits.max_mrs, Some(7));
        assert_eq!((machine.rails[1].name.as_str(), machine.rails[1].mbps), ("rdmap79s0-rdm", Some(400_000)));
        assert_eq!(machine.rails[2], Rail::named("elsewhere"));
    }
}

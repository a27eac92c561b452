//! Which devices the rails are, and where.

use std::fs;

use pinrail_core::{NodeId, Rail, RailState, Registrar};
use pinrail_verbs::{Verbs, devices};

use crate::support::{every_rail, guest_nodes, ids, skipped};

/// The order of devices is not that of their places, so nothing here follows from a position.
#[test]
fn rails_lie_where_the_machine_has_put_their_cards() {
    let Some(verbs) = every_rail() else { return };
    let Some(nodes) = guest_nodes() else { return skipped("only the guest's machine is known beforehand") };
    assert_eq!(verbs.rails().len(), nodes.len().max(1));
    for rail in verbs.rails() {
        let card = || {
            let interface = fs::read_to_string(format!("/sys/class/infiniband/{}/parent", rail.name)).unwrap();
            let address = fs::read_to_string(format!("/sys/class/net/{}/address", interface.trim())).unwrap();
            usize::from_str_radix(&address.trim()[15..], 16).unwrap()
        };
        assert_eq!((rail.state, rail.mbps.is_some()), (RailState::Up, true));
        if nodes.is_empty() {
            assert_eq!((rail.pci, rail.node), (None, None), "the loop-back interface is nowhere");
        } else {
            assert_eq!(rail.node, Some(NodeId(nodes[card()])), "{}", rail.name);
            // Host bridges begin at the buses 64 and 128, with a port and a card behind it for each.
            let bus = rail.pci.unwrap().bus();
            assert_eq!(u32::from(bus / 64 - 1), nodes[card()], "{} on bus {bus}", rail.name);
        }
    }
}

#[test]
fn a_device_is_found_by_its_address_whatever_the_rail_is_called() {
    let Some(found) = devices().ok().filter(|found| !found.is_empty()) else { return skipped("no RDMA device") };
    for device in &found {
        let wanted = Rail { pci: device.pci, ..Rail::named(if device.pci.is_some() { "left" } else { &device.name }) };
        let verbs = Verbs::open(std::slice::from_ref(&wanted)).unwrap();
        let opened = &verbs.rails()[0];
        assert_eq!(opened.name, wanted.name);
        assert_eq!((opened.pci, opened.node, opened.mbps), (device.pci, device.node, device.mbps));
    }
    let error = Verbs::open(&[Rail::named("no-such-device")]).unwrap_err();
    assert!(error.to_string().contains(&found[0].name), "{error}");
}

#[test]
fn what_runs_here_says_what_it_is() {
    let Some(verbs) = every_rail() else { return };
    let identity = verbs.identity();
    assert_eq!(identity.backend, "verbs");
    assert!(identity.library.starts_with("libibverbs.so.1"), "{}", identity.library);
    if guest_nodes().is_some() {
        assert_eq!(identity.provider, "rxe");
        for rail in ids(&verbs) {
            let limits = verbs.rails()[rail.index()].limits;
            assert_eq!(limits.max_mr_size, None, "rxe has no limit and says so by all ones");
            assert!(limits.max_mrs.is_some_and(|mrs| mrs > 100_000), "{limits:?}");
        }
    }
}

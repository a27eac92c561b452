use std::borrow::Cow;

use pinrail_core::{Buffer, Gpu, Machine, NodeId, PathClass, Place, RailId};

use crate::{PolicyError, SelectRails, Selection};

/// The rails nearest to the memory, host memory by its node: `rail-local`.
///
/// The largest single lever published: a GPU's buffers on 4 near rails instead of all 32 took 5.2 s instead of 35.0 s.
/// It is a trade of bandwidth: a buffer is reachable only over the rails it is registered on.
#[derive(Clone, Copy, Debug, Default)]
pub struct RailLocal;

impl SelectRails for RailLocal {
    fn select(&self, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
        match buffer.place {
            Place::HostNode(node) => near_node(self, node, buffer, machine),
            Place::Gpu(_) => near_gpu(self, buffer, machine),
            _ => Ok(Selection::all_usable(self, buffer, machine)?.because("the node of the buffer's memory is not known")),
        }
    }

    fn spec(&self) -> String {
        "rail-local".to_owned()
    }
}

/// The rails of the nearest class to the buffer's GPU; all usable rails, saying why, where nothing is known to be near.
pub(crate) fn near_gpu(policy: &dyn SelectRails, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
    let Place::Gpu(pci) = buffer.place else { return Selection::all_usable(policy, buffer, machine) };
    let Some(gpu) = machine.gpu(pci) else {
        return Ok(Selection::all_usable(policy, buffer, machine)?.because(format!("the machine does not list GPU {pci}")));
    };
    let near = nearest(machine, |rail| machine.path(rail, gpu));
    choose(policy, buffer, machine, near, || describe(gpu))
}

fn near_node(policy: &dyn SelectRails, node: NodeId, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
    let near = nearest(machine, |rail| machine.path_to_node(rail, node));
    choose(policy, buffer, machine, near, || node.to_string())
}

fn describe(gpu: &Gpu) -> String {
    format!("GPU {}", gpu.pci)
}

/// The usable rails of the least class among those whose class is known.
fn nearest(machine: &Machine, class: impl Fn(RailId) -> Option<PathClass>) -> Option<(PathClass, Vec<RailId>)> {
    let best = machine.usable().filter_map(&class).min()?;
    Some((best, machine.usable().filter(|&rail| class(rail) == Some(best)).collect()))
}

fn choose(
    policy: &dyn SelectRails,
    buffer: &Buffer,
    machine: &Machine,
    near: Option<(PathClass, Vec<RailId>)>,
    what: impl Fn() -> String,
) -> Result<Selection, PolicyError> {
    match near {
        None => Ok(Selection::all_usable(policy, buffer, machine)?.because(format!("no rail's distance to {} is known", what()))),
        // Nothing nearer than another socket is no locality: all rails are equally far.
        Some((PathClass::Sys, rails)) => {
            let selection = Selection { path: Some(PathClass::Sys), ..Selection::all_usable(policy, buffer, machine)? };
            debug_assert!(!rails.is_empty());
            Ok(selection.because(format!("no rail is on the node of {}", what())))
        }
        Some((class, rails)) => {
            let why = Cow::Owned(format!("nearest to {}: {}", what(), class.as_str()));
            Ok(Selection { rails, path: Some(class), why, fallback: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinrail_core::{Memory, RailState};

    /// Two sockets; on each a switch with a GPU and two rails beside it, and one rail elsewhere on the socket.
    fn machine() -> Machine {
        let mut machine = Machine::of_rails(6);
        for (at, rail) in machine.rails.iter_mut().enumerate() {
            let socket = at / 3;
            rail.node = Some(NodeId(u32::from(socket == 1)));
            rail.bridges = vec![format!("hb{socket}"), format!("sw{}", if at % 3 == 2 { 9 } else { socket })];
        }
        for socket in 0..2u8 {
            machine.gpus.push(Gpu {
                pci: pinrail_core::PciAddress::new(0, 0x10 * (socket + 1), 0, 0).unwrap(),
                node: Some(NodeId(socket.into())),
                bridges: vec![format!("hb{socket}"), format!("sw{socket}")],
            });
        }
        machine
    }

    fn buffer(place: Place) -> Buffer {
        let memory = Memory::imagined(4096, 4096).unwrap();
        Buffer::new("b", memory, 0..4096).unwrap().with_place(place)
    }

    #[test]
    fn a_gpu_gets_the_rails_of_its_switch() {
        let machine = machine();
        let selection = RailLocal.select(&buffer(Place::Gpu(machine.gpus[1].pci)), &machine).unwrap();
        assert_eq!(
            (selection.rails, selection.path, selection.fallback),
            (vec![RailId(3), RailId(4)], Some(PathClass::Pix), None)
        );
    }

    #[test]
    fn a_port_that_is_down_is_passed_over() {
        let mut machine = machine();
        machine.rails[3].state = RailState::Down;
        machine.rails[4].state = RailState::Down;
        let selection = RailLocal.select(&buffer(Place::Gpu(machine.gpus[1].pci)), &machine).unwrap();
        assert_eq!((selection.rails, selection.path), (vec![RailId(5)], Some(PathClass::Phb)));
    }

    #[test]
    fn host_memory_gets_the_rails_of_its_node() {
        let selection = RailLocal.select(&buffer(Place::HostNode(NodeId(1))), &machine()).unwrap();
        assert_eq!(selection.rails, [RailId(3), RailId(4), RailId(5)]);
    }

    #[test]
    fn where_nothing_is_local_all_rails_are_taken_and_the_reason_said() {
        let machine = machine();
        for (place, reason) in [
            (Place::Host, "the node of the buffer's memory is not known"),
            (Place::HostNode(NodeId(7)), "no rail is on the node of node 7"),
            (Place::Gpu("99:00.0".parse().unwrap()), "the machine does not list GPU 0000:99:00.0"),
        ] {
            let selection = RailLocal.select(&buffer(place), &machine).unwrap();
            assert_eq!((selection.rails.len(), selection.fallback.as_deref()), (6, Some(reason)));
        }
        let selection = RailLocal.select(&buffer(Place::HostNode(NodeId(0))), &Machine::of_rails(2)).unwrap();
        assert_eq!(selection.fallback.as_deref(), Some("no rail's distance to node 0 is known"));
    }
}

use std::num::NonZeroU32;
use std::sync::Arc;

use pinrail_core::{Buffer, Machine, Place};

use crate::{Local, PolicyError, SelectRails, Selection, Share};

/// The rails nearest to the memory, host memory by the node of its pages: `rail-local`.
///
/// The largest single lever published: a GPU's buffers on 4 near rails instead of all 32 took 5.2 s instead of 35.0 s.
///
/// It is a trade of bandwidth: a buffer is reachable only over the rails it is registered on. Do not use it where one
/// host buffer must be read or written at the speed of the whole machine (a checkpoint, a weight broadcast from one
/// pool): on a machine with two nodes it halves what that buffer reaches. Registering on all rails costs time once.
#[derive(Clone, Copy, Debug, Default)]
pub struct RailLocal(
    /// How near rails are shared.
    pub Local,
);

impl SelectRails for RailLocal {
    fn select(&self, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
        let unknown = |why: &str| Ok(Selection::all_usable(self, buffer, machine)?.because(why));
        match buffer.place {
            Place::HostNode(node) => self.0.near_node(self, node, buffer, machine),
            Place::Gpu(gpu) => self.0.near_gpu(self, gpu, buffer, machine),
            Place::HostMixed => unknown("mixed: the buffer's pages lie on several nodes"),
            _ => unknown("the node of the buffer's memory is not known"),
        }
    }

    fn spec(&self) -> String {
        format!("rail-local+{}", self.0.spec())
    }

    fn is_by_place(&self) -> bool {
        true
    }

    fn with_local(&self, share: Option<Share>, max: Option<NonZeroU32>) -> Option<Arc<dyn SelectRails>> {
        Some(Arc::new(RailLocal(self.0.with(share, max))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinrail_core::{Gpu, Memory, NodeId, PathClass, RailId, RailState};

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
        let selection = RailLocal::default().select(&buffer(Place::Gpu(machine.gpus[1].pci)), &machine).unwrap();
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
        let selection = RailLocal::default().select(&buffer(Place::Gpu(machine.gpus[1].pci)), &machine).unwrap();
        assert_eq!((selection.rails, selection.path), (vec![RailId(5)], Some(PathClass::Phb)));
    }

    #[test]
    fn host_memory_gets_the_rails_of_its_node() {
        let selection = RailLocal::default().select(&buffer(Place::HostNode(NodeId(1))), &machine()).unwrap();
        assert_eq!(selection.rails, [RailId(3), RailId(4), RailId(5)]);
    }

    #[test]
    fn rails_of_another_socket_are_taken_and_said_to_be_far() {
        let mut machine = machine();
        machine.rails.truncate(3);
        for place in [Place::Gpu(machine.gpus[1].pci), Place::HostNode(NodeId(1))] {
            let selection = RailLocal::default().select(&buffer(place), &machine).unwrap();
            assert_eq!((selection.rails.len(), selection.path), (3, Some(PathClass::Sys)));
            assert!(selection.fallback.unwrap().starts_with("no rail is on "));
        }
    }

    #[test]
    fn where_nothing_is_local_all_rails_are_taken_and_the_reason_said() {
        let machine = machine();
        for (place, reason) in [
            (Place::Host, "the node of the buffer's memory is not known"),
            (Place::HostNode(NodeId(7)), "no rail is on node 7"),
            (Place::HostMixed, "mixed: the buffer's pages lie on several nodes"),
        ] {
            let selection = RailLocal::default().select(&buffer(place), &machine).unwrap();
            assert_eq!((selection.rails.len(), selection.fallback.as_deref()), (6, Some(reason)));
        }
        let selection = RailLocal::default().select(&buffer(Place::HostNode(NodeId(0))), &Machine::of_rails(2)).unwrap();
        assert_eq!(selection.fallback.as_deref(), Some("no rail's distance to node 0 is known"));
    }
}

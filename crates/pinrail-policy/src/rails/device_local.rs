use pinrail_core::{Buffer, Machine, Place};

use crate::rails::rail_local::near_gpu;
use crate::{PolicyError, SelectRails, Selection};

/// GPU buffers on the rails nearest to their GPU, host buffers on all: `device-local`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceLocal;

impl SelectRails for DeviceLocal {
    fn select(&self, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
        match buffer.place {
            Place::Gpu(_) => near_gpu(self, buffer, machine),
            _ => Selection::all_usable(self, buffer, machine),
        }
    }

    fn spec(&self) -> String {
        "device-local".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinrail_core::{Gpu, Memory, NodeId, RailId};

    #[test]
    fn device_memory_is_local_and_host_memory_is_not() {
        let mut machine = Machine::of_rails(2);
        machine.rails[0].node = Some(NodeId(0));
        machine.rails[1].node = Some(NodeId(1));
        let gpu = Gpu { pci: "10:00.0".parse().unwrap(), node: Some(NodeId(1)), bridges: Vec::new() };
        machine.gpus.push(gpu.clone());
        let of = |place| {
            let memory = Memory::imagined(4096, 4096).unwrap();
            let buffer = Buffer::new("b", memory, 0..4096).unwrap().with_place(place);
            DeviceLocal.select(&buffer, &machine).unwrap().rails
        };
        assert_eq!(of(Place::Gpu(gpu.pci)), [RailId(1)]);
        assert_eq!(of(Place::HostNode(NodeId(1))), [RailId(0), RailId(1)]);
    }
}

use std::num::NonZeroU32;
use std::sync::Arc;

use pinrail_core::{Buffer, Machine, Place};

use crate::{Local, PolicyError, SelectRails, Selection, Share};

/// GPU buffers on the rails nearest to their GPU, host buffers on all: `device-local`, the default.
///
/// What a GPU's buffer loses is bandwidth nobody gets: over a far rail its bytes share the link between the switches or
/// sockets. Host memory feeds every rail, so taking rails from it is a trade, and left to [`RailLocal`](crate::RailLocal).
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceLocal(
    /// How near rails are shared.
    pub Local,
);

impl SelectRails for DeviceLocal {
    fn select(&self, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
        match buffer.place {
            Place::Gpu(gpu) => self.0.near_gpu(self, gpu, buffer, machine),
            _ => Selection::all_usable(self, buffer, machine),
        }
    }

    fn spec(&self) -> String {
        format!("device-local+{}", self.0.spec())
    }

    fn is_by_place(&self) -> bool {
        true
    }

    fn with_local(&self, share: Option<Share>, max: Option<NonZeroU32>) -> Option<Arc<dyn SelectRails>> {
        Some(Arc::new(DeviceLocal(self.0.with(share, max))))
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
            DeviceLocal::default().select(&buffer, &machine).unwrap().rails
        };
        assert_eq!(of(Place::Gpu(gpu.pci)), [RailId(1)]);
        assert_eq!(of(Place::HostNode(NodeId(1))), [RailId(0), RailId(1)]);
    }
}

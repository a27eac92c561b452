//! Memory of the command's own for a batch: one mapping for each allocation.

use pinrail_core::batch::{Allocation, Layout};
use pinrail_core::{Access, Buffer, Diagnosis, ErrorKind, Machine, Memory, Place, Prepare as _, PrepareStep};
use pinrail_memory::{Mapping, Pages, Populate, host_place};
use pinrail_policy::Slices;

use crate::error::Error;
use crate::interrupt::Interrupt;

/// The memory of a batch.
pub(crate) struct Mapped {
    /// One for each allocation of the layout.
    pub(crate) memories: Vec<Memory>,
    /// What was wanted of it and could not be had.
    pub(crate) notes: Vec<String>,
}

/// Maps every allocation; nothing is touched.
pub(crate) fn map(layout: &Layout, pages: Pages) -> Result<Mapped, Error> {
    let mut mapped = Mapped { memories: Vec::with_capacity(layout.allocations.len()), notes: Vec::new() };
    for Allocation { span, place, .. } in &layout.allocations {
        let node = match place {
            Place::HostNode(node) => Some(*node),
            Place::Gpu(pci) => {
                let message = format!("this build registers host memory and cannot allocate memory of GPU {pci}");
                return Err(Diagnosis::new(ErrorKind::NotSupported, message).into());
            }
            _ => None,
        };
        let mapping = Mapping::anonymous(span.end - span.start, pages, node)?;
        mapped.notes.extend_from_slice(mapping.notes());
        mapped.memories.push(Memory::new(mapping));
    }
    mapped.notes.sort_unstable();
    mapped.notes.dedup();
    Ok(mapped)
}

/// True where it depends on the node of its pages which rails are near to host memory.
pub(crate) fn decides_rails(machine: &Machine) -> bool {
    machine.rails.iter().any(|rail| rail.node.is_some())
}

/// The buffers with the node that their pages lie on, or will, where that matters and nobody named it.
pub(crate) fn placed(mut buffers: Vec<Buffer>, machine: &Machine) -> Vec<Buffer> {
    for buffer in buffers.iter_mut().filter(|buffer| decides_rails(machine) && buffer.place == Place::Host) {
        // Where the kernel does not tell, the place stays unknown, and the plan says what follows from that.
        buffer.place = host_place(buffer.extent()).unwrap_or(Place::Host);
    }
    buffers
}

/// Makes every page resident, as memory is that its owner has used.
pub(crate) fn make_resident(layout: &Layout, memories: &[Memory], interrupt: &Interrupt) -> Result<(), Error> {
    let (populate, slices) = (Populate::new(), Slices::default());
    for (memory, Allocation { page_size, place, .. }) in memories.iter().zip(&layout.allocations) {
        let whole = 0..memory.len();
        for nth in 0..slices.count(memory.len(), *page_size) {
            interrupt.check("nothing had been registered")?;
            let range = slices.nth(&whole, *page_size, nth);
            populate.prepare(&PrepareStep::Populate { memory, range, access: Access::FULL, place: *place })?;
        }
    }
    if populate.report().impossible > 0 {
        let message = "this kernel (before 5.14) has no way to make memory resident within RLIMIT_MEMLOCK";
        return Err(Diagnosis::new(ErrorKind::NotSupported, message).hint("use --memory untouched").into());
    }
    Ok(())
}

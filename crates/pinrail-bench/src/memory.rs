//! Memory of one's own for a batch: what a trial registers, and what `pinrail register` does.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use pinrail_core::batch::{Allocation, Layout};
use pinrail_core::{Access, Buffer, Cause, Machine, Memory, Place, Prepare as _, PrepareError, PrepareStep};
use pinrail_memory::{Mapping, Pages, Populate, Residency, host_place};
use pinrail_policy::Slices;

use crate::error::BenchError;
use crate::spec::{MemoryState, Spec};

/// The memory of a batch: one mapping for each allocation.
pub struct Mapped {
    /// In the order of the layout's allocations.
    pub memories: Vec<Memory>,
    /// What was wanted of it and could not be had.
    pub notes: Vec<String>,
}

/// Maps every allocation of a batch; nothing is touched.
///
/// # Errors
/// [`BenchError::DeviceMemory`] for an allocation on a GPU, [`BenchError::Map`] for what the kernel refuses.
pub fn map(layout: &Layout, pages: Pages) -> Result<Mapped, BenchError> {
    let mut mapped = Mapped { memories: Vec::with_capacity(layout.allocations.len()), notes: Vec::new() };
    for Allocation { span, place, .. } in &layout.allocations {
        let node = match place {
            Place::HostNode(node) => Some(*node),
            Place::Gpu(gpu) => return Err(BenchError::DeviceMemory { gpu: gpu.to_string() }),
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

/// Makes every page of it resident, as memory is that its owner has used. `go_on` is asked before each slice.
///
/// # Errors
/// [`BenchError::Cancelled`] when `go_on` says no; [`BenchError::Prepare`] for what cannot be made resident.
pub fn make_resident(
    memories: &[Memory],
    pages: Pages,
    threads: NonZeroU32,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<(), BenchError> {
    let (slices, page) = (Slices::default(), pages.page_size());
    let all: Vec<(&Memory, u64)> =
        memories.iter().flat_map(|memory| (0..slices.count(memory.len(), page)).map(move |nth| (memory, nth))).collect();
    let populate = Populate::new();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || {
        while let Some((memory, nth)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let range = slices.nth(&(0..memory.len()), page, *nth);
            // The node, where one was named, is the mapping's.
            let step = PrepareStep::Populate { memory, range, access: Access::FULL, place: Place::Host };
            let done = if go_on() { populate.prepare(&step).map_err(BenchError::Prepare) } else { Err(BenchError::Cancelled) };
            if let Err(error) = done {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..(threads.get() as usize).min(all.len()) {
            // A thread that cannot be had is not missed.
            thread::Builder::new().spawn_scoped(scope, work).ok();
        }
        work();
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    if populate.report().impossible > 0 {
        let what = "this kernel (before 5.14) cannot make memory resident within RLIMIT_MEMLOCK: use --memory untouched";
        return Err(BenchError::Prepare(PrepareError::new("populate", None, Cause::NotSupported { what: what.to_owned() })));
    }
    Ok(())
}

/// True where it depends on the node of its pages which rails are near to host memory.
#[must_use]
pub fn decides_rails(machine: &Machine) -> bool {
    machine.rails.iter().any(|rail| rail.node.is_some())
}

/// The buffers with the node that their pages lie on, or will, where that matters and nobody named it.
#[must_use]
pub fn placed(mut buffers: Vec<Buffer>, machine: &Machine) -> Vec<Buffer> {
    for buffer in buffers.iter_mut().filter(|buffer| decides_rails(machine) && buffer.place == Place::Host) {
        // Where the kernel does not tell, the place stays unknown, and the plan says what follows from that.
        buffer.place = host_place(buffer.extent()).unwrap_or(Place::Host);
    }
    buffers
}

/// The memory of one trial, with its buffers.
pub(crate) struct Made {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) memories: Vec<Memory>,
    pub(crate) notes: Vec<String>,
}

/// Maps a batch and brings its memory into the state that was asked for.
pub(crate) fn make(spec: &Spec, layout: &Layout, machine: &Machine) -> Result<Made, BenchError> {
    let Mapped { memories, notes } = map(layout, spec.pages)?;
    if spec.memory == MemoryState::Resident {
        make_resident(&memories, spec.pages, spec.cores, &|| true)?;
    }
    let mut buffers = placed(layout.buffers(&memories)?, machine);
    for buffer in &mut buffers {
        buffer.page_size = buffer.page_size.max(spec.pages.page_size());
    }
    Ok(Made { buffers, memories, notes })
}

/// Bytes of the buffers' pages that are there, and all of them.
pub(crate) fn resident(memories: &[Memory]) -> Result<(u64, u64), BenchError> {
    let residency = Residency::new();
    let mut sums = (0, 0);
    for memory in memories {
        sums.0 += residency.resident(memory.extent()).map_err(BenchError::Host)?;
        sums.1 += memory.len();
    }
    Ok(sums)
}

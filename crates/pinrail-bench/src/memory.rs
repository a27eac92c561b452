//! Fresh memory for a trial.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use pinrail_core::batch::Layout;
use pinrail_core::{Access, Buffer, Cause, Memory, Place, Prepare as _, PrepareError, PrepareStep};
use pinrail_memory::{Mapping, Pages, Populate, Residency, host_place};
use pinrail_policy::Slices;

use crate::error::BenchError;
use crate::spec::MemoryState;

/// The memory of one trial, with its buffers.
pub(crate) struct Made {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) memories: Vec<Memory>,
    /// What was wanted and could not be had.
    pub(crate) notes: Vec<String>,
}

/// Maps every allocation of a batch and brings it into the state that was asked for.
pub(crate) fn make(layout: &Layout, pages: Pages, state: MemoryState, threads: usize) -> Result<Made, BenchError> {
    let mut notes = Vec::new();
    let mut memories = Vec::with_capacity(layout.allocations.len());
    for allocation in &layout.allocations {
        let node = match allocation.place {
            Place::HostNode(node) => Some(node),
            Place::Gpu(gpu) => return Err(BenchError::DeviceMemory { gpu: gpu.to_string() }),
            _ => None,
        };
        let mapping = Mapping::anonymous(allocation.span.end - allocation.span.start, pages, node)?;
        notes.extend_from_slice(mapping.notes());
        memories.push(Memory::new(mapping));
    }
    if state == MemoryState::Resident {
        populate(&memories, pages, threads)?;
    }
    let mut buffers = layout.buffers(&memories)?;
    for buffer in &mut buffers {
        buffer.page_size = buffer.page_size.max(pages.page_size());
        if buffer.place == Place::Host {
            // Where the kernel does not tell, placement says so itself.
            buffer.place = host_place(buffer.extent()).unwrap_or(Place::Host);
        }
    }
    notes.sort_unstable();
    notes.dedup();
    Ok(Made { buffers, memories, notes })
}

/// Makes all of it resident, on several threads: this is not what is measured.
pub(crate) fn populate(memories: &[Memory], pages: Pages, threads: usize) -> Result<(), BenchError> {
    let (slices, page) = (Slices::default(), pages.page_size());
    let all: Vec<(&Memory, u64)> =
        memories.iter().flat_map(|memory| (0..slices.count(memory.len(), page)).map(move |nth| (memory, nth))).collect();
    let populate = Populate::new();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None::<PrepareError>));
    let work = || {
        while let Some((memory, nth)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let range = slices.nth(&(0..memory.len()), page, *nth);
            let step = PrepareStep::Populate { memory, range, access: Access::FULL, place: Place::Host };
            if let Err(error) = populate.prepare(&step) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(all.len()) {
            // A thread that cannot be had is not missed.
            thread::Builder::new().spawn_scoped(scope, work).ok();
        }
        work();
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(BenchError::Prepare(error));
    }
    if populate.report().impossible > 0 {
        let what = "this kernel (before 5.14) cannot make memory resident within RLIMIT_MEMLOCK: use --memory untouched";
        return Err(BenchError::Prepare(PrepareError::new("populate", None, Cause::NotSupported { what: what.to_owned() })));
    }
    Ok(())
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

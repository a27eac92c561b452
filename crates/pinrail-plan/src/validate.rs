//! What must hold of a batch before anything is planned.

use pinrail_core::{Buffer, BufferId, DevicePath, Machine, Place, RailId};

use crate::PlanError;

/// The buffers in ascending addresses. They may touch and must not overlap, whatever allocation they lie in.
pub(crate) fn by_address_without_overlap(buffers: &[Buffer]) -> Result<Vec<BufferId>, PlanError> {
    let mut by_address: Vec<(u64, u64, BufferId)> = buffers
        .iter()
        .map(Buffer::extent)
        .zip((0..).map(BufferId))
        .map(|(extent, at)| (extent.start(), extent.end(), at))
        .collect();
    by_address.sort_unstable();
    match by_address.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        None => Ok(by_address.into_iter().map(|(_, _, at)| at).collect()),
        Some(pair) => {
            let name = |at: BufferId| buffers[at.index()].name.to_string();
            // The later one in the caller's order is named second.
            let (first, second) = (pair[0].2.min(pair[1].2), pair[0].2.max(pair[1].2));
            Err(PlanError::Overlap { first: name(first), second: name(second), address: pair[1].0 })
        }
    }
}

pub(crate) fn numbers(buffer: &Buffer) -> Result<(), PlanError> {
    let wrong = |what: String| Err(PlanError::Buffer { buffer: buffer.name.to_string(), what });
    if !buffer.page_size.is_power_of_two() {
        return wrong(format!("page size {} is no power of two", buffer.page_size));
    }
    if buffer.unit == Some(0) {
        return wrong("unit is zero; leave it out for none".to_owned());
    }
    Ok(())
}

/// A GPU must be one of the machine's, where the machine lists any.
pub(crate) fn device_is_known(buffer: &Buffer, machine: &Machine) -> Result<(), PlanError> {
    match buffer.place {
        Place::Gpu(pci) if !machine.gpus.is_empty() && machine.gpu(pci).is_none() => {
            let have: Vec<String> = machine.gpus.iter().map(|gpu| gpu.pci.to_string()).collect();
            Err(PlanError::UnknownDevice { buffer: buffer.name.to_string(), gpu: pci.to_string(), have: have.join(", ") })
        }
        _ => Ok(()),
    }
}

/// Each chosen rail must reach the memory and grant the access.
pub(crate) fn rails_serve(buffer: &Buffer, rails: &[RailId], machine: &Machine) -> Result<(), PlanError> {
    let asked = buffer.access.effective();
    for rail in rails.iter().map(|rail| &machine.rails[rail.index()]) {
        let (buffer_name, rail_name) = (buffer.name.to_string(), rail.name.clone());
        if matches!(buffer.place, Place::Gpu(_)) && rail.device == DevicePath::None {
            return Err(PlanError::NoDevicePath { buffer: buffer_name, rail: rail_name });
        }
        if !rail.access.contains(asked) {
            let (asked, granted) = (asked.to_string(), rail.access.to_string());
            return Err(PlanError::Access { buffer: buffer_name, rail: rail_name, asked, granted });
        }
    }
    Ok(())
}

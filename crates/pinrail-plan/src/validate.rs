//! What must hold of a batch before anything is planned.

use pinrail_core::{Buffer, BufferId, DevicePath, Machine, Place, Rail, RailId};

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

/// The rails a plan was made for are the machine's, each at the place where it was.
pub(crate) fn same_rails(planned: &Machine, here: &Machine) -> Result<(), PlanError> {
    let other = |plan: String, here: String, rail: Option<String>| Err(PlanError::OtherMachine { plan, here, rail });
    for (was, is) in planned.rails.iter().zip(&here.rails).filter(|(was, is)| was.name == is.name) {
        if let (Some(planned), Some(found)) = (was.pci, is.pci)
            && planned != found
        {
            let name = &was.name;
            return other(format!("rail {name:?} at {planned}"), format!("it at {found}"), Some(name.clone()));
        }
    }
    let gone = planned.rails.iter().find(|rail| here.rails.iter().all(|is| is.name != rail.name));
    if planned.rails.iter().map(|rail| &rail.name).eq(here.rails.iter().map(|rail| &rail.name)) {
        return Ok(());
    }
    let rails = |machine: &Machine| format!("rails {}", machine.rail_names());
    other(rails(planned), rails(here), gone.map(|rail| rail.name.clone()))
}

/// Each chosen rail must reach the memory and grant the access.
pub(crate) fn rails_serve(buffer: &Buffer, rails: &[RailId], machine: &Machine) -> Result<(), PlanError> {
    let asked = buffer.access.effective();
    let names = |rail: &Rail| (buffer.name.to_string(), rail.name.clone());
    for rail in rails.iter().map(|rail| &machine.rails[rail.index()]) {
        if matches!(buffer.place, Place::Gpu(_)) && rail.device == DevicePath::None {
            let (buffer, rail) = names(rail);
            return Err(PlanError::NoDevicePath { buffer, rail });
        }
        if !rail.access.contains(asked) {
            let ((buffer, rail), asked, granted) = (names(rail), asked.to_string(), rail.access.to_string());
            return Err(PlanError::Access { buffer, rail, asked, granted });
        }
    }
    Ok(())
}

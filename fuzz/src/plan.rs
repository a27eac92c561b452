//! Batches, machines and policies of every kind, good and bad.

use std::num::NonZeroU32;

use arbitrary::{Result, Unstructured};
use pinrail_core::{
    Access, Buffer, DevicePath, Gpu, Machine, Memory, NodeId, PciAddress, PinsCounted, Place, Rail, RailLimits, RailState,
};
use pinrail_plan::{Plan, testing};
use pinrail_policy::{Policy, Slices};

/// A plan is either refused by an error that says of which kind it is, or keeps every promise.
///
/// # Panics
/// Where one is broken.
pub fn plan(bytes: &[u8]) {
    // Bytes that run out are no case.
    let _ = run(&mut Unstructured::new(bytes));
}

fn run(bytes: &mut Unstructured<'_>) -> Result<()> {
    let (machine, policy, slices) = (machine(bytes)?, policy(bytes)?, Slices::of(bytes.int_in_range(1..=1 << 22)?));
    match Plan::new(buffers(bytes)?, &machine, &policy) {
        Ok(plan) => testing::check_plan(&plan.with_slices(slices)),
        Err(error) => assert!(!error.diagnosis().message.is_empty()),
    }
    Ok(())
}

pub(crate) fn policy(bytes: &mut Unstructured<'_>) -> Result<Policy> {
    const TERMS: [&[&str]; 6] = [
        &["", "device-local+", "rail-local+", "all-rails+", "rail-local+local-max=2+share=all+", "rails=rail1,rail0+"],
        &["rails-in-parallel", "rails-in-series"],
        &["", "+ascending", "+descending", "+caller-order"],
        &["", "+unbounded", "+capped=3"],
        &["", "+per-rail=1", "+per-rail=2"],
        &["+prefault", "+no-prefault"],
    ];
    let terms: Vec<&str> = TERMS.iter().map(|terms| bytes.choose(terms).copied()).collect::<Result<_>>()?;
    let spec = terms.concat();
    Ok(Policy::new(NonZeroU32::MIN).with(&spec).unwrap_or_else(|error| panic!("{spec:?}: {error}")))
}

fn gpu(at: u8) -> PciAddress {
    PciAddress::new(1, at, 0, 0).expect("device and function are 0")
}

fn limit(bytes: &mut Unstructured<'_>, max: u64) -> Result<Option<u64>> {
    if bytes.ratio(1, 2)? { Ok(Some(bytes.int_in_range(1..=max)?)) } else { Ok(None) }
}

pub(crate) fn machine(bytes: &mut Unstructured<'_>) -> Result<Machine> {
    let mut machine = Machine::of_rails(bytes.int_in_range(0..=5)?);
    for rail in &mut machine.rails {
        rail.limits = RailLimits {
            max_mr_size: limit(bytes, 1 << 20)?,
            max_mrs: limit(bytes, 5_000)?,
            max_pages: limit(bytes, 50_000)?,
            max_pages_remote_write: limit(bytes, 50_000)?,
            max_bytes: limit(bytes, 1 << 30)?,
        };
        *rail = Rail {
            node: bytes.arbitrary::<Option<bool>>()?.map(|node| NodeId(node.into())),
            bridges: (0..bytes.int_in_range(0..=3)?)
                .map(|_| Ok(bytes.int_in_range(0..=1)?.to_string()))
                .collect::<Result<_>>()?,
            mbps: limit(bytes, 3)?,
            state: *bytes.choose(&[RailState::Up, RailState::Up, RailState::Unknown, RailState::Down])?,
            pins: *bytes.choose(&[PinsCounted::Unknown, PinsCounted::Nothing, PinsCounted::Process, PinsCounted::User])?,
            device: *bytes.choose(&[DevicePath::Unknown, DevicePath::DmaBuf, DevicePath::Address, DevicePath::None])?,
            access: if bytes.ratio(1, 16)? { Access::from_bits_truncate(bytes.arbitrary()?) } else { Access::FULL },
            calls_in_parallel: bytes.arbitrary()?,
            ..rail.clone()
        };
    }
    for at in 0..bytes.int_in_range(0..=3)? {
        let bridges =
            (0..bytes.int_in_range(0..=3)?).map(|_| Ok(bytes.int_in_range(0..=1)?.to_string())).collect::<Result<_>>()?;
        machine.gpus.push(Gpu {
            pci: gpu(at),
            node: bytes.arbitrary::<Option<bool>>()?.map(|node| NodeId(node.into())),
            bridges,
        });
    }
    Ok(machine)
}

/// At any addresses, so that they may overlap; with any pages and units, so that they may be impossible.
fn buffers(bytes: &mut Unstructured<'_>) -> Result<Vec<Buffer>> {
    let mut buffers = Vec::new();
    let mut at = 1u64 << 32;
    for nth in 0..bytes.int_in_range(0..=12)? {
        if bytes.ratio(1, 8)? {
            at = bytes.arbitrary()?;
        }
        // Most buffers follow the one before, with or without a gap.
        at = at.saturating_add(if bytes.ratio(1, 2)? { 0 } else { bytes.int_in_range(0..=10_000)? });
        let len = if bytes.ratio(1, 2)? { 4096 } else { bytes.int_in_range(0..=1 << 21)? };
        let Ok(memory) = Memory::imagined(at, len) else { continue };
        let Ok(mut buffer) = Buffer::new(format!("buffer{nth}"), memory, 0..len) else { continue };
        buffer.place = match bytes.int_in_range(0..=7)? {
            0 => Place::HostMixed,
            1 => Place::HostNode(NodeId(bytes.int_in_range(0..=2)?)),
            2 => Place::Gpu(gpu(bytes.int_in_range(0..=3)?)),
            _ => Place::Host,
        };
        buffer.page_size = if bytes.ratio(1, 32)? { bytes.arbitrary()? } else { 1 << *bytes.choose(&[12, 12, 12, 21, 30])? };
        buffer.unit = if bytes.ratio(1, 4)? { Some(bytes.int_in_range(0..=20_000)?) } else { None };
        // A unit of a byte in a limit of a byte is a chunk a byte: right, and not worth the wait.
        if buffer.unit.is_some_and(|unit| unit < 64) && len > 10_000 {
            buffer.unit = None;
        }
        buffer.access = Access::from_bits_truncate(bytes.arbitrary()?);
        at = at.saturating_add(len);
        buffers.push(buffer);
    }
    Ok(buffers)
}

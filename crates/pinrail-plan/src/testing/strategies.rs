//! Batches and machines, biased to where plans go wrong: buffers that touch, that share pages and allocations, that begin
//! inside a page, units that meet pages seldom or never, limits just below and above what is needed.

use std::num::NonZeroU32;

use pinrail_core::{Access, Buffer, DevicePath, Machine, Memory, PinsCounted, Place, Rail, RailLimits};
use pinrail_policy::testing::strategies as of_policies;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

/// Bytes of the largest page there is.
pub const PAGE_MAX: u64 = 1 << 30;

/// Where allocations begin unless they are moved.
const BASE: u64 = 1 << 36;

/// Buffers in allocations, at addresses that can be moved.
#[derive(Clone, Debug)]
pub struct Batch {
    allocations: Vec<Allocation>,
}

#[derive(Clone, Debug)]
struct Allocation {
    /// Bytes from a page's start to its first buffer.
    skew: u64,
    place: Place,
    page_size: u64,
    buffers: Vec<Placed>,
}

#[derive(Clone, Debug)]
struct Placed {
    /// Bytes after the buffer before.
    gap: u64,
    len: u64,
    unit: Option<u64>,
    access: Access,
}

impl Batch {
    /// The buffers, all of their addresses moved up by so many bytes.
    #[must_use]
    pub fn buffers(&self, moved: u64) -> Vec<Buffer> {
        let mut buffers = Vec::new();
        let mut base = BASE + moved;
        for Allocation { skew, place, page_size, buffers: placed } in &self.allocations {
            let len = skew + placed.iter().map(|placed| placed.gap + placed.len).sum::<u64>();
            let memory = Memory::imagined(base, len.max(1)).expect("far from the end of the address space");
            let mut at = *skew;
            for placed in placed {
                at += placed.gap;
                let name = format!("buffer{}", buffers.len());
                let buffer = Buffer::new(name, memory.clone(), at..at + placed.len).expect("inside its memory");
                let mut buffer = buffer.with_place(*place).with_access(placed.access);
                (buffer.page_size, buffer.unit) = (*page_size, placed.unit);
                buffers.push(buffer);
                at += placed.len;
            }
            base = (base + len).next_multiple_of(PAGE_MAX);
        }
        buffers
    }

    /// False where a limit of the machine may make a unit win over the page: then alone wider limits can cost pages.
    #[must_use]
    pub fn has_common_boundaries(&self, machine: &Machine) -> bool {
        let tightest = machine.rails.iter().filter_map(|rail| rail.limits.max_mr_size).min().unwrap_or(u64::MAX);
        self.allocations.iter().all(|allocation| {
            let units = allocation.buffers.iter().filter_map(|placed| placed.unit);
            units.into_iter().all(|unit| unit.saturating_mul(allocation.page_size) <= tightest)
        })
    }
}

/// Batches of up to 12 buffers.
pub fn batches() -> impl Strategy<Value = Batch> {
    let len = prop_oneof![2 => Just(4096u64), 2 => 1u64..64, 3 => 1u64..200_000, 2 => 1u64..4 << 20];
    let gap = prop_oneof![3 => Just(0u64), 1 => 1u64..10_000];
    let unit = of(prop_oneof![Just(4096u64), Just(100), Just(3), Just(12_288), 1u64..20_000]);
    let access = prop_oneof![3 => Just(Access::FULL), 1 => (0u8..8).prop_map(Access::from_bits_truncate)];
    let placed = (gap, len, unit, access).prop_map(|(gap, len, unit, access)| Placed { gap, len, unit, access });
    let skew = prop_oneof![3 => Just(0u64), 1 => 1u64..10_000];
    let page_size = prop_oneof![8 => Just(4096u64), 2 => Just(2 << 20), 1 => Just(PAGE_MAX)];
    let place = prop_oneof![2 => Just(Place::Host), 1 => of_policies::places()];
    let allocation = (skew, place, page_size, vec(placed, 1..5)).prop_map(|(skew, place, page_size, buffers)| Allocation {
        skew,
        place,
        page_size,
        buffers,
    });
    vec(allocation, 0..4).prop_map(|allocations| Batch { allocations })
}

/// Limits as rails of one machine have them: none, enough for most batches, or too tight for many.
fn limits() -> impl Strategy<Value = RailLimits> {
    let limits = |((max_mr_size, max_mrs, max_pages), (max_pages_remote_write, max_bytes))| RailLimits {
        max_mr_size,
        max_mrs,
        max_pages,
        max_pages_remote_write,
        max_bytes,
    };
    let pages = (4u64..256).prop_map(|pages| pages * 4096);
    let size = proptest::option::weighted(0.8, prop_oneof![2 => pages, 2 => 30_000u64..1 << 21, 1 => Just(PAGE_MAX)]);
    let enough = ((size, of(100u64..1_000), of(1_000u64..10_000)), (of(1_000u64..10_000), of(1u64 << 22..1 << 26)));
    let tight = ((of(1u64..100_000), of(1u64..20), of(1u64..200)), (of(1u64..200), of(1u64..1 << 20)));
    prop_oneof![3 => Just(RailLimits::default()), 5 => enough.prop_map(limits), 2 => tight.prop_map(limits)]
}

/// Machines whose rails have limits, and reach devices and grant access in different ways.
pub fn machines() -> impl Strategy<Value = Machine> {
    let pins =
        proptest::sample::select(&[PinsCounted::Nothing, PinsCounted::Process, PinsCounted::User, PinsCounted::Unknown][..]);
    let device = prop_oneof![30 => Just(DevicePath::Unknown), 10 => Just(DevicePath::DmaBuf), 10 => Just(DevicePath::Address), 1 => Just(DevicePath::None)];
    let access = prop_oneof![50 => Just(Access::FULL), 1 => (0u8..8).prop_map(Access::from_bits_truncate)];
    let own = prop_oneof![Just(0u64), Just(8192)];
    let of_each = vec(((0u64..3, pins, own), device, access, of_policies::counts()), 12);
    (of_policies::machines(), limits(), of_each).prop_map(|(mut machine, limits, of_each)| {
        for (rail, ((more, pins, own), device, access, calls_in_parallel)) in machine.rails.iter_mut().zip(of_each) {
            rail.own_pinned_bytes = own;
            rail.limits = RailLimits { max_mr_size: limits.max_mr_size.map(|size| size + more * 4096), ..limits };
            (rail.pins, rail.device, rail.access, rail.calls_in_parallel) = (pins, device, access, calls_in_parallel);
        }
        machine
    })
}

/// By how much limits are widened; `None` takes one away.
#[derive(Clone, Copy, Debug)]
pub struct Wider {
    max_mr_size: Option<u64>,
    max_mrs: Option<u64>,
    max_pages: Option<u64>,
    max_bytes: Option<u64>,
    calls: u32,
}

impl Wider {
    /// The rail with wider limits.
    #[must_use]
    pub fn of(&self, rail: &Rail) -> Rail {
        let wider = |limit: Option<u64>, more: Option<u64>| limit.zip(more).map(|(limit, more)| limit.saturating_add(more));
        let limits = RailLimits {
            max_mr_size: wider(rail.limits.max_mr_size, self.max_mr_size),
            max_mrs: wider(rail.limits.max_mrs, self.max_mrs),
            max_pages: wider(rail.limits.max_pages, self.max_pages),
            max_pages_remote_write: wider(rail.limits.max_pages_remote_write, self.max_pages),
            max_bytes: wider(rail.limits.max_bytes, self.max_bytes),
        };
        Rail { limits, calls_in_parallel: rail.calls_in_parallel.saturating_add(self.calls), ..rail.clone() }
    }
}

/// Wider by nothing, by a little, by much, and without a limit.
pub fn wider() -> impl Strategy<Value = Wider> {
    let more = || prop_oneof![2 => Just(Some(0u64)), 2 => (1u64..10_000).prop_map(Some), 1 => Just(None)];
    (more(), more(), more(), more(), 0u32..4).prop_map(|(max_mr_size, max_mrs, max_pages, max_bytes, calls)| Wider {
        max_mr_size,
        max_mrs,
        max_pages,
        max_bytes,
        calls,
    })
}

/// A policy of each kind of parts there are.
pub fn policies() -> impl Strategy<Value = pinrail_policy::Policy> {
    of_policies::specs().prop_map(|spec| {
        let base = pinrail_policy::Policy::new(NonZeroU32::MIN.saturating_add(3));
        base.with(&spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
    })
}

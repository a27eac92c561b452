//! Generators biased to where policies go wrong: equal lengths, single bytes, ports that are down, nodes nobody knows,
//! rails and GPUs that meet at every level of the tree of bridges.

use std::num::NonZeroU32;

use pinrail_core::{
    Access, Buffer, BufferId, ChunkId, Gpu, Kind, Machine, Memory, NodeId, PciAddress, Place, Rail, RailId, RailState, StepId,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use crate::{ChunkInfo, Finished, RunShape, Tick};

/// Lengths in bytes: often equal, often the smallest, now and then the largest there can be.
pub fn lens() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(4096u64), 2 => Just(1), 4 => 1u64..64, 4 => 1u64..1 << 32, 1 => Just(u64::MAX)]
}

/// Chunks as an order sees them, in the caller's order; each buffer has one or several.
pub fn chunks() -> impl Strategy<Value = Vec<ChunkInfo>> {
    vec((lens(), 1u32..4, any::<bool>()), 0..40).prop_map(|chunks| {
        let mut buffer = 0;
        let info = |(chunk, (len, rails, is_next)): (u32, (u64, u32, bool))| {
            buffer += u32::from(is_next);
            ChunkInfo { chunk: ChunkId(chunk), buffer: BufferId(buffer), len, rails }
        };
        (0..).zip(chunks).map(info).collect()
    })
}

/// A NUMA node and a place in a tree of bridges: few branches at each level, so that devices meet at every level.
pub fn attachments() -> impl Strategy<Value = (Option<NodeId>, Vec<String>)> {
    (0u32..3, vec(0u8..2, 0..6), 0u8..8).prop_map(|(socket, branches, missing)| {
        let mut name = format!("socket{socket}");
        let bridges = branches.iter().map(|branch| {
            name.push_str(&format!("/{branch}"));
            name.clone()
        });
        let bridges = if missing == 1 { Vec::new() } else { bridges.collect() };
        // All of the third socket, and some devices, hide their node.
        ((socket < 2 && missing > 0).then_some(NodeId(socket)), bridges)
    })
}

fn rails() -> impl Strategy<Value = Vec<Rail>> {
    let state = prop_oneof![4 => Just(RailState::Up), 1 => Just(RailState::Down), 2 => Just(RailState::Unknown)];
    vec((attachments(), state, of(1u64..4), proptest::bool::weighted(0.8)), 0..12).prop_map(|rails| {
        let rail = |(at, ((node, bridges), state, mbps, has_pci)): (u8, _)| {
            // Even numbers and the odd ones after them are two ports of one device.
            let pci = if has_pci { PciAddress::new(0, at / 2, 0, at % 2) } else { None };
            Rail { node, bridges, state, mbps, pci, ..Rail::named(format!("rail{at}")) }
        };
        (0u8..).zip(rails).map(rail).collect()
    })
}

fn gpu_address(at: u8) -> PciAddress {
    PciAddress::new(1, at, 0, 0).expect("device and function are 0")
}

/// Machines that fulfil [`Machine::check`], with up to 11 rails and 9 GPUs; some have no rail, or none that is up.
pub fn machines() -> impl Strategy<Value = Machine> {
    let gpus = vec(attachments(), 0..10).prop_map(|gpus| {
        let gpu = |(at, (node, bridges)): (u8, _)| Gpu { pci: gpu_address(at), node, bridges };
        (0u8..).zip(gpus).map(gpu).collect()
    });
    (rails(), gpus).prop_map(|(rails, gpus)| Machine { rails, gpus, ..Machine::default() })
}

/// Places of every kind; a GPU may be one that no machine of [`machines`] has.
pub fn places() -> impl Strategy<Value = Place> {
    prop_oneof![
        2 => Just(Place::Host),
        2 => (0u32..4).prop_map(|node| Place::HostNode(NodeId(node))),
        1 => Just(Place::HostMixed),
        4 => (0u8..11).prop_map(|at| Place::Gpu(gpu_address(at))),
    ]
}

/// A buffer anywhere, of imagined memory.
pub fn buffers() -> impl Strategy<Value = Buffer> {
    (places(), 0u64..1 << 40, 1u64..1 << 32, 0u8..8).prop_map(|(place, start, len, access)| {
        let memory = Memory::imagined(4096 + start, len).expect("far from the end of the address space");
        let buffer = Buffer::new("buffer", memory, 0..len).expect("not empty");
        buffer.with_place(place).with_access(Access::from_bits_truncate(access))
    })
}

/// What runs look like before they start: empty ones, single steps, many.
pub fn runs() -> impl Strategy<Value = RunShape> {
    let kind = prop_oneof![Just(Kind::Register), Just(Kind::Deregister)];
    let count = || prop_oneof![1 => Just(0u64), 1 => Just(1), 4 => 2u64..100_000, 1 => Just(u32::MAX.into())];
    (kind, count(), count(), any::<u64>(), 0u32..64).prop_map(|(tasks_do, tasks, prepares, bytes, rails)| {
        let task_bytes = bytes.saturating_mul(rails.into());
        let prepares = if tasks_do == Kind::Deregister { 0 } else { prepares };
        RunShape { tasks_do, tasks, prepares, bytes, task_bytes, rails }
    })
}

/// A kind, how long it took and after which pause, bytes, steps in flight, and whether it went well or something ran out.
type Ended = (Kind, u64, u64, u64, u32, (bool, bool));

/// Steps that have ended, one after another, with the moment at which each was reported: some at once, some after hours,
/// some that failed.
pub fn finishes() -> impl Strategy<Value = Vec<(Tick, Finished)>> {
    let kind = prop_oneof![Just(Kind::Prepare), Just(Kind::Register), Just(Kind::Deregister)];
    let took_ns = prop_oneof![Just(0u64), 1u64..1_000, 1_000u64..100_000_000, Just(3_600_000_000_000)];
    // Well, not, and because something ran out.
    let ended = prop_oneof![8 => Just((true, false)), 1 => Just((false, false)), 1 => Just((false, true))];
    vec((kind, took_ns, 0u64..1_000_000, lens(), 1u32..64, ended), 0..200).prop_map(|steps| {
        let mut now = 0;
        let finished = |(at, (kind, took, pause, bytes, in_flight, (ok, exhausted))): (u16, Ended)| {
            let started = Tick(now + pause);
            now = started.0 + took;
            let rail = (kind != Kind::Prepare).then_some(RailId(at % 8));
            (Tick(now), Finished { step: StepId(at.into()), kind, rail, bytes, started, in_flight, ok, exhausted })
        };
        (0u16..).zip(steps).map(finished).collect()
    })
}

/// A number from 1, often the smallest.
pub fn counts() -> impl Strategy<Value = NonZeroU32> {
    prop_oneof![2 => 1u32..5, 1 => 1u32..=u32::MAX].prop_map(|n| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN))
}

/// A spec that [`Policy::with`](crate::Policy::with) reads: any combination of terms, each kind at most once.
pub fn specs() -> impl Strategy<Value = String> {
    let one_of = |terms: &'static [&'static str]| of(proptest::sample::select(terms)).prop_map(|term| term.map(str::to_owned));
    let rails =
        (of(proptest::sample::select(&["device-local", "rail-local"][..])), of(counts()), one_of(&["share=fair", "share=all"]));
    let local = rails.prop_map(|(rails, max, share)| {
        let max = max.map(|max| format!("local-max={max}"));
        [rails.map(str::to_owned), max, share].into_iter().flatten().collect::<Vec<_>>()
    });
    let all = Just(vec!["all-rails".to_owned()]);
    let fan_out = one_of(&["rails-in-parallel", "rails-in-series"]);
    let order = one_of(&["caller-order", "ascending", "descending"]);
    let limit = prop_oneof![Just(None), Just(Some("unbounded".to_owned())), counts().prop_map(|n| Some(format!("capped={n}")))];
    let per_rail = of(counts()).prop_map(|n| n.map(|n| format!("per-rail={n}")));
    let preparation = one_of(&["prefault", "no-prefault"]);
    let coalescing = one_of(&["coalesce", "no-coalesce", "coalesce=gaps"]);
    let coverage = one_of(&["coverage=full", "coverage=disjoint"]);
    let rails = prop_oneof![3 => local, 1 => all];
    (rails, fan_out, order, limit, per_rail, preparation, coalescing, coverage).prop_map(|(rails, a, b, c, d, e, f, g)| {
        rails.into_iter().chain([a, b, c, d, e, f, g].into_iter().flatten()).collect::<Vec<_>>().join("+")
    })
}

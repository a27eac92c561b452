//! What every plan promises, as checks that anybody can run on a policy of their own (feature `testing`).
//!
//! ```
//! use std::num::NonZeroU32;
//! use pinrail_policy::Policy;
//!
//! let cores = NonZeroU32::new(4).expect("not zero");
//! pinrail_plan::testing::check_policy(&Policy::new(cores).with("rail-local+descending")?);
//! # Ok::<(), pinrail_policy::PolicyError>(())
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use pinrail_core::{
    Access, BufferId, ChunkId, DevicePath, Extent, Kind, Machine, PinsCounted, Place, PrepareStep, RailId, RailLimits, Source,
    StepId, StepWhat,
};
use pinrail_policy::testing::for_all;
use pinrail_policy::{CallerOrder, Coverage, Policy, Slices};

use crate::{Plan, PlanError, RailNeeds};

pub mod strategies;

use strategies::Batch;

/// Plans batches of every kind on machines of every kind by this policy, and checks each plan ([`check_plan`]) and what
/// must stay when something else changes:
///
/// - the same question has the same answer;
/// - wider limits make no plan impossible;
/// - addresses moved by whole pages move the plan and change nothing in it;
/// - another order changes the order alone.
///
/// # Panics
/// With the smallest case in which a promise is broken.
pub fn check_policy(policy: &Policy) {
    for_all(&(strategies::batches(), strategies::machines(), strategies::wider()), |(batch, machine, wider)| {
        let planned = plan(batch, 0, machine, policy);
        if batch.has_common_boundaries(machine) {
            let widened = Machine { rails: machine.rails.iter().map(|rail| wider.of(rail)).collect(), ..machine.clone() };
            match (&planned, plan(batch, 0, &widened, policy)) {
                (Ok(_), Err(error)) => return Err(format!("wider limits make it impossible: {error}")),
                (Err(error), _) if !is_a_limit(error) => return Ok(()),
                _ => {}
            }
        }
        let Ok(plan_here) = planned else { return Ok(()) };
        check_plan(&plan_here);
        check_plan(&plan_here.clone().with_slices(Slices::of(10_000)));
        same(&plan_here, &plan(batch, 0, machine, policy), 0, "asked again")?;
        same(&plan_here, &plan(batch, strategies::PAGE_MAX * 3, machine, policy), strategies::PAGE_MAX * 3, "moved")?;
        let other_order = Policy { order: Arc::new(CallerOrder), ..policy.clone() };
        let reordered = plan(batch, 0, machine, &other_order).map_err(|error| error.to_string())?;
        let is_only_the_order = plan_here.chunks() == reordered.chunks()
            && plan_here.rail_sets() == reordered.rail_sets()
            && plan_here.needs() == reordered.needs();
        if is_only_the_order { Ok(()) } else { Err("the order changes more than the order".to_owned()) }
    });
}

fn plan(batch: &Batch, moved: u64, machine: &Machine, policy: &Policy) -> Result<Plan, PlanError> {
    Plan::new(batch.buffers(moved), machine, policy)
}

fn is_a_limit(error: &PlanError) -> bool {
    matches!(error, PlanError::MrSize { .. } | PlanError::Unit { .. } | PlanError::Budget { .. } | PlanError::Shares { .. })
}

/// Both are one plan, whose addresses lie so many bytes apart.
fn same(one: &Plan, other: &Result<Plan, PlanError>, apart: u64, how: &str) -> Result<(), String> {
    let other = other.as_ref().map_err(|error| format!("{how}, it is refused: {error}"))?;
    let is_same = one.chunks() == other.chunks()
        && one.rail_sets() == other.rail_sets()
        && one.needs() == other.needs()
        && one.order().eq(other.order())
        && one.chunk_ids().all(|chunk| one.extent(chunk).start() + apart == other.extent(chunk).start());
    if is_same { Ok(()) } else { Err(format!("{how}, it is another plan")) }
}

/// Checks one plan: chunks tile their buffers within every limit and never divide a unit; rails are those of the choice;
/// the order is a permutation; needs are what a recount says; steps are every task once, after slices that tile its chunk.
///
/// # Panics
/// Where a promise is broken.
pub fn check_plan(plan: &Plan) {
    check_tiling(plan);
    check_needs(plan);
    let mut order: Vec<ChunkId> = plan.order().collect();
    order.sort_unstable();
    assert!(order.into_iter().eq(plan.chunk_ids()), "the order is no permutation");
    for kind in [Kind::Register, Kind::Deregister] {
        check_steps(plan, kind);
    }
}

fn check_tiling(plan: &Plan) {
    for (id, buffer) in (0..).map(BufferId).zip(plan.buffers()) {
        let rails = &plan.selection(id).rails;
        let distinct: BTreeSet<&RailId> = rails.iter().collect();
        assert!(!rails.is_empty() && distinct.len() == rails.len(), "{id} is on {rails:?}");
        assert!(rails.iter().all(|rail| rail.index() < plan.rails().len()), "{id} is on {rails:?}");
        let extents: Vec<Extent> = plan.chunks_of(id).map(|chunk| plan.extent(ChunkId(chunk))).collect();
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { panic!("{id} has no chunk") };
        assert!(first.start() <= buffer.extent().start() && buffer.extent().end() <= last.end(), "{id} is not covered");
        assert!(extents.iter().all(|extent| extent.overlaps(buffer.extent())), "a chunk of {id} lies elsewhere");
        for pair in extents.windows(2) {
            let seam = pair[0].end();
            assert_eq!(seam, pair[1].start(), "{id}'s chunks do not touch");
            match buffer.unit {
                Some(unit) => assert_eq!((seam - buffer.extent().start()) % unit, 0, "a seam of {id} divides a unit"),
                None => assert_eq!(seam % buffer.page_size, 0, "a seam of {id} divides a page"),
            }
        }
        for chunk in plan.chunks_of(id).map(ChunkId) {
            assert!(plan.buffers_of(chunk).contains(&id), "{chunk} does not know {id}");
            let (planned, on) = (&plan.chunks()[chunk.index()], plan.rails_of(chunk));
            let as_chosen = on == rails.as_slice();
            let shared_out = plan.policy().coverage == Coverage::Disjoint && on.len() == 1 && rails.contains(&on[0]);
            assert!(as_chosen || shared_out, "{chunk} is on {on:?} and {rails:?} were chosen");
            assert_eq!(planned.page_size(), buffer.page_size, "{chunk}'s page size");
            assert!(planned.access.contains(buffer.access), "{chunk}'s access");
        }
    }
    let mut extents = Vec::with_capacity(plan.chunks().len());
    for chunk in plan.chunk_ids() {
        let (planned, extent) = (&plan.chunks()[chunk.index()], plan.extent(chunk));
        let limits = plan.rails_of(chunk).iter().filter_map(|rail| plan.rails()[rail.index()].limits.max_mr_size);
        let max = limits.min().unwrap_or(u64::MAX);
        assert!(extent.len() <= max, "{chunk} has {} bytes and a rail takes {max}", extent.len());
        assert_eq!(planned.pages, extent.pages(planned.page_size()), "{chunk}'s pages");
        assert_eq!(plan.chunk(chunk, &Source::Address).extent(), extent, "{chunk} as a registrar sees it");
        let memory = &plan.buffer_of(chunk).memory;
        for member in plan.buffers_of(chunk) {
            assert!(plan.buffers()[member.index()].memory.same(memory), "{chunk} spans allocations");
            assert!(plan.chunks_of(*member).contains(&chunk.0), "{member} does not know {chunk}");
        }
        extents.push(extent);
    }
    let bytes = |extents: &mut dyn Iterator<Item = Extent>| extents.map(|extent| extent.len()).sum::<u64>();
    let own = bytes(&mut plan.buffers().iter().map(pinrail_core::Buffer::extent));
    assert_eq!(bytes(&mut extents.iter().copied()), own + plan.needs().foreign_bytes, "foreign bytes");
    extents.sort_unstable();
    assert!(extents.windows(2).all(|pair| !pair[0].overlaps(pair[1])), "two chunks share a byte");
}

fn check_needs(plan: &Plan) {
    let needs = plan.needs();
    for (rail, of) in plan.machine().ids().zip(&needs.rails) {
        let mut recount = RailNeeds::default();
        for chunk in plan.chunk_ids().filter(|chunk| plan.rails_of(*chunk).contains(&rail)) {
            let planned = &plan.chunks()[chunk.index()];
            recount.mrs += 1;
            recount.bytes += planned.len();
            recount.pages += planned.pages;
            recount.pages_remote_write += if planned.access.contains(Access::REMOTE_WRITE) { planned.pages } else { 0 };
            recount.pinned_bytes += planned.pages * planned.page_size();
        }
        assert_eq!(*of, recount, "{rail}");
        let RailLimits { max_mr_size: _, max_mrs, max_pages, max_pages_remote_write, max_bytes } =
            plan.rails()[rail.index()].limits;
        let held = plan.live().get(rail.index()).copied().unwrap_or_default();
        let within = |need: u64, live: u64, max: Option<u64>| need == 0 || max.is_none_or(|max| need + live <= max);
        assert!(within(of.mrs, held.mrs, max_mrs), "{rail} takes {max_mrs:?} registrations: {of:?}");
        assert!(within(of.pages, held.pages, max_pages), "{rail} maps {max_pages:?} pages: {of:?}");
        let (writable, live) = (of.pages_remote_write, held.pages_remote_write);
        assert!(within(writable, live, max_pages_remote_write), "{rail} maps {max_pages_remote_write:?} such pages: {of:?}");
        assert!(within(of.bytes, held.bytes, max_bytes), "{rail} holds {max_bytes:?} bytes: {of:?}");
    }
    let pinned = |counted: &[PinsCounted], with_own: bool| {
        let rails = plan.rails().iter().zip(&needs.rails).filter(|(rail, _)| counted.contains(&rail.pins));
        rails.map(|(rail, of)| of.pinned_bytes + if with_own { rail.own_pinned_bytes } else { 0 }).sum::<u64>()
    };
    let all = [PinsCounted::Process, PinsCounted::User, PinsCounted::Unknown];
    assert_eq!(needs.memlock_process_bytes, pinned(&[PinsCounted::Process], true));
    assert_eq!(needs.memlock_user_bytes, pinned(&[PinsCounted::User], true));
    assert_eq!((needs.pinned_bytes, needs.memlock_bytes), (pinned(&all, false), pinned(&all, true)));
    assert_eq!(needs.mrs, needs.rails.iter().map(|of| of.mrs).sum::<u64>());
    assert_eq!(needs.pages, needs.rails.iter().map(|of| of.pages).sum::<u64>());
}

fn check_steps(plan: &Plan, kind: Kind) {
    let steps = plan.steps(kind).expect("a plan has counted its steps");
    assert_eq!(steps.in_series(), plan.in_series());
    let mut tasks = Vec::new();
    let mut groups = Vec::new();
    let mut prepares = 0;
    for (at, group) in steps.groups().iter().enumerate() {
        let of_group = (steps.first_of(at).0..).take(steps.len_of(at) as usize).map(|step| steps.what(StepId(step)));
        let mut slices = 0;
        for what in of_group {
            match what {
                StepWhat::Prepare { chunk, slice } => {
                    assert_eq!((chunk, slice), (group.chunk, slices), "slices in order, before the tasks");
                    slices += 1;
                }
                StepWhat::Task { chunk, rail, .. } => tasks.push((chunk, rail)),
            }
        }
        assert_eq!(u64::from(slices), if kind == Kind::Deregister { 0 } else { plan.prepares(group.chunk) });
        assert_eq!(group.bytes, plan.extent(group.chunk).len());
        check_slices(plan, group.chunk, slices);
        prepares += u64::from(slices);
        groups.push(group.chunk);
    }
    let wanted: Vec<ChunkId> = if kind == Kind::Deregister { plan.chunk_ids().collect() } else { plan.order().collect() };
    assert_eq!(groups, wanted, "{kind:?} goes in another order");
    tasks.sort_unstable();
    let mut all: Vec<_> =
        plan.chunk_ids().flat_map(|chunk| plan.rails_of(chunk).iter().map(move |&rail| (chunk, rail))).collect();
    all.sort_unstable();
    assert_eq!(tasks, all, "{kind:?}: every task once");
    let shape = plan.shape(kind);
    assert_eq!((shape.tasks_do, shape.tasks, shape.prepares), (kind, all.len() as u64, prepares));
    assert_eq!(shape.bytes, plan.chunks().iter().map(|chunk| chunk.len()).sum::<u64>());
    let used: BTreeSet<RailId> = all.into_iter().map(|(_, rail)| rail).collect();
    assert_eq!(shape.rails as usize, used.len());
}

/// A chunk's slices tile it; device memory has one export where a rail reaches it by dma-buf only.
fn check_slices(plan: &Plan, chunk: ChunkId, slices: u32) {
    let planned = &plan.chunks()[chunk.index()];
    let buffer = plan.buffer_of(chunk);
    if let Place::Gpu(_) = buffer.place {
        let by_dma_buf = plan.rails_of(chunk).iter().any(|rail| plan.rails()[rail.index()].device == DevicePath::DmaBuf);
        assert!(slices <= u32::from(by_dma_buf), "{chunk} is prepared {slices} times");
        return;
    }
    let mut at = planned.range.start;
    for slice in 0..slices {
        let PrepareStep::Populate { memory, range, access, place } = plan.prepare_step(chunk, slice) else {
            panic!("{chunk} is host memory and is exported");
        };
        assert!(memory.same(&buffer.memory) && access == planned.access && place == buffer.place, "{chunk}, slice {slice}");
        assert!(range.start == at && range.end > at, "{chunk}, slice {slice}: {range:?} does not begin at {at}");
        at = range.end;
        let address = memory.extent().start() + at;
        assert!(at == planned.range.end || address.is_multiple_of(buffer.page_size), "{chunk}, slice {slice} divides a page");
    }
    assert!(slices == 0 || at == planned.range.end, "{chunk} is not prepared to its end");
}

//! Plans as a caller sees them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod documents;
mod promises;
mod reports;
mod shares;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{
    Access, Buffer, BufferId, ChunkId, DevicePath, ErrorKind, Gpu, Kind, Machine, Place, PrepareStep, RailId, Source, StepWhat,
};
use pinrail_plan::{Budget, Fits, Plan, PlanError};
use pinrail_policy::{ChunkInfo, Order, Policy, PolicyError, SelectRails, Selection, Slices};
use proptest::prelude::*;

const P: u64 = 4096;

fn policy(spec: &str) -> Policy {
    Policy::new(NonZeroU32::MIN).with(spec).expect("a test's own spec")
}

fn batch(lens: &[u64]) -> BatchSpec {
    BatchSpec::of(lens.iter().enumerate().map(|(at, &len)| BufferSpec::new(BufferSpec::default_name(at), len)))
}

fn plan(batch: &BatchSpec, machine: &Machine, spec: &str) -> Result<Plan, PlanError> {
    let mut machine = machine.clone();
    batch.limit_rails(&mut machine)?;
    Plan::new(batch.layout()?.imagined()?, &machine, &policy(spec))
}

fn limited(rails: u16, change: impl Fn(&mut pinrail_core::RailLimits)) -> Machine {
    let mut machine = Machine::of_rails(rails);
    machine.rails.iter_mut().for_each(|rail| change(&mut rail.limits));
    machine
}

#[test]
fn seventeen_pages_at_eight_are_8_8_1_on_every_rail() {
    let plan = plan(&batch(&[17 * P]), &limited(4, |limits| limits.max_mr_size = Some(8 * P)), "").unwrap();
    assert_eq!(plan.chunks().iter().map(|chunk| chunk.len() / P).collect::<Vec<_>>(), [8, 8, 1]);
    assert_eq!((plan.tasks(), plan.needs().pages), (12, 4 * 17));
    assert_eq!(plan.chunks_of(BufferId(0)), 0..3);
}

#[test]
fn the_tightest_of_a_buffers_rails_cuts_it() {
    let mut machine = Machine::of_rails(2);
    machine.rails[1].limits.max_mr_size = Some(2 * P);
    assert_eq!(plan(&batch(&[4 * P]), &machine, "").unwrap().chunks().len(), 2);
    assert_eq!(plan(&batch(&[4 * P]), &machine, "rails=rail0").unwrap().chunks().len(), 1);
}

#[test]
fn an_empty_batch_is_a_plan_with_nothing_to_do() {
    let plan = plan(&batch(&[]), &Machine::of_rails(2), "").unwrap();
    assert_eq!((plan.tasks(), plan.steps(Kind::Register).unwrap().len()), (0, 0));
}

#[test]
fn buffers_may_touch_and_must_not_overlap() {
    let at = |addrs: [(u64, u64); 2]| {
        let buffers = addrs.iter().enumerate();
        let specs = buffers.map(|(at, &(addr, len))| BufferSpec { addr: Some(addr), ..BufferSpec::new(format!("b{at}"), len) });
        plan(&BatchSpec::of(specs), &Machine::of_rails(1), "").map(|_| ())
    };
    assert_eq!(at([(0x10000, P), (0x11000, P)]), Ok(()));
    let overlap = PlanError::Overlap { first: "b0".into(), second: "b1".into(), address: 0x11000 };
    assert_eq!(at([(0x10000, 2 * P), (0x11000, P)]), Err(overlap));
    assert_eq!(at([(0x11000, P), (0x10000, 2 * P)]).unwrap_err().diagnosis().buffer.as_deref(), Some("b1"));
}

#[test]
fn limits_refuse_before_any_call_and_say_the_need() {
    let over = |machine: Machine, lens: &[u64]| {
        let diagnosis = plan(&batch(lens), &machine, "").unwrap_err().diagnosis();
        (diagnosis.kind, diagnosis.rail.unwrap(), diagnosis.limit.unwrap(), diagnosis.need.unwrap())
    };
    assert_eq!(over(limited(2, |l| l.max_mrs = Some(2)), &[P, P, P]), (ErrorKind::MrCount, "rail0".into(), 2, 3));
    assert_eq!(over(limited(2, |l| l.max_pages = Some(9)), &[5 * P, 5 * P]), (ErrorKind::PageBudget, "rail0".into(), 9, 10));
    assert_eq!(over(limited(1, |l| l.max_mr_size = Some(P - 1)), &[5 * P]), (ErrorKind::MrSize, "rail0".into(), P - 1, P));
    let mut unit = batch(&[64 * P]);
    unit.buffers[0].unit = Some(9 * P);
    let refused = plan(&unit, &limited(1, |l| l.max_mr_size = Some(8 * P)), "").unwrap_err().diagnosis();
    assert_eq!((refused.kind, refused.limit, refused.need), (ErrorKind::Unit, Some(8 * P), Some(9 * P)));
}

#[test]
fn what_just_fits_is_planned() {
    let machine = limited(2, |limits| (limits.max_mrs, limits.max_pages) = (Some(3), Some(9)));
    assert_eq!(plan(&batch(&[3 * P, 3 * P, 3 * P]), &machine, "").unwrap().needs().pages, 18);
    let small = limited(1, |limits| limits.max_mr_size = Some(P - 1));
    assert_eq!(plan(&batch(&[100]), &small, "").unwrap().chunks().len(), 1, "less than a page where no seam is needed");
}

#[test]
fn numbers_that_no_memory_has_are_refused() {
    let refused = |change: fn(&mut Buffer)| {
        let mut buffers = batch(&[P]).layout().unwrap().imagined().unwrap();
        change(&mut buffers[0]);
        Plan::new(buffers, &Machine::of_rails(1), &policy("")).unwrap_err()
    };
    let wrong = |what: &str| PlanError::Buffer { buffer: BufferSpec::default_name(0), what: what.to_owned() };
    assert_eq!(refused(|buffer| buffer.page_size = 3 * P), wrong("page size 12288 is no power of two"));
    assert_eq!(refused(|buffer| buffer.unit = Some(0)), wrong("unit is zero; leave it out for none"));
}

#[test]
fn device_memory_needs_a_gpu_that_exists_and_a_rail_that_reaches_it() {
    let mut batch = batch(&[P]);
    batch.buffers[0].place = Place::Gpu("53:00.0".parse().unwrap());
    let mut machine = Machine::of_rails(1);
    assert!(plan(&batch, &machine, "rail-local").unwrap().selection(BufferId(0)).fallback.is_some(), "a machine without a list");
    machine.gpus.push(Gpu { pci: "64:00.0".parse().unwrap(), node: None, bridges: Vec::new() });
    let error = plan(&batch, &machine, "").unwrap_err();
    assert_eq!(error.diagnosis().kind, ErrorKind::UnknownDevice);
    assert!(error.to_string().contains("0000:64:00.0"), "{error}");
    let error = plan(&batch, &machine, "all-rails").unwrap_err();
    assert!(matches!(error, PlanError::UnknownDevice { .. }), "also where the policy does not ask: {error}");
    machine.gpus[0].pci = "53:00.0".parse().unwrap();
    machine.rails[0].device = DevicePath::None;
    assert_eq!(plan(&batch, &machine, "").unwrap_err().diagnosis().kind, ErrorKind::NoDevicePath);
    machine.rails[0].device = DevicePath::DmaBuf;
    let plan = plan(&batch, &machine, "").unwrap();
    assert!(matches!(plan.prepare_step(ChunkId(0), 0), PrepareStep::Export { .. }));
    assert_eq!(plan.prepares(ChunkId(0)), 1);
}

#[test]
fn access_that_a_rail_does_not_grant_is_refused() {
    let mut machine = Machine::of_rails(1);
    machine.rails[0].access = Access::LOCAL_WRITE;
    assert_eq!(plan(&batch(&[P]), &machine, "").unwrap_err().diagnosis().kind, ErrorKind::Access);
    let mut local = batch(&[P]);
    local.buffers[0].access = Access::LOCAL_WRITE;
    assert!(plan(&local, &machine, "").is_ok());
}

#[test]
fn only_host_memory_is_prefaulted_and_only_when_asked() {
    let host = plan(&batch(&[100 << 20]), &Machine::of_rails(2), "").unwrap();
    assert_eq!(host.prepares(ChunkId(0)), 4, "slices of 32 MiB");
    assert_eq!(host.clone().with_slices(Slices::of(50 << 20)).prepares(ChunkId(0)), 2);
    let steps = host.steps(Kind::Register).unwrap();
    assert_eq!((steps.len(), host.steps(Kind::Deregister).unwrap().len()), (6, 2));
    assert_eq!(plan(&batch(&[100 << 20]), &Machine::of_rails(2), "no-prefault").unwrap().steps(Kind::Register).unwrap().len(), 2);
}

struct Nonsense(Vec<RailId>);

impl SelectRails for Nonsense {
    fn select(&self, _: &pinrail_core::Buffer, _: &Machine) -> Result<Selection, PolicyError> {
        Ok(Selection { rails: self.0.clone(), path: None, why: "no reason".into(), fallback: None })
    }
    fn spec(&self) -> String {
        "nonsense".into()
    }
}

impl Order for Nonsense {
    fn order(&self, _: &[ChunkInfo]) -> Vec<u32> {
        vec![0, 0]
    }
    fn spec(&self) -> String {
        "nonsense".into()
    }
}

#[test]
fn a_policy_that_answers_nonsense_is_named() {
    let buffers = || batch(&[P, P]).layout().unwrap().imagined().unwrap();
    for rails in [vec![], vec![RailId(9)], vec![RailId(0), RailId(0)]] {
        let bad = Policy { rails: Arc::new(Nonsense(rails)), ..policy("") };
        let error = Plan::new(buffers(), &Machine::of_rails(2), &bad).unwrap_err();
        assert!(matches!(&error, PlanError::Policy(PolicyError::BadSelection { policy, .. }) if policy == "nonsense"), "{error}");
    }
    let bad = Policy { order: Arc::new(Nonsense(vec![])), ..policy("") };
    let error = Plan::new(buffers(), &Machine::of_rails(2), &bad).unwrap_err();
    assert!(matches!(error, PlanError::Policy(PolicyError::NotAPermutation { .. })), "{error}");
}

/// Keeps what it was asked.
struct Asked(Mutex<Vec<ChunkInfo>>);

impl Order for Asked {
    fn order(&self, chunks: &[ChunkInfo]) -> Vec<u32> {
        *self.0.lock().unwrap() = chunks.to_vec();
        (0..).take(chunks.len()).collect()
    }
    fn spec(&self) -> String {
        "asked".into()
    }
}

#[test]
fn an_order_is_told_the_length_the_buffer_and_the_rails_of_each_chunk() {
    let asked = Arc::new(Asked(Mutex::default()));
    let policy = Policy { order: asked.clone(), ..policy("") };
    let machine = limited(3, |limits| limits.max_mr_size = Some(2 * P));
    Plan::new(batch(&[P, 3 * P]).layout().unwrap().imagined().unwrap(), &machine, &policy).unwrap();
    let told: Vec<_> = asked.0.lock().unwrap().iter().map(|info| (info.chunk.0, info.buffer.0, info.len, info.rails)).collect();
    assert_eq!(told, [(0, 0, P, 3), (1, 1, 2 * P, 3), (2, 1, P, 3)]);
}

#[test]
fn a_plan_knows_what_it_was_made_from_and_for() {
    let machine = limited(3, |limits| limits.max_mrs = Some(9));
    let buffers = || batch(&[P, P]).layout().unwrap().imagined().unwrap();
    let alone = Plan::new(buffers(), &machine, &policy("rails=rail2,rail0+rails-in-series")).unwrap();
    assert_eq!((alone.machine(), alone.live(), alone.in_series()), (&machine, &[][..], true));
    assert_eq!(alone.rail_sets(), [Box::from([RailId(2), RailId(0)])]);
    let beside = Plan::beside(buffers(), &machine, &policy(""), &alone.needs().rails).unwrap();
    assert_eq!((beside.live(), beside.in_series()), (&alone.needs().rails[..], false));
}

fn lens() -> impl Strategy<Value = Vec<u64>> {
    // Equal lengths are frequent, so that stability is put to the test.
    prop::collection::vec(prop_oneof![Just(P), Just(3 * P), 1u64..200_000], 0..24)
}

fn spec() -> impl Strategy<Value = String> {
    let fan_out = prop_oneof![Just("rails-in-parallel"), Just("rails-in-series")];
    let order = prop_oneof![Just("caller-order"), Just("ascending"), Just("descending")];
    let prefault = prop_oneof![Just("prefault"), Just("no-prefault")];
    let rails = prop_oneof![Just("all-rails"), Just("rail-local"), Just("device-local"), Just("rails=rail1")];
    (rails, fan_out, order, prefault).prop_map(|(a, b, c, d)| format!("{a}+{b}+{c}+{d}"))
}

proptest! {
    #[test]
    fn chunks_tile_their_buffers_and_steps_cover_every_task_once(lens in lens(), spec in spec(), max_pages in prop::option::of(1u64..9)) {
        let machine = limited(3, |limits| limits.max_mr_size = max_pages.map(|pages| pages * P));
        let plan = plan(&batch(&lens), &machine, &spec).unwrap();
        for (at, buffer) in (0..).zip(plan.buffers()) {
            let mut address = buffer.extent().start();
            for chunk in plan.chunks_of(BufferId(at)).map(ChunkId) {
                let extent = plan.extent(chunk);
                prop_assert_eq!(extent.start(), address);
                prop_assert!(max_pages.is_none_or(|pages| extent.len() <= pages * P));
                prop_assert!(extent.end() == buffer.extent().end() || extent.end().is_multiple_of(P));
                prop_assert_eq!(plan.chunk(chunk, &Source::Address).extent(), extent);
                address = extent.end();
            }
            prop_assert_eq!(address, buffer.extent().end());
        }
        for kind in [Kind::Register, Kind::Deregister] {
            let steps = plan.steps(kind).unwrap();
            let mut tasks: Vec<(ChunkId, RailId)> = (0..u32::try_from(steps.len()).unwrap())
                .filter_map(|step| match steps.what(pinrail_core::StepId(step)) {
                    StepWhat::Task { chunk, rail, .. } => Some((chunk, rail)),
                    StepWhat::Prepare { .. } => None,
                })
                .collect();
            tasks.sort_unstable();
            let all: Vec<_> = plan.chunk_ids().flat_map(|chunk| plan.rails_of(chunk).iter().map(move |&rail| (chunk, rail))).collect();
            prop_assert_eq!(tasks.len() as u64, plan.tasks());
            prop_assert_eq!(tasks, all);
        }
    }

    #[test]
    fn the_order_is_a_stable_permutation_and_changes_nothing_else(lens in lens(), max_pages in prop::option::of(1u64..9)) {
        let machine = limited(2, |limits| limits.max_mr_size = max_pages.map(|pages| pages * P));
        let in_order = |spec: &str| plan(&batch(&lens), &machine, spec).unwrap();
        let (caller, ascending, descending) = (in_order("caller-order"), in_order("ascending"), in_order("descending"));
        prop_assert!(caller.order().eq(caller.chunk_ids()));
        let len = |chunk: ChunkId| caller.chunks()[chunk.index()].len();
        let sorted: Vec<_> = ascending.order().map(|chunk| (len(chunk), chunk)).collect();
        prop_assert!(sorted.is_sorted(), "by length, and equal lengths by the caller's order");
        let sorted: Vec<_> = descending.order().map(|chunk| (std::cmp::Reverse(len(chunk)), chunk)).collect();
        prop_assert!(sorted.is_sorted());
        for other in [&ascending, &descending] {
            prop_assert_eq!(other.chunks(), caller.chunks());
            prop_assert_eq!(other.rail_sets(), caller.rail_sets());
            prop_assert_eq!(other.needs(), caller.needs());
            let mut all: Vec<_> = other.order().collect();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(caller.chunk_ids()));
        }
    }

    #[test]
    fn a_wider_limit_never_makes_a_plan_impossible(lens in lens(), narrow in 1u64..40, more in 0u64..40) {
        let fits = |limit: u64| plan(&batch(&lens), &limited(2, |l| { l.max_mrs = Some(limit); l.max_mr_size = Some(limit * P); l.max_pages = Some(limit * 9) }), "").is_ok();
        prop_assert!(!fits(narrow) || fits(narrow + more));
    }
}

/// Buffers of one allocation, with gaps of so many bytes after each.
fn neighbours(lens_and_gaps: &[(u64, u64)]) -> BatchSpec {
    let mut addr = 0x20_0000;
    BatchSpec::of(lens_and_gaps.iter().enumerate().map(|(at, &(len, gap))| {
        let spec = BufferSpec { allocation: Some("kv".into()), addr: Some(addr), ..BufferSpec::new(format!("t{at}"), len) };
        addr += len + gap;
        spec
    }))
}

#[test]
fn adjacent_tensors_of_one_allocation_share_registrations() {
    let batch = neighbours(&[(12_288, 0); 1000]);
    let machine = limited(4, |limits| limits.max_mr_size = Some(4 << 20));
    let shared = plan(&batch, &machine, "").unwrap();
    assert_eq!(shared.chunks().len(), 3);
    assert_eq!((shared.needs().pages, shared.needs().foreign_bytes), (4 * 3000, 0));
    // Each tensor resolves to the chunks it lies in, and a seam may divide one.
    for at in (0..1000).map(BufferId) {
        let extent = shared.buffers()[at.index()].extent();
        let chunks: Vec<_> = shared.chunks_of(at).map(|chunk| shared.extent(ChunkId(chunk))).collect();
        assert!(chunks[0].start() <= extent.start() && extent.end() <= chunks[chunks.len() - 1].end());
        assert!(chunks.iter().all(|chunk| chunk.overlaps(extent)));
    }
    assert_eq!(
        shared.buffers_of(ChunkId(0)).len() + shared.buffers_of(ChunkId(1)).len() + shared.buffers_of(ChunkId(2)).len(),
        1002
    );
    assert_eq!(plan(&batch, &machine, "no-coalesce").unwrap().chunks().len(), 1000);
}

#[test]
fn gaps_are_bridged_only_when_asked_and_their_bytes_said() {
    let batch = neighbours(&[(P, 100), (P, 4 << 20), (P, 0)]);
    let chunks = |spec: &str| {
        let plan = plan(&batch, &Machine::of_rails(1), spec).unwrap();
        (plan.chunks().len(), plan.needs().foreign_bytes)
    };
    assert_eq!(chunks(""), (3, 0));
    assert_eq!(chunks("coalesce=gaps"), (2, 100), "4 MiB is too wide to bridge");
}

#[test]
fn what_lies_wholly_in_a_gap_is_not_registered() {
    let batch = neighbours(&[(P, 8 * P), (P, 0)]);
    let plan = plan(&batch, &limited(1, |limits| limits.max_mr_size = Some(2 * P)), "coalesce=gaps").unwrap();
    let buffers: Vec<_> = plan.chunk_ids().map(|chunk| plan.buffers_of(chunk).to_vec()).collect();
    assert_eq!(buffers, [[BufferId(0)], [BufferId(1)]]);
    assert_eq!((plan.needs().pages, plan.needs().foreign_bytes), (4, 2 * P));
}

#[test]
fn buffers_share_only_what_they_have_in_common() {
    let differs = |change: fn(&mut BufferSpec)| {
        let mut batch = neighbours(&[(P, 0), (P, 0)]);
        change(&mut batch.buffers[1]);
        plan(&batch, &Machine::of_rails(1), "").unwrap().chunks().len()
    };
    assert_eq!(differs(|_| {}), 1);
    assert_eq!(differs(|spec| spec.access = Access::REMOTE_READ), 2);
    assert_eq!(differs(|spec| spec.page_size = 2 << 20), 2);
    assert_eq!(differs(|spec| spec.unit = Some(P)), 2);
    // Never across allocations, however close their addresses.
    let mut apart = neighbours(&[(P, 0), (P, 0)]);
    apart.buffers[1].allocation = Some("other".into());
    assert_eq!(plan(&apart, &Machine::of_rails(1), "coalesce=gaps").unwrap().chunks().len(), 2);
}

#[test]
fn a_seam_between_two_buffers_belongs_to_the_chunk_it_begins() {
    let batch = neighbours(&[(4 * P, 0), (4 * P, 0), (4 * P, 0)]);
    let plan = plan(&batch, &limited(1, |limits| limits.max_mr_size = Some(8 * P)), "").unwrap();
    assert_eq!(plan.buffers_of(ChunkId(0)), [BufferId(0), BufferId(1)]);
    assert_eq!(plan.buffers_of(ChunkId(1)), [BufferId(2)]);
    assert_eq!([0, 1, 2].map(|at| plan.chunks_of(BufferId(at))), [0..1, 0..1, 1..2]);
}

#[test]
fn a_rest_of_a_huge_page_behind_the_last_unit_is_a_chunk_of_the_last_buffer() {
    let mut units = batch(&[3 << 20]);
    (units.buffers[0].page_size, units.buffers[0].unit) = (2 << 20, Some(3 << 20));
    let plan = plan(&units, &limited(1, |limits| limits.max_mr_size = Some(3 << 20)), "").unwrap();
    assert_eq!(plan.chunks().iter().map(|chunk| chunk.len() >> 20).collect::<Vec<_>>(), [3, 1]);
    assert_eq!((plan.chunks_of(BufferId(0)), plan.needs().foreign_bytes), (0..2, 1 << 20));
}

#[test]
fn units_are_counted_from_where_the_first_buffer_begins() {
    // The first begins inside a unit of address 0, and the second on a unit of the first.
    let mut batch = neighbours(&[(3 * P, 0), (3 * P, 0)]);
    batch.buffers.iter_mut().for_each(|spec| spec.unit = Some(3 * P));
    assert!(!batch.buffers[0].addr.unwrap().is_multiple_of(3 * P));
    assert_eq!(plan(&batch, &Machine::of_rails(1), "").unwrap().chunks().len(), 1);
}

#[test]
fn a_unit_is_not_divided_by_sharing() {
    let mut batch = neighbours(&[(3 * P, 0), (2 * P, 0)]);
    batch.buffers.iter_mut().for_each(|spec| spec.unit = Some(2 * P));
    assert_eq!(plan(&batch, &Machine::of_rails(1), "").unwrap().chunks().len(), 2, "the second would begin inside a unit");
}

#[test]
fn a_refused_sharing_is_undone_for_the_buffers_concerned() {
    let batch = neighbours(&[(P, 0), (P, 0), (P, 64), (P, 0), (P, 0)]);
    let shared = plan(&batch, &Machine::of_rails(1), "").unwrap();
    assert_eq!(shared.chunks().len(), 2);
    let apart = shared.without_coalescing(&|buffer| buffer.0 < 3).unwrap();
    assert_eq!(apart.chunks().len(), 4);
}

#[test]
fn huge_pages_are_registered_whole_where_nobody_else_lies() {
    let huge = 2u64 << 20;
    let mut batch = batch(&[3_779_571_220]);
    batch.buffers[0].page_size = huge;
    let plan_of = |batch: &BatchSpec| plan(batch, &limited(1, |limits| limits.max_mr_size = Some(1 << 30)), "").unwrap();
    let whole = plan_of(&batch);
    assert_eq!(whole.chunks().iter().map(|chunk| chunk.len()).sum::<u64>(), 1803 * huge);
    assert!(whole.chunks().iter().all(|chunk| chunk.range.start.is_multiple_of(huge) && chunk.len().is_multiple_of(huge)));
    assert_eq!(whole.needs().foreign_bytes, 1803 * huge - 3_779_571_220);
    // A start that a header has shifted: the whole aligned area is registered.
    let mut shifted = neighbours(&[(huge, 0)]);
    (shifted.buffers[0].addr, shifted.buffers[0].page_size) = (Some(huge + 64), huge);
    assert_eq!(plan_of(&shifted).chunks()[0].len(), 2 * huge);
    // Another buffer in the same page keeps its bytes to itself.
    let mut two = neighbours(&[(P, 64), (P, 0)]);
    two.buffers.iter_mut().for_each(|spec| spec.page_size = huge);
    let two = plan_of(&two);
    assert!(two.extent(ChunkId(0)).end() <= two.extent(ChunkId(1)).start());
}

#[test]
fn what_does_not_fit_in_full_is_shared_out_where_the_policy_allows() {
    // A pool of 500 units on rails that take 192 a registration.
    let u = 1u64 << 20;
    let pool = batch(&[500 * u]);
    let machine = |pages| limited(4, move |limits| (limits.max_mr_size, limits.max_pages) = (Some(192 * u), Some(pages)));
    let full = plan(&pool, &machine(500 * u / P), "coverage=disjoint").unwrap();
    assert_eq!((full.chunks().len(), full.tasks()), (3, 12), "with entries enough every chunk is on every rail");
    let refused = plan(&pool, &machine(150 * u / P), "").unwrap_err().diagnosis();
    assert_eq!((refused.kind, refused.limit, refused.need), (ErrorKind::PageBudget, Some(150 * u / P), Some(500 * u / P)));
    assert_eq!(
        refused.hint.as_deref(),
        Some(
            "on pages of 2 MiB it takes at most 250; at most 150 MiB fit as it is; 4 rails have enough together: share the batch out (coverage=disjoint); or put each buffer on fewer rails (rail-local, local-max=N, rails=NAME)"
        )
    );
    let shared = plan(&pool, &machine(150 * u / P), "coverage=disjoint").unwrap();
    assert!(shared.chunk_ids().all(|chunk| shared.rails_of(chunk).len() == 1));
    assert!(shared.needs().rails.iter().all(|rail| rail.pages <= 150 * u / P && rail.mrs > 0));
    assert_eq!(shared.needs().rails.iter().map(|rail| rail.bytes).sum::<u64>(), 500 * u);
    let hopeless = plan(&pool, &machine(120 * u / P), "coverage=disjoint").unwrap_err();
    assert_eq!(hopeless.diagnosis().kind, ErrorKind::PageBudget);
    assert!(hopeless.diagnosis().message.contains("even in disjoint shares"), "{hopeless}");
}

#[test]
fn a_budget_that_runs_out_is_said_to_be_that_and_not_a_size() {
    let mut units = batch(&[9_483_275]);
    units.buffers[0].unit = Some(5000);
    for max_mr_size in [None, Some(8192)] {
        let machine = limited(2, |limits| (limits.max_pages, limits.max_mr_size) = (Some(100), max_mr_size));
        assert_eq!(plan(&units, &machine, "coverage=disjoint").unwrap_err().diagnosis().kind, ErrorKind::PageBudget);
    }
}

#[test]
fn what_is_live_counts_against_the_limits() {
    let machine = limited(2, |limits| limits.max_mrs = Some(3));
    let policy = policy("");
    let buffers = || batch(&[P, P]).layout().unwrap().imagined().unwrap();
    let first = Plan::new(buffers(), &machine, &policy).unwrap();
    let error = Plan::beside(buffers(), &machine, &policy, &first.needs().rails).unwrap_err();
    assert_eq!(
        error,
        PlanError::Budget {
            rail: "rail0".into(),
            budget: Budget::Mrs,
            limit: 3,
            need: 2,
            live: 2,
            fits: Box::new(Fits { buffers: 1, of_buffers: 2, shared_by: Some(2), ..Fits::default() }),
        }
    );
    assert_eq!(error.diagnosis().need, Some(4));
    assert_eq!(error.to_string(), "rail \"rail0\" has 3 registrations, of which 2 are live already, and 2 are needed");
    let alone = Plan::new(batch(&[P; 4]).layout().unwrap().imagined().unwrap(), &machine, &policy).unwrap_err();
    assert_eq!(alone.to_string(), "rail \"rail0\" has 3 registrations and 4 are needed");
}

proptest! {
    #[test]
    fn shares_tile_within_every_budget(lens in lens(), pages in prop::collection::vec(1u64..200, 1..5), mrs in prop::option::of(1u64..30), max in 1u64..60) {
        let mut machine = Machine::of_rails(u16::try_from(pages.len()).unwrap());
        for (rail, pages) in machine.rails.iter_mut().zip(&pages) {
            rail.limits.max_mr_size = Some(max * P);
            (rail.limits.max_mrs, rail.limits.max_pages) = (mrs, Some(*pages));
        }
        let Ok(plan) = plan(&batch(&lens), &machine, "coverage=disjoint") else { return Ok(()) };
        for (of, rail) in plan.needs().rails.iter().zip(&machine.rails) {
            prop_assert!(of.pages <= rail.limits.max_pages.unwrap() && mrs.is_none_or(|mrs| of.mrs <= mrs));
        }
        for (at, buffer) in (0..).map(BufferId).zip(plan.buffers()) {
            let mut address = buffer.extent().start();
            for chunk in plan.chunks_of(at).map(ChunkId) {
                prop_assert_eq!(plan.extent(chunk).start(), address);
                prop_assert!(!plan.rails_of(chunk).is_empty() && plan.extent(chunk).len() <= max * P);
                address = plan.extent(chunk).end();
            }
            prop_assert_eq!(address, buffer.extent().end());
        }
    }

    #[test]
    fn translating_addresses_translates_the_plan(tensors in prop::collection::vec((1u64..20_000, prop_oneof![Just(0u64), 1u64..9000]), 1..12), by in 0u64..1000, gaps in any::<bool>()) {
        let moved = |by: u64| {
            let mut batch = neighbours(&tensors);
            batch.buffers.iter_mut().for_each(|spec| spec.addr = spec.addr.map(|addr| addr + by));
            let spec = if gaps { "coalesce=gaps+ascending" } else { "ascending" };
            let plan = plan(&batch, &limited(2, |limits| limits.max_mr_size = Some(3 * P)), spec).unwrap();
            let chunks: Vec<_> = plan.chunk_ids().map(|chunk| (plan.extent(chunk).start() - by, plan.extent(chunk).len())).collect();
            (chunks, plan.order().collect::<Vec<_>>(), plan.needs().clone())
        };
        prop_assert_eq!(moved(0), moved(by * P));
    }
}

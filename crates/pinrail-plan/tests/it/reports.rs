//! Conditions that others met and reported (docs/FIELD-REPORTS.md), as far as a plan meets them.

use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{Access, BufferId, ChunkId, DevicePath, ErrorKind, Gpu, Machine, Place, PrepareStep, RailId};
use pinrail_plan::{Budget, Plan, PlanError};

use crate::{P, batch, limited, neighbours, plan, policy};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// One GPU beside rail `near` of so many.
fn with_gpu(rails: u16, near: u16) -> (Machine, Place) {
    let (mut machine, pci) = (Machine::of_rails(rails), "53:00.0".parse().unwrap());
    for (at, rail) in (0..).zip(&mut machine.rails) {
        let switch = if at == near { "near" } else { "far" };
        rail.bridges = ["root", switch, "port"].map(str::to_owned).to_vec();
        rail.device = DevicePath::DmaBuf;
    }
    let bridges = ["root", "near", "port"].map(str::to_owned).to_vec();
    machine.gpus.push(Gpu { pci, node: None, bridges });
    (machine, Place::Gpu(pci))
}

#[test]
fn ninety_six_gib_of_4_kib_pages_are_one_entry_too_many_and_of_2_mib_they_fit() {
    let machine = limited(1, |limits| limits.max_pages = Some((24 << 20) - 1));
    let mut batch = batch(&[96 * GIB]);
    let refused = plan(&batch, &machine, "").unwrap_err().diagnosis();
    assert_eq!((refused.kind, refused.limit, refused.need), (ErrorKind::PageBudget, Some(25_165_823), Some(25_165_824)));
    let hint = refused.hint.unwrap();
    assert!(hint.starts_with("on pages of 2 MiB it takes at most 49152; at most 95.99 GiB fit as it is"), "{hint}");
    batch.buffers[0].page_size = 2 * MIB;
    assert_eq!(plan(&batch, &machine, "").unwrap().needs().pages, 49_152);
}

#[test]
fn the_sixteenth_quarter_gib_is_refused_and_on_2_mib_pages_none_is() {
    let machine = limited(1, |limits| limits.max_pages = Some((1 << 20) - 1));
    assert_eq!(plan(&batch(&[256 * MIB; 15]), &machine, "").unwrap().needs().pages, 983_040);
    let mut all = batch(&[256 * MIB; 16]);
    let refused = plan(&all, &machine, "").unwrap_err().diagnosis();
    assert_eq!((refused.kind, refused.need), (ErrorKind::PageBudget, Some(1 << 20)));
    let hint = refused.hint.unwrap();
    assert_eq!(hint, "on pages of 2 MiB it takes at most 2048; the first 15 of the 16 buffers fit");
    // The remedy that is named is one.
    all.buffers.truncate(15);
    assert!(plan(&all, &machine, "").is_ok());
    all.buffers = batch(&[256 * MIB; 16]).buffers;
    all.buffers.iter_mut().for_each(|buffer| buffer.page_size = 2 * MIB);
    assert_eq!(plan(&all, &machine, "").unwrap().needs().pages, 16 * 128);
}

#[test]
fn five_hundred_gb_on_rails_that_take_192_at_once_are_on_all_or_shared_out() {
    let (gb, rails) = (1_000_000_000u64, 4u16);
    let pool = batch(&[500 * gb]);
    let machine =
        |entries: u64| limited(rails, move |limits| (limits.max_mr_size, limits.max_pages) = (Some(192 * gb), Some(entries)));
    let whole = plan(&pool, &machine(200_000_000), "coverage=disjoint").unwrap();
    assert!(whole.shared_out().is_none() && whole.chunk_ids().all(|chunk| whole.rails_of(chunk).len() == 4));
    assert_eq!((whole.chunks().len(), whole.tasks()), (3, 12));

    let few = machine(40_000_000);
    let refused = plan(&pool, &few, "").unwrap_err().diagnosis();
    assert_eq!((refused.kind, refused.limit), (ErrorKind::PageBudget, Some(40_000_000)));
    assert!(refused.hint.unwrap().contains("4 rails have enough together: share the batch out (coverage=disjoint)"));
    let shared = plan(&pool, &few, "coverage=disjoint").unwrap();
    assert!(shared.chunk_ids().all(|chunk| shared.rails_of(chunk).len() == 1), "every chunk has a rail");
    assert!(shared.needs().rails.iter().all(|rail| rail.pages <= 40_000_000), "and no rail is over its budget");
    assert_eq!(shared.needs().rails.iter().map(|rail| rail.bytes).sum::<u64>(), 500 * gb);
    assert!(shared.shared_out().is_some_and(|over| over.to_string().contains("40000000 page entries")));
}

#[test]
fn a_mapping_that_is_no_multiple_of_its_huge_pages_is_cut_on_them_to_the_mappings_end() {
    for (len, pages) in [(3_779_571_220, 1803), (4_434_553_733, 2115)] {
        let mut batch = batch(&[len]);
        batch.buffers[0].page_size = 2 * MIB;
        let plan_at = |max: u64| plan(&batch, &limited(1, |limits| limits.max_mr_size = Some(max)), "");
        let whole = plan_at(GIB).unwrap();
        assert_eq!(whole.chunks().iter().map(|chunk| chunk.len()).sum::<u64>(), pages * 2 * MIB);
        assert!(whole.chunk_ids().all(|chunk| whole.extent(chunk).end().is_multiple_of(2 * MIB)));
        let refused = plan_at(MIB).unwrap_err().diagnosis();
        assert_eq!((refused.kind, refused.limit, refused.need), (ErrorKind::MrSize, Some(MIB), Some(2 * MIB)));
        assert!(refused.message.contains("1048576") && refused.message.contains("2097152"), "{}", refused.message);
    }
}

#[test]
fn device_memory_that_is_cut_has_an_export_for_each_piece() {
    let (machine, gpu) = with_gpu(1, 0);
    let of = |gib: u64| {
        let mut batch = batch(&[gib * GIB]);
        batch.buffers[0].place = gpu;
        batch
    };
    assert_eq!(plan(&of(63), &machine, "").unwrap().chunks().len(), 1, "in one piece where nothing forbids it");
    let mut small = machine.clone();
    (small.rails[0].limits.max_mr_size, small.rails[0].limits.max_mrs) = (Some(GIB), Some(128));
    let cut = plan(&of(63), &small, "").unwrap();
    let mut end = 0;
    for chunk in cut.chunk_ids() {
        assert_eq!(cut.prepares(chunk), 1);
        let PrepareStep::Export { range, .. } = cut.prepare_step(chunk, 0) else { panic!("{chunk} is not exported") };
        assert_eq!((range.start, range.end - range.start), (end, GIB), "the range that is asked for and no other");
        end = range.end;
    }
    assert_eq!((cut.chunks().len(), end), (63, 63 * GIB));
    let refused = plan(&of(129), &small, "").unwrap_err().diagnosis();
    assert_eq!((refused.kind, refused.limit, refused.need), (ErrorKind::MrCount, Some(128), Some(129)));
}

#[test]
fn two_thousand_regions_are_one_where_they_touch_and_too_many_where_they_do_not() {
    let machine = limited(1, |limits| limits.max_mrs = Some(2048));
    assert_eq!(plan(&neighbours(&[(P, 0); 2049]), &machine, "").unwrap().tasks(), 1);
    let scattered = neighbours(&[(P, P); 2049]);
    let refused = plan(&scattered, &machine, "").unwrap_err().diagnosis();
    assert_eq!((refused.kind, refused.limit, refused.need), (ErrorKind::MrCount, Some(2048), Some(2049)));
    assert!(refused.hint.unwrap().starts_with("the first 2048 of the 2049 buffers fit; neighbours may share"));
    assert_eq!(plan(&scattered, &machine, "coalesce=gaps").unwrap().tasks(), 1, "the remedy that is named is one");
}

#[test]
fn a_second_device_buffer_beyond_the_window_is_refused_and_not_put_elsewhere() {
    let (mut machine, gpu) = with_gpu(1, 0);
    machine.rails[0].limits.max_bytes = Some(256 * MIB);
    let mut two = batch(&[150 * MIB; 2]);
    two.buffers.iter_mut().for_each(|buffer| buffer.place = gpu);
    let refused = plan(&two, &machine, "").unwrap_err();
    assert!(
        matches!(refused, PlanError::Budget { budget: Budget::Bytes, limit, need, .. } if (limit, need) == (256 * MIB, 300 * MIB))
    );
    assert_eq!(refused.diagnosis().hint.as_deref(), Some("the first 1 of the 2 buffers fit"));
    two.buffers.truncate(1);
    assert_eq!(plan(&two, &machine, "").unwrap().buffers()[0].place, gpu);
}

#[test]
fn every_rail_counts_and_a_near_one_alone_is_the_remedy() {
    let (mut machine, gpu) = with_gpu(8, 3);
    let mut variants = batch(&[GIB, GIB]);
    variants.buffers.iter_mut().for_each(|buffer| buffer.place = gpu);
    assert_eq!(plan(&variants, &machine, "all-rails").unwrap().tasks(), 16);
    let local = plan(&variants, &machine, "rail-local").unwrap();
    assert_eq!((local.tasks(), local.rails_of(ChunkId(0))), (2, &[RailId(3)][..]));
    machine.rails.iter_mut().for_each(|rail| rail.limits.max_mrs = Some(1));
    assert_eq!(plan(&variants, &machine, "all-rails").unwrap_err().diagnosis().kind, ErrorKind::MrCount);
}

#[test]
fn what_is_locked_is_counted_on_every_rail() {
    let locked = |rails: u16| {
        let mut machine = Machine::of_rails(rails);
        machine.rails.iter_mut().for_each(|rail| rail.pins = pinrail_core::PinsCounted::Process);
        plan(&batch(&[96 * MIB]), &machine, "").unwrap().needs().memlock_process_bytes
    };
    assert_eq!((locked(1), locked(4)), (96 * MIB, 4 * 96 * MIB));
    // What an open rail has locked for itself counts once, whatever is registered.
    let mut ring = Machine::of_rails(1);
    (ring.rails[0].pins, ring.rails[0].own_pinned_bytes) = (pinrail_core::PinsCounted::User, 2 * P);
    let needs = plan(&batch(&[3 * P]), &ring, "").unwrap().needs().clone();
    assert_eq!((needs.memlock_user_bytes, needs.memlock_bytes, needs.pinned_bytes), (5 * P, 5 * P, 3 * P));
}

#[test]
fn a_start_that_a_header_shifted_is_registered_from_its_pages_start() {
    let huge = 2 * MIB;
    let mut shifted = neighbours(&[(huge, 0)]);
    (shifted.buffers[0].addr, shifted.buffers[0].page_size) = (Some(huge + 64), huge);
    let whole = plan(&shifted, &Machine::of_rails(1), "").unwrap();
    assert_eq!((whole.extent(ChunkId(0)).start(), whole.extent(ChunkId(0)).len()), (huge, 2 * huge));
    let buffer = whole.buffers()[0].extent();
    assert!(whole.extent(ChunkId(0)).start() < buffer.start() && buffer.end() < whole.extent(ChunkId(0)).end(), "a sub-range");
}

#[test]
fn pages_of_64_kib_2_mib_and_512_mib_are_each_counted_in_their_own_size() {
    for page in [64 << 10, 2 * MIB, 512 * MIB] {
        let mut batch = batch(&[GIB + 1]);
        batch.buffers[0].page_size = page;
        let plan = plan(&batch, &limited(1, |limits| limits.max_mr_size = Some(512 * MIB)), "").unwrap();
        assert_eq!(plan.needs().pages, (GIB + 1).div_ceil(page));
        assert!(plan.chunk_ids().all(|chunk| plan.extent(chunk).start().is_multiple_of(page)));
    }
}

#[test]
fn only_what_is_listed_is_registered_and_its_bytes_are_counted_on_every_rail() {
    let one = batch(&[700 * GIB]);
    let plan = plan(&one, &Machine::of_rails(4), "").unwrap();
    assert_eq!((plan.buffers().len(), plan.tasks()), (1, 4));
    assert_eq!(plan.needs().pinned_bytes, 4 * 700 * GIB);
}

#[test]
fn more_gpus_than_groups_of_rails_leave_no_rail_idle_and_serve_none_twice() {
    // 8 GPUs and 16 rails in pairs behind 8 switches; and 4 of each.
    for (gpus, rails) in [(8u16, 16u16), (4, 4)] {
        let mut machine = Machine::of_rails(rails);
        let switch = |at: u16| ["root".to_owned(), format!("switch{at}"), "port".to_owned()].to_vec();
        for (at, rail) in (0..).zip(&mut machine.rails) {
            rail.bridges = switch(at % gpus);
        }
        for at in 0..gpus {
            let pci = pinrail_core::PciAddress::new(0, u8::try_from(0x80 + at).unwrap(), 0, 0).unwrap();
            machine.gpus.push(Gpu { pci, node: None, bridges: switch(at) });
        }
        let specs =
            machine.gpus.iter().map(|gpu| BufferSpec { place: Place::Gpu(gpu.pci), ..BufferSpec::new(gpu.pci.to_string(), P) });
        let plan = plan(&BatchSpec::of(specs), &machine, "device-local").unwrap();
        let each = usize::from(rails / gpus);
        assert!(plan.chunk_ids().all(|chunk| plan.rails_of(chunk).len() == each));
        assert!(plan.needs().rails.iter().all(|rail| rail.mrs == 1), "{:?}", plan.needs());
    }
}

#[test]
fn a_gpus_buffer_is_on_its_near_rails_and_a_hosts_on_all() {
    let (machine, gpu) = with_gpu(8, 3);
    let mut batch = batch(&[P, P]);
    batch.buffers[0].place = gpu;
    let plan = plan(&batch, &machine, "").unwrap();
    assert_eq!(plan.rails_of_buffer(BufferId(0)), [RailId(3)], "no key elsewhere");
    assert_eq!(plan.rails_of_buffer(BufferId(1)).len(), 8);
}

#[test]
fn asked_over_three_segments_all_three_are_covered() {
    // Three allocations, as an allocator of expandable segments has them; each a buffer of the batch.
    let batch = batch(&[20 * MIB, 3 * MIB, 7 * MIB]);
    let plan = plan(&batch, &limited(2, |limits| limits.max_mr_size = Some(8 * MIB)), "").unwrap();
    for id in (0..3).map(BufferId) {
        let chunks: Vec<_> = plan.chunks_of(id).map(|chunk| plan.extent(ChunkId(chunk))).collect();
        let buffer = plan.buffers()[id.index()].extent();
        assert_eq!((chunks[0].start(), chunks[chunks.len() - 1].end()), (buffer.start(), buffer.end()));
        assert_eq!(chunks.iter().map(|chunk| chunk.len()).sum::<u64>(), buffer.len());
    }
}

#[test]
fn memory_that_a_rail_cannot_reach_is_refused_when_it_is_planned() {
    let (mut machine, gpu) = with_gpu(2, 0);
    machine.rails[0].device = DevicePath::None;
    let mut batch = batch(&[P]);
    batch.buffers[0].place = gpu;
    let refused = plan(&batch, &machine, "").unwrap_err().diagnosis();
    assert_eq!((refused.kind, refused.rail.as_deref()), (ErrorKind::NoDevicePath, Some("rail0")));
}

#[test]
fn a_rail_that_is_named_is_obeyed_though_it_is_far() {
    let (machine, gpu) = with_gpu(4, 3);
    let mut batch = batch(&[P]);
    batch.buffers[0].place = gpu;
    let plan = plan(&batch, &machine, "rails=rail0").unwrap();
    assert_eq!((plan.rails_of(ChunkId(0)), plan.rails_of_buffer(BufferId(0))), (&[RailId(0)][..], vec![RailId(0)]));
}

#[test]
fn a_remote_write_alone_gains_the_local_write_that_drivers_demand() {
    let mut batch = batch(&[P]);
    batch.buffers[0].access = Access::REMOTE_WRITE;
    let plan = plan(&batch, &Machine::of_rails(1), "").unwrap();
    assert_eq!(plan.chunks()[0].access, Access::REMOTE_WRITE | Access::LOCAL_WRITE);
}

#[test]
fn limits_are_used_up_over_batches_and_given_back() {
    // 64 MB in all on each rail; 100 pages, of which peers may write to 20.
    let machine = limited(2, |limits| {
        (limits.max_bytes, limits.max_pages, limits.max_pages_remote_write) = (Some(64_000_000), Some(100), Some(20));
    });
    let beside = |batch: &BatchSpec, spec: &str, live: &[pinrail_plan::RailNeeds]| {
        Plan::beside(batch.layout().unwrap().imagined().unwrap(), &machine, &policy(spec), live)
    };
    let over = |plan: Result<Plan, PlanError>| match plan.unwrap_err() {
        PlanError::Budget { budget, limit, need, live, .. } => (budget, limit, need, live),
        other => panic!("{other}"),
    };
    let mut large = batch(&[38 * MIB]);
    (large.buffers[0].page_size, large.buffers[0].access) = (2 * MIB, Access::REMOTE_READ);
    let first = beside(&large, "", &[]).unwrap();
    let live = first.needs().rails.clone();
    assert_eq!(over(beside(&large, "", &live)), (Budget::Bytes, 64_000_000, 38 * MIB, 38 * MIB));
    let nothing: Vec<_> = live.iter().map(|of| of.minus(*of)).collect();
    assert!(beside(&large, "", &nothing).is_ok(), "what is deregistered is free again");

    // Entries that peers may write to run out long before entries do.
    let writable = batch(&[15 * P]);
    let live = beside(&writable, "", &[]).unwrap().needs().rails.clone();
    assert_eq!(over(beside(&writable, "", &live)), (Budget::PagesRemoteWrite, 20, 15, 15));
    let mut readable = writable.clone();
    readable.buffers[0].access = Access::REMOTE_READ;
    assert!(beside(&readable, "", &live).is_ok());
    // And what is live changes where the next batch goes: in full alone, shared out beside it, and the plan says why.
    assert!(beside(&writable, "coverage=disjoint", &[]).unwrap().shared_out().is_none());
    let mut split = writable.clone();
    split.buffers[0].len = 10 * P;
    let shared = beside(&split, "coverage=disjoint", &live).unwrap();
    assert!(shared.chunk_ids().all(|chunk| shared.rails_of(chunk).len() == 1));
    let why = shared.shared_out().unwrap().to_string();
    assert!(why.contains("of which 15 are live already"), "{why}");
}

#[test]
fn a_batch_that_would_be_cut_without_end_is_refused_and_not_tried() {
    let mut endless = batch(&[u64::MAX >> 1]);
    endless.rail_limits.insert("*".into(), pinrail_core::RailLimits { max_mr_size: Some(P), ..Default::default() });
    for spec in ["", "coverage=disjoint"] {
        let refused = plan(&endless, &Machine::of_rails(2), spec).unwrap_err();
        assert!(matches!(refused, PlanError::TooManyChunks { .. }), "{refused}");
    }
}

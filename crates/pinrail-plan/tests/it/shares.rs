//! Disjoint shares: which rail takes which piece.

use pinrail_core::batch::BatchSpec;
use pinrail_core::{ChunkId, Machine, RailId};

use crate::{P, batch, neighbours, plan};

/// Rails that map at most so many pages each.
fn budgets(pages: &[Option<u64>]) -> Machine {
    let mut machine = Machine::of_rails(u16::try_from(pages.len()).unwrap());
    machine.rails.iter_mut().zip(pages).for_each(|(rail, &pages)| rail.limits.max_pages = pages);
    machine
}

/// Pages of each chunk and its rail.
fn shared(batch: &BatchSpec, machine: &Machine) -> Vec<(u64, u16)> {
    let plan = plan(batch, machine, "coverage=disjoint").unwrap();
    let rail = |chunk: ChunkId| match plan.rails_of(chunk) {
        [RailId(rail)] => *rail,
        several => panic!("{chunk} is on {several:?}"),
    };
    plan.chunk_ids().map(|chunk| (plan.chunks()[chunk.index()].pages, rail(chunk))).collect()
}

#[test]
fn the_rail_with_most_pages_left_is_next_and_of_equals_the_one_with_fewer_pieces() {
    assert_eq!(shared(&batch(&[20 * P]), &budgets(&[Some(20), Some(10)])), [(10, 0), (10, 1)]);
    assert_eq!(shared(&batch(&[20 * P]), &budgets(&[Some(12), Some(12)])), [(10, 0), (10, 1)], "then the first");
}

#[test]
fn no_piece_is_longer_than_an_equal_share() {
    assert_eq!(shared(&batch(&[20 * P]), &budgets(&[None, Some(9)])), [(10, 0), (10, 0)]);
}

#[test]
fn units_fill_the_budgets_to_the_last_page() {
    let units = |pages: u64| {
        let mut units = batch(&[pages * P]);
        units.buffers[0].unit = Some(8 * P);
        units
    };
    assert_eq!(shared(&units(24), &budgets(&[Some(16), Some(8)])), [(8, 0), (8, 1), (8, 0)]);
    // What is left of the last unit needs no room for a whole one.
    assert_eq!(shared(&units(12), &budgets(&[Some(8), Some(5)])), [(8, 0), (4, 1)]);
}

#[test]
fn a_piece_that_begins_inside_a_page_takes_that_pages_entry() {
    let mut inside = neighbours(&[(20 * P - 100, 0)]);
    inside.buffers[0].addr = inside.buffers[0].addr.map(|addr| addr + 100);
    assert_eq!(shared(&inside, &budgets(&[Some(10), Some(10)])), [(10, 0), (10, 1)]);
}

//! In which order variants are tried.

use crate::rng::SplitMix;

/// The order of variants in each block; a block tries every variant once.
///
/// Every second block runs the one before it backwards, so that each variant comes as often before each other as
/// after it, and as often early as late: a machine that drifts steadily favours nobody.
pub(crate) fn blocks(variants: usize, blocks: u32, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = SplitMix::new(seed);
    let mut order: Vec<usize> = (0..variants).collect();
    let mut schedule: Vec<Vec<usize>> = Vec::new();
    for block in 0..blocks {
        if block % 2 == 0 {
            rng.shuffle(&mut order);
        } else {
            order.reverse();
        }
        schedule.push(order.clone());
    }
    schedule
}

/// What is wrong with an order in which variants were tried, if anything.
pub(crate) fn fault(schedule: &[Vec<usize>], names: &[String]) -> Option<String> {
    let variants = names.len();
    let mut balance = vec![0i64; variants * variants];
    for (block, order) in schedule.iter().enumerate() {
        let mut seen: Vec<usize> = order.clone();
        seen.sort_unstable();
        if !seen.iter().copied().eq(0..variants) {
            return Some(format!("block {block} did not try every variant once"));
        }
        for (at, &first) in order.iter().enumerate() {
            for &second in &order[at + 1..] {
                balance[first * variants + second] += 1;
            }
        }
    }
    for a in 0..variants {
        for b in a + 1..variants {
            let (before, after) = (balance[a * variants + b], balance[b * variants + a]);
            if before.abs_diff(after) > 1 {
                let (a, b) = (&names[a], &names[b]);
                return Some(format!("{a} came {before} times before {b} and {after} times after it"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(variants: usize) -> Vec<String> {
        (0..variants).map(|at| format!("variant {at}")).collect()
    }

    #[test]
    fn the_order_is_random_balanced_and_replays_from_its_seed() {
        let schedule = blocks(8, 10, 7);
        assert_eq!(schedule, blocks(8, 10, 7));
        assert_ne!(schedule, blocks(8, 10, 8));
        assert_ne!(schedule[0], (0..8).collect::<Vec<_>>());
        for (variants, count) in [(1, 1), (2, 9), (8, 10), (5, 3)] {
            assert_eq!(fault(&blocks(variants, count, 1), &names(variants)), None);
        }
    }

    #[test]
    fn a_fixed_order_and_a_missing_trial_are_faults() {
        let fixed = vec![vec![0, 1]; 10];
        assert_eq!(fault(&fixed, &names(2)).unwrap(), "variant 0 came 10 times before variant 1 and 0 times after it");
        assert_eq!(fault(&[vec![0, 0]], &names(2)).unwrap(), "block 0 did not try every variant once");
    }
}

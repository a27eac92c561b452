/// SplitMix64: a run's order and its resamples replay from the seed, on every machine and in every release.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero. The bias of the multiplication is below n / 2^64.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let product = u128::from(self.next()) * n as u128;
        usize::try_from(product >> 64).expect("the high half of a product is below its factor")
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_generator() {
        // The first outputs for seed 1234567 of the reference implementation (Vigna, splitmix64.c).
        let mut rng = SplitMix::new(1_234_567);
        let seen: Vec<u64> = (0..3).map(|_| rng.next()).collect();
        assert_eq!(seen, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn a_shuffle_keeps_everything_and_moves_something() {
        let mut items: Vec<u32> = (0..100).collect();
        SplitMix::new(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}

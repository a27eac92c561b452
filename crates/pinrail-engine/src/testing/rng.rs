/// SplitMix64: what a seed decides is the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Another generator, whose numbers do not depend on how many this one still gives.
    pub(crate) fn split(&mut self) -> Rng {
        Rng(self.next())
    }

    /// Below `n`, which is not zero.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(n);
        u64::try_from(wide >> 64).unwrap_or(u64::MAX)
    }

    pub(crate) fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(usize::MAX)
    }

    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.index(from.len())]
    }

    /// True so many times of a thousand.
    pub(crate) fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1000) < per_mille.into()
    }
}

/// Whether the rails of one chunk may be registered at once.
///
/// Published engines differ: one registers a buffer on one NIC after the other inside a thread, others start all NICs
/// together, which is 4 times faster on resident memory and 5 times slower on untouched memory (every NIC's call faults
/// the same pages) unless the memory is made resident first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FanOut {
    /// Any of a chunk's rails at any time.
    #[default]
    InParallel,
    /// Rail after rail: the next starts when the one before has ended, also when it has failed and all are attempted.
    InSeries,
}

impl FanOut {
    /// The term in a spec.
    #[must_use]
    pub fn spec(self) -> &'static str {
        match self {
            FanOut::InParallel => "rails-in-parallel",
            FanOut::InSeries => "rails-in-series",
        }
    }
}

use std::num::NonZeroU32;

use pinrail_core::Limits;

/// At most so many registrations (or deregistrations) in flight on one rail: `per-rail=N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerRail(pub NonZeroU32);

impl PerRail {
    /// As limits.
    #[must_use]
    pub fn limits(self) -> Limits {
        Limits { per_rail: self.0, ..Limits::NONE }
    }

    /// The term in a spec.
    #[must_use]
    pub fn spec(self) -> String {
        format!("per-rail={}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_rail_is_limited() {
        let limits = PerRail(NonZeroU32::MIN).limits();
        assert_eq!((limits.per_rail, limits.total), (NonZeroU32::MIN, NonZeroU32::MAX));
    }
}

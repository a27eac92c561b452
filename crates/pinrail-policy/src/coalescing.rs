/// Which buffers share a registration.
///
/// Every registration has a fixed price; a thousand small tensors of one allocation are a handful of registrations when
/// their neighbours share one. Only buffers of one allocation with the same rails, access, page size and unit ever do:
/// what lies in another allocation may be freed on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalescing {
    /// Each buffer has registrations of its own.
    None,
    /// Buffers that touch share one: no byte becomes reachable that was not asked for.
    #[default]
    Adjacent,
    /// Buffers with a gap between them share one too, and the gap becomes reachable: the plan says how many bytes.
    Gaps,
}

impl Coalescing {
    /// The largest gap that is bridged, in bytes: what a NIC maps with one entry of a huge page. Wider ones would pin more
    /// than they save.
    pub const GAP_BYTES_MAX: u64 = 2 << 20;

    /// The term in a spec.
    #[must_use]
    pub fn spec(self) -> &'static str {
        match self {
            Coalescing::None => "no-coalesce",
            Coalescing::Adjacent => "coalesce",
            Coalescing::Gaps => "coalesce=gaps",
        }
    }

    /// True if two buffers with so many bytes between them may share a registration.
    #[must_use]
    pub fn bridges(self, gap_bytes: u64) -> bool {
        match self {
            Coalescing::None => false,
            Coalescing::Adjacent => gap_bytes == 0,
            Coalescing::Gaps => gap_bytes <= Coalescing::GAP_BYTES_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gaps_bridges_gaps_and_not_wide_ones() {
        let bridges = |gap| [Coalescing::None, Coalescing::Adjacent, Coalescing::Gaps].map(|part| part.bridges(gap));
        assert_eq!(bridges(0), [false, true, true]);
        assert_eq!(bridges(1), [false, false, true]);
        assert_eq!(bridges(Coalescing::GAP_BYTES_MAX + 1), [false; 3]);
    }
}

//! Where a buffer is cut into chunks.

use std::ops::Range;

/// Cuts `extent` (addresses) into pieces of at most `max` bytes whose seams lie on `step`: see [`step`].
pub(crate) fn cut(extent: Range<u64>, max: u64, step: Step) -> impl Iterator<Item = Range<u64>> {
    let mut at = extent.start;
    std::iter::from_fn(move || {
        if at >= extent.end {
            return None;
        }
        let start = at;
        at = if extent.end - start <= max { extent.end } else { step.seam_at_or_before(start + max) };
        Some(start..at)
    })
}

/// Seams lie where `address - origin` is a multiple of `len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    origin: u64,
    len: u64,
}

impl Step {
    fn seam_at_or_before(self, address: u64) -> u64 {
        // Counted from the origin's phase, because the origin of page seams is address 0 and that of units the buffer.
        let phase = self.origin % self.len;
        (address - phase) / self.len * self.len + phase
    }
}

/// Why a buffer cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CannotCut {
    Page,
    Unit,
}

/// Where the seams of a buffer may lie when registrations have at most `max` bytes: on its pages and on the caller's
/// unit, counted from the buffer's start. Where no common boundary fits, the unit wins over the page.
pub(crate) fn step(start: u64, len: u64, page: u64, unit: Option<u64>, max: u64) -> Result<Step, CannotCut> {
    let pages = Step { origin: 0, len: page };
    if len <= max {
        return Ok(pages);
    }
    match unit {
        // The first seam is at the last page boundary within `max` of the start: at least one page fits if it starts there.
        None if pages.seam_at_or_before(start + max) <= start || max < page => Err(CannotCut::Page),
        None => Ok(pages),
        Some(unit) if unit > max => Err(CannotCut::Unit),
        Some(unit) => {
            let both = common_multiple(page, unit).filter(|&both| start.is_multiple_of(page) && both <= max);
            Ok(Step { origin: start, len: both.unwrap_or(unit) })
        }
    }
}

fn common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P: u64 = 4096;
    const MIB: u64 = 1 << 20;

    fn lens(start: u64, len: u64, page: u64, unit: Option<u64>, max: u64) -> Vec<u64> {
        let step = step(start, len, page, unit, max).unwrap();
        cut(start..start + len, max, step).map(|piece| piece.end - piece.start).collect()
    }

    #[test]
    fn seventeen_pages_at_eight_are_8_8_1() {
        assert_eq!(lens(16 * P, 17 * P, P, None, 8 * P), [8 * P, 8 * P, P]);
    }

    #[test]
    fn a_buffer_that_starts_inside_a_page_has_its_seams_on_pages_all_the_same() {
        assert_eq!(lens(P + 100, 3 * P, P, None, 2 * P), [2 * P - 100, P + 100]);
    }

    #[test]
    fn a_limit_that_is_no_multiple_of_the_page_is_rounded_down() {
        assert_eq!(lens(0x10000, 5 * P, P, None, 2 * P + 4095), [2 * P, 2 * P, P]);
    }

    #[test]
    fn less_than_a_page_cannot_be_cut() {
        assert_eq!(step(0, 4 * MIB, 2 * MIB, None, MIB), Err(CannotCut::Page));
        assert_eq!(step(0, MIB, 2 * MIB, None, MIB), Ok(Step { origin: 0, len: 2 * MIB }), "what fits needs no cut");
    }

    #[test]
    fn seams_lie_on_units_and_pages_together() {
        assert!(lens(0, 192 * MIB, 2 * MIB, Some(3 * MIB), 64 * MIB).iter().all(|len| len % (6 * MIB) == 0));
        assert_eq!(lens(0, 12 * MIB, 2 * MIB, Some(3 * MIB), 5 * MIB), [3 * MIB; 4], "no common boundary fits: the unit wins");
        assert_eq!(step(0, 12 * MIB, 2 * MIB, Some(6 * MIB), 5 * MIB), Err(CannotCut::Unit));
    }

    proptest! {
        #[test]
        fn pieces_tile_within_the_limit(start in 0u64..1 << 40, len in 1u64..1 << 24, page_shift in 12u32..22, unit in prop::option::of(1u64..1 << 20), max in 1u64..1 << 22) {
            let page = 1u64 << page_shift;
            let Ok(step) = step(start, len, page, unit, max) else { return Ok(()) };
            prop_assume!(len / max < 5_000 && unit.is_none_or(|unit| len / unit < 5_000));
            let pieces: Vec<_> = cut(start..start + len, max, step).collect();
            let mut at = start;
            for piece in &pieces {
                prop_assert_eq!(piece.start, at);
                prop_assert!(piece.end > piece.start && piece.end - piece.start <= max);
                at = piece.end;
            }
            prop_assert_eq!(at, start + len);
            for seam in pieces.iter().skip(1).map(|piece| piece.start) {
                match unit {
                    Some(unit) => prop_assert_eq!((seam - start) % unit, 0, "a unit is divided"),
                    None => prop_assert_eq!(seam % page, 0, "a page is divided"),
                }
            }
        }
    }
}

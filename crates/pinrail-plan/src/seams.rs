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
/// unit, counted from the buffer's start.
///
/// Where no common boundary fits, the unit wins over the page. A page with a seam in it is then mapped twice, and how many
/// there are does not only fall as the limit widens: that is the one case in which a wider limit may need more pages.
pub(crate) fn step(start: u64, len: u64, page: u64, unit: Option<u64>, max: u64) -> Result<Step, CannotCut> {
    let pages = Step { origin: 0, len: page };
    if len <= max {
        return Ok(pages);
    }
    match unit {
        None if max < page => Err(CannotCut::Page),
        None => Ok(pages),
        Some(unit) if unit > max => Err(CannotCut::Unit),
        Some(unit) => {
            Ok(pages_and_units(start, page, unit).filter(|both| both.len <= max).unwrap_or(Step { origin: start, len: unit }))
        }
    }
}

/// The addresses that lie on a page and, counted from `start`, on a unit; `None` where there are none within 64 bits.
fn pages_and_units(start: u64, page: u64, unit: u64) -> Option<Step> {
    // The greatest common divisor, as a page is a power of two.
    let shared = 1 << unit.trailing_zeros().min(page.trailing_zeros());
    if !start.is_multiple_of(shared) {
        return None;
    }
    let (pages, units) = (page / shared, unit / shared);
    // start + n * unit is on a page where start / shared + n * units is a multiple of `pages`. That is a power of two, so
    // n comes from the inverse of `units`, which is odd (or `pages` is 1).
    let n = (start / shared).wrapping_neg().wrapping_mul(inverse_of_odd(units)) & (pages - 1);
    Some(Step { origin: start.checked_add(n.checked_mul(unit)?)?, len: units.checked_mul(page)? })
}

/// What multiplies an odd number to 1 in 64 bits: each round of Newton's doubles the bits that are right, from three.
fn inverse_of_odd(odd: u64) -> u64 {
    (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse))))
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
        assert_eq!(lens(0, 12 * MIB, 2 * MIB, Some(3 * MIB), 3 * MIB), [3 * MIB; 4], "just one unit");
        assert_eq!(step(0, 12 * MIB, 2 * MIB, Some(6 * MIB), 5 * MIB), Err(CannotCut::Unit));
    }

    #[test]
    fn a_buffer_that_starts_inside_a_page_has_its_units_on_pages_where_it_can() {
        // Units of 3 MiB from 1 MiB on meet pages of 2 MiB at 4, 10, 16, …
        let step = step(MIB, 36 * MIB, 2 * MIB, Some(3 * MIB), 9 * MIB).unwrap();
        assert_eq!(step, Step { origin: 4 * MIB, len: 6 * MIB });
        assert_eq!(lens(MIB, 36 * MIB, 2 * MIB, Some(3 * MIB), 9 * MIB)[..3], [9 * MIB, 6 * MIB, 6 * MIB]);
        assert_eq!(pages_and_units(MIB, 2 * MIB, 4 * MIB), None, "units of whole pages that start inside one never meet one");
        assert_eq!(pages_and_units(u64::MAX - MIB + 1, 2 * MIB, 3 * MIB), None, "beyond the last address");
    }

    proptest! {
        #[test]
        fn common_boundaries_are_the_first_and_all(start in 0u64..1 << 16, page_shift in 2u32..7, unit in 1u64..200) {
            let page = 1u64 << page_shift;
            let is_common = |address: &u64| address.is_multiple_of(page) && (address - start).is_multiple_of(unit);
            let found: Vec<u64> = (start..start + 3 * page * unit).filter(is_common).take(2).collect();
            match pages_and_units(start, page, unit) {
                None => prop_assert_eq!(found, [0u64; 0]),
                Some(Step { origin, len }) => prop_assert_eq!(found, [origin, origin + len]),
            }
        }

        #[test]
        fn a_wider_limit_needs_no_more_pieces_or_pages(start in 0u64..64, len in 1u64..2_000, page_shift in 0u32..5, unit in prop::option::of(1u64..20), max in 1u64..400, more in 0u64..400) {
            let page = 1u64 << page_shift;
            // Where a common boundary would fit only into a wider limit, or into neither, the unit wins.
            prop_assume!(unit.and_then(|unit| pages_and_units(start, page, unit)).is_none_or(|both| both.len <= max));
            let needs = |max: u64| {
                let step = step(start, len, page, unit, max).ok()?;
                let pages = |piece: Range<u64>| (piece.end - 1) / page - piece.start / page + 1;
                Some(cut(start..start + len, max, step).fold((0, 0), |(n, sum), piece| (n + 1, sum + pages(piece))))
            };
            if let Some((pieces, pages)) = needs(max) {
                let wider = needs(max + more);
                prop_assert!(wider.is_some_and(|(fewer, less)| fewer <= pieces && less <= pages), "{:?} and {:?}", (pieces, pages), wider);
            }
        }

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
                    Some(unit) => {
                        prop_assert_eq!((seam - start) % unit, 0, "a unit is divided");
                        let both = pages_and_units(start, page, unit).is_some_and(|both| both.len <= max);
                        prop_assert!(!both || seam % page == 0, "a page is divided without need");
                    }
                    None => prop_assert_eq!(seam % page, 0, "a page is divided"),
                }
            }
        }
    }
}

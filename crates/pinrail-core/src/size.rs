//! Sizes in bytes, as people type and read them, and speeds as they read them.

use std::fmt;

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no size: expected decimal bytes with an optional KiB, MiB, GiB, TiB (binary) or kB, MB, GB, TB (decimal)")]
pub struct ParseSizeError {
    text: String,
}

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Reads `391MiB`, `200kB` or plain bytes. Whole numbers only: no sign, no fraction, no space.
///
/// # Errors
/// [`ParseSizeError`] for anything else, and for what exceeds 64 bits.
///
/// ```
/// assert_eq!(pinrail_core::size::parse("391MiB"), Ok(391 << 20));
/// assert_eq!(pinrail_core::size::parse("200kB"), Ok(200_000));
/// assert!(pinrail_core::size::parse("-1").is_err());
/// ```
pub fn parse(text: &str) -> Result<u64, ParseSizeError> {
    let wrong = || ParseSizeError { text: text.chars().take(40).collect() };
    let (digits, factor) =
        UNITS.iter().find_map(|(unit, factor)| text.strip_suffix(unit).map(|digits| (digits, *factor))).unwrap_or((text, 1));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(wrong)
}

/// Bytes for a person: the largest binary unit that leaves at least 1, with up to two decimals.
///
/// ```
/// use pinrail_core::size::Bytes;
/// assert_eq!(Bytes(2 << 30).to_string(), "2 GiB");
/// assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
/// assert_eq!(Bytes(2500).to_string(), "2.44 KiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((unit, factor)) = UNITS[..4].iter().rev().find(|(_, factor)| self.0 >= *factor) else {
            return write!(f, "{} B", self.0);
        };
        // Whole hundredths by integer arithmetic: the same text on every machine.
        let hundredths = u128::from(self.0) * 100 / u128::from(*factor);
        let (whole, part) = (hundredths / 100, hundredths % 100);
        match (part / 10, part % 10) {
            (0, 0) => write!(f, "{whole} {unit}"),
            (tenth, 0) => write!(f, "{whole}.{tenth} {unit}"),
            (tenth, hundredth) => write!(f, "{whole}.{tenth}{hundredth} {unit}"),
        }
    }
}

/// Megabits a second for a person: gigabits with up to one decimal, from one gigabit on.
///
/// ```
/// use pinrail_core::size::Mbps;
/// assert_eq!(Mbps(3_200_000).to_string(), "3200 Gb/s");
/// assert_eq!(Mbps(2_500).to_string(), "2.5 Gb/s");
/// assert_eq!(Mbps(100).to_string(), "100 Mb/s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mbps(pub u64);

impl fmt::Display for Mbps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 1000, self.0 % 1000 / 100) {
            (0, _) => write!(f, "{} Mb/s", self.0),
            (whole, 0) => write!(f, "{whole} Gb/s"),
            (whole, tenth) => write!(f, "{whole}.{tenth} Gb/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_whole_numbers_in_64_bits_are_sizes() {
        for text in ["", "MiB", "-1", "+1", "1.5GiB", " 1", "1 MiB", "18446744073709551616", "16777216TiB", "1mib", "0x10"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse("0"), Ok(0));
    }
}

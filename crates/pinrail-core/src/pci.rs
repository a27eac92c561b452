use std::fmt;
use std::str::FromStr;

/// The address of a PCI function: a device's identity on a machine (its index in a list never is).
///
/// Text of any case and width is read (`0000:4f:00.0`, `00000000:4F:00.0`, `4f:0.0`), with 32-bit domains as VMs
/// and VMD controllers use them; one canonical form is written: lower case, a domain of at least four digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A text that is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no PCI address: expected DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal, as in 0000:4f:00.0")]
pub struct ParsePciError {
    text: String,
}

impl PciAddress {
    /// The function at these numbers; `None` where `device` is above 31 or `function` above 7.
    #[must_use]
    pub fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<PciAddress> {
        (device < 32 && function < 8).then_some(PciAddress { domain, bus, device, function })
    }

    /// The address without its function: ports of one card share it.
    #[must_use]
    pub fn card(self) -> (u32, u8, u8) {
        (self.domain, self.bus, self.device)
    }

    /// The PCI domain (segment).
    #[must_use]
    pub fn domain(self) -> u32 {
        self.domain
    }

    /// The bus within the domain.
    #[must_use]
    pub fn bus(self) -> u8 {
        self.bus
    }

    /// The device on the bus, 0 to 31.
    #[must_use]
    pub fn device(self) -> u8 {
        self.device
    }

    /// The function of the device, 0 to 7.
    #[must_use]
    pub fn function(self) -> u8 {
        self.function
    }
}

impl FromStr for PciAddress {
    type Err = ParsePciError;

    fn from_str(text: &str) -> Result<PciAddress, ParsePciError> {
        parse(text).ok_or_else(|| ParsePciError { text: text.chars().take(40).collect() })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let device = hex(parts.next()?, 2)?;
    let bus = hex(parts.next()?, 2)?;
    let domain = match parts.next() {
        Some(domain) => hex(domain, 8)?,
        None => 0,
    };
    if parts.next().is_some() {
        return None;
    }
    PciAddress::new(domain, u8::try_from(bus).ok()?, u8::try_from(device).ok()?, u8::try_from(hex(function, 1)?).ok()?)
}

/// Only hexadecimal digits: `from_str_radix` alone would also take a sign.
fn hex(text: &str, digits_max: usize) -> Option<u32> {
    let plain = !text.is_empty() && text.len() <= digits_max && text.bytes().all(|b| b.is_ascii_hexdigit());
    if plain { u32::from_str_radix(text, 16).ok() } else { None }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn widths_and_cases_of_one_address_are_equal() {
        let canonical: PciAddress = "0000:7e:00.0".parse().unwrap();
        for text in ["00000000:7E:00.0", "0000:7E:00.0", "7e:0.0", "0:7e:00.0"] {
            assert_eq!(text.parse::<PciAddress>().unwrap(), canonical, "{text}");
        }
        assert_eq!(canonical.to_string(), "0000:7e:00.0");
    }

    #[test]
    fn domains_above_16_bits_are_kept() {
        assert_eq!("10000:01:00.0".parse::<PciAddress>().unwrap().to_string(), "10000:01:00.0");
        assert_eq!("ffffffff:01:00.0".parse::<PciAddress>().unwrap().domain(), u32::MAX);
    }

    #[test]
    fn what_is_no_address_is_said_to_be_none() {
        for text in [
            "",
            ":",
            "0000:4f:00",
            "4f",
            "0000:4f:20.0",
            "0000:4f:00.8",
            "x:0:0:0.0",
            "+1:00:00.0",
            "100000000:0:0.0",
            "0000:4f:00.0 ",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciAddress::new(domain, bus, device, function).unwrap();
            prop_assert_eq!(address.to_string().parse::<PciAddress>().unwrap(), address);
        }

        #[test]
        fn no_text_panics(text: String) {
            drop(text.parse::<PciAddress>());
        }
    }
}

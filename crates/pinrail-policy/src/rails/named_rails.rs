use std::borrow::Cow;

use pinrail_core::{Buffer, Machine};

use crate::{PolicyError, SelectRails, Selection};

/// Exactly these rails, by name or PCI address: `rails=NAME,NAME`. Obeyed as written, whatever a port's state.
#[derive(Clone, Debug)]
pub struct NamedRails(pub Vec<String>);

impl SelectRails for NamedRails {
    fn select(&self, _: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
        let find = |name: &String| {
            let unknown = || PolicyError::UnknownRail { policy: self.spec(), rail: name.clone(), have: machine.rail_names() };
            machine.rail_by_name(name).ok_or_else(unknown)
        };
        let rails = self.0.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        Ok(Selection { rails, path: None, why: Cow::Borrowed("named by the policy"), fallback: None })
    }

    fn spec(&self) -> String {
        format!("rails={}", self.0.join(","))
    }

    fn is_by_place(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinrail_core::{Memory, RailId};

    #[test]
    fn the_named_rails_in_the_named_order_and_nothing_else() {
        let buffer = Buffer::new("b", Memory::imagined(4096, 4096).unwrap(), 0..4096).unwrap();
        let machine = Machine::of_rails(3);
        let named = |names: &[&str]| NamedRails(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(named(&["rail2", "rail0"]).select(&buffer, &machine).unwrap().rails, [RailId(2), RailId(0)]);
        let error = named(&["rail2", "nosuch"]).select(&buffer, &machine).unwrap_err();
        assert_eq!(error.diagnosis().kind.as_str(), "unknown-rail");
        assert!(error.to_string().contains("rail0, rail1, rail2"), "{error}");
    }
}

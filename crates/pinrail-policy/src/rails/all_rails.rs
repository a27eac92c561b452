use pinrail_core::{Buffer, Machine};

use crate::{PolicyError, SelectRails, Selection};

/// Every rail whose port is not down: `all-rails`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllRails;

impl SelectRails for AllRails {
    fn select(&self, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
        Selection::all_usable(self, buffer, machine)
    }

    fn spec(&self) -> String {
        "all-rails".to_owned()
    }

    fn is_by_place(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinrail_core::{Memory, RailId, RailState};

    #[test]
    fn a_rail_whose_port_is_down_is_not_chosen() {
        let buffer = Buffer::new("b", Memory::imagined(4096, 4096).unwrap(), 0..4096).unwrap();
        let mut machine = Machine::of_rails(3);
        machine.rails[1].state = RailState::Down;
        assert_eq!(AllRails.select(&buffer, &machine).unwrap().rails, [RailId(0), RailId(2)]);
        for rail in &mut machine.rails {
            rail.state = RailState::Down;
        }
        let error = AllRails.select(&buffer, &machine).unwrap_err();
        assert!(error.to_string().contains("the ports of all 3 rails are down"), "{error}");
    }
}

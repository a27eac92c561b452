//! Which RDMA devices are a machine's rails.

use std::sync::Arc;

use pinrail_core::{Machine, Registrar};
use pinrail_verbs::Verbs;

use super::Opened;
use crate::error::Error;
use crate::machine::Wanted;

/// A machine's rails are found by PCI address, or by name where they have none; rails that are only counted are the first
/// devices.
pub(super) fn open(wanted: Wanted) -> Result<Opened, Error> {
    let (registrar, machine) = match wanted {
        Wanted::Count(rails) => (Verbs::open_first(rails)?, Machine::default()),
        Wanted::Machine(machine) => (Verbs::open(&machine.rails)?, machine),
    };
    let machine = Machine { rails: registrar.rails().to_vec(), ..machine };
    Ok(Opened { registrar: Arc::new(registrar), machine })
}

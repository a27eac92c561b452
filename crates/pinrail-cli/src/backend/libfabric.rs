//! Which libfabric domain is which of a machine's rails.

use std::sync::Arc;

use pinrail_core::{
    Chunk, DeregisterError, Diagnosis, ErrorKind, Identity, Machine, MoveBytes, Mr, Rail, RailId, RegisterError, Registrar,
};
use pinrail_libfabric::{Libfabric, OpenError};

use super::{Opened, tighten};
use crate::error::Error;
use crate::machine::Wanted;

/// The providers of RDMA hardware, tried in this order where none is named. Software is never a fallback: who wants it
/// names it.
const HARDWARE: [&str; 3] = ["efa", "cxi", "verbs;ofi_rxm"];

pub(super) fn open(provider: Option<&str>, wanted: Wanted) -> Result<Opened, Error> {
    match wanted {
        Wanted::Count(rails) => {
            let registrar = domains(provider, rails)?;
            let machine = Machine { rails: registrar.rails().to_vec(), ..Machine::default() };
            Ok(Opened { registrar: Arc::new(registrar), machine })
        }
        Wanted::Machine(machine) => {
            let rails = u16::try_from(machine.rails.len()).unwrap_or(u16::MAX);
            let registrar = domains(provider, rails)?;
            let mut machine = in_order_of(&registrar, machine)?;
            tighten(&mut machine, &registrar);
            let registrar = Named { rails: machine.rails.clone(), registrar };
            Ok(Opened { registrar: Arc::new(registrar), machine })
        }
    }
}

fn domains(provider: Option<&str>, rails: u16) -> Result<Libfabric, Error> {
    if let Some(provider) = provider {
        return Ok(Libfabric::open(provider, rails)?);
    }
    for provider in HARDWARE {
        match Libfabric::open(provider, rails) {
            Err(OpenError::NoProvider { .. }) => {}
            opened => return Ok(opened?),
        }
    }
    let message = format!("libfabric has no RDMA hardware here (looked for {})", HARDWARE.join(", "));
    Err(Diagnosis::new(ErrorKind::NotSupported, message).hint("name a software provider, as in libfabric:tcp").into())
}

/// The machine with its rails in the order of the domains: a device is the rail of its name or else of its PCI function;
/// a domain without a device serves as whatever rail stands in its place.
fn in_order_of(registrar: &Libfabric, machine: Machine) -> Result<Machine, Error> {
    let of = |(at, domain): (usize, &Rail)| match domain.pci {
        None => machine.rails.get(at),
        Some(pci) => {
            let by_name = machine.rails.iter().find(|rail| rail.name == domain.name);
            by_name.or_else(|| machine.rails.iter().find(|rail| rail.pci == Some(pci)))
        }
    };
    let rails: Option<Vec<Rail>> = registrar.rails().iter().enumerate().map(of).map(Option::<&Rail>::cloned).collect();
    let rails = rails.ok_or_else(|| {
        let names = |rails: &[Rail]| rails.iter().map(|rail| rail.name.as_str()).collect::<Vec<_>>().join(", ");
        let (rails, devices) = (names(&machine.rails), names(registrar.rails()));
        let message = format!("the machine's rails are {rails} and the provider's first devices are {devices}");
        Diagnosis::new(ErrorKind::UnknownRail, message).hint("describe this machine, or use --rails N")
    })?;
    Ok(Machine { rails, ..machine })
}

/// Domains under the names that their rails have on the machine.
struct Named {
    registrar: Libfabric,
    rails: Vec<Rail>,
}

impl Registrar for Named {
    fn identity(&self) -> Identity {
        self.registrar.identity()
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        self.registrar.register(rail, chunk)
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        self.registrar.deregister(mr)
    }

    fn mover(&self) -> Option<&dyn MoveBytes> {
        self.registrar.mover()
    }
}

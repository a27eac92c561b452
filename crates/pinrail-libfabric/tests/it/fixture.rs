//! A provider as the conformance suite wants it.

use std::time::Duration;

use pinrail_conformance::{Fixture, Peer, Peered, Told};
use pinrail_core::{Keys, Memory, MoveError, Mr, RailId, Registrar};
use pinrail_libfabric::{Handles, Libfabric};

use crate::ends::{Ends, Remote};
use crate::pages::{read_only, with_hole};

/// Registrars of one provider.
pub(crate) struct Provider {
    pub(crate) name: &'static str,
    pub(crate) rails: u16,
}

impl Provider {
    fn open(&self) -> Libfabric {
        Libfabric::open(self.name, self.rails).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Fixture for Provider {
    fn registrar(&self) -> Box<dyn Registrar> {
        Box::new(self.open())
    }

    fn peer(&self) -> Option<Peered> {
        let fabric = self.open();
        let handles = (0..self.rails).map(|rail| fabric.handles(RailId(rail)).unwrap()).collect();
        Some(Peered { peer: Box::new(KeyPeer(handles)), registrar: Box::new(fabric) })
    }

    fn unmapped(&self) -> Option<(Memory, u64)> {
        Some(with_hole())
    }

    fn read_only(&self) -> Option<Memory> {
        Some(read_only())
    }

    /// Several providers never answer a transfer by a bad key.
    fn patience(&self) -> Duration {
        Duration::from_millis(500)
    }
}

/// Opens endpoints of its own for every transfer.
struct KeyPeer(Vec<Handles>);

impl KeyPeer {
    fn ends(&self, told: &Told) -> Ends {
        Ends::on(self.0[told.rail.index()])
    }
}

fn remote(told: &Told, at: u64) -> Remote {
    let key = u64::from_ne_bytes(told.keys.remote.as_slice().try_into().unwrap());
    Remote { at: told.base + at, key }
}

impl Peer for KeyPeer {
    fn told(&self, mr: &Mr) -> Told {
        Told { rail: mr.rail(), keys: mr.keys().clone(), base: Libfabric::remote_base(mr).unwrap() }
    }

    fn wrong(&self, told: &Told) -> Told {
        let mut remote = told.keys.remote.clone();
        // Far from any that a counter has reached.
        remote[1] ^= 0x5a;
        Told { keys: Keys { remote, ..told.keys.clone() }, ..told.clone() }
    }

    fn write(&self, told: &Told, at: u64, from: &[u8], wait: Duration) -> Result<(), MoveError> {
        self.ends(told).write(from, remote(told, at), wait)
    }

    fn read(&self, told: &Told, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError> {
        self.ends(told).read(into, remote(told, at), wait)
    }
}

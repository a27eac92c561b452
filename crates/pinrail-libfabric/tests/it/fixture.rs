//! A provider as the conformance suite wants it.

use std::cell::RefCell;
use std::collections::BTreeMap;
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
    /// How long a transfer is waited for that should succeed.
    pub(crate) wait: Duration,
    /// How long a transfer is waited for that should be refused.
    pub(crate) patience: Duration,
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
        Some(Peered { peer: Box::new(KeyPeer { handles, open: RefCell::default() }), registrar: Box::new(fabric) })
    }

    fn unmapped(&self) -> Option<(Memory, u64)> {
        Some(with_hole())
    }

    fn read_only(&self) -> Option<Memory> {
        Some(read_only())
    }

    fn wait(&self) -> Duration {
        self.wait
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

/// Has two endpoints of its own on every rail, until a transfer fails.
struct KeyPeer {
    handles: Vec<Handles>,
    open: RefCell<BTreeMap<RailId, Ends>>,
}

impl KeyPeer {
    /// A connection may have been broken off by the transfer before, which was told that all is well (tcp does that):
    /// what fails on old endpoints is tried on new ones.
    fn transfer(&self, rail: RailId, mut transfer: impl FnMut(Ends) -> Result<Ends, MoveError>) -> Result<(), MoveError> {
        let ends = self.open.borrow_mut().remove(&rail);
        let done = match ends.map(&mut transfer) {
            Some(Ok(ends)) => Ok(ends),
            Some(Err(error)) if error.is_timeout() => Err(error),
            Some(Err(_)) | None => transfer(Ends::on(self.handles[rail.index()])),
        };
        self.open.borrow_mut().insert(rail, done?);
        Ok(())
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
        self.transfer(told.rail, |ends| ends.write(from, remote(told, at), wait))
    }

    fn read(&self, told: &Told, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError> {
        self.transfer(told.rail, |ends| ends.read(into, remote(told, at), wait))
    }
}

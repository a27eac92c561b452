//! The suite for any registrar, on the fake: what no software provider does, above all to fail.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use pinrail_conformance::{DmaBuf, EXPECTED, Expected, Failing, Fixture, Peer, Peered, Told, run};
use pinrail_core::{Access, Chunk, Keys, Memory, MoveError, Mr, RailId, Registrar, Source};

use super::fake::Fake;
use super::pages::{pages, read_only, with_hole};
use crate::Libfabric;
use crate::deadline::Deadline;
use crate::domain::Domain;
use crate::info::MR_MODE;
use crate::pair::{Bytes, Pair};

const PAGE: u64 = 4096;

/// Everything that can be asked of a registration, and room for a few.
fn fake() -> Fake {
    let fake = Fake::with(MR_MODE, |domain| domain.mr_cnt = 600);
    fake.inner().pins = true;
    fake
}

struct Fakes;

impl Fixture for Fakes {
    fn registrar(&self) -> Box<dyn Registrar> {
        Box::new(fake().opened())
    }

    fn peer(&self) -> Option<Peered> {
        let fabric = fake().opened();
        Some(Peered { peer: Box::new(KeyPeer(fabric.domains.clone())), registrar: Box::new(fabric) })
    }

    fn unmapped(&self) -> Option<(Memory, u64)> {
        Some(with_hole())
    }

    fn read_only(&self) -> Option<Memory> {
        Some(read_only())
    }

    /// The fake takes no dma-buf, whatever the headers know of them.
    fn dma_buf(&self) -> Option<DmaBuf> {
        let fd = File::open("/dev/null").unwrap().into();
        Some(DmaBuf { memory: pages(PAGE), fd: Arc::new(fd), offset: 0 })
    }

    fn failing_deregistration(&self) -> Option<Failing> {
        let mut fake = fake();
        let registrar = fake.opened();
        // The domain that it lends could not be closed any more when there is an MR.
        fake.close();
        let memory = pages(PAGE);
        let chunk = Chunk { memory: &memory, range: 0..PAGE, access: Access::FULL, source: &Source::Address };
        let mr = registrar.register(RailId(0), &chunk).unwrap();
        fake.inner().close.push_back(libc::EBUSY);
        Some(Failing { mr, repair: Box::new(|| {}), registrar: Box::new(registrar) })
    }
}

/// Names keys without an MR that could keep it from that.
struct KeyPeer(Vec<Arc<Domain>>);

impl KeyPeer {
    fn transfer(&self, told: &Told, at: u64, bytes: Bytes<'_>, wait: Duration) -> Result<(), MoveError> {
        let (domain, deadline) = (&self.0[told.rail.index()], Deadline::after(wait));
        let pair = Pair::open(domain, &deadline)?;
        pair.transfer(domain, told.base, &told.keys.remote, told.base + at, bytes, &deadline).map(drop)
    }
}

impl Peer for KeyPeer {
    fn told(&self, mr: &Mr) -> Told {
        Told { rail: mr.rail(), keys: mr.keys().clone(), base: Libfabric::remote_base(mr).unwrap() }
    }

    fn wrong(&self, told: &Told) -> Told {
        let mut remote = told.keys.remote.clone();
        remote[20] ^= 0x5a;
        Told { keys: Keys { remote, ..told.keys.clone() }, ..told.clone() }
    }

    fn write(&self, told: &Told, at: u64, from: &[u8], wait: Duration) -> Result<(), MoveError> {
        self.transfer(told, at, Bytes::In(from), wait)
    }

    fn read(&self, told: &Told, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError> {
        self.transfer(told, at, Bytes::Out(into), wait)
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the table, for who asks for it with --nocapture")]
fn every_check_ends_as_the_table_says() {
    let report = run(Fakes, Duration::from_secs(60));
    println!("{report}");
    let expected = Expected::column(EXPECTED, "libfabric:fake").unwrap();
    report.against(&expected).unwrap_or_else(|unexpected| panic!("{unexpected}"));
}

//! What each provider does with a key that must not work. The cells are facts about libfabric, of one version of
//! it; another result fails the test, whichever way it differs.

use std::time::Duration;

use pinrail_core::{Access, Chunk, RailId, Registrar, Source};

use super::pages::pages;
use crate::Libfabric;
use crate::deadline::Deadline;
use crate::ffi;
use crate::pair::{Bytes, Pair};

const RAIL: RailId = RailId(0);
const WAIT: Duration = Duration::from_secs(20);
/// Long enough for a refusal on one machine, by orders of magnitude.
const PATIENCE: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Refused with this errno.
    Refused(i32),
    /// Neither refused nor done.
    Never,
    Done,
}

#[derive(Clone, Copy, Debug)]
enum Bad {
    WrongKey,
    StaleKey,
    PastTheEnd,
    WithoutAccess,
}

fn attempt(fabric: &Libfabric, bad: Bad) -> Ended {
    let memory = pages(1 << 16);
    let access = if let Bad::WithoutAccess = bad { Access::REMOTE_READ } else { Access::FULL };
    let chunk = Chunk { memory: &memory, range: 4000..60_000, access, source: &Source::Address };
    let mut mr = fabric.register(RAIL, &chunk).unwrap();
    let base = fabric.remote_base(&mr).unwrap();
    let key = u64::from_ne_bytes(mr.keys().remote.as_slice().try_into().unwrap());
    let (key, at) = match bad {
        Bad::WrongKey => (key ^ 0x5a5a, base),
        Bad::PastTheEnd => (key, base + 55_998),
        Bad::StaleKey | Bad::WithoutAccess => (key, base),
    };
    if let Bad::StaleKey = bad {
        fabric.deregister(&mut mr).unwrap();
    }
    let domain = &fabric.domains[RAIL.index()];
    let mut pair = Pair::open(domain, &Deadline::after(WAIT)).unwrap();
    let ended = match pair.transfer(domain, base, &key.to_ne_bytes(), at, Bytes::In(b"evil"), &Deadline::after(PATIENCE)) {
        Ok(()) => Ended::Done,
        Err(error) if error.is_timeout() => Ended::Never,
        Err(error) => Ended::Refused(error.errno.unwrap()),
    };
    drop(pair);
    for untouched in [4000, 4000 + 55_998] {
        let mut seen = [1; 4];
        memory.read_at(untouched, &mut seen).unwrap();
        assert_eq!(seen, [0; 4], "{bad:?}: memory was written that the key does not cover");
    }
    if mr.is_live() {
        // The failure is over with its endpoints: the registration serves the next transfer.
        fabric.mover().unwrap().read(&mr, 0, &mut [0; 4], WAIT).unwrap();
        fabric.deregister(&mut mr).unwrap();
    }
    ended
}

/// What the wrong key, the stale key, the address past the end and the access that was not granted come to.
type Cells = [Ended; 4];

const BROKEN_OFF: Cells = [Ended::Refused(libc::ECANCELED); 4];
const DENIED: Cells = [Ended::Refused(libc::EACCES); 4];
const NEVER: Cells = [Ended::Never; 4];

type Providers = [(&'static str, Cells)];

/// For each version that was tried, the oldest first.
const EXPECTED: [((u32, u32), &Providers); 2] = [
    (
        (1, 17),
        &[
            // Reported as done, though delivery-complete was asked for: a completion alone proves nothing here.
            ("tcp", [Ended::Done; 4]),
            // The connection is broken off, and that is all the local end is told.
            ("tcp;ofi_rxm", BROKEN_OFF),
            ("shm", NEVER),
            ("sockets", DENIED),
            ("udp;ofi_rxd", NEVER),
        ],
    ),
    ((2, 1), &[("tcp", BROKEN_OFF), ("tcp;ofi_rxm", BROKEN_OFF), ("shm", NEVER), ("sockets", DENIED), ("udp;ofi_rxd", NEVER)]),
];

#[test]
fn a_key_that_must_not_work_does_not() {
    let bad = [Bad::WrongKey, Bad::StaleKey, Bad::PastTheEnd, Bad::WithoutAccess];
    let version = ffi::library();
    // A version between those that were tried is expected to do as the older one does.
    let known = EXPECTED.iter().rev().find(|(tried, _)| *tried <= version);
    let (tried, cells) = known.expect("libfabric 1.17 or newer");
    for (provider, expected) in *cells {
        let fabric = Libfabric::open(provider, 1).unwrap();
        let seen = bad.map(|bad| attempt(&fabric, bad));
        assert_eq!(seen, *expected, "{provider} of libfabric {version:?}, expected as of {tried:?}: {bad:?}");
    }
}

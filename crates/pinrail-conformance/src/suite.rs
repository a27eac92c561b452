//! The list of checks, and how they are run.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::checks::{bytes, errors, keys, lifetime, load, memory, refusals};
use crate::{Expected, Fixture, Unexpected};

/// One promise of the contract, and how it is tried.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name in tables.
    pub name: &'static str,
    /// What a pass means.
    pub promise: &'static str,
    pub(crate) run: fn(&dyn Fixture) -> Tried,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The promise is kept.
    Pass,
    /// Something weaker, which the contract leaves to the provider, in a word.
    Weaker(&'static str),
    /// It could not be tried, and what was missing.
    Skip(&'static str),
    /// The contract is broken, and how.
    Fail(String),
}

/// An outcome, or by `?` how the contract was broken.
pub(crate) type Tried = Result<Outcome, String>;

/// Every check, in the order in which they are run and listed.
pub const CHECKS: &[Check] = &[
    Check {
        name: "zero-length",
        promise: "a chunk of no bytes is refused before any call, as zero-length",
        run: refusals::zero_length,
    },
    Check {
        name: "outside-memory",
        promise: "a range outside its memory is refused before any call",
        run: refusals::outside_memory,
    },
    Check {
        name: "imagined-memory",
        promise: "memory without bytes is refused before any call, as not-supported",
        run: refusals::imagined_memory,
    },
    Check { name: "unknown-rail", promise: "a rail that is not there is refused", run: refusals::unknown_rail },
    Check {
        name: "mr-size",
        promise: "a byte more than max_mr_size is refused before any call, as mr-size with the limit",
        run: refusals::mr_size,
    },
    Check {
        name: "bytes",
        promise: "bytes go both ways at both ends of an MR and over a seam, on every rail",
        run: bytes::both_ways,
    },
    Check { name: "one-byte", promise: "a chunk of one byte is registered, and bytes go both ways", run: bytes::one_byte },
    Check {
        name: "same-start",
        promise: "two MRs that start at one address are two, however long, and one outlives the other",
        run: bytes::same_start,
    },
    Check {
        name: "around",
        promise: "a transfer of a whole MR leaves the bytes around it as they were",
        run: bytes::nothing_around,
    },
    Check { name: "move-outside", promise: "a transfer that leaves its MR is refused by the mover", run: bytes::move_outside },
    Check {
        name: "move-against-access",
        promise: "an MR that grants no write is not written to by the mover",
        run: bytes::against_access,
    },
    Check { name: "unique-keys", promise: "no two live MRs of one rail have the same key", run: keys::unique },
    Check { name: "wrong-key-write", promise: "a peer's write by a wrong key is rejected", run: keys::wrong_write },
    Check { name: "wrong-key-read", promise: "a peer's read by a wrong key is rejected", run: keys::wrong_read },
    Check { name: "stale-key-write", promise: "a peer's write by a deregistered key is rejected", run: keys::stale_write },
    Check { name: "stale-key-read", promise: "a peer's read by a deregistered key is rejected", run: keys::stale_read },
    Check { name: "out-of-range-write", promise: "a peer's write over an MR's end is rejected", run: keys::out_of_range_write },
    Check { name: "out-of-range-read", promise: "a peer's read over an MR's end is rejected", run: keys::out_of_range_read },
    Check {
        name: "unmapped-memory",
        promise: "a range with a hole is refused, as unmapped with the first address of the hole",
        run: memory::unmapped,
    },
    Check {
        name: "read-only-memory",
        promise: "memory that cannot be written is refused for writing, as protection",
        run: memory::read_only_for_writing,
    },
    Check {
        name: "read-only-for-reading",
        promise: "memory that cannot be written is registered for reading, and read",
        run: memory::read_only_for_reading,
    },
    Check { name: "dma-buf", promise: "memory is registered by its dma-buf, and bytes go both ways", run: memory::dma_buf },
    Check { name: "api-and-errno", promise: "what the provider refuses names its API and errno", run: errors::api_and_errno },
    Check { name: "retired-mr", promise: "an MR is deregistered and moved through once and no more", run: lifetime::retired },
    Check { name: "foreign-mr", promise: "another registrar's MR is refused and stays live", run: lifetime::foreign },
    Check {
        name: "failed-deregistration",
        promise: "a deregistration that fails gives the MR back, live, and can be tried again",
        run: lifetime::failed_deregistration,
    },
    Check {
        name: "dropped-registrar",
        promise: "MRs outlive their registrar, and one that is dropped live keeps its memory mapped",
        run: lifetime::dropped_registrar,
    },
    Check {
        name: "eight-threads",
        promise: "eight threads register, move and deregister on one rail at once",
        run: load::eight_threads,
    },
    Check {
        name: "many-mrs",
        promise: "20000 MRs live on one rail; or as many as it allows, one more is refused as mr-count, and one freed is free",
        run: load::many_mrs,
    },
];

impl Check {
    /// Tries it, on a thread of its own, for at most `limit`. A panic is a failure, and so is a call that does not
    /// return; its thread is abandoned then, with what it holds.
    pub fn run(&self, fixture: &Arc<dyn Fixture>, limit: Duration) -> Outcome {
        let (send, receive) = mpsc::channel();
        let (run, fixture) = (self.run, Arc::clone(fixture));
        let tried = move || drop(send.send(run(fixture.as_ref())));
        let thread = match thread::Builder::new().name(self.name.to_owned()).spawn(tried) {
            Ok(thread) => thread,
            Err(error) => return Outcome::Fail(format!("no thread could be had: {error}")),
        };
        match receive.recv_timeout(limit) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(broken)) => Outcome::Fail(broken),
            Err(mpsc::RecvTimeoutError::Timeout) => Outcome::Fail(format!("it did not end within {} s", limit.as_secs_f32())),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Outcome::Fail(format!("it panicked: {}", thread.join().map_or_else(|panic| text_of(&*panic), |()| String::new())))
            }
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Runs every check, each for at most `limit`.
pub fn run(fixture: impl Fixture, limit: Duration) -> Report {
    let fixture: Arc<dyn Fixture> = Arc::new(fixture);
    Report { outcomes: CHECKS.iter().map(|check| (check, check.run(&fixture, limit))).collect() }
}

/// How every check ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// By check, in the order of [`CHECKS`].
    pub outcomes: Vec<(&'static Check, Outcome)>,
}

impl Report {
    /// Holds the outcomes against what is expected: anything else is an error, a new skip and an unknown row included.
    ///
    /// # Errors
    /// What differs, check by check.
    pub fn against(&self, expected: &Expected) -> Result<(), Unexpected> {
        Unexpected::between(self, expected)
    }
}

impl Outcome {
    /// The cell of a table: `pass`, a word for what is weaker, `skip: ` with what was missing, or `fail`.
    #[must_use]
    pub fn cell(&self) -> String {
        match self {
            Outcome::Pass => "pass".to_owned(),
            Outcome::Weaker(word) => (*word).to_owned(),
            Outcome::Skip(missing) => format!("skip: {missing}"),
            Outcome::Fail(_) => "fail".to_owned(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Fail(why) => write!(f, "fail: {why}"),
            other => f.write_str(&other.cell()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcomes.iter().try_for_each(|(check, outcome)| writeln!(f, "{:<24} {outcome}", check.name))
    }
}

use std::time::Duration;

use crate::{Chunk, DeregisterError, MoveError, Mr, Rail, RailId, RegisterError};

/// A fabric that registers memory: the contract every backend fulfils.
///
/// Calls block (each is a system call or a driver call) and may come from many threads at once, on one rail never more
/// than its [`Rail::calls_in_parallel`]. A registrar never retries, never waits for another call and never spawns;
/// `pinrail-conformance` is the suite that any implementation can run on itself.
pub trait Registrar: Send + Sync {
    /// What runs here, for records: a bench must be able to say what it measured.
    fn identity(&self) -> Identity;

    /// The rails that can register, with their limits as the provider states them. [`RailId`] indexes this list.
    fn rails(&self) -> &[Rail];

    /// Registers one chunk on one rail.
    ///
    /// # Errors
    /// The provider's API and errno, and a cause that was checked, not guessed. Nothing is registered then.
    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError>;

    /// Deregisters. On success the MR is retired ([`Mr::retire`]); on failure the caller still has it, live, to retry
    /// or to quarantine. A retired MR, and one of another registrar, is an error that changes nothing.
    ///
    /// # Errors
    /// The provider's API and errno.
    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError>;

    /// How to move bytes through an MR, where the backend can do that by itself.
    fn mover(&self) -> Option<&dyn MoveBytes> {
        None
    }
}

/// What a registrar is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The backend's name on the command line: `uring`, `libfabric`, `verbs`, `sim`.
    pub backend: String,
    /// The provider within it, as the provider calls itself.
    pub provider: String,
    /// Name and version of the library or kernel that does the work.
    pub library: String,
}

/// Moves bytes through an MR over the rail it is registered on: how `--verify` and the conformance suite prove that a
/// key reaches the memory it was given for. `at` counts from the MR's first byte.
pub trait MoveBytes: Send + Sync {
    /// Writes into the memory, as a peer would with the MR's remote key.
    ///
    /// # Errors
    /// What the transfer reported; [`MoveError::is_timeout`] when nothing came within `wait`.
    fn write(&self, mr: &Mr, at: u64, from: &[u8], wait: Duration) -> Result<(), MoveError>;

    /// Reads out of the memory, as a peer would with the MR's remote key.
    ///
    /// # Errors
    /// As [`MoveBytes::write`].
    fn read(&self, mr: &Mr, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError>;
}

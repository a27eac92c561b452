use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use io_uring::{opcode, squeue, types};
use pinrail_core::{Cause, MoveBytes, MoveError, Mr, errno_name};

use crate::queue::Failure;
use crate::sys;
use crate::uring::{Token, Uring};

const READ_FIXED: &str = "io_uring READ_FIXED";
const WRITE_FIXED: &str = "io_uring WRITE_FIXED";
const STAGING: &str = "memfd_create";

/// Bytes go through a file in memory: into the MR by `READ_FIXED`, out of it by `WRITE_FIXED`, both on the MR's own
/// ring and by its slot. So they pass through the pages that the registration pinned, and it is the kernel that refuses
/// a slot or an offset that is wrong.
///
/// `wait` bounds the turn on the ring and the transfer together. A transfer that ran out of time may still happen;
/// until it has, the MR's deregistration is refused with [`Cause::Busy`].
impl MoveBytes for Uring {
    fn write(&self, mr: &Mr, at: u64, from: &[u8], wait: Duration) -> Result<(), MoveError> {
        let token = self.live(READ_FIXED, mr)?;
        if !token.access.writes() {
            let why = "the MR does not allow writing (local-write)".into();
            return Err(MoveError::new(READ_FIXED, None, Cause::Access { asked: "write".into(), why }));
        }
        let file =
            sys::memory_file().and_then(|file| file.write_all_at(from, 0).map(|()| file)).map_err(|error| staging(&error))?;
        let (len, index, fd) = (length(READ_FIXED, from.len())?, index(READ_FIXED, token.slot)?, types::Fd(file.as_raw_fd()));
        let entry = opcode::ReadFixed::new(fd, address(mr, at), len, index).build();
        transfer(READ_FIXED, token, entry, (mr, at, len), wait)
    }

    fn read(&self, mr: &Mr, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError> {
        let token = self.live(WRITE_FIXED, mr)?;
        let file = sys::memory_file().map_err(|error| staging(&error))?;
        let (len, index, fd) = (length(WRITE_FIXED, into.len())?, index(WRITE_FIXED, token.slot)?, types::Fd(file.as_raw_fd()));
        let entry = opcode::WriteFixed::new(fd, address(mr, at), len, index).build();
        transfer(WRITE_FIXED, token, entry, (mr, at, len), wait)?;
        file.read_exact_at(into, 0).map_err(|error| staging(&error))
    }
}

impl Uring {
    fn live<'m>(&self, api: &'static str, mr: &'m Mr) -> Result<&'m Token, MoveError> {
        self.token(mr).ok_or_else(|| MoveError::new(api, None, Cause::NotOurs))
    }
}

/// Where a fixed buffer's request starts. Wrapping, because addresses are: no `at` outside the MR gets back into it.
fn address(mr: &Mr, at: u64) -> *mut u8 {
    let address = mr.extent().start().wrapping_add(at);
    // Only a number for the kernel, which compares it with the slot's range.
    std::ptr::without_provenance_mut(usize::try_from(address).expect("the crate builds for 64 bits only"))
}

fn length(api: &'static str, len: usize) -> Result<u32, MoveError> {
    u32::try_from(len)
        .map_err(|_| other(api, None, format!("a request moves at most {} bytes and {len} were asked for", u32::MAX)))
}

fn index(api: &'static str, slot: u32) -> Result<u16, MoveError> {
    u16::try_from(slot).map_err(|_| other(api, None, format!("a request names slots up to {} and the MR has {slot}", u16::MAX)))
}

fn transfer(
    api: &'static str,
    token: &Token,
    entry: squeue::Entry,
    (mr, at, len): (&Mr, u64, u32),
    wait: Duration,
) -> Result<(), MoveError> {
    let Some(queue) = token.ring.queue() else {
        let what = "the ring's queues are the caller's".into();
        return Err(MoveError::new(api, None, Cause::NotSupported { what }));
    };
    // SAFETY: the entry moves bytes between our file, open in our caller's frame, and the fixed buffer in the MR's slot.
    // The MR is live and borrowed, so that buffer is its memory; writing to it was checked against its access; and a
    // transfer that outlives this call keeps the MR from being deregistered.
    match unsafe { queue.transfer(entry, token.slot, wait) } {
        Ok(moved) if u32::try_from(moved) == Ok(len) => Ok(()),
        Ok(refused @ ..0) => {
            let errno = -refused;
            let what = format!("the kernel refuses {len} bytes at offset {at} of {mr:?} ({})", errno_name(errno));
            Err(other(api, Some(errno), what))
        }
        Ok(moved) => Err(other(api, None, format!("{moved} of {len} bytes were moved"))),
        Err(Failure::Timeout) => {
            let waited_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            Err(MoveError::new(api, None, Cause::Timeout { waited_ms }))
        }
        Err(Failure::Enter(errno)) => {
            Err(other("io_uring_enter", Some(errno), "the call failed before the transfer had ended".into()))
        }
        Err(Failure::Stuck) => {
            let what = "the kernel took no request earlier, and it is still in the ring's queue: open a new ring".into();
            Err(other("io_uring_enter", None, what))
        }
    }
}

fn staging(error: &io::Error) -> MoveError {
    other(STAGING, error.raw_os_error(), format!("the file in memory that bytes go through: {error}"))
}

fn other(api: &'static str, errno: Option<i32>, what: String) -> MoveError {
    MoveError::new(api, errno, Cause::Other { what })
}

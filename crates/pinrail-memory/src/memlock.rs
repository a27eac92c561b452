use std::fs;
use std::io;

use pinrail_core::{Cause, PinsCounted};

use crate::sys::{self, Limited};

/// How much memory this process may pin, and how much it has pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memlock {
    /// The limit in force, bytes; `None` is no limit.
    pub soft_bytes: Option<u64>,
    /// How far the process may raise it by itself, bytes; `None` is no limit.
    pub hard_bytes: Option<u64>,
    /// Bytes that drivers have pinned for this process (`VmPin`; each page counts whole, a huge page wholly). Falls up to
    /// 20 ms after a ring was closed.
    pub pinned_bytes: u64,
    /// True if the limit does not apply: CAP_IPC_LOCK is effective, in the initial user namespace (in another one the
    /// capability exempts from nothing).
    pub exempt: bool,
}

impl Memlock {
    /// Reads limit and use.
    ///
    /// # Errors
    /// What `getrlimit` or reading `/proc/self/status` reported.
    pub fn read() -> io::Result<Memlock> {
        let limit = sys::limit(Limited::Memlock)?;
        let status = fs::read_to_string("/proc/self/status")?;
        let capabilities = u64::from_str_radix(field(&status, "CapEff")?, 16).map_err(|_| missing("CapEff"))?;
        let initial = fs::read_link("/proc/self/ns/user").is_ok_and(|link| link.as_os_str() == INITIAL_USER_NAMESPACE);
        let finite = |bytes| (bytes != libc::RLIM_INFINITY).then_some(bytes);
        Ok(Memlock {
            soft_bytes: finite(limit.rlim_cur),
            hard_bytes: finite(limit.rlim_max),
            pinned_bytes: status_kib(&status, "VmPin")? * 1024,
            exempt: capabilities & CAP_IPC_LOCK != 0 && initial,
        })
    }

    /// Raises the soft limit to the hard one, for this process and what it will start, and reads again.
    ///
    /// # Errors
    /// What `setrlimit` reported.
    pub fn raise_soft() -> io::Result<Memlock> {
        let limit = sys::limit(Limited::Memlock)?;
        sys::set_memlock(&libc::rlimit { rlim_cur: limit.rlim_max, ..limit })?;
        Memlock::read()
    }

    /// Refuses what certainly cannot be pinned, before any call; what may fit is left to the kernel to decide. `need_bytes`
    /// counts each page as often as it will be pinned, and whole.
    ///
    /// Pins counted for the user include those of other processes, which nobody can see, and those of this process may
    /// be charged to another user: only a need that alone exceeds the limit is refused.
    ///
    /// # Errors
    /// [`Cause::Memlock`].
    pub fn precheck(&self, need_bytes: u64, counted: PinsCounted) -> Result<(), Cause> {
        let Some(limit) = self.soft_bytes.filter(|_| !self.exempt) else { return Ok(()) };
        let certain = match counted {
            PinsCounted::Process => self.pinned_bytes.saturating_add(need_bytes),
            PinsCounted::User => need_bytes,
            PinsCounted::Nothing | PinsCounted::Unknown => return Ok(()),
        };
        if certain > limit { Err(self.cause(need_bytes, counted)) } else { Ok(()) }
    }

    /// The limit as a cause, for a call that has failed with `ENOMEM`.
    #[must_use]
    pub fn cause(&self, need_bytes: u64, counted: PinsCounted) -> Cause {
        Cause::Memlock {
            limit: self.soft_bytes.unwrap_or(u64::MAX),
            held: self.pinned_bytes,
            need: need_bytes,
            others_unknown: counted == PinsCounted::User,
        }
    }
}

const CAP_IPC_LOCK: u64 = 1 << 14;

/// `PROC_USER_INIT_INO` of linux/proc_ns.h: the number is part of the kernel's interface. A `uid_map` of identity would
/// not do: a namespace below may have the same.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

fn field<'s>(status: &'s str, name: &str) -> io::Result<&'s str> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim).ok_or_else(|| missing(name))
}

fn status_kib(status: &str, name: &str) -> io::Result<u64> {
    field(status, name)?.strip_suffix(" kB").and_then(|kib| kib.parse().ok()).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/self/status has no {name} as expected"))
}

/// Bytes this process has locked itself with `mlock` (`VmLck`).
pub(crate) fn locked_bytes() -> io::Result<u64> {
    status_kib(&fs::read_to_string("/proc/self/status")?, "VmLck").map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITED: Memlock = Memlock { soft_bytes: Some(100), hard_bytes: Some(100), pinned_bytes: 40, exempt: false };

    #[test]
    fn only_what_certainly_cannot_fit_is_refused() {
        // Our own pins count for certain only where the process is charged.
        assert_eq!(LIMITED.precheck(60, PinsCounted::Process), Ok(()));
        let refused = Cause::Memlock { limit: 100, held: 40, need: 61, others_unknown: false };
        assert_eq!(LIMITED.precheck(61, PinsCounted::Process), Err(refused));
        assert_eq!(LIMITED.precheck(100, PinsCounted::User), Ok(()));
        assert!(LIMITED.precheck(101, PinsCounted::User).is_err());
        for never in [PinsCounted::Nothing, PinsCounted::Unknown] {
            assert_eq!(LIMITED.precheck(u64::MAX, never), Ok(()));
        }
    }

    #[test]
    fn no_limit_and_the_capability_refuse_nothing() {
        for free in [Memlock { exempt: true, ..LIMITED }, Memlock { soft_bytes: None, ..LIMITED }] {
            assert_eq!(free.precheck(u64::MAX, PinsCounted::Process), Ok(()));
            assert_eq!(free.precheck(u64::MAX, PinsCounted::User), Ok(()));
        }
        assert!(LIMITED.precheck(u64::MAX, PinsCounted::Process).is_err(), "no overflow");
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "Name:\tVmPin\nVmPinned:\t   9 kB\nVmPin:\t     12 kB\nCapEff:\t000001fffeffffff\n";
        assert_eq!(status_kib(status, "VmPin").unwrap(), 12);
        assert_eq!(field(status, "CapEff").unwrap(), "000001fffeffffff");
        assert!(field(status, "Vm").is_err());
    }
}

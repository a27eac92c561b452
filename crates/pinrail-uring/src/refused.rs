//! Why a ring could not be had. The kernel answers a switched-off io_uring, a seccomp filter and a security module with
//! the same `EPERM`, so the answer is read together with what the system says about itself.

use std::fs;
use std::io;

use pinrail_core::{Cause, Diagnosis, ErrorKind, PinsCounted, errno_name};
use pinrail_memory::Memlock;

use crate::sys;

/// Why a registrar on io_uring could not be opened, and what was checked to say so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The administrator switched io_uring off for this process.
    #[error("io_uring is switched off: kernel.io_uring_disabled is {value}{}", whom(*.value, *.group))]
    Sysctl {
        /// The sysctl: 1 keeps io_uring for CAP_SYS_ADMIN and one group, 2 for nobody.
        value: u8,
        /// `kernel.io_uring_group`, where there is one.
        group: Option<u32>,
    },
    /// A seccomp filter of this thread refuses the call: the default profiles of container runtimes do.
    #[error("a seccomp filter refuses {api} ({}, errno {errno}) though the kernel offers io_uring", errno_name(*.errno))]
    Seccomp {
        /// The call.
        api: &'static str,
        /// What the filter answers.
        errno: i32,
    },
    /// Refused, and neither by the sysctl nor by seccomp.
    #[error("{api} is not permitted ({}, errno {errno}): kernel.io_uring_disabled and seccomp allow it, a security module may not", errno_name(*.errno))]
    NotPermitted {
        /// The call.
        api: &'static str,
        /// Its errno.
        errno: i32,
    },
    /// The kernel is older than what this crate needs.
    #[error("Linux {release} has no {what}, which came with Linux {since}")]
    OldKernel {
        /// The running kernel.
        release: String,
        /// What is missing.
        what: &'static str,
        /// The first release that has it.
        since: &'static str,
    },
    /// The kernel is new enough and was built without io_uring.
    #[error("Linux {release} was built without io_uring (CONFIG_IO_URING)")]
    NotBuilt {
        /// The running kernel.
        release: String,
    },
    /// No descriptor is left.
    #[error("no descriptor is left for ring {ring} of {rings}: {}", descriptors(*.limit))]
    Descriptors {
        /// The ring that failed, counted from 1.
        ring: usize,
        /// Rings that were asked for.
        rings: usize,
        /// The process's soft limit; `None` where the whole system's is reached.
        limit: Option<u64>,
    },
    /// The kernel has no memory for a ring, and memlock applies: recent kernels charge the queues to the user, as they
    /// charge pins (two pages a ring, tried on 6.18).
    #[error("io_uring_setup: no memory for ring {ring} of {rings} (ENOMEM, errno {}): {cause}", libc::ENOMEM)]
    Memlock {
        /// The ring that failed, counted from 1.
        ring: usize,
        /// Rings that were asked for.
        rings: usize,
        /// [`Cause::Memlock`].
        cause: Cause,
    },
    /// The kernel has no memory for a ring, and memlock is not why.
    #[error("{api}: no memory for ring {ring} of {rings} ({}, errno {errno})", errno_name(*.errno))]
    Memory {
        /// The call.
        api: &'static str,
        /// Its errno.
        errno: i32,
        /// The ring that failed, counted from 1.
        ring: usize,
        /// Rings that were asked for.
        rings: usize,
    },
    /// A caller's ring does not take registrations in the slots that were said to be free.
    #[error("the ring for rail {rail:?} does not take slot {slot}: {what}")]
    CallersRing {
        /// The rail's name.
        rail: String,
        /// The slot that was tried.
        slot: u32,
        /// What the kernel answered.
        what: String,
    },
    /// Anything else, as the kernel said it.
    #[error("{api} failed: {what}")]
    Other {
        /// The call.
        api: &'static str,
        /// What was said.
        what: String,
    },
}

fn whom(value: u8, group: Option<u32>) -> String {
    match (value, group) {
        (2.., _) => " (nobody may use it)".to_owned(),
        (_, Some(group)) => format!(" (only CAP_SYS_ADMIN and group {group} may use it)"),
        (_, None) => " (only CAP_SYS_ADMIN may use it)".to_owned(),
    }
}

fn descriptors(limit: Option<u64>) -> String {
    limit.map_or_else(|| "the whole system's limit fs.file-max is reached".to_owned(), |n| format!("RLIMIT_NOFILE is {n}"))
}

impl OpenError {
    /// The refusal as a user meets it, with what to do about it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let (kind, hint) = match *self {
            OpenError::Sysctl { value: 2.., .. } => {
                (ErrorKind::NotSupported, "sysctl kernel.io_uring_disabled=0 as the host's administrator, or use another backend")
            }
            OpenError::Sysctl { .. } => (
                ErrorKind::NotSupported,
                "sysctl kernel.io_uring_disabled=0, or run in the group that kernel.io_uring_group names, or use another backend",
            ),
            OpenError::Seccomp { .. } => (
                ErrorKind::NotSupported,
                "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile (docker: --security-opt seccomp=FILE), or use another backend",
            ),
            OpenError::NotPermitted { .. } => (
                ErrorKind::NotSupported,
                "look for a denial in the kernel's audit log (SELinux, AppArmor), or use another backend",
            ),
            OpenError::OldKernel { .. } | OpenError::NotBuilt { .. } => {
                (ErrorKind::NotSupported, "run Linux 5.13 or newer with CONFIG_IO_URING, or use another backend")
            }
            OpenError::Descriptors { limit: Some(_), .. } => (
                ErrorKind::Exhausted,
                "raise it (ulimit -n, systemd LimitNOFILE=), or use fewer rails: each takes one descriptor",
            ),
            OpenError::Descriptors { limit: None, .. } => (ErrorKind::Exhausted, "sysctl fs.file-max"),
            OpenError::Memory { .. } => (
                ErrorKind::Exhausted,
                "free memory or raise the control group's limit; a ring takes a few pages and its table 128 KiB",
            ),
            OpenError::Memlock { ref cause, .. } => (cause.kind(), cause.hint().unwrap_or_default()),
            OpenError::CallersRing { .. } => {
                (ErrorKind::Usage, "register a buffer table that has these slots, and leave them empty")
            }
            OpenError::Other { .. } => return Diagnosis::new(ErrorKind::Backend, self.to_string()),
        };
        let (api, errno) = match *self {
            OpenError::Seccomp { api, errno } | OpenError::NotPermitted { api, errno } | OpenError::Memory { api, errno, .. } => {
                (Some(api.to_owned()), Some(errno))
            }
            OpenError::Memlock { .. } => (Some("io_uring_setup".to_owned()), Some(libc::ENOMEM)),
            _ => (None, None),
        };
        let (limit, need) = match self {
            OpenError::Descriptors { limit, .. } => (*limit, None),
            OpenError::Memlock { cause, .. } => cause.limit_and_need(),
            _ => (None, None),
        };
        Diagnosis { api, errno, limit, need, ..Diagnosis::new(kind, self.to_string()).hint(hint) }
    }
}

/// The two calls that can be refused while a ring is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Setup,
    Table,
}

/// What the system says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `kernel.io_uring_disabled`; absent before Linux 6.6.
    pub(crate) disabled: Option<u8>,
    /// `kernel.io_uring_group`, unless it is -1.
    pub(crate) group: Option<u32>,
    /// Whether a seccomp filter is on this thread.
    pub(crate) filtered: Option<bool>,
    pub(crate) release: String,
    pub(crate) descriptors_max: Option<u64>,
    pub(crate) memlock: Option<Memlock>,
}

impl Facts {
    /// Reads them. A system without `/proc` says nothing, and then nothing is claimed.
    pub(crate) fn read() -> Facts {
        let sysctl = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok();
        // Filters are a thread's own, so the thread is asked and not the process.
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let seccomp = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        Facts {
            disabled: sysctl("io_uring_disabled").and_then(|text| text.trim().parse().ok()),
            group: sysctl("io_uring_group").and_then(|text| text.trim().parse().ok()),
            filtered: seccomp.map(|mode| mode.trim() == "2"),
            release: sys::kernel_release(),
            descriptors_max: sys::descriptors_max(),
            memlock: Memlock::read().ok(),
        }
    }
}

/// Which refusal it was: a pure function, so that each can be tested without a kernel that refuses.
pub(crate) fn diagnose(call: Call, error: &io::Error, facts: &Facts, ring: usize, rings: usize) -> OpenError {
    let (api, what, since, needed) = match call {
        Call::Setup => ("io_uring_setup", "io_uring", "5.1", (5, 1)),
        Call::Table => ("io_uring_register", "updatable buffer table (IORING_REGISTER_BUFFERS2)", "5.13", (5, 13)),
    };
    let release = facts.release.clone();
    let old = version(&release).is_some_and(|running| running < needed);
    let Some(errno) = error.raw_os_error() else { return OpenError::Other { api, what: error.to_string() } };
    match (errno, facts.filtered) {
        // Only the setup asks the sysctl; a ring that exists is past it.
        (libc::EPERM, ..) if let (Call::Setup, Some(value @ 1..)) = (call, facts.disabled) => {
            OpenError::Sysctl { value, group: facts.group }
        }
        (libc::ENOSYS | libc::EINVAL, _) if old => OpenError::OldKernel { release, what, since },
        // Some runtimes let their filter answer as a kernel without the call would.
        (libc::EPERM | libc::EACCES | libc::ENOSYS, Some(true)) => OpenError::Seccomp { api, errno },
        (libc::EPERM | libc::EACCES, Some(false)) => OpenError::NotPermitted { api, errno },
        (libc::ENOSYS, Some(false)) => OpenError::NotBuilt { release },
        (libc::EMFILE, _) => OpenError::Descriptors { ring, rings, limit: facts.descriptors_max },
        (libc::ENFILE, _) => OpenError::Descriptors { ring, rings, limit: None },
        // Tables are charged to the control group only.
        (libc::ENOMEM, _) if let (Call::Setup, Some(memlock)) = (call, facts.memlock.filter(applies)) => {
            OpenError::Memlock { ring, rings, cause: memlock.cause(2 * sys::page_size(), PinsCounted::User) }
        }
        (libc::ENOMEM, _) => OpenError::Memory { api, errno, ring, rings },
        _ => OpenError::Other { api, what: format!("{} (errno {errno})", errno_name(errno)) },
    }
}

fn applies(memlock: &Memlock) -> bool {
    !memlock.exempt && memlock.soft_bytes.is_some()
}

/// `6.1.0-18-amd64` is (6, 1).
pub(crate) fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts { release: "6.1.0-18-amd64".into(), filtered: Some(false), descriptors_max: Some(1024), ..Facts::default() }
    }

    fn told(call: Call, errno: i32, facts: &Facts) -> OpenError {
        diagnose(call, &io::Error::from_raw_os_error(errno), facts, 3, 4)
    }

    #[test]
    fn the_sysctl_is_named_with_its_value() {
        let off = Facts { disabled: Some(2), group: Some(7), filtered: Some(true), ..facts() };
        let error = told(Call::Setup, libc::EPERM, &off);
        assert_eq!(error.to_string(), "io_uring is switched off: kernel.io_uring_disabled is 2 (nobody may use it)");
        assert!(error.diagnosis().hint.unwrap().contains("io_uring_disabled=0"));
        let kept = Facts { disabled: Some(1), ..off.clone() };
        let text = told(Call::Setup, libc::EPERM, &kept).to_string();
        assert!(text.ends_with("is 1 (only CAP_SYS_ADMIN and group 7 may use it)"), "{text}");
        assert!(
            told(Call::Setup, libc::EPERM, &Facts { group: None, ..kept.clone() }).to_string().ends_with("SYS_ADMIN may use it)")
        );
        // A ring that exists was not stopped by the sysctl.
        assert_eq!(told(Call::Table, libc::EPERM, &kept), OpenError::Seccomp { api: "io_uring_register", errno: libc::EPERM });
    }

    #[test]
    fn a_filter_is_told_from_a_security_module() {
        for disabled in [None, Some(0)] {
            let filtered = Facts { filtered: Some(true), disabled, ..facts() };
            let error = told(Call::Setup, libc::EPERM, &filtered);
            assert_eq!(error, OpenError::Seccomp { api: "io_uring_setup", errno: libc::EPERM });
            assert_eq!(error.diagnosis().kind, ErrorKind::NotSupported);
            assert_eq!(error.diagnosis().errno, Some(libc::EPERM));
            let bare = Facts { filtered: Some(false), ..filtered };
            let error = told(Call::Setup, libc::EACCES, &bare);
            assert_eq!(error, OpenError::NotPermitted { api: "io_uring_setup", errno: libc::EACCES });
        }
    }

    #[test]
    fn enosys_is_an_old_kernel_a_filter_or_a_kernel_built_without() {
        let old = Facts { release: "4.19.0".into(), filtered: Some(true), ..facts() };
        let error = told(Call::Setup, libc::ENOSYS, &old);
        assert_eq!(error.to_string(), "Linux 4.19.0 has no io_uring, which came with Linux 5.1");
        let filtered = Facts { filtered: Some(true), ..facts() };
        assert_eq!(told(Call::Setup, libc::ENOSYS, &filtered), OpenError::Seccomp { api: "io_uring_setup", errno: libc::ENOSYS });
        assert_eq!(told(Call::Setup, libc::ENOSYS, &facts()), OpenError::NotBuilt { release: facts().release });
    }

    #[test]
    fn a_table_needs_a_newer_kernel_than_a_ring() {
        let middle = Facts { release: "5.10.0-28-amd64".into(), ..facts() };
        let error = told(Call::Table, libc::EINVAL, &middle);
        assert!(matches!(error, OpenError::OldKernel { since: "5.13", .. }), "{error}");
        assert_eq!(error.diagnosis().kind, ErrorKind::NotSupported);
        assert!(matches!(told(Call::Table, libc::EINVAL, &facts()), OpenError::Other { .. }));
    }

    #[test]
    fn what_ran_out_is_named_with_its_limit() {
        let error = told(Call::Setup, libc::EMFILE, &facts());
        assert_eq!(error.to_string(), "no descriptor is left for ring 3 of 4: RLIMIT_NOFILE is 1024");
        assert_eq!((error.diagnosis().kind, error.diagnosis().limit), (ErrorKind::Exhausted, Some(1024)));
        assert!(told(Call::Setup, libc::ENFILE, &facts()).to_string().contains("fs.file-max"));
        let memlock = Memlock { soft_bytes: Some(4096), hard_bytes: None, pinned_bytes: 64, exempt: false };
        let limited = Facts { memlock: Some(memlock), ..facts() };
        let error = told(Call::Setup, libc::ENOMEM, &limited);
        let cause = Cause::Memlock { limit: 4096, held: 64, need: 2 * sys::page_size(), others_unknown: true };
        assert_eq!(error, OpenError::Memlock { ring: 3, rings: 4, cause });
        assert_eq!((error.diagnosis().kind, error.diagnosis().limit), (ErrorKind::Memlock, Some(4096)));
        assert!(error.diagnosis().hint.unwrap().contains("ulimit -l"));
        let exempt = Facts { memlock: Some(Memlock { exempt: true, ..memlock }), ..facts() };
        assert!(matches!(told(Call::Setup, libc::ENOMEM, &exempt), OpenError::Memory { api: "io_uring_setup", .. }));
        let error = told(Call::Table, libc::ENOMEM, &limited);
        assert_eq!((error.diagnosis().kind, error.diagnosis().errno), (ErrorKind::Exhausted, Some(libc::ENOMEM)));
    }

    #[test]
    fn what_cannot_be_read_claims_nothing() {
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("7.0"), Some((7, 0)));
        assert_eq!((version(""), version("x.1")), (None, None));
        let without_proc = Facts { filtered: None, ..facts() };
        for errno in [libc::EPERM, libc::ENOSYS] {
            assert!(matches!(told(Call::Setup, errno, &without_proc), OpenError::Other { .. }));
        }
    }

    #[test]
    fn this_system_says_something() {
        assert!(version(&Facts::read().release).is_some());
    }
}

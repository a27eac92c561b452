use std::fmt;

use crate::{ExtentError, RailId};

/// What kind of failure this is: the stable word of the command line's JSON, and what a caller branches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The command was called wrongly, or a file could not be read.
    Usage,
    /// The policy spec, or a policy's answer, is wrong.
    Policy,
    /// The batch file is malformed.
    Batch,
    /// A batch without a buffer, where that is an error (the command line).
    EmptyBatch,
    /// A buffer of no bytes.
    ZeroLength,
    /// Two buffers share a byte.
    Overlap,
    /// A buffer passes the end of the address space.
    Wrap,
    /// A rail was named that the machine does not have.
    UnknownRail,
    /// A device was named that the machine does not have.
    UnknownDevice,
    /// RLIMIT_MEMLOCK.
    Memlock,
    /// A NIC's page entries.
    PageBudget,
    /// A NIC's (or ring's) number of registrations.
    MrCount,
    /// One registration is larger than the rail takes.
    MrSize,
    /// A caller's unit fits in no registration.
    Unit,
    /// A provider's alignment rule.
    Alignment,
    /// vm.max_map_count.
    MapCount,
    /// A control group's limit.
    Cgroup,
    /// No huge page is left.
    Hugepages,
    /// Part of the range is not mapped.
    Unmapped,
    /// The mapping's protection does not allow the access.
    Protection,
    /// The access asked for is not offered, or contradicts itself.
    Access,
    /// This build, kernel, library or provider cannot do it.
    NotSupported,
    /// The rail cannot reach that device's memory.
    NoDevicePath,
    /// Memory, descriptors or threads ran out.
    Exhausted,
    /// In use right now.
    Busy,
    /// The deadline passed.
    Deadline,
    /// Cancelled.
    Cancelled,
    /// The provider failed in a way none of the other words describes.
    Backend,
    /// A file or stream failed.
    Io,
}

impl ErrorKind {
    /// The word in the command line's JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Usage => "usage",
            ErrorKind::Policy => "policy",
            ErrorKind::Batch => "batch",
            ErrorKind::EmptyBatch => "empty-batch",
            ErrorKind::ZeroLength => "zero-length",
            ErrorKind::Overlap => "overlap",
            ErrorKind::Wrap => "wrap",
            ErrorKind::UnknownRail => "unknown-rail",
            ErrorKind::UnknownDevice => "unknown-device",
            ErrorKind::Memlock => "memlock",
            ErrorKind::PageBudget => "page-budget",
            ErrorKind::MrCount => "mr-count",
            ErrorKind::MrSize => "mr-size",
            ErrorKind::Unit => "unit",
            ErrorKind::Alignment => "alignment",
            ErrorKind::MapCount => "map-count",
            ErrorKind::Cgroup => "cgroup",
            ErrorKind::Hugepages => "hugepages",
            ErrorKind::Unmapped => "unmapped",
            ErrorKind::Protection => "protection",
            ErrorKind::Access => "access",
            ErrorKind::NotSupported => "not-supported",
            ErrorKind::NoDevicePath => "no-device-path",
            ErrorKind::Exhausted => "exhausted",
            ErrorKind::Busy => "busy",
            ErrorKind::Deadline => "deadline",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Backend => "backend",
            ErrorKind::Io => "io",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error as a user meets it: what failed, on what, at which limit, and what to do.
///
/// Every error type of the project turns into one; the command line prints it as a line or as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The kind.
    pub kind: ErrorKind,
    /// One sentence naming the thing and the limit.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The buffer concerned.
    pub buffer: Option<String>,
    /// The rail concerned.
    pub rail: Option<String>,
    /// The call that failed.
    pub api: Option<String>,
    /// Its errno.
    pub errno: Option<i32>,
    /// The limit's value, in the unit the message names.
    pub limit: Option<u64>,
    /// What was needed, in the same unit.
    pub need: Option<u64>,
}

impl Diagnosis {
    /// A diagnosis with a message and nothing else.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Diagnosis {
        Diagnosis {
            kind,
            message: message.into(),
            hint: None,
            buffer: None,
            rail: None,
            api: None,
            errno: None,
            limit: None,
            need: None,
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Diagnosis {
        Diagnosis { hint: Some(hint.into()), ..self }
    }

    /// The same with the limit that was met.
    #[must_use]
    pub fn limit(self, limit: u64, need: u64) -> Diagnosis {
        Diagnosis { limit: Some(limit), need: Some(need), ..self }
    }

    /// The same about a buffer.
    #[must_use]
    pub fn buffer(self, buffer: impl Into<String>) -> Diagnosis {
        Diagnosis { buffer: Some(buffer.into()), ..self }
    }

    /// The same about a rail.
    #[must_use]
    pub fn rail(self, rail: impl Into<String>) -> Diagnosis {
        Diagnosis { rail: Some(rail.into()), ..self }
    }
}

/// Why a call failed, as far as it was checked. Values are the evidence; nothing here is a guess.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// RLIMIT_MEMLOCK is too small.
    #[error("RLIMIT_MEMLOCK is {limit} bytes; this process holds {held} pinned and needs {need} more{}", if *.others_unknown { " (other processes of this user count too and cannot be seen)" } else { "" })]
    Memlock {
        /// The soft limit in bytes.
        limit: u64,
        /// What we know to be pinned by this process, bytes.
        held: u64,
        /// What was asked for, bytes.
        need: u64,
        /// True where the kernel charges the user rather than the process.
        others_unknown: bool,
    },
    /// The chunk's range is none: of no bytes, or outside its memory.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// The rail's page entries.
    #[error("the rail maps at most {limit} pages in all and {need} are needed")]
    PageBudget {
        /// Entries of the rail.
        limit: u64,
        /// Entries needed.
        need: u64,
    },
    /// The rail's number of registrations.
    #[error("the rail takes {limit} registrations and all are in use")]
    MrCount {
        /// Registrations of the rail.
        limit: u64,
    },
    /// The length of one registration.
    #[error("one registration on this rail covers at most {limit} bytes and {need} were asked for")]
    MrSize {
        /// Bytes a registration may have.
        limit: u64,
        /// Bytes asked for.
        need: u64,
    },
    /// Part of the range is not mapped.
    #[error("address {address:#x} is not mapped")]
    Unmapped {
        /// The first such address.
        address: u64,
    },
    /// The mapping forbids what the registration needs.
    #[error("the mapping at {address:#x} is {protection}, and {needs}")]
    Protection {
        /// The first such address.
        address: u64,
        /// The protection as `/proc/self/maps` writes it.
        protection: String,
        /// What the registration needs and why.
        needs: String,
    },
    /// The access flags.
    #[error("access {asked}: {why}")]
    Access {
        /// What was asked for.
        asked: String,
        /// Why not.
        why: String,
    },
    /// An alignment rule.
    #[error("address {address:#x} is not aligned to {align} bytes")]
    Alignment {
        /// The address.
        address: u64,
        /// The rule.
        align: u64,
    },
    /// vm.max_map_count.
    #[error("vm.max_map_count is {limit} and the process has {have} mappings")]
    MapCount {
        /// The limit.
        limit: u64,
        /// Mappings now.
        have: u64,
    },
    /// A control group's limit.
    #[error("a control group limits {what}")]
    Cgroup {
        /// The controller's file and value.
        what: String,
    },
    /// No huge page is left.
    #[error("{need} huge pages of {page_size} bytes are needed and {free} are free")]
    Hugepages {
        /// Bytes of a page.
        page_size: u64,
        /// Pages needed.
        need: u64,
        /// Pages free.
        free: u64,
    },
    /// This cannot be done here.
    #[error("{what}")]
    NotSupported {
        /// What, and by whom.
        what: String,
    },
    /// The rail cannot reach the device's memory.
    #[error("{what}")]
    NoDevicePath {
        /// What was tried.
        what: String,
    },
    /// Memory, descriptors, threads.
    #[error("{what}")]
    Exhausted {
        /// What ran out, and the limit where it has one.
        what: String,
    },
    /// In use.
    #[error("{what}")]
    Busy {
        /// By what.
        what: String,
    },
    /// The provider asks to be called again (EAGAIN).
    #[error("the provider asks to try again")]
    Again,
    /// A MR that this registrar did not make, or one already retired.
    #[error("the MR is not live on this registrar")]
    NotOurs,
    /// Nothing came in time.
    #[error("nothing came within {waited_ms} ms")]
    Timeout {
        /// The bound.
        waited_ms: u64,
    },
    /// The call panicked; the backend has a bug.
    #[error("the backend panicked: {what}")]
    Panicked {
        /// The panic's message.
        what: String,
    },
    /// Checked, and none of the other causes.
    #[error("{what}")]
    Other {
        /// What the provider said, and what was ruled out.
        what: String,
    },
}

impl Cause {
    /// The kind it belongs to.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Cause::Memlock { .. } => ErrorKind::Memlock,
            Cause::Extent(ExtentError::ZeroLength) => ErrorKind::ZeroLength,
            Cause::Extent(ExtentError::Wrap { .. }) => ErrorKind::Wrap,
            Cause::Extent(ExtentError::Outside { .. }) => ErrorKind::Batch,
            Cause::PageBudget { .. } => ErrorKind::PageBudget,
            Cause::MrCount { .. } => ErrorKind::MrCount,
            Cause::MrSize { .. } => ErrorKind::MrSize,
            Cause::Unmapped { .. } => ErrorKind::Unmapped,
            Cause::Protection { .. } => ErrorKind::Protection,
            Cause::Access { .. } => ErrorKind::Access,
            Cause::Alignment { .. } => ErrorKind::Alignment,
            Cause::MapCount { .. } => ErrorKind::MapCount,
            Cause::Cgroup { .. } => ErrorKind::Cgroup,
            Cause::Hugepages { .. } => ErrorKind::Hugepages,
            Cause::NotSupported { .. } => ErrorKind::NotSupported,
            Cause::NoDevicePath { .. } => ErrorKind::NoDevicePath,
            Cause::Exhausted { .. } => ErrorKind::Exhausted,
            Cause::Busy { .. } => ErrorKind::Busy,
            Cause::Again | Cause::NotOurs | Cause::Timeout { .. } | Cause::Panicked { .. } | Cause::Other { .. } => {
                ErrorKind::Backend
            }
        }
    }

    /// Limit and need, where the cause has both.
    #[must_use]
    pub fn limit_and_need(&self) -> (Option<u64>, Option<u64>) {
        match *self {
            Cause::Memlock { limit, need, .. } | Cause::PageBudget { limit, need } | Cause::MrSize { limit, need } => {
                (Some(limit), Some(need))
            }
            Cause::Hugepages { free, need, .. } => (Some(free), Some(need)),
            Cause::MrCount { limit } | Cause::MapCount { limit, .. } => (Some(limit), None),
            _ => (None, None),
        }
    }

    /// What a user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Cause::Memlock { .. } => {
                "raise it for the process that starts this one (ulimit -l, systemd LimitMEMLOCK=, docker --ulimit memlock=-1), register on fewer rails, or grant CAP_IPC_LOCK"
            }
            Cause::PageBudget { .. } => "use huge pages, fewer rails or a smaller batch",
            Cause::MrCount { .. } => "register fewer, larger buffers, or deregister some first",
            Cause::MrSize { .. } => "let the plan cut the buffer: set rail_limits.max_mr_size no higher than this",
            Cause::Protection { .. } => {
                "map the memory readable and writable, or ask for less access where the backend allows it"
            }
            Cause::MapCount { .. } => "sysctl vm.max_map_count, or larger mappings",
            Cause::Hugepages { .. } => "raise vm.nr_hugepages (or the hugetlb control group's limit), or use --pages thp",
            _ => return None,
        })
    }
}

macro_rules! call_error {
    ($(#[$doc:meta])* $name:ident, $verb:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[error("{} failed: {api}{}: {cause}", $verb, errno_text(*.errno))]
        pub struct $name {
            /// The provider's function, e.g. `ibv_reg_mr`.
            pub api: &'static str,
            /// Its errno, as a number.
            pub errno: Option<i32>,
            /// The checked cause.
            pub cause: Cause,
        }

        impl $name {
            /// A failure of `api`.
            #[must_use]
            pub fn new(api: &'static str, errno: Option<i32>, cause: Cause) -> $name {
                $name { api, errno, cause }
            }

            /// True when trying again may help (EAGAIN); the engine does, bounded.
            #[must_use]
            pub fn may_pass(&self) -> bool {
                self.cause == Cause::Again
            }

            /// True when nothing came in time.
            #[must_use]
            pub fn is_timeout(&self) -> bool {
                matches!(self.cause, Cause::Timeout { .. })
            }

            /// The failure as a user meets it.
            #[must_use]
            pub fn diagnosis(&self) -> Diagnosis {
                let (limit, need) = self.cause.limit_and_need();
                Diagnosis {
                    hint: self.cause.hint().map(str::to_owned),
                    api: Some(self.api.to_owned()),
                    errno: self.errno,
                    limit,
                    need,
                    ..Diagnosis::new(self.cause.kind(), self.to_string())
                }
            }
        }
    };
}

fn errno_text(errno: Option<i32>) -> String {
    errno.map_or_else(String::new, |errno| format!(" ({}, errno {errno})", errno_name(errno)))
}

/// The errno's symbolic name for the numbers registration meets; `E?` otherwise.
#[must_use]
pub fn errno_name(errno: i32) -> &'static str {
    match errno {
        libc::EPERM => "EPERM",
        libc::EIO => "EIO",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::ENFILE => "ENFILE",
        libc::ENOSPC => "ENOSPC",
        libc::ENOSYS => "ENOSYS",
        libc::EOVERFLOW => "EOVERFLOW",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENOENT => "ENOENT",
        libc::ENXIO => "ENXIO",
        libc::EBADF => "EBADF",
        libc::EINTR => "EINTR",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::ECANCELED => "ECANCELED",
        _ => "E?",
    }
}

call_error!(
    /// A registration that failed; nothing was registered.
    RegisterError,
    "registration"
);
call_error!(
    /// A deregistration that failed; the MR is still live in the caller's hands.
    DeregisterError,
    "deregistration"
);
call_error!(
    /// A preparation that failed; the chunk is not registered.
    PrepareError,
    "preparation"
);
call_error!(
    /// A transfer that failed.
    MoveError,
    "transfer"
);

impl RegisterError {
    /// The error of a rail this registrar does not have.
    #[must_use]
    pub fn no_such_rail(api: &'static str, rail: RailId, rails: usize) -> RegisterError {
        RegisterError::new(api, None, Cause::Other { what: format!("there is no {rail}: this registrar has {rails}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_call_errno_limit_and_need() {
        let error = RegisterError::new("ibv_reg_mr", Some(libc::ENOMEM), Cause::MrSize { limit: 10, need: 20 });
        assert_eq!(
            error.to_string(),
            "registration failed: ibv_reg_mr (ENOMEM, errno 12): one registration on this rail covers at most 10 bytes and 20 were asked for"
        );
        let diagnosis = error.diagnosis();
        assert_eq!((diagnosis.kind, diagnosis.limit, diagnosis.need), (ErrorKind::MrSize, Some(10), Some(20)));
        assert_eq!(diagnosis.errno, Some(12));
    }

    #[test]
    fn only_again_may_pass() {
        assert!(RegisterError::new("x", Some(libc::EAGAIN), Cause::Again).may_pass());
        assert!(!RegisterError::new("x", Some(libc::EINVAL), Cause::Other { what: String::new() }).may_pass());
    }
}

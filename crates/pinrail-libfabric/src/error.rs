use pinrail_core::{Diagnosis, ErrorKind, MoveError};

use crate::ffi::Failed;

/// Why no registrar could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The provider's name cannot be one.
    #[error("{provider:?} is no provider's name")]
    Provider {
        /// What was asked for.
        provider: String,
    },
    /// No domain of that provider with remote memory access.
    #[error("libfabric offers no domain of provider {provider:?} with remote memory access{}", others_text(.others))]
    NoProvider {
        /// What was asked for.
        provider: String,
        /// What it offered in its place.
        others: Vec<String>,
    },
    /// Fewer devices than rails.
    #[error("provider {provider:?} has {domains} domains and {rails} rails were asked for")]
    TooFewDomains {
        /// The provider.
        provider: String,
        /// Its domains.
        domains: usize,
        /// Rails asked for.
        rails: usize,
    },
    /// A rail was named that is none of the provider's devices.
    #[error("provider {provider:?} has no device {rail:?}; it has {}", .domains.join(", "))]
    NoSuchDevice {
        /// The provider.
        provider: String,
        /// The rail asked for.
        rail: String,
        /// Its devices.
        domains: Vec<String>,
    },
    /// More rails than can be numbered.
    #[error("{rails} rails are more than the {max} a registrar may have")]
    TooManyRails {
        /// Rails asked for.
        rails: usize,
        /// The limit.
        max: usize,
    },
    /// The domain may not be called by several threads.
    #[error(
        "domain {domain:?} of provider {provider:?} was not opened with FI_THREAD_SAFE, and registrations come from many threads"
    )]
    NotThreadSafe {
        /// The provider.
        provider: String,
        /// The domain.
        domain: String,
    },
    /// The domain needs what this crate does not do.
    #[error("domain {domain:?} of provider {provider:?}: {what}")]
    NotSupported {
        /// The provider.
        provider: String,
        /// The domain.
        domain: String,
        /// What it needs.
        what: String,
    },
    /// A libfabric call failed.
    #[error("{api} failed ({text}, errno {errno})")]
    Call {
        /// The function.
        api: &'static str,
        /// libfabric's errno, positive.
        errno: i32,
        /// Its sentence for the number.
        text: String,
    },
}

fn others_text(others: &[String]) -> String {
    if others.is_empty() { String::new() } else { format!("; it offers {}", others.join(", ")) }
}

impl From<Failed> for OpenError {
    fn from(failed: Failed) -> OpenError {
        OpenError::Call { api: failed.api, errno: failed.errno, text: failed.text() }
    }
}

impl From<Failed> for MoveError {
    fn from(failed: Failed) -> MoveError {
        let cause = match failed.errno {
            libc::EAGAIN => pinrail_core::Cause::Again,
            _ => pinrail_core::Cause::Other { what: failed.text() },
        };
        MoveError::new(failed.api, Some(failed.errno), cause)
    }
}

impl OpenError {
    /// The failure as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let kind = match self {
            OpenError::Provider { .. } => ErrorKind::Usage,
            OpenError::NoProvider { .. } | OpenError::NotThreadSafe { .. } | OpenError::NotSupported { .. } => {
                ErrorKind::NotSupported
            }
            OpenError::TooFewDomains { .. } | OpenError::NoSuchDevice { .. } | OpenError::TooManyRails { .. } => {
                ErrorKind::UnknownRail
            }
            OpenError::Call { errno: libc::ENOMEM | libc::EMFILE | libc::ENFILE, .. } => ErrorKind::Exhausted,
            OpenError::Call { .. } => ErrorKind::Backend,
        };
        let diagnosis = Diagnosis::new(kind, self.to_string());
        match self {
            OpenError::NoProvider { others, .. } => Diagnosis {
                api: Some("fi_getinfo".to_owned()),
                // What it answers where it has nothing; where it has other providers it has not failed.
                errno: others.is_empty().then_some(libc::ENODATA),
                ..diagnosis
            }
            .hint("fi_info -l lists the providers of this libfabric; the name must match exactly, as in 'tcp;ofi_rxm'"),
            OpenError::TooFewDomains { domains, rails, .. } => Diagnosis {
                limit: u64::try_from(*domains).ok(),
                need: u64::try_from(*rails).ok(),
                ..diagnosis.hint("ask for at most as many rails as there are devices")
            },
            OpenError::NotThreadSafe { .. } => diagnosis.hint("set domain_attr->threading = FI_THREAD_SAFE before fi_domain"),
            OpenError::Call { api, errno, .. } => Diagnosis { api: Some((*api).to_owned()), errno: Some(*errno), ..diagnosis },
            _ => diagnosis,
        }
    }
}

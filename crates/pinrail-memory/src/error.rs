use pinrail_core::{Cause, Diagnosis, ErrorKind, ExtentError, errno_name};

use crate::Pages;

/// Why memory could not be mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// A length of zero, or one that no address space holds once it is rounded up to whole pages.
    #[error("{len} bytes of {pages} pages cannot be mapped: {source}")]
    Length {
        /// Bytes asked for.
        len: u64,
        /// The pages asked for.
        pages: Pages,
        /// Which of the two.
        #[source]
        source: ExtentError,
    },
    /// The kernel refused, or would have to kill somebody later.
    #[error("mapping {len} bytes of {pages} pages failed: {api}{}: {cause}", errno_text(*.errno))]
    Refused {
        /// Bytes asked for.
        len: u64,
        /// The pages asked for.
        pages: Pages,
        /// The call, or the file that says no.
        api: &'static str,
        /// Its errno, where it was a call.
        errno: Option<i32>,
        /// The limit that was found.
        cause: Cause,
    },
}

fn errno_text(errno: Option<i32>) -> String {
    errno.map_or_else(String::new, |errno| format!(" ({}, errno {errno})", errno_name(errno)))
}

impl MapError {
    /// The failure as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        match self {
            MapError::Length { source: ExtentError::ZeroLength, .. } => Diagnosis::new(ErrorKind::ZeroLength, self.to_string()),
            MapError::Length { .. } => Diagnosis::new(ErrorKind::Wrap, self.to_string()),
            MapError::Refused { api, errno, cause, .. } => {
                let (limit, need) = cause.limit_and_need();
                Diagnosis {
                    hint: cause.hint().map(str::to_owned),
                    api: Some((*api).to_owned()),
                    errno: *errno,
                    limit,
                    need,
                    ..Diagnosis::new(cause.kind(), self.to_string())
                }
            }
        }
    }
}

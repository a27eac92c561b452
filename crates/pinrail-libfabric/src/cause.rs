//! From an errno to a cause that was checked.

use pinrail_core::{Cause, Chunk, DeregisterError, Extent, RegisterError};

use crate::domain::{Domain, ENOKEY};
use crate::ffi::Failed;

/// The addresses of a chunk that can be registered: not empty, inside its memory, and with bytes behind them.
pub(crate) fn check_chunk(api: &'static str, chunk: &Chunk<'_>) -> Result<Extent, RegisterError> {
    let refused = |what: String| Err(RegisterError::new(api, None, Cause::Other { what }));
    if chunk.range.start >= chunk.range.end {
        return refused("length is zero; nothing was called".to_owned());
    }
    if chunk.range.end > chunk.memory.len() {
        let (range, len) = (&chunk.range, chunk.memory.len());
        return refused(format!("bytes {}..{} are outside the memory of {len} bytes", range.start, range.end));
    }
    if chunk.memory.is_imagined() {
        let what = "imagined memory has no bytes to register".to_owned();
        return Err(RegisterError::new(api, None, Cause::NotSupported { what }));
    }
    Ok(chunk.extent())
}

/// A registration that the provider refused.
pub(crate) fn of_register(failed: Failed, domain: &Domain, chunk: &Chunk<'_>) -> RegisterError {
    let provider = &domain.facts.provider;
    let cause = match failed.errno {
        libc::EAGAIN => Cause::Again,
        libc::EOPNOTSUPP | libc::ENOSYS if matches!(chunk.source, pinrail_core::Source::DmaBuf { .. }) => {
            Cause::NotSupported { what: format!("provider {provider} of this libfabric registers no dma-buf") }
        }
        libc::EOPNOTSUPP | libc::ENOSYS => Cause::NotSupported { what: format!("provider {provider}: {}", failed.text()) },
        ENOKEY => Cause::Exhausted {
            what: "the keys tried are in use by others on this domain: leave a range of keys to Pinrail alone".to_owned(),
        },
        libc::ENOMEM | libc::ENOSPC => Cause::Exhausted { what: format!("provider {provider}: {}", failed.text()) },
        _ => Cause::Other { what: format!("provider {provider}: {}", failed.text()) },
    };
    RegisterError::new(failed.api, Some(failed.errno), cause)
}

/// A deregistration that the provider refused.
pub(crate) fn of_deregister(failed: Failed, domain: &Domain) -> DeregisterError {
    let cause = match failed.errno {
        libc::EAGAIN => Cause::Again,
        libc::EBUSY => Cause::Busy { what: format!("provider {} says that the registration is in use", domain.facts.provider) },
        _ => Cause::Other { what: format!("provider {}: {}", domain.facts.provider, failed.text()) },
    };
    DeregisterError::new(failed.api, Some(failed.errno), cause)
}

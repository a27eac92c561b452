//! From an errno to a cause that was checked.

use pinrail_core::{Cause, Chunk, DeregisterError, Extent, RegisterError, Source};
use pinrail_memory::{Maps, Memlock};

use crate::domain::{Domain, ENOKEY};
use crate::ffi::Failed;

/// The addresses of a chunk that can be registered: not empty, inside its memory, and with bytes behind them.
pub(crate) fn check_chunk(chunk: &Chunk<'_>) -> Result<Extent, Cause> {
    let extent = chunk.check()?;
    if chunk.memory.is_imagined() {
        return Err(Cause::NotSupported { what: "imagined memory has no bytes that could be registered".to_owned() });
    }
    Ok(extent)
}

/// A registration that the provider refused.
pub(crate) fn of_register(failed: Failed, domain: &Domain, chunk: &Chunk<'_>) -> RegisterError {
    let provider = &domain.facts.provider;
    let told = format!("provider {provider}: {}", failed.text());
    let by_address = matches!(chunk.source, Source::Address);
    let cause = match failed.errno {
        libc::EAGAIN => Cause::Again,
        libc::EOPNOTSUPP | libc::ENOSYS if !by_address => {
            Cause::NotSupported { what: format!("provider {provider} of this libfabric registers no dma-buf") }
        }
        libc::EOPNOTSUPP | libc::ENOSYS => Cause::NotSupported { what: told },
        ENOKEY => Cause::Exhausted {
            what: "the keys tried are in use by others on this domain: leave a range of keys to Pinrail alone".to_owned(),
        },
        libc::ENOMEM => out_of_memory(domain, chunk, told),
        libc::EMFILE | libc::ENFILE | libc::ENOSPC => Cause::Exhausted { what: told },
        libc::EFAULT | libc::EINVAL | libc::EACCES | libc::EPERM if by_address => in_maps(chunk, told),
        _ => Cause::Other { what: told },
    };
    RegisterError::new(failed.api, Some(failed.errno), cause)
}

/// A deregistration that the provider refused.
pub(crate) fn of_deregister(failed: Failed, domain: &Domain) -> DeregisterError {
    let told = format!("provider {}: {}", domain.facts.provider, failed.text());
    let cause = match failed.errno {
        libc::EAGAIN => Cause::Again,
        libc::EBUSY => Cause::Busy { what: told },
        _ => Cause::Other { what: told },
    };
    DeregisterError::new(failed.api, Some(failed.errno), cause)
}

/// Memlock where it would have refused just this; else what the provider said, and that it was not memlock.
fn out_of_memory(domain: &Domain, chunk: &Chunk<'_>, told: String) -> Cause {
    let page = pinrail_memory::Pages::Small.page_size();
    let need = chunk.extent().pages(page).saturating_mul(page);
    match Memlock::read().map(|memlock| memlock.precheck(need, domain.pins)) {
        Ok(Err(memlock)) => memlock,
        Ok(Ok(())) => Cause::Exhausted { what: format!("{told}; RLIMIT_MEMLOCK would allow it") },
        Err(unread) => Cause::Exhausted { what: format!("{told}; whether RLIMIT_MEMLOCK allows it is unknown: {unread}") },
    }
}

/// What is wrong with the pages, if anything is.
fn in_maps(chunk: &Chunk<'_>, told: String) -> Cause {
    match Maps::read().map(|maps| maps.check(chunk.extent(), chunk.access.effective())) {
        Ok(Err(cause)) => cause,
        Ok(Ok(())) => Cause::Other { what: format!("{told}; the memory is mapped and allows the access") },
        Err(unread) => Cause::Other { what: format!("{told}; why is unknown: {unread}") },
    }
}

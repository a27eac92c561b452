use rdma_sys as sys;

use crate::OpenError;

/// Who sees to it that registered memory survives a `fork`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkSafety {
    /// The kernel: it copies pinned pages for the child (since 5.12). Nothing has to be done.
    Kernel,
    /// libibverbs: from now on it keeps registered pages out of children, at the price of an `madvise` for each
    /// registration.
    Library,
}

/// Makes registered memory survive a `fork`, where the kernel does not do that by itself.
///
/// Without it, on an older kernel, the first write after a fork gives one of the two processes other pages than those the
/// NIC knows. It has to be the first verbs call of the process, so it is the application's to make: [`Verbs`] is not
/// the first where another library uses RDMA too, and makes no such choice for others.
///
/// # Errors
/// [`OpenError::ForkInitTooLate`] if the process has registered memory already; [`OpenError::Call`] for other failures.
///
/// [`Verbs`]: crate::Verbs
pub fn fork_init() -> Result<ForkSafety, OpenError> {
    // SAFETY: no preconditions.
    if unsafe { sys::ibv_is_fork_initialized() } == sys::IBV_FORK_UNNEEDED {
        return Ok(ForkSafety::Kernel);
    }
    // SAFETY: no preconditions: the library answers EINVAL when the call comes too late.
    match unsafe { sys::ibv_fork_init() } {
        0 => Ok(ForkSafety::Library),
        libc::EINVAL => Err(OpenError::ForkInitTooLate),
        errno => Err(OpenError::Call { api: "ibv_fork_init", device: String::new(), errno }),
    }
}

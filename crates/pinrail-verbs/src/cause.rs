//! What an errno of libibverbs means. One number has many causes, so the evidence is looked for: in `/proc/self/maps`
//! after `EFAULT`, in the limits after `ENOMEM` and `EAGAIN`.

use pinrail_core::{Access, Cause, Extent, PinsCounted, Source, errno_name};
use pinrail_memory::{Maps, Memlock, Pages};

use crate::cgroup;

/// A registration that failed.
pub(crate) struct Refused<'r> {
    pub(crate) errno: i32,
    pub(crate) extent: Extent,
    pub(crate) access: Access,
    pub(crate) source: &'r Source,
    pub(crate) device: &'r str,
    /// MRs of ours that live on the rail, and how many it may have.
    pub(crate) live: u64,
    pub(crate) max_mrs: Option<u64>,
}

/// Why it failed, as far as it can be told afterwards.
pub(crate) fn of_register(refused: &Refused<'_>) -> Cause {
    let by_address = matches!(refused.source, Source::Address);
    match refused.errno {
        libc::EAGAIN => cgroup::exhausted(refused.device).map_or(Cause::Again, |what| Cause::Cgroup { what }),
        // The first is the provider's answer, the second that of a kernel without the call.
        libc::EOPNOTSUPP | libc::EPROTONOSUPPORT if !by_address => Cause::NotSupported {
            what: format!("{} registers no dma-buf: its driver or this kernel has no such call", refused.device),
        },
        libc::EOPNOTSUPP => Cause::NotSupported { what: format!("{} does not register such memory", refused.device) },
        libc::ENOMEM if by_address => match Memlock::read() {
            Ok(memlock) => out_of_memory(refused, &memlock),
            Err(unread) => {
                Cause::Exhausted { what: format!("{}; whether memlock forbids it is unknown: {unread}", room(refused)) }
            }
        },
        libc::ENOMEM => Cause::Exhausted { what: room(refused) },
        libc::EFAULT if by_address => match Maps::read() {
            Ok(maps) => in_maps(&maps, refused.extent, refused.access.effective()),
            Err(unread) => {
                Cause::Other { what: format!("the pages of {} cannot be pinned; why is unknown: {unread}", refused.extent) }
            }
        },
        libc::EINVAL => Cause::Other {
            what: format!(
                "{} refuses the registration and says no more; its length, its access and its place in the memory were checked before",
                refused.device
            ),
        },
        errno => Cause::Other { what: format!("{} says {} and nothing more", refused.device, errno_name(errno)) },
    }
}

/// Why a deregistration failed.
pub(crate) fn of_deregister(errno: i32, device: &str) -> Cause {
    match errno {
        libc::EAGAIN => Cause::Again,
        libc::EBUSY => Cause::Busy { what: format!("{device} says that the MR is in use: a memory window is bound to it") },
        _ => Cause::Other { what: format!("{device} says {} and nothing more", errno_name(errno)) },
    }
}

/// The kernel charges whole base pages, whatever pages lie behind, and takes the charge back when it refuses. So what is
/// counted now is what was counted then.
fn out_of_memory(refused: &Refused<'_>, memlock: &Memlock) -> Cause {
    let page = Pages::Small.page_size();
    match memlock.precheck(refused.extent.pages(page) * page, PinsCounted::Process) {
        Err(memlock) => memlock,
        Ok(()) => Cause::Exhausted { what: format!("{}; RLIMIT_MEMLOCK does not forbid it", room(refused)) },
    }
}

fn room(refused: &Refused<'_>) -> String {
    let of = refused.max_mrs.map_or_else(String::new, |max| format!(" of {max} that it takes from all processes together"));
    format!("{} or the kernel has no room for the registration; {} are live here{of}", refused.device, refused.live)
}

/// The kernel could not have the pages, so there is something about them.
fn in_maps(maps: &Maps, extent: Extent, access: Access) -> Cause {
    if let Err(cause) = maps.check(extent, access) {
        return cause;
    }
    match maps.shared_file(extent).filter(|_| access.writes()) {
        Some(file) => Cause::Protection {
            address: file.extent.start().max(extent.start()),
            protection: file.protection.clone(),
            needs: format!("a shared mapping of a file ({}) cannot be pinned for writing", file.name),
        },
        None => Cause::Other { what: format!("the kernel cannot pin {extent}, which is mapped and allows {access}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: i32, source: &Source) -> Refused<'_> {
        let extent = Extent::new(0x1000, 5000).unwrap();
        Refused { errno, extent, access: Access::FULL, source, device: "rxe0", live: 7, max_mrs: Some(9) }
    }

    #[test]
    fn memlock_is_blamed_only_where_it_forbids() {
        let limited = Memlock { soft_bytes: Some(12 << 10), hard_bytes: None, pinned_bytes: 8 << 10, exempt: false };
        let refused = refused(libc::ENOMEM, &Source::Address);
        // Two pages are touched by 5000 bytes.
        let cause = Cause::Memlock { limit: 12 << 10, held: 8 << 10, need: 8 << 10, others_unknown: false };
        assert_eq!(out_of_memory(&refused, &limited), cause);
        for free in [
            Memlock { soft_bytes: Some(16 << 10), ..limited },
            Memlock { exempt: true, ..limited },
            Memlock { soft_bytes: None, ..limited },
        ] {
            let Cause::Exhausted { what } = out_of_memory(&refused, &free) else { panic!("memlock was not the cause") };
            assert!(what.contains("rxe0") && what.contains("7 are live here of 9"), "{what}");
        }
    }

    #[test]
    fn an_errno_is_only_what_was_checked() {
        let memfd = Source::DmaBuf { fd: std::sync::Arc::new(std::fs::File::open("/dev/null").unwrap().into()), offset: 0 };
        let told = |errno, source| of_register(&refused(errno, source));
        for errno in [libc::EOPNOTSUPP, libc::EPROTONOSUPPORT] {
            assert!(matches!(told(errno, &memfd), Cause::NotSupported { what } if what.contains("dma-buf")));
        }
        assert!(matches!(told(libc::ENOMEM, &memfd), Cause::Exhausted { .. }), "a dma-buf is not charged to memlock");
        assert!(matches!(told(libc::EFAULT, &Source::Address), Cause::Unmapped { address: 0x1000 }));
        assert!(matches!(told(libc::EFAULT, &memfd), Cause::Other { .. }), "a device's addresses are in no map");
        assert!(matches!(told(libc::EINVAL, &Source::Address), Cause::Other { .. }));
        assert_eq!(of_deregister(libc::EAGAIN, "rxe0"), Cause::Again);
        assert!(matches!(of_deregister(libc::EBUSY, "rxe0"), Cause::Busy { .. }));
    }
}

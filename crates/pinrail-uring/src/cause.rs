//! What an errno of the buffer table means. io_uring gives one for many causes, so the evidence is looked for: in
//! `/proc/self/maps` after `EFAULT`, in the limits after `ENOMEM`.

use std::io;

use pinrail_core::{Access, Cause, Extent, PinsCounted, errno_name};
use pinrail_memory::{Maps, Memlock};

use crate::sys;

/// Why `extent` could not be pinned.
pub(crate) fn of_register(error: &io::Error, extent: Extent) -> Cause {
    match error.raw_os_error() {
        // The second is what kernels before 6.5 answer for a file.
        Some(libc::EFAULT | libc::EOPNOTSUPP) => match Maps::read() {
            Ok(maps) => in_maps(&maps, extent),
            Err(unread) => {
                Cause::Other { what: format!("the pages of {extent} cannot be pinned ({error}); why is unknown: {unread}") }
            }
        },
        Some(libc::ENOMEM) => match Memlock::read() {
            Ok(memlock) => out_of_memory(&memlock, extent.pages(sys::page_size()) * sys::page_size()),
            Err(unread) => {
                Cause::Exhausted { what: format!("the kernel has no memory for the pin, or memlock forbids it: {unread}") }
            }
        },
        _ => of_deregister(error),
    }
}

/// What the table answers whatever a slot shall hold.
pub(crate) fn of_deregister(error: &io::Error) -> Cause {
    let Some(errno) = error.raw_os_error() else { return Cause::Other { what: error.to_string() } };
    let what = match errno {
        libc::EAGAIN => return Cause::Again,
        libc::ENOMEM => return Cause::Exhausted { what: "the kernel has no memory to update the table".into() },
        libc::ENXIO => "the ring has no buffer table any more",
        libc::EINVAL => "the ring's buffer table does not have the slot",
        libc::EEXIST => "the ring takes calls from one thread only (IORING_SETUP_SINGLE_ISSUER)",
        libc::EPERM | libc::EACCES => "the ring's restrictions, a seccomp filter or a security module forbid it",
        _ => return Cause::Other { what: format!("the kernel says {} and nothing more", errno_name(errno)) },
    };
    Cause::Other { what: what.into() }
}

/// The kernel could not have the pages, so there is something about them. A ring always pins for writing.
fn in_maps(maps: &Maps, extent: Extent) -> Cause {
    const ALWAYS: &str = "io_uring pins for writing whatever the access";
    match maps.check(extent, Access::FULL) {
        Err(Cause::Protection { address, protection, needs }) => {
            Cause::Protection { address, protection, needs: format!("{needs} ({ALWAYS})") }
        }
        Err(cause) => cause,
        Ok(()) => match maps.shared_file(extent) {
            Some(file) => Cause::Protection {
                address: file.extent.start().max(extent.start()),
                protection: file.protection.clone(),
                needs: format!("a shared mapping of a file ({}) cannot be pinned for writing ({ALWAYS})", file.name),
            },
            None => Cause::Other {
                what: format!("the kernel cannot pin {extent}, which is mapped, readable, writable and no shared file"),
            },
        },
    }
}

fn out_of_memory(memlock: &Memlock, need_bytes: u64) -> Cause {
    if memlock.exempt || memlock.soft_bytes.is_none() {
        let what = format!("the kernel has no memory to pin {need_bytes} bytes; RLIMIT_MEMLOCK does not apply to this process");
        return Cause::Exhausted { what };
    }
    memlock.cause(need_bytes, PinsCounted::User)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memlock_is_blamed_only_where_it_applies() {
        let limited = Memlock { soft_bytes: Some(8 << 20), hard_bytes: None, pinned_bytes: 3 << 20, exempt: false };
        let cause = Cause::Memlock { limit: 8 << 20, held: 3 << 20, need: 6 << 20, others_unknown: true };
        assert_eq!(out_of_memory(&limited, 6 << 20), cause);
        for free in [Memlock { exempt: true, ..limited }, Memlock { soft_bytes: None, ..limited }] {
            assert!(matches!(out_of_memory(&free, 6 << 20), Cause::Exhausted { .. }));
        }
    }

    #[test]
    fn an_answer_of_the_table_is_no_question_of_memory() {
        let extent = Extent::new(0x1000, 4096).unwrap();
        let told = |errno| of_register(&io::Error::from_raw_os_error(errno), extent);
        assert_eq!(told(libc::EAGAIN), Cause::Again);
        for errno in [libc::ENXIO, libc::EINVAL, libc::EEXIST, libc::EPERM, libc::EBADF] {
            assert!(matches!(told(errno), Cause::Other { .. }), "{errno}");
        }
        assert!(matches!(told(libc::EFAULT), Cause::Unmapped { address: 0x1000 }));
    }
}

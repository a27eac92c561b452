use pinrail_core::Access;
use rdma_sys::ibv_access_flags as Flags;

/// The access flags of a registration: what was asked for and what that implies, and nothing else. Local write is not
/// added to a registration that only reads, because the kernel would refuse it on read-only memory.
pub(crate) fn flags(access: Access, relaxed_ordering: bool) -> u32 {
    let access = access.effective();
    let asked = [
        (access.contains(Access::LOCAL_WRITE), Flags::IBV_ACCESS_LOCAL_WRITE),
        (access.contains(Access::REMOTE_READ), Flags::IBV_ACCESS_REMOTE_READ),
        (access.contains(Access::REMOTE_WRITE), Flags::IBV_ACCESS_REMOTE_WRITE),
        (relaxed_ordering, Flags::IBV_ACCESS_RELAXED_ORDERING),
    ];
    asked.into_iter().filter(|(asked, _)| *asked).fold(0, |flags, (_, flag)| flags | flag.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_implied_is_added() {
        let (local, write, read) = (1, 2, 4);
        assert_eq!(flags(Access::FULL, false), local | write | read);
        assert_eq!(flags(Access::REMOTE_WRITE, false), local | write, "verbs refuses remote write without local write");
        assert_eq!(flags(Access::REMOTE_READ, false), read, "read-only memory is never asked to be writable");
        assert_eq!(flags(Access::empty(), false), 0);
        assert_eq!(flags(Access::REMOTE_READ, true), read | 1 << 20);
    }
}

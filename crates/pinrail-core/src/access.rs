use std::fmt;

bitflags::bitflags! {
    /// What a registration lets its users do. Local read is always part of it.
    ///
    /// The names are those of verbs (`IBV_ACCESS_*`) and libfabric (`FI_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Access: u8 {
        /// The NIC may write here for this process (a receive, or the target of its own read).
        const LOCAL_WRITE = 1;
        /// A peer that has the key may read.
        const REMOTE_READ = 2;
        /// A peer that has the key may write. Implies local write: see [`Access::effective`].
        const REMOTE_WRITE = 4;
    }
}

impl Access {
    /// Everything: what a transfer engine asks for, and the default of a batch file.
    pub const FULL: Access = Access::all();

    /// The same with what it implies: verbs refuses `REMOTE_WRITE` without `LOCAL_WRITE` (EINVAL).
    #[must_use]
    pub fn effective(self) -> Access {
        if self.contains(Access::REMOTE_WRITE) { self | Access::LOCAL_WRITE } else { self }
    }

    /// True if anybody may write to the memory through this registration.
    #[must_use]
    pub fn writes(self) -> bool {
        self.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE)
    }

    /// The flags by their names in batch and plan files.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().filter(move |(_, flag)| self.contains(*flag)).map(|(name, _)| *name)
    }

    /// The flag of one name, as [`Access::names`] writes it.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Access> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, flag)| *flag)
    }
}

const NAMES: [(&str, Access); 3] =
    [("local-write", Access::LOCAL_WRITE), ("remote-read", Access::REMOTE_READ), ("remote-write", Access::REMOTE_WRITE)];

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.names().enumerate() {
            if at > 0 {
                f.write_str("+")?;
            }
            f.write_str(name)?;
        }
        if self.is_empty() { f.write_str("local-read") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_write_alone_gains_local_write() {
        assert_eq!(Access::REMOTE_WRITE.effective(), Access::REMOTE_WRITE | Access::LOCAL_WRITE);
        assert_eq!(Access::REMOTE_READ.effective(), Access::REMOTE_READ);
    }

    #[test]
    fn every_name_leads_back_to_its_flag() {
        for name in Access::FULL.names() {
            assert_eq!(Access::by_name(name).unwrap().to_string(), name);
        }
        assert_eq!(Access::by_name("write"), None);
    }
}

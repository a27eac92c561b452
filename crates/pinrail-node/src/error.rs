use std::num::NonZeroU32;
use std::path::PathBuf;

/// Why the node's file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A symbolic link: whoever made it could have us write to any file of ours.
    #[error("{} is a symbolic link, which is never followed: remove it", path.display())]
    Link {
        /// The path.
        path: PathBuf,
    },
    /// Not a regular file with one name.
    #[error("{} is not a regular file with one name (mode {mode:o}, {links} links): remove it", path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// `st_mode`.
        mode: u32,
        /// `st_nlink`.
        links: u64,
    },
    /// Another user's, who could take it away at any time.
    #[error("{} belongs to user {owner}, and only a file of root's or our own is used (we are user {us}): have root make it, \
             or give the processes of each user a path of their own", path.display())]
    Owner {
        /// The path.
        path: PathBuf,
        /// Its user.
        owner: u32,
        /// Ours.
        us: u32,
    },
    /// A file system that is not in memory: locks on it may travel over a network.
    #[error("{} is not on a tmpfs: choose a path in /dev/shm", path.display())]
    NotInMemory {
        /// The path.
        path: PathBuf,
    },
    /// No room for its one page.
    #[error("{} has no room left for one page: free some of {}", path.display(), path.parent().unwrap_or(path).display())]
    Full {
        /// The path.
        path: PathBuf,
    },
    /// A call failed for another reason.
    #[error("{}: {call} failed with errno {errno}: {remedy}", path.display())]
    Call {
        /// The path.
        path: PathBuf,
        /// The call.
        call: &'static str,
        /// Its errno; 0 where the limit is our own.
        errno: i32,
        /// What helps.
        remedy: &'static str,
    },
    /// Every presence byte is locked.
    #[error("{} counts at most {most} processes and has no place left: somebody may hold locks on it, see /proc/locks", path.display())]
    NoPlace {
        /// The path.
        path: PathBuf,
        /// The limit.
        most: u32,
    },
    /// Removed and made again while it was opened, many times.
    #[error("{} was removed again and again while it was opened: see what removes files there", path.display())]
    Removed {
        /// The path.
        path: PathBuf,
    },
}

/// Why a process keeps to a fixed share of the tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Degraded {
    /// There is no file to share tokens in.
    #[error("tokens are not shared between processes: {0}")]
    File(#[from] FileError),
    /// Fewer processes use the file than the launcher promised: they have not come yet, or have a /dev/shm of their own.
    /// Ends when all have been seen.
    #[error(
        "{present} of {promised} processes of this node use the file: the others have not come yet, or their containers \
             have a /dev/shm of their own, which --ipc=host or a common mount of it would share"
    )]
    PeersMissing {
        /// Processes seen, this one included.
        present: NonZeroU32,
        /// Processes promised.
        promised: NonZeroU32,
    },
    /// No token came for so long: steps that long, or somebody who holds locks and gives none back.
    #[error("no token was free for {waited_ms} ms, so this process no longer asks: see /proc/locks for who holds them")]
    Waited {
        /// Milliseconds.
        waited_ms: u64,
    },
    /// This process was forked from the one that opened the budget.
    #[error("the budget was opened before this process was forked: open one in each process")]
    Forked,
}

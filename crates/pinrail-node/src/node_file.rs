//! The file that the processes of a node share: its bytes are locks, its first word is what they sleep on.
//!
//! Nothing in it has to be believed: any contents are good contents. Locks on bytes say who holds what, and those are
//! the kernel's. The word only shortens waits.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::FileError;
use crate::fork::{self, KeptOut};
use crate::sys::{self, Bell};

/// The byte of token 0. The tokens' bytes follow it; none of them needs to exist.
const TOKENS_AT: u32 = 1 << 16;
/// The byte of the first process.
const PROCESSES_AT: u32 = 1 << 20;
/// Processes that are counted.
const PROCESSES_MAX: u32 = 4096;

/// Bits of the word that name the token given back; the others make it differ from the word before.
const TOKEN_BITS: u32 = 12;
/// Tokens that the word can name, and so the most there may be.
pub(crate) const TOKENS_MAX: u32 = (1 << TOKEN_BITS) - 1;

/// Times that a file is opened which somebody else removes meanwhile.
const TRIES_MAX: u32 = 16;

pub(crate) struct NodeFile {
    // Dropped in this order: the descriptor is forgotten before its number can be another file's.
    _kept_out: KeptOut,
    bell: Bell,
    file: File,
    path: PathBuf,
    /// Our presence byte, counted from the first.
    place: u32,
    rings: AtomicU32,
}

impl NodeFile {
    /// Opens the file, makes it where there is none, and takes a presence byte.
    pub(crate) fn open(path: &Path) -> Result<NodeFile, FileError> {
        for _ in 0..TRIES_MAX {
            let file = open_or_make(path)?;
            let bell = prepare(&file, path)?;
            let kept_out = fork::keep_out(&file)
                .map_err(|error| failed(path, "pthread_atfork", &error, "close budgets that are not used"))?;
            let place = take_place(&file, path)?;
            // Words of two processes are seldom the same.
            let rings = AtomicU32::new(place.wrapping_mul(0x9E37_79B9));
            let node = NodeFile { _kept_out: kept_out, bell, file, path: path.to_owned(), place, rings };
            // Somebody may have removed it in between, and others may use another one by now.
            if node.is_current() {
                return Ok(node);
            }
        }
        Err(FileError::Removed { path: path.to_owned() })
    }

    /// True while the path still leads to this file.
    pub(crate) fn is_current(&self) -> bool {
        match (self.file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(ours), Ok(there)) => ours.nlink() == 1 && (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    /// Our number among the processes that use the file; none that lives has the same.
    pub(crate) fn place(&self) -> u32 {
        self.place
    }

    /// How many other processes use the file.
    pub(crate) fn others(&self) -> Result<u32, FileError> {
        let mut ranges = vec![(PROCESSES_AT, PROCESSES_AT + PROCESSES_MAX)];
        let mut others = 0;
        // The kernel names any one lock within a range: the rest is asked on both sides of it.
        while let Some((first, end)) = ranges.pop() {
            let found = sys::locked_by_others(&self.file, first, end - first).map_err(|error| self.failed_lock(&error))?;
            if let Some((from, to)) = found {
                others += 1;
                ranges.extend([(first, from), (to, end)].into_iter().filter(|(first, end)| first < end));
            }
        }
        Ok(others)
    }

    /// Locks a token's byte; false where another process has it. Bytes that are ours already are given again: whoever
    /// asks knows which they are.
    pub(crate) fn try_lock(&self, token: u32) -> Result<bool, FileError> {
        sys::try_lock(&self.file, TOKENS_AT + token).map_err(|error| self.failed_lock(&error))
    }

    pub(crate) fn unlock(&self, token: u32) {
        sys::unlock(&self.file, TOKENS_AT + token);
    }

    /// The word, to be read before a look at the tokens and slept on after it.
    pub(crate) fn word(&self) -> u32 {
        let mut word = [0; 4];
        // A file cut short reads as zero, until somebody rings.
        self.file.read_at(&mut word, 0).map_or(0, |_| u32::from_ne_bytes(word))
    }

    /// The token that the last ring was about.
    pub(crate) fn token_in(word: u32) -> Option<u32> {
        (word & TOKENS_MAX).checked_sub(1)
    }

    /// Tells one process, who has slept longest, that a token is free.
    pub(crate) fn ring(&self, token: u32) {
        self.write_word(token + 1);
        self.bell.ring(1, u32::MAX);
    }

    /// Tells the sleeper of this process to look again.
    pub(crate) fn ring_ourselves(&self) {
        self.write_word(0);
        self.bell.ring(u32::MAX >> 1, self.ear());
    }

    /// Sleeps until a ring for us, at most so long; not at all where there was one since the word was read.
    pub(crate) fn sleep(&self, word: u32, longest: Duration) {
        self.bell.sleep(word, longest, self.ear());
    }

    fn write_word(&self, token: u32) {
        let ring = self.rings.fetch_add(1, Ordering::Relaxed);
        let word = ring << TOKEN_BITS | token;
        // Without room for it others sleep their 20 ms.
        self.file.write_at(&word.to_ne_bytes(), 0).ok();
    }

    /// One of 32, so that processes seldom wake each other.
    fn ear(&self) -> u32 {
        1 << (self.place % 32)
    }

    fn failed_lock(&self, error: &io::Error) -> FileError {
        failed_lock(&self.path, error)
    }
}

fn failed(path: &Path, call: &'static str, error: &io::Error, remedy: &'static str) -> FileError {
    if error.raw_os_error() == Some(libc::ENOSPC) {
        return FileError::Full { path: path.to_owned() };
    }
    FileError::Call { path: path.to_owned(), call, errno: error.raw_os_error().unwrap_or(0), remedy }
}

fn failed_lock(path: &Path, error: &io::Error) -> FileError {
    failed(path, "fcntl(F_OFD_SETLK)", error, "locks of open files need Linux 3.15 and a sandbox that allows them")
}

/// A file that is there is opened without `O_CREAT`: the kernel refuses that, even to root, for a file of another user in
/// a folder that all may write to (`fs.protected_regular`).
fn open_or_make(path: &Path) -> Result<File, FileError> {
    let options = || {
        let mut options = OpenOptions::new();
        // A pipe that lies there must not have us wait for its other end.
        options.read(true).write(true).mode(0o666).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
        options
    };
    for _ in 0..TRIES_MAX {
        match options().open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(|error| refused(path, &error)),
        }
        match options().create_new(true).open(path) {
            Ok(file) => {
                // What the umask took away.
                file.set_permissions(Permissions::from_mode(0o666))
                    .map_err(|error| failed(path, "fchmod", &error, "choose a path in /dev/shm"))?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refused(path, &error)),
        }
    }
    Err(FileError::Removed { path: path.to_owned() })
}

fn refused(path: &Path, error: &io::Error) -> FileError {
    match error.raw_os_error() {
        Some(libc::ELOOP) => FileError::Link { path: path.to_owned() },
        Some(libc::EACCES | libc::EPERM) => {
            failed(path, "open", error, "its mode must be 0666: remove it, or have its owner do so")
        }
        Some(libc::EROFS) => failed(path, "open", error, "the file system is read-only: mount it writable"),
        _ => failed(path, "open", error, "choose a path in /dev/shm that can be made and written"),
    }
}

/// Checks that the file is what it should be, gives it its page, and maps its word.
fn prepare(file: &File, path: &Path) -> Result<Bell, FileError> {
    let about = file.metadata().map_err(|error| failed(path, "fstat", &error, "choose another path"))?;
    let path_of = || path.to_owned();
    // A file that was removed since has no name; that is found out, and mended, later.
    if !about.is_file() || about.nlink() > 1 {
        return Err(FileError::Kind { path: path_of(), mode: about.mode(), links: about.nlink() });
    }
    let us = sys::user();
    if about.uid() != 0 && about.uid() != us {
        return Err(FileError::Owner { path: path_of(), owner: about.uid(), us });
    }
    if !sys::is_on_tmpfs(file).map_err(|error| failed(path, "fstatfs", &error, "choose a path in /dev/shm"))? {
        return Err(FileError::NotInMemory { path: path_of() });
    }
    if about.len() < 4 {
        file.write_at(&[0; 4], 0).map_err(|error| failed(path, "write", &error, "see its limits"))?;
    }
    Bell::map(file).map_err(|error| failed(path, "mmap", &error, "see ulimit -v and vm.max_map_count"))
}

fn take_place(file: &File, path: &Path) -> Result<u32, FileError> {
    for place in 0..PROCESSES_MAX {
        let locked = sys::try_lock(file, PROCESSES_AT + place).map_err(|error| failed_lock(path, &error))?;
        if locked {
            return Ok(place);
        }
    }
    Err(FileError::NoPlace { path: path.to_owned(), most: PROCESSES_MAX })
}

//! Every system call that the standard library has no safe form of, behind safe functions.
//!
//! The word that processes sleep on is never touched by a load or a store of ours: it is read and written through its
//! file, and the kernel alone looks at its address. Whoever truncates the file takes nobody down with a SIGBUS.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

use libc::{c_int, c_void};

fn check(rc: c_int) -> io::Result<c_int> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// Bytes of a file that a lock is about; no such bytes need to exist.
fn span(kind: c_int, first: u32, len: u32) -> libc::flock {
    // SAFETY: all bits zero are a valid value of this plain struct; the kernel wants `l_pid` to be zero.
    let mut span: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    // The three kinds are 0, 1 and 2.
    span.l_type = i16::try_from(kind).unwrap_or_default();
    span.l_whence = i16::try_from(libc::SEEK_SET).unwrap_or_default();
    (span.l_start, span.l_len) = (first.into(), len.into());
    span
}

/// Locks one byte for this open file; false where another one has it. The kernel unlocks it when the last descriptor of
/// the open file is closed, however its process ends.
pub(crate) fn try_lock(file: &File, byte: u32) -> io::Result<bool> {
    let span = span(libc::F_WRLCK, byte, 1);
    // SAFETY: the kernel reads the one struct.
    match check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const span) }) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives a byte back.
pub(crate) fn unlock(file: &File, byte: u32) {
    let span = span(libc::F_UNLCK, byte, 1);
    // SAFETY: the kernel reads the one struct.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const span) };
    debug_assert_eq!(rc, 0, "a lock of our own can be given back");
}

/// A lock of another open file on one of these bytes, as its first byte and the one behind its last.
pub(crate) fn locked_by_others(file: &File, first: u32, len: u32) -> io::Result<Option<(u32, u32)>> {
    let mut span = span(libc::F_WRLCK, first, len);
    // SAFETY: the kernel reads and writes the one struct.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut span) })?;
    if c_int::from(span.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    // A length of zero is all there is from the start on.
    let bytes = if span.l_len == 0 { i64::MAX } else { span.l_len };
    let end = u32::try_from(span.l_start.saturating_add(bytes)).unwrap_or(u32::MAX);
    Ok(Some((u32::try_from(span.l_start).unwrap_or(u32::MAX), end)))
}

/// True for a file that lies in memory and nowhere else.
pub(crate) fn is_on_tmpfs(file: &File) -> io::Result<bool> {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel writes the one struct.
    check(unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: all bits zero are a valid value, and the call has filled it in.
    let found = unsafe { found.assume_init() };
    Ok(found.f_type == libc::TMPFS_MAGIC)
}

pub(crate) fn user() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

/// The first word of a file as a place to sleep on, for every process that maps it.
pub(crate) struct Bell {
    word: NonNull<c_void>,
}

// SAFETY: the address is handed to the kernel and never followed.
unsafe impl Send for Bell {}
// SAFETY: as above; the calls on it may be made by many threads.
unsafe impl Sync for Bell {}

const WORD_BYTES: usize = size_of::<u32>();

impl Bell {
    pub(crate) fn map(file: &File) -> io::Result<Bell> {
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let word = unsafe { libc::mmap(ptr::null_mut(), WORD_BYTES, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        match NonNull::new(word) {
            Some(word) if word.as_ptr() != libc::MAP_FAILED => Ok(Bell { word }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sleeps while the word is `seen`, at most so long, until rung for one of the `ears`. What woke us is not told:
    /// whoever sleeps looks again.
    pub(crate) fn sleep(&self, seen: u32, longest: Duration, ears: u32) {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes the one struct.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until) };
        let nanoseconds = until.tv_nsec + i64::from(longest.subsec_nanos());
        let seconds = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX);
        until.tv_sec = until.tv_sec.saturating_add(seconds).saturating_add(nanoseconds / 1_000_000_000);
        until.tv_nsec = nanoseconds % 1_000_000_000;
        let (word, until, unused) = (self.word.as_ptr(), &raw const until, ptr::null::<u32>());
        // SAFETY: the kernel reads the word, which it does itself and answers EFAULT where there is none, and `until`.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT_BITSET, seen, until, unused, ears) };
    }

    /// Wakes at most so many of those who sleep with one of these ears, who has slept longest first.
    pub(crate) fn ring(&self, most: u32, ears: u32) {
        let (word, unused) = (self.word.as_ptr(), ptr::null::<u32>());
        // SAFETY: the kernel looks up who sleeps on the address and touches nothing.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE_BITSET, most, unused, unused, ears) };
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by us and is used by nobody any more.
        unsafe { libc::munmap(self.word.as_ptr(), WORD_BYTES) };
    }
}

unsafe extern "C" {
    /// POSIX; the libc crate has it for other systems only.
    fn pthread_atfork(prepare: Option<extern "C" fn()>, parent: Option<extern "C" fn()>, child: Option<extern "C" fn()>)
    -> c_int;
}

/// Has `handler` called in each child that this process forks from now on, before anything else happens there.
pub(crate) fn call_in_forked_children(handler: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the handler is a function and not data, and never unloaded.
    match unsafe { pthread_atfork(None, None, Some(handler)) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Makes `descriptor` another one for what `with` refers to, and lets go of what it referred to. Allowed in a child after
/// a fork.
pub(crate) fn replace(descriptor: RawFd, with: BorrowedFd<'_>) {
    // SAFETY: the numbers of descriptors are no memory; the caller owns `descriptor`, which stays open.
    unsafe { libc::dup3(with.as_raw_fd(), descriptor, libc::O_CLOEXEC) };
}

/// What tests need to fork, in the one room for such calls.
#[cfg(test)]
pub(crate) mod forked {
    /// A copy of this process that runs on.
    pub(crate) struct Forked(libc::pid_t);

    impl Forked {
        /// Forks; the copy does `work`, says by its exit status whether that was true, and nothing else.
        pub(crate) fn start(work: impl FnOnce() -> bool) -> Forked {
            // SAFETY: the copy has this one thread; what it locks, no other thread of a test had locked.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let status = i32::from(!work());
                // SAFETY: ends the copy without running what the original registered for its own end.
                unsafe { libc::_exit(status) };
            }
            assert!(pid > 0, "no process could be forked");
            Forked(pid)
        }

        /// True if the work ended and was.
        pub(crate) fn said_true(self) -> bool {
            let mut status = 0;
            // SAFETY: the kernel writes the one number.
            let pid = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
            pid == self.0 && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

//! libfabric's own conventions: negative errno, versions, and objects that are closed by `fi_close`.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;

use libfabric_sys::bindgen as fi;

/// A libfabric call that returned an error: the function and libfabric's errno as a positive number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) api: &'static str,
    pub(crate) errno: i32,
}

impl Failed {
    /// libfabric's sentence for the number; its own numbers begin at 256.
    pub(crate) fn text(self) -> String {
        // SAFETY: fi_strerror takes any number and returns a string constant of the library.
        let text = unsafe { fi::fi_strerror(self.errno) };
        // SAFETY: a string constant, as said above.
        unsafe { string(text) }.unwrap_or_default()
    }
}

/// The result of a call that returns zero or a negative errno.
pub(crate) fn check(api: &'static str, returned: c_int) -> Result<(), Failed> {
    if returned == 0 { Ok(()) } else { Err(Failed { api, errno: returned.saturating_neg() }) }
}

/// The result of a call that returns a count or a negative errno.
pub(crate) fn check_count(api: &'static str, returned: isize) -> Result<usize, Failed> {
    usize::try_from(returned).map_err(|_| Failed { api, errno: i32::try_from(-returned).unwrap_or(libc::EIO) })
}

/// A C string as text; `None` for null.
///
/// # Safety
/// `text` is null or points to a NUL-terminated string that stays unchanged during the call.
pub(crate) unsafe fn string(text: *const c_char) -> Option<String> {
    // SAFETY: not null, and a NUL-terminated string by the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// An address or length of this process, all of which fit in a pointer.
#[expect(clippy::cast_possible_truncation, reason = "checked once, when compiling")]
pub(crate) fn native(value: u64) -> usize {
    const { assert!(size_of::<usize>() == size_of::<u64>(), "RDMA exists on 64-bit machines only") };
    value as usize
}

/// The version of the interface that this build was compiled against, which `fi_getinfo` is asked for.
pub(crate) const API: u32 = fi::FI_MAJOR_VERSION << 16 | fi::FI_MINOR_VERSION;

/// The running library's version, as major and minor.
pub(crate) fn library() -> (u32, u32) {
    // SAFETY: fi_version has no preconditions.
    let version = unsafe { fi::fi_version() };
    (version >> 16, version & 0xffff)
}

/// A structure that begins with a `struct fid`.
///
/// # Safety
/// The type is `repr(C)` and its first field is `fid`, so that a pointer to it is a pointer to a `fid`.
pub(crate) unsafe trait Fid {}

// SAFETY: rdma/fabric.h, fi_domain.h, fi_endpoint.h and fi_eq.h define each with `struct fid fid;` first.
unsafe impl Fid for fi::fid_fabric {}
// SAFETY: as above.
unsafe impl Fid for fi::fid_domain {}
// SAFETY: as above.
unsafe impl Fid for fi::fid_ep {}
// SAFETY: as above.
unsafe impl Fid for fi::fid_pep {}
// SAFETY: as above.
unsafe impl Fid for fi::fid_cq {}
// SAFETY: as above.
unsafe impl Fid for fi::fid_eq {}
// SAFETY: as above.
unsafe impl Fid for fi::fid_av {}
// SAFETY: as above.
unsafe impl Fid for fi::fid_mr {}

/// An object that is ours to close; closed when dropped.
#[derive(Debug)]
pub(crate) struct Owned<T: Fid>(NonNull<T>);

// SAFETY: every object here belongs to a domain (or is its fabric) that was opened with FI_THREAD_SAFE, which lets any
// thread call on any object at any time.
unsafe impl<T: Fid> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T: Fid> Sync for Owned<T> {}

impl<T: Fid> Owned<T> {
    /// What `open` has stored through its argument, if it returned zero.
    pub(crate) fn open(api: &'static str, open: impl FnOnce(*mut *mut T) -> c_int) -> Result<Owned<T>, Failed> {
        let mut made = std::ptr::null_mut();
        check(api, open(&raw mut made))?;
        NonNull::new(made).map(Owned).ok_or(Failed { api, errno: libc::EIO })
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    pub(crate) fn raw(&self) -> NonNull<T> {
        self.0
    }

    pub(crate) fn fid(&self) -> *mut fi::fid {
        self.0.as_ptr().cast()
    }

    /// Closes now; on failure the object stays open and is leaked, as nobody can name it any more.
    pub(crate) fn close(self) -> Result<(), Failed> {
        let fid = self.fid();
        std::mem::forget(self);
        // SAFETY: an open object of ours; `self` is gone, so it is closed once.
        check("fi_close", unsafe { fi::fi_close(fid) })
    }

    /// Gives the object up without closing it.
    pub(crate) fn into_raw(self) -> NonNull<T> {
        let fid = self.0;
        std::mem::forget(self);
        fid
    }
}

impl<T: Fid> Drop for Owned<T> {
    fn drop(&mut self) {
        // A failure leaves the object open: a leak that nobody can act upon any more. Where it matters, `close` is called.
        // SAFETY: an open object of ours, closed once: `close` and `into_raw` forget the value.
        unsafe { fi::fi_close(self.fid()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_sentences_and_keep_their_value() {
        let failed = check("fi_x", -libc::ENOMEM).unwrap_err();
        assert_eq!(failed, Failed { api: "fi_x", errno: libc::ENOMEM });
        assert_eq!(failed.text(), "Cannot allocate memory");
        assert_eq!(Failed { api: "fi_x", errno: 266 }.text(), "Required key not available");
        assert_eq!(check_count("fi_x", -11), Err(Failed { api: "fi_x", errno: 11 }));
        assert_eq!(check_count("fi_x", 3), Ok(3));
    }

    #[test]
    fn the_library_is_as_new_as_its_headers() {
        let (major, minor) = library();
        assert!(major << 16 | minor >= API, "{major}.{minor}");
    }
}

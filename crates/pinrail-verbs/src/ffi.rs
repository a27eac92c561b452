//! The conventions of libibverbs: a null pointer with errno, or an errno returned.

use std::io;
use std::ptr::NonNull;

/// The errno of the call before.
pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// For calls that return a pointer, or null and set errno.
pub(crate) fn pointer<T>(returned: *mut T) -> Result<NonNull<T>, i32> {
    NonNull::new(returned).ok_or_else(errno)
}

/// For calls that return zero or an errno.
pub(crate) fn status(returned: i32) -> Result<(), i32> {
    if returned == 0 { Ok(()) } else { Err(returned) }
}

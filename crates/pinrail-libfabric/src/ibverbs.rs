//! One question to libibverbs: how large a registration a device takes.
//!
//! The library is opened, not linked: a libfabric without a verbs-based provider needs none, and where there is such a
//! provider it has loaded the library already.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

/// Bytes of one registration on the first device whose name `is_ours`, as `ibv_query_device` says; `None` where there is
/// no such device or no libibverbs.
pub(crate) fn max_mr_size(is_ours: impl Fn(&str) -> bool) -> Option<u64> {
    Library::open()?.max_mr_size(is_ours)
}

type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
type FreeDeviceList = unsafe extern "C" fn(*mut *mut c_void);
type GetDeviceName = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type OpenDevice = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type CloseDevice = unsafe extern "C" fn(*mut c_void) -> c_int;
type QueryDevice = unsafe extern "C" fn(*mut c_void, *mut DeviceAttr) -> c_int;

/// libibverbs.so.1 and the functions used; never unloaded, as libfabric may use it too.
struct Library {
    get_device_list: GetDeviceList,
    free_device_list: FreeDeviceList,
    get_device_name: GetDeviceName,
    open_device: OpenDevice,
    close_device: CloseDevice,
    query_device: QueryDevice,
}

/// `struct ibv_device_attr` of infiniband/verbs.h as far as it is read; 232 bytes in all, a fixed part of the ABI.
#[repr(C)]
struct DeviceAttr {
    fw_ver: [c_char; 64],
    node_guid: u64,
    sys_image_guid: u64,
    max_mr_size: u64,
    rest: [u64; 32],
}

impl Library {
    fn open() -> Option<Library> {
        // SAFETY: a NUL-terminated name; the library's initialisers are those that libfabric runs too.
        let handle = NonNull::new(unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) })?;
        // SAFETY: an open library and a NUL-terminated name.
        let symbol = |name: &CStr| NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) });
        let get_device_list = symbol(c"ibv_get_device_list")?;
        let free_device_list = symbol(c"ibv_free_device_list")?;
        let get_device_name = symbol(c"ibv_get_device_name")?;
        let open_device = symbol(c"ibv_open_device")?;
        let close_device = symbol(c"ibv_close_device")?;
        let query_device = symbol(c"ibv_query_device")?;
        Some(Library {
            // SAFETY: the signature of infiniband/verbs.h; the version of the symbol is the library's default one.
            get_device_list: unsafe { std::mem::transmute::<NonNull<c_void>, GetDeviceList>(get_device_list) },
            // SAFETY: as above.
            free_device_list: unsafe { std::mem::transmute::<NonNull<c_void>, FreeDeviceList>(free_device_list) },
            // SAFETY: as above.
            get_device_name: unsafe { std::mem::transmute::<NonNull<c_void>, GetDeviceName>(get_device_name) },
            // SAFETY: as above.
            open_device: unsafe { std::mem::transmute::<NonNull<c_void>, OpenDevice>(open_device) },
            // SAFETY: as above.
            close_device: unsafe { std::mem::transmute::<NonNull<c_void>, CloseDevice>(close_device) },
            // SAFETY: as above.
            query_device: unsafe { std::mem::transmute::<NonNull<c_void>, QueryDevice>(query_device) },
        })
    }

    fn max_mr_size(&self, is_ours: impl Fn(&str) -> bool) -> Option<u64> {
        let list = Devices::list(self)?;
        let mut at = list.first;
        loop {
            // SAFETY: within the list, which ends with null.
            let entry = NonNull::new(unsafe { at.read() })?;
            // SAFETY: an entry of the list.
            let name = unsafe { (self.get_device_name)(entry.as_ptr()) };
            // SAFETY: a NUL-terminated string that lives as long as the list.
            if unsafe { CStr::from_ptr(name) }.to_str().is_ok_and(&is_ours) {
                return Context::open(self, entry)?.max_mr_size();
            }
            // SAFETY: not yet at the null that ends the list.
            at = unsafe { at.add(1) };
        }
    }
}

struct Devices<'l> {
    library: &'l Library,
    first: *mut *mut c_void,
}

impl Devices<'_> {
    fn list(library: &Library) -> Option<Devices<'_>> {
        // SAFETY: the count may be null.
        let first = unsafe { (library.get_device_list)(std::ptr::null_mut()) };
        (!first.is_null()).then(|| Devices { library, first })
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        // SAFETY: the list of ibv_get_device_list, freed once.
        unsafe { (self.library.free_device_list)(self.first) };
    }
}

struct Context<'l> {
    library: &'l Library,
    context: NonNull<c_void>,
}

impl Context<'_> {
    fn open<'l>(library: &'l Library, device: NonNull<c_void>) -> Option<Context<'l>> {
        // SAFETY: a device of a list that is not yet freed.
        let context = NonNull::new(unsafe { (library.open_device)(device.as_ptr()) })?;
        Some(Context { library, context })
    }

    fn max_mr_size(&self) -> Option<u64> {
        let mut attr = DeviceAttr { fw_ver: [0; 64], node_guid: 0, sys_image_guid: 0, max_mr_size: 0, rest: [0; 32] };
        // SAFETY: an open device, and room for more than the whole structure.
        let returned = unsafe { (self.library.query_device)(self.context.as_ptr(), &raw mut attr) };
        (returned == 0 && attr.max_mr_size > 0).then_some(attr.max_mr_size)
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: an open device, closed once.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Names of devices, and what each says of itself.
    static DEVICES: [(&CStr, u64); 4] = [(c"rdmap0", 4 << 30), (c"rdmap1", 192 << 30), (c"silent", 0), (c"rdmap3", u64::MAX)];

    thread_local! {
        /// Lists and devices that are open.
        static OPEN: Cell<i32> = const { Cell::new(0) };
    }

    fn device(at: usize) -> *mut c_void {
        (&raw const DEVICES[at]).cast_mut().cast()
    }

    unsafe extern "C" fn get_device_list(_: *mut c_int) -> *mut *mut c_void {
        OPEN.set(OPEN.get() + 1);
        Box::leak(Box::new([device(0), device(1), device(2), device(3), std::ptr::null_mut()])).as_mut_ptr()
    }

    unsafe extern "C" fn free_device_list(list: *mut *mut c_void) {
        OPEN.set(OPEN.get() - 1);
        // SAFETY: the list made above, freed once.
        drop(unsafe { Box::from_raw(list.cast::<[*mut c_void; 5]>()) });
    }

    unsafe extern "C" fn get_device_name(device: *mut c_void) -> *const c_char {
        // SAFETY: one of the constants.
        unsafe { *device.cast::<(&CStr, u64)>() }.0.as_ptr()
    }

    unsafe extern "C" fn open_device(device: *mut c_void) -> *mut c_void {
        OPEN.set(OPEN.get() + 1);
        device
    }

    unsafe extern "C" fn close_device(_: *mut c_void) -> c_int {
        OPEN.set(OPEN.get() - 1);
        0
    }

    unsafe extern "C" fn query_device(device: *mut c_void, attr: *mut DeviceAttr) -> c_int {
        // SAFETY: one of the constants.
        let (_, max_mr_size) = unsafe { *device.cast::<(&CStr, u64)>() };
        // SAFETY: room for the structure, by the caller.
        unsafe { (*attr).max_mr_size = max_mr_size };
        0
    }

    const LIBRARY: Library =
        Library { get_device_list, free_device_list, get_device_name, open_device, close_device, query_device };

    #[test]
    fn the_device_that_is_ours_is_asked_and_nothing_stays_open() {
        let asked = |name: &str| LIBRARY.max_mr_size(|device| device == name);
        assert_eq!([asked("rdmap0"), asked("rdmap1"), asked("rdmap3")], [Some(4 << 30), Some(192 << 30), Some(u64::MAX)]);
        assert_eq!([asked("silent"), asked("rdmap4")], [None, None], "a figure of zero is none");
        assert_eq!(OPEN.get(), 0);
    }

    #[test]
    fn a_device_that_does_not_exist_has_no_limit() {
        assert_eq!(max_mr_size(|device| device == "no_such_device"), None);
    }

    #[test]
    fn the_figure_lies_where_the_header_puts_it() {
        assert_eq!(std::mem::offset_of!(DeviceAttr, max_mr_size), 80);
        assert!(size_of::<DeviceAttr>() >= 232);
    }
}

//! A libibverbs that does what the test tells it: the functions that pinrail-verbs calls, by their own names. The linker
//! takes these for the library's, so the crate is tested as it is, and nothing in it knows of this.
//!
//! It holds its callers to the rules: an object is freed once, and after everything that was made on it. Each thread has
//! a library of its own, so tests do not disturb each other; a test of several threads hands its own on.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use pinrail_verbs::sys;

/// Names of the devices, as C strings.
const NAMES: [&[u8]; 3] = [b"shim0\0", b"shim1\0", b"shim2\0"];

/// What a test sets, and what it can look at afterwards.
#[derive(Default)]
pub(crate) struct Library {
    /// Devices there are.
    pub(crate) devices: usize,
    /// What the next calls of a function answer: an errno, or 0 to do what they should. Nothing more: 0.
    pub(crate) answers: BTreeMap<&'static str, VecDeque<i32>>,
    /// Calls of each function.
    pub(crate) calls: BTreeMap<&'static str, usize>,
    pub(crate) max_mr: i32,
    pub(crate) max_mr_size: u64,
    pub(crate) fork_status: sys::ibv_fork_status,
    /// Arguments of registrations: address or offset, length, iova, descriptor, flags.
    pub(crate) registered: Vec<(u64, usize, u64, i32, u32)>,
    /// Whether there are dma-bufs.
    pub(crate) dma_bufs: bool,
    pub(crate) port_is_up: bool,
    /// How work requests complete; not at all while it is empty.
    pub(crate) completions: VecDeque<sys::ibv_wc_status::Type>,
    /// True to let the next registration not return.
    pub(crate) hang: bool,
    /// True while one does not return, until this is taken away again.
    pub(crate) hanging: bool,
    /// Requests that were posted: opcode, remote address, key, length.
    pub(crate) posted: Vec<(sys::ibv_wr_opcode::Type, u64, u32, u32)>,
    /// The devices, once they have been listed: open ones keep theirs, as in the real library.
    listed: Vec<sys::ibv_device>,
    /// Live objects: what each was made on. Keys are addresses.
    live: BTreeMap<usize, Object>,
    keys: u32,
}

struct Object {
    kind: &'static str,
    on: usize,
}

// SAFETY: the pointers in its devices are null.
unsafe impl Send for Library {}

thread_local! {
    static LIBRARY: RefCell<Arc<Mutex<Library>>> = RefCell::default();
}

/// Sets the calling thread's library up.
pub(crate) fn set(library: Library) {
    adopt(Arc::new(Mutex::new(library)));
}

/// The calling thread's library, for another thread to adopt.
pub(crate) fn shared() -> Arc<Mutex<Library>> {
    LIBRARY.with_borrow(Arc::clone)
}

/// Makes another thread's library the calling one's too.
pub(crate) fn adopt(library: Arc<Mutex<Library>>) {
    LIBRARY.replace(library);
}

/// A library with devices that have no limits, and ports that are up.
pub(crate) fn of_devices(devices: usize) -> Library {
    Library { devices, max_mr: 1 << 20, max_mr_size: u64::MAX, port_is_up: true, ..Library::default() }
}

/// Looks at it, or changes it.
pub(crate) fn with<T>(f: impl FnOnce(&mut Library) -> T) -> T {
    f(&mut shared().lock().unwrap())
}

pub(crate) fn calls(function: &'static str) -> usize {
    with(|library| library.calls.get(function).copied().unwrap_or(0))
}

/// Tells a function what to answer next.
pub(crate) fn answer(function: &'static str, errnos: impl IntoIterator<Item = i32>) {
    with(|library| library.answers.entry(function).or_default().extend(errnos));
}

/// Live objects of a kind: `context`, `pd`, `mr`, `cq`, `qp`.
pub(crate) fn live(kind: &str) -> usize {
    with(|library| library.live.values().filter(|object| object.kind == kind).count())
}

impl Library {
    /// Counts a call and says how it ends.
    fn called(&mut self, function: &'static str) -> i32 {
        *self.calls.entry(function).or_default() += 1;
        self.answers.get_mut(function).and_then(VecDeque::pop_front).unwrap_or(0)
    }

    fn is_used(&self, object: usize) -> bool {
        self.live.values().any(|other| other.on == object)
    }
}

fn fail(errno: i32) {
    // SAFETY: no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own errno.
    unsafe { place.write(errno) };
}

/// Makes an object on another one, as the next answer of the function allows.
fn make<T>(function: &'static str, kind: &'static str, on: usize, object: T) -> *mut T {
    with(|library| match library.called(function) {
        0 => {
            assert!(on == 0 || library.live.contains_key(&on), "{function} on something that is not live");
            let made = Box::into_raw(Box::new(object));
            library.live.insert(made.addr(), Object { kind, on });
            made
        }
        errno => {
            fail(errno);
            null_mut()
        }
    })
}

/// Frees an object, as the next answer of the function allows, if nothing is on it.
fn free<T>(function: &'static str, object: *mut T) -> c_int {
    with(|library| {
        let errno = library.called(function);
        assert!(library.live.contains_key(&object.addr()), "{function} of something that is not live");
        if errno != 0 || library.is_used(object.addr()) {
            return if errno == 0 { libc::EBUSY } else { errno };
        }
        library.live.remove(&object.addr());
        // SAFETY: made by `make` from a box, live until now.
        drop(unsafe { Box::from_raw(object) });
        0
    })
}

/// # Safety
/// `T` is a structure of integers, pointers that may be null and optional functions.
unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller's promise.
    unsafe { std::mem::zeroed() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut sys::ibv_device {
    let errno = with(|library| library.called("ibv_get_device_list"));
    if errno != 0 {
        fail(errno);
        return null_mut();
    }
    let mut list: Vec<*mut sys::ibv_device> = with(|library| {
        if library.listed.is_empty() {
            library.listed = NAMES[..library.devices].iter().map(|name| device(name)).collect();
        }
        library.listed.iter_mut().map(std::ptr::from_mut).collect()
    });
    // SAFETY: room for one result, by the caller.
    unsafe { *count = c_int::try_from(list.len()).unwrap() };
    list.push(null_mut());
    Box::leak(list.into_boxed_slice()).as_mut_ptr()
}

fn device(name: &[u8]) -> sys::ibv_device {
    // SAFETY: such a structure.
    let mut device: sys::ibv_device = unsafe { zeroed() };
    for (to, from) in device.name.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    device
}

#[unsafe(no_mangle)]
extern "C" fn ibv_free_device_list(list: *mut *mut sys::ibv_device) {
    let devices = with(|library| library.devices);
    // SAFETY: the list made above, with its null at the end.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, devices + 1)) });
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_name(device: *mut sys::ibv_device) -> *const c_char {
    // SAFETY: a device made above.
    unsafe { &raw const (*device).name }.cast()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_open_device(device: *mut sys::ibv_device) -> *mut sys::ibv_context {
    // SAFETY: such a structure.
    let mut context: sys::ibv_context = unsafe { zeroed() };
    context.device = device;
    context.ops.post_send = Some(post_send);
    context.ops.poll_cq = Some(poll_cq);
    make("ibv_open_device", "context", 0, context)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_close_device(context: *mut sys::ibv_context) -> c_int {
    free("ibv_close_device", context)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_query_device(_: *mut sys::ibv_context, attr: *mut sys::ibv_device_attr) -> c_int {
    with(|library| {
        // SAFETY: room for the structure, by the caller.
        let attr = unsafe { &mut *attr };
        (attr.max_mr, attr.max_mr_size) = (library.max_mr, library.max_mr_size);
        library.called("ibv_query_device")
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    make("ibv_alloc_pd", "pd", context.addr(), sys::ibv_pd { context, handle: 0 })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dealloc_pd(pd: *mut sys::ibv_pd) -> c_int {
    free("ibv_dealloc_pd", pd)
}

fn mr(function: &'static str, pd: *mut sys::ibv_pd, address: *mut c_void, length: usize) -> *mut sys::ibv_mr {
    let key = with(|library| {
        library.keys += 1;
        library.keys
    });
    // SAFETY: a live PD, which `make` checks too.
    let context = unsafe { (*pd).context };
    let mr = sys::ibv_mr { context, pd, addr: address, length, handle: 0, lkey: key, rkey: 0x1000_0000 + key };
    make(function, "mr", pd.addr(), mr)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_mr_iova2(
    pd: *mut sys::ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut sys::ibv_mr {
    with(|library| library.registered.push((address.addr() as u64, length, iova, -1, access)));
    if with(|library| std::mem::take(&mut library.hang)) {
        with(|library| library.hanging = true);
        while with(|library| library.hanging) {
            std::thread::yield_now();
        }
    }
    mr("ibv_reg_mr", pd, address, length)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut sys::ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut sys::ibv_mr {
    if !with(|library| library.dma_bufs) || fd < 0 {
        fail(if with(|library| library.dma_bufs) { libc::EBADF } else { libc::EOPNOTSUPP });
        return null_mut();
    }
    with(|library| library.registered.push((offset, length, iova, fd, access.cast_unsigned())));
    mr("ibv_reg_dmabuf_mr", pd, null_mut(), length)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dereg_mr(mr: *mut sys::ibv_mr) -> c_int {
    free("ibv_dereg_mr", mr)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> sys::ibv_fork_status {
    with(|library| library.fork_status)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    with(|library| library.called("ibv_fork_init"))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_query_port(_: *mut sys::ibv_context, port: u8, attr: *mut sys::_compat_ibv_port_attr) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    let state = if with(|library| library.port_is_up) {
        sys::ibv_port_state::IBV_PORT_ACTIVE
    } else {
        sys::ibv_port_state::IBV_PORT_DOWN
    };
    // SAFETY: room for the structure, by the caller; the fields written are in both of its forms.
    let attr = unsafe { &mut *attr.cast::<sys::ibv_port_attr>() };
    (attr.state, attr.lid, attr.max_msg_sz) = (state, 5, 1 << 30);
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_create_cq(
    context: *mut sys::ibv_context,
    _: c_int,
    _: *mut c_void,
    _: *mut sys::ibv_comp_channel,
    _: c_int,
) -> *mut sys::ibv_cq {
    // SAFETY: such a structure.
    let mut cq: sys::ibv_cq = unsafe { zeroed() };
    cq.context = context;
    make("ibv_create_cq", "cq", context.addr(), cq)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_cq(cq: *mut sys::ibv_cq) -> c_int {
    free("ibv_destroy_cq", cq)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_create_qp(pd: *mut sys::ibv_pd, attr: *mut sys::ibv_qp_init_attr) -> *mut sys::ibv_qp {
    // SAFETY: such a structure.
    let mut qp: sys::ibv_qp = unsafe { zeroed() };
    // SAFETY: a live PD.
    (qp.context, qp.pd) = (unsafe { (*pd).context }, pd);
    // SAFETY: a valid structure, by the caller.
    qp.send_cq = unsafe { (*attr).send_cq };
    make("ibv_create_qp", "qp", pd.addr(), qp)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_modify_qp(_: *mut sys::ibv_qp, _: *mut sys::ibv_qp_attr, _: c_int) -> c_int {
    with(|library| library.called("ibv_modify_qp"))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    free("ibv_destroy_qp", qp)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: sys::ibv_wc_status::Type) -> *const c_char {
    if status == sys::ibv_wc_status::IBV_WC_REM_ACCESS_ERR { c"remote access error".as_ptr() } else { c"other".as_ptr() }
}

unsafe extern "C" fn post_send(_: *mut sys::ibv_qp, request: *mut sys::ibv_send_wr, _: *mut *mut sys::ibv_send_wr) -> c_int {
    // SAFETY: a valid request, by the caller.
    let request = unsafe { &*request };
    // SAFETY: a list of one element, by the caller.
    let element = unsafe { &*request.sg_list };
    // SAFETY: every request of the crate is an RDMA write or read.
    let remote = unsafe { request.wr.rdma };
    with(|library| {
        library.posted.push((request.opcode, remote.remote_addr, remote.rkey, element.length));
        library.called("post_send")
    })
}

unsafe extern "C" fn poll_cq(_: *mut sys::ibv_cq, _: c_int, completion: *mut sys::ibv_wc) -> c_int {
    with(|library| {
        let Some(status) = library.completions.pop_front() else { return 0 };
        // SAFETY: room for one entry, by the caller.
        unsafe { (*completion).status = status };
        1
    })
}

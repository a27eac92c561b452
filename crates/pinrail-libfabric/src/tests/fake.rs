//! A provider in a few structures: registrations in a table, transfers by copying, and every mr_mode bit enforced.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};

use libfabric_sys::bindgen as fi;
use pinrail_core::{Access, Extent};
use pinrail_memory::Maps;

use crate::domain::Domain;
use crate::ffi::{Fid, Owned, native};
use crate::info::Info;
use crate::{Borrowed, Libfabric};

/// What is added to a raw key's address, so that only who uses the provider's base reaches the memory.
const RAW_BIAS: u64 = 1 << 40;

/// The provider and one open domain of it.
pub(crate) struct Fake {
    pub(crate) state: Arc<State>,
    info: Info,
    domain: Option<NonNull<FakeDomain>>,
}

pub(crate) struct State {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct Inner {
    mr_mode: u32,
    /// Live registrations by key, as transfers name it.
    regions: BTreeMap<u64, Region>,
    /// Keys that the caller's other registrations hold.
    pub(crate) keys_of_others: BTreeSet<u64>,
    mapped: BTreeMap<u64, u64>,
    completions: BTreeMap<usize, VecDeque<i32>>,
    provider_keys: u64,
    /// Registrations asked for so far.
    pub(crate) calls: u64,
    /// Registrations, counted from 1, that fail, and how.
    pub(crate) fail: BTreeMap<u64, i32>,
    /// True to take transfers and never do them.
    pub(crate) silent: bool,
    /// True to look at the memory, as a provider does that pins it.
    pub(crate) pins: bool,
    /// What the next closings of registrations answer; success when empty.
    pub(crate) close: VecDeque<i32>,
    /// What the next bindings answer; success when empty.
    pub(crate) bind: VecDeque<i32>,
    /// The registration that does not return until this is taken away again.
    pub(crate) hang: Option<u64>,
    /// True while one does not return.
    pub(crate) hanging: bool,
    /// The last dma-buf that a registration was asked for: descriptor, offset, length, and its first byte's address.
    pub(crate) dma_buf: Option<(i32, u64, usize, u64)>,
    /// Objects of any kind that are open.
    pub(crate) open: i64,
}

#[derive(Clone, Copy)]
struct Region {
    address: u64,
    len: u64,
    access: u64,
    desc: usize,
}

impl Fake {
    pub(crate) fn new(mr_mode: u32) -> Fake {
        Fake::with(mr_mode, |_| {})
    }

    /// With an entry that `change` has changed.
    pub(crate) fn with(mr_mode: u32, change: impl FnOnce(&mut fi::fi_domain_attr)) -> Fake {
        let inner = Inner { mr_mode, provider_keys: 1000, ..Inner::default() };
        let state = Arc::new(State { inner: Mutex::new(inner), changed: Condvar::new() });
        let info = entry(mr_mode, change);
        let domain = Some(FakeDomain::open(&state));
        Fake { state, info, domain }
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.state.inner()
    }

    /// Live registrations.
    pub(crate) fn live(&self) -> usize {
        self.inner().regions.len()
    }

    /// Waits until a registration hangs.
    pub(crate) fn wait_until_hanging(&self) {
        let mut inner = self.inner();
        while !inner.hanging {
            inner = self.state.changed.wait(inner).unwrap();
        }
    }

    /// Lets the registration that hangs return.
    pub(crate) fn release(&self) {
        self.inner().hang = None;
        self.state.changed.notify_all();
    }

    /// An enabled endpoint of the caller's.
    pub(crate) fn endpoint(&self) -> Owned<fi::fid_ep> {
        let ep = FakeEp::open(&self.state);
        // SAFETY: just made, not yet shared.
        unsafe { (*ep.as_ptr()).enabled = true };
        owned(ep.cast())
    }

    /// The domain as a caller would lend it.
    pub(crate) fn borrowed(&self) -> Borrowed {
        Borrowed {
            name: "fake".to_owned(),
            info: self.info.as_ptr(),
            domain: self.domain.unwrap().cast(),
            endpoint: None,
            keys: Some(1..=100),
        }
    }

    /// A registrar over the borrowed domain.
    pub(crate) fn registrar(&self) -> Libfabric {
        // SAFETY: the domain lives as long as the fake, which the tests keep until the end.
        unsafe { Libfabric::borrow(&[self.borrowed()]) }.unwrap()
    }

    /// A registrar that has opened a domain of its own.
    pub(crate) fn opened(&self) -> Libfabric {
        let fabric = owned(FakeFabric::open(&self.state).cast());
        // SAFETY: our own valid entry.
        let info = unsafe { Info::copy(self.info.as_ptr()) }.unwrap();
        Libfabric::of(vec![(None, Domain::on_fabric(fabric, info).unwrap())])
    }

    /// Closes the lent domain as its owner does.
    pub(crate) fn close(&mut self) -> i32 {
        // SAFETY: open, or already closed and null.
        self.domain.take().map_or(0, |domain| unsafe { fi::fi_close(domain.as_ptr().cast()) })
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Inner {
    fn needs(&self, mode: u32) -> bool {
        self.mr_mode & mode != 0
    }

    /// The region that a transfer reaches, and where in it.
    fn reach(&self, at: u64, len: u64, key: u64, access: u32) -> Result<u64, i32> {
        let key = if self.needs(fi::FI_MR_RAW) { *self.mapped.get(&key).ok_or(libc::EACCES)? } else { key };
        let region = self.regions.get(&key).ok_or(libc::EACCES)?;
        let base = match () {
            () if self.needs(fi::FI_MR_RAW) => region.address + RAW_BIAS,
            () if self.needs(fi::FI_MR_VIRT_ADDR) => region.address,
            () => 0,
        };
        let offset = at.checked_sub(base).ok_or(libc::EACCES)?;
        let inside = offset.checked_add(len).is_some_and(|end| end <= region.len);
        let granted = region.access & u64::from(access) != 0;
        if inside && granted { Ok(region.address + offset) } else { Err(libc::EACCES) }
    }

    /// Local buffers lie in a registration whose descriptor is named, where the mode asks for it.
    fn local_is_registered(&self, buffer: u64, len: u64, desc: usize) -> bool {
        let covers = |region: &Region| region.address <= buffer && buffer + len <= region.address + region.len;
        !self.needs(fi::FI_MR_LOCAL) || self.regions.values().any(|region| region.desc == desc && covers(region))
    }
}

fn entry(mr_mode: u32, change: impl FnOnce(&mut fi::fi_domain_attr)) -> Info {
    // SAFETY: no preconditions.
    let info = unsafe { fi::fi_allocinfo() };
    // SAFETY: fresh and ours to free.
    let info = unsafe { Info::take(info) }.unwrap();
    // SAFETY: fresh and ours alone.
    let entry = unsafe { &mut *info.as_ptr() };
    entry.caps = u64::from(fi::FI_RMA) | fi::FI_HMEM;
    // SAFETY: allocated with the entry.
    let endpoint = unsafe { &mut *entry.ep_attr };
    endpoint.type_ = fi::fi_ep_type_FI_EP_RDM;
    endpoint.max_msg_size = 1 << 20;
    // SAFETY: as above.
    let fabric = unsafe { &mut *entry.fabric_attr };
    // SAFETY: a NUL-terminated string; freed with the entry.
    fabric.prov_name = unsafe { libc::strdup(c"fake".as_ptr()) };
    // SAFETY: as above.
    let domain = unsafe { &mut *entry.domain_attr };
    // SAFETY: as above.
    domain.name = unsafe { libc::strdup(c"fake0".as_ptr()) };
    domain.threading = fi::fi_threading_FI_THREAD_SAFE;
    domain.mr_mode = mr_mode.cast_signed();
    domain.mr_key_size = if mr_mode & fi::FI_MR_RAW != 0 { 24 } else { 8 };
    change(domain);
    info
}

/// An object with its provider behind it.
macro_rules! object {
    ($name:ident($inner:ty) { $($field:ident: $type:ty),* }) => {
        #[repr(C)]
        struct $name {
            fid: $inner,
            state: Arc<State>,
            $($field: $type,)*
        }

        impl $name {
            fn place(self) -> NonNull<$name> {
                self.state.inner().open += 1;
                NonNull::from(Box::leak(Box::new(self)))
            }

            unsafe extern "C" fn close(fid: *mut fi::fid) -> c_int {
                // SAFETY: an object that `place` leaked, closed once.
                let object = unsafe { Box::from_raw(fid.cast::<$name>()) };
                object.state.inner().open -= 1;
                0
            }
        }
    };
}

object!(FakeFabric(fi::fid_fabric) {});
object!(FakeDomain(fi::fid_domain) {});
object!(FakeMr(fi::fid_mr) { key: u64, region: Region, bound: bool });
object!(FakeEp(fi::fid_ep) { cq: usize, enabled: bool });
object!(FakeCq(fi::fid_cq) {});
object!(FakeAv(fi::fid_av) {});

/// A table of operations, which libfabric names by a pointer that it never writes through.
macro_rules! table {
    ($type:ident { $($name:ident: $operation:expr),* }) => {{
        static TABLE: LazyLock<fi::$type> =
            LazyLock::new(|| fi::$type { $($name: Some($operation),)* ..Default::default() });
        (&raw const *TABLE).cast_mut()
    }};
}

/// Closes it when dropped.
fn owned<T: Fid>(object: NonNull<T>) -> Owned<T> {
    let open = |made: *mut *mut T| {
        // SAFETY: valid for one result.
        unsafe { made.write(object.as_ptr()) };
        0
    };
    Owned::open("fake", open).unwrap()
}

fn fid(class: u32, ops: *mut fi::fi_ops) -> fi::fid {
    fi::fid { fclass: class as usize, context: std::ptr::null_mut(), ops }
}

impl FakeFabric {
    fn open(state: &Arc<State>) -> NonNull<FakeFabric> {
        let ops = table!(fi_ops_fabric { domain: FakeFabric::domain });
        let fid = fid(fi::FI_CLASS_FABRIC, table!(fi_ops { close: FakeFabric::close }));
        FakeFabric { fid: fi::fid_fabric { fid, ops, api_version: 0 }, state: Arc::clone(state) }.place()
    }

    unsafe extern "C" fn domain(
        fabric: *mut fi::fid_fabric,
        _: *mut fi::fi_info,
        made: *mut *mut fi::fid_domain,
        _: *mut c_void,
    ) -> c_int {
        // SAFETY: one of our fabrics.
        let fabric = unsafe { &*fabric.cast::<FakeFabric>() };
        // SAFETY: valid for one result.
        unsafe { made.write(FakeDomain::open(&fabric.state).as_ptr().cast()) };
        0
    }
}

impl FakeDomain {
    fn open(state: &Arc<State>) -> NonNull<FakeDomain> {
        let ops =
            table!(fi_ops_domain { av_open: FakeDomain::av_open, cq_open: FakeDomain::cq_open, endpoint: FakeDomain::endpoint });
        let mr = table!(fi_ops_mr { regattr: FakeDomain::regattr });
        let control = table!(fi_ops { close: FakeDomain::close_unused, control: FakeDomain::control });
        let fid = fi::fid_domain { fid: fid(fi::FI_CLASS_DOMAIN, control), ops, mr };
        FakeDomain { fid, state: Arc::clone(state) }.place()
    }

    /// # Safety
    /// `pointer` is one of our domains, or its first field.
    unsafe fn of<'d, T>(pointer: *mut T) -> &'d FakeDomain {
        // SAFETY: the caller's promise.
        unsafe { &*pointer.cast::<FakeDomain>() }
    }

    /// As libfabric's: busy while something of the domain is open.
    unsafe extern "C" fn close_unused(fid: *mut fi::fid) -> c_int {
        // SAFETY: one of our domains.
        let live = unsafe { FakeDomain::of(fid) }.state.inner().regions.len();
        if live > 0 {
            return -libc::EBUSY;
        }
        // SAFETY: as above; closed once.
        unsafe { FakeDomain::close(fid) }
    }

    unsafe extern "C" fn av_open(
        domain: *mut fi::fid_domain,
        _: *mut fi::fi_av_attr,
        made: *mut *mut fi::fid_av,
        _: *mut c_void,
    ) -> c_int {
        // SAFETY: one of our domains.
        let state = Arc::clone(&unsafe { FakeDomain::of(domain) }.state);
        let ops = table!(fi_ops_av { insert: insert });
        let fid = fid(fi::FI_CLASS_AV, table!(fi_ops { close: FakeAv::close }));
        // SAFETY: valid for one result.
        unsafe { made.write(FakeAv { fid: fi::fid_av { fid, ops }, state }.place().as_ptr().cast()) };
        0
    }

    unsafe extern "C" fn cq_open(
        domain: *mut fi::fid_domain,
        _: *mut fi::fi_cq_attr,
        made: *mut *mut fi::fid_cq,
        _: *mut c_void,
    ) -> c_int {
        // SAFETY: one of our domains.
        let state = Arc::clone(&unsafe { FakeDomain::of(domain) }.state);
        let ops = table!(fi_ops_cq { read: FakeCq::read, readerr: FakeCq::readerr });
        let fid = fid(fi::FI_CLASS_CQ, table!(fi_ops { close: FakeCq::close }));
        // SAFETY: valid for one result.
        unsafe { made.write(FakeCq { fid: fi::fid_cq { fid, ops }, state }.place().as_ptr().cast()) };
        0
    }

    unsafe extern "C" fn endpoint(
        domain: *mut fi::fid_domain,
        _: *mut fi::fi_info,
        made: *mut *mut fi::fid_ep,
        _: *mut c_void,
    ) -> c_int {
        // SAFETY: one of our domains.
        let state = &unsafe { FakeDomain::of(domain) }.state;
        // SAFETY: valid for one result.
        unsafe { made.write(FakeEp::open(state).as_ptr().cast()) };
        0
    }

    unsafe extern "C" fn regattr(
        domain: *mut fi::fid,
        attr: *const fi::fi_mr_attr,
        flags: u64,
        made: *mut *mut fi::fid_mr,
    ) -> c_int {
        // SAFETY: one of our domains.
        let state = &unsafe { FakeDomain::of(domain) }.state;
        // SAFETY: valid during the call.
        let attr = unsafe { &*attr };
        let mut inner = state.inner();
        inner.calls += 1;
        let call = inner.calls;
        while inner.hang == Some(call) {
            inner.hanging = true;
            state.changed.notify_all();
            inner = state.changed.wait(inner).unwrap();
        }
        if let Some(errno) = inner.fail.get(&call) {
            return -errno;
        }
        if flags != 0 {
            inner.dma_buf = dma_buf(attr, flags);
            // What this provider says to dma-bufs.
            return -libc::EOPNOTSUPP;
        }
        // SAFETY: without flags the first field is the vector, in every version.
        let iov = unsafe { (&raw const *attr).cast::<*const libc::iovec>().read() };
        // SAFETY: one element, valid during the call.
        let iov = unsafe { iov.read() };
        let extent = Extent::new(iov.iov_base.expose_provenance() as u64, iov.iov_len as u64).unwrap();
        let written = attr.access & u64::from(fi::FI_REMOTE_WRITE | fi::FI_RECV | fi::FI_READ) != 0;
        let access = if written { Access::LOCAL_WRITE } else { Access::REMOTE_READ };
        if inner.pins && Maps::read().unwrap().check(extent, access).is_err() {
            return -libc::EFAULT;
        }
        let key = if inner.needs(fi::FI_MR_PROV_KEY | fi::FI_MR_RAW) {
            inner.provider_keys += 1;
            inner.provider_keys
        } else if inner.regions.contains_key(&attr.requested_key) || inner.keys_of_others.contains(&attr.requested_key) {
            return -fi::FI_ENOKEY.cast_signed();
        } else {
            attr.requested_key
        };
        let region =
            Region { address: iov.iov_base.expose_provenance() as u64, len: iov.iov_len as u64, access: attr.access, desc: 0 };
        let late = inner.needs(fi::FI_MR_ENDPOINT);
        drop(inner);
        let ops = table!(fi_ops { close: FakeMr::deregister, bind: FakeMr::bind, control: FakeMr::control });
        // Neither can be read before the registration is enabled.
        let visible = if late { u64::MAX } else { key };
        let fid = fi::fid_mr { fid: fid(fi::FI_CLASS_MR, ops), mem_desc: std::ptr::null_mut(), key: visible };
        let mr = FakeMr { fid, state: Arc::clone(state), key, region, bound: false }.place().as_ptr();
        // SAFETY: just made.
        unsafe { (*mr).fid.mem_desc = mr.cast() };
        let region = Region { desc: mr.expose_provenance(), ..region };
        state.inner().regions.insert(key, region);
        // SAFETY: valid for one result.
        unsafe { made.write(mr.cast()) };
        0
    }

    unsafe extern "C" fn control(domain: *mut fi::fid, command: c_int, argument: *mut c_void) -> c_int {
        // SAFETY: one of our domains.
        let mut inner = unsafe { FakeDomain::of(domain) }.state.inner();
        if command == fi::FI_MAP_RAW_MR.cast_signed() {
            // SAFETY: the argument of this command.
            let map = unsafe { &*argument.cast::<fi::fi_mr_map_raw>() };
            // SAFETY: the caller's key of that length.
            let raw = unsafe { std::slice::from_raw_parts(map.raw_key, map.key_size) };
            let Some(key) = key_of_raw(raw) else { return -libc::EINVAL };
            if inner.regions.get(&key).is_none_or(|region| region.address + RAW_BIAS != map.base_addr) {
                return -libc::EINVAL;
            }
            let handle = 5000 + key;
            inner.mapped.insert(handle, key);
            // SAFETY: valid for one result.
            unsafe { map.key.write(handle) };
            return 0;
        }
        if command == fi::FI_UNMAP_KEY.cast_signed() {
            // SAFETY: the argument of this command.
            let handle = unsafe { argument.cast::<u64>().read() };
            return if inner.mapped.remove(&handle).is_some() { 0 } else { -libc::EINVAL };
        }
        -libc::ENOSYS
    }
}

#[cfg(fi_mr_dmabuf)]
fn dma_buf(attr: &fi::fi_mr_attr, flags: u64) -> Option<(i32, u64, usize, u64)> {
    if flags != u64::from(fi::FI_MR_DMABUF) {
        return None;
    }
    // SAFETY: with this flag that member of the union is set.
    let dma_buf = unsafe { attr.__bindgen_anon_1.dmabuf };
    // SAFETY: valid during the call.
    let dma_buf = unsafe { &*dma_buf };
    Some((dma_buf.fd, dma_buf.offset, dma_buf.len, dma_buf.base_addr.expose_provenance() as u64))
}

#[cfg(not(fi_mr_dmabuf))]
fn dma_buf(_: &fi::fi_mr_attr, _: u64) -> Option<(i32, u64, usize, u64)> {
    None
}

/// 24 bytes of which the last 8 are the key.
fn raw_of_key(key: u64) -> [u8; 24] {
    let mut raw = [0xab; 24];
    raw[16..].copy_from_slice(&key.to_be_bytes());
    raw
}

fn key_of_raw(raw: &[u8]) -> Option<u64> {
    let (head, tail) = raw.split_at_checked(16)?;
    let plain = head.iter().all(|byte| *byte == 0xab);
    plain.then(|| tail.try_into().ok().map(u64::from_be_bytes))?
}

impl FakeMr {
    unsafe extern "C" fn deregister(fid: *mut fi::fid) -> c_int {
        // SAFETY: one of our registrations.
        let mr = unsafe { &*fid.cast::<FakeMr>() };
        let mut inner = mr.state.inner();
        match inner.close.pop_front() {
            Some(0) | None => {}
            Some(errno) => return -errno,
        }
        inner.regions.remove(&mr.key);
        drop(inner);
        // SAFETY: as above; closed once.
        unsafe { FakeMr::close(fid) }
    }

    unsafe extern "C" fn bind(fid: *mut fi::fid, to: *mut fi::fid, _: u64) -> c_int {
        // SAFETY: one of our registrations, used by one thread while it is made.
        let mr = unsafe { &mut *fid.cast::<FakeMr>() };
        if let Some(errno) = mr.state.inner().bind.pop_front() {
            return -errno;
        }
        // SAFETY: an open object.
        mr.bound = unsafe { (*to).fclass } == fi::FI_CLASS_EP as usize;
        if mr.bound { 0 } else { -libc::EINVAL }
    }

    unsafe extern "C" fn control(fid: *mut fi::fid, command: c_int, argument: *mut c_void) -> c_int {
        // SAFETY: one of our registrations, used by one thread while it is made.
        let mr = unsafe { &mut *fid.cast::<FakeMr>() };
        if command == fi::FI_ENABLE.cast_signed() {
            if !mr.bound {
                return -libc::EINVAL;
            }
            mr.fid.key = mr.key;
            return 0;
        }
        if command == fi::FI_GET_RAW_MR.cast_signed() {
            // SAFETY: the argument of this command.
            let attr = unsafe { &*argument.cast::<fi::fi_mr_raw_attr>() };
            let raw = raw_of_key(mr.key);
            // SAFETY: valid for reads and writes.
            let size = unsafe { &mut *attr.key_size };
            let room = std::mem::replace(size, raw.len());
            if room < raw.len() {
                return -fi::FI_ETOOSMALL.cast_signed();
            }
            // SAFETY: room for the key, as just checked.
            unsafe { std::ptr::copy_nonoverlapping(raw.as_ptr(), attr.raw_key, raw.len()) };
            // SAFETY: valid for one result.
            unsafe { attr.base_addr.write(mr.region.address + RAW_BIAS) };
            return 0;
        }
        -libc::ENOSYS
    }
}

impl FakeEp {
    fn open(state: &Arc<State>) -> NonNull<FakeEp> {
        let control = table!(fi_ops { close: FakeEp::close, bind: FakeEp::bind, control: FakeEp::control });
        let cm = table!(fi_ops_cm { getname: FakeEp::getname });
        let rma = table!(fi_ops_rma { read: FakeEp::read, write: FakeEp::write });
        let fid = fi::fid_ep {
            fid: fid(fi::FI_CLASS_EP, control),
            cm,
            rma,
            ops: std::ptr::null_mut(),
            msg: std::ptr::null_mut(),
            tagged: std::ptr::null_mut(),
            atomic: std::ptr::null_mut(),
            collective: std::ptr::null_mut(),
        };
        FakeEp { fid, state: Arc::clone(state), cq: 0, enabled: false }.place()
    }

    unsafe extern "C" fn bind(fid: *mut fi::fid, to: *mut fi::fid, _: u64) -> c_int {
        // SAFETY: an open object.
        if unsafe { (*to).fclass } == fi::FI_CLASS_CQ as usize {
            // SAFETY: one of our endpoints, used by one thread while it is made.
            unsafe { (*fid.cast::<FakeEp>()).cq = to.expose_provenance() };
        }
        0
    }

    unsafe extern "C" fn control(fid: *mut fi::fid, command: c_int, _: *mut c_void) -> c_int {
        // SAFETY: one of our endpoints, used by one thread while it is made.
        unsafe { (*fid.cast::<FakeEp>()).enabled = command == fi::FI_ENABLE.cast_signed() };
        0
    }

    unsafe extern "C" fn getname(_: *mut fi::fid, name: *mut c_void, len: *mut usize) -> c_int {
        // SAFETY: the caller's buffer, which has room for more than one byte.
        unsafe { name.cast::<u8>().write(7) };
        // SAFETY: valid for one result.
        unsafe { len.write(1) };
        0
    }

    unsafe extern "C" fn write(
        ep: *mut fi::fid_ep,
        buffer: *const c_void,
        len: usize,
        desc: *mut c_void,
        _: fi::fi_addr_t,
        at: u64,
        key: u64,
        _: *mut c_void,
    ) -> isize {
        // SAFETY: one of our endpoints.
        let ep = unsafe { &*ep.cast::<FakeEp>() };
        ep.operate(buffer.expose_provenance(), len, desc, |inner| {
            let to = inner.reach(at, len as u64, key, fi::FI_REMOTE_WRITE)?;
            // SAFETY: both registered by the test and mapped; the provider alone touches them now.
            unsafe { std::ptr::copy(buffer.cast::<u8>(), std::ptr::with_exposed_provenance_mut(native(to)), len) };
            Ok(())
        })
    }

    unsafe extern "C" fn read(
        ep: *mut fi::fid_ep,
        buffer: *mut c_void,
        len: usize,
        desc: *mut c_void,
        _: fi::fi_addr_t,
        at: u64,
        key: u64,
        _: *mut c_void,
    ) -> isize {
        // SAFETY: one of our endpoints.
        let ep = unsafe { &*ep.cast::<FakeEp>() };
        ep.operate(buffer.expose_provenance(), len, desc, |inner| {
            let from = inner.reach(at, len as u64, key, fi::FI_REMOTE_READ)?;
            // SAFETY: as in `write`.
            unsafe { std::ptr::copy(std::ptr::with_exposed_provenance::<u8>(native(from)), buffer.cast(), len) };
            Ok(())
        })
    }

    fn operate(&self, buffer: usize, len: usize, desc: *mut c_void, copy: impl Fn(&Inner) -> Result<(), i32>) -> isize {
        let mut inner = self.state.inner();
        if !self.enabled || !inner.local_is_registered(buffer as u64, len as u64, desc.addr()) {
            return -(libc::EINVAL as isize);
        }
        if inner.silent {
            return 0;
        }
        let completion = copy(&inner).err().unwrap_or(0);
        inner.completions.entry(self.cq).or_default().push_back(completion);
        0
    }
}

impl FakeCq {
    unsafe extern "C" fn read(cq: *mut fi::fid_cq, _: *mut c_void, _: usize) -> isize {
        // SAFETY: one of our queues.
        let state = &unsafe { &*cq.cast::<FakeCq>() }.state;
        let mut inner = state.inner();
        let queue = inner.completions.entry(cq.expose_provenance()).or_default();
        match queue.front() {
            None => -(libc::EAGAIN as isize),
            Some(0) => {
                queue.pop_front();
                1
            }
            Some(_) => -isize::try_from(fi::FI_EAVAIL).unwrap(),
        }
    }

    unsafe extern "C" fn readerr(cq: *mut fi::fid_cq, entry: *mut fi::fi_cq_err_entry, _: u64) -> isize {
        // SAFETY: one of our queues.
        let state = &unsafe { &*cq.cast::<FakeCq>() }.state;
        let errno = state.inner().completions.entry(cq.expose_provenance()).or_default().pop_front();
        // SAFETY: the caller's entry.
        let entry = unsafe { &mut *entry };
        entry.err = errno.unwrap_or(libc::EIO);
        1
    }
}

unsafe extern "C" fn insert(
    _: *mut fi::fid_av,
    _: *const c_void,
    count: usize,
    made: *mut fi::fi_addr_t,
    _: u64,
    _: *mut c_void,
) -> c_int {
    // SAFETY: valid for one result.
    unsafe { made.write(0) };
    c_int::try_from(count).unwrap()
}

//! Two queue pairs of one rail, connected to each other: what a peer would do to its registrations, on one machine.

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use pinrail_core::{Cause, Memory, MoveError, errno_name};
use pinrail_memory::{Mapping, Pages};
use rdma_sys as sys;
use sys::ibv_qp_attr_mask as Mask;

use crate::deadline::Deadline;
use crate::domain::Domain;
use crate::ffi;

/// Bytes that pass through the local buffer at once.
const BOUNCE: usize = 64 << 10;

/// GIDs of a port that are looked at: its addresses come first in a table that may have a thousand places.
const GIDS_LOOKED_AT: i32 = 32;

/// `IBV_LINK_LAYER_ETHERNET` of infiniband/verbs.h, in an enum without a name. Without one set it is InfiniBand.
const LINK_LAYER_ETHERNET: u8 = 2;

/// The local end, which reads and writes, and the peer, which has no part in it but to answer.
///
/// It is given up after the first failure, which breaks a reliable connection, and made anew for the next transfer.
pub(crate) struct Pair {
    // Dropped in this order: queue pairs before the queue they report to.
    source: Qp,
    _target: Qp,
    cq: Cq,
    bounce: Bounce,
    piece_max: usize,
}

// SAFETY: the objects belong to nobody else and to no thread, as libibverbs has it.
unsafe impl Send for Pair {}

/// What to move.
pub(crate) enum Bytes<'b> {
    In(&'b [u8]),
    Out(&'b mut [u8]),
}

impl Bytes<'_> {
    /// The call it is moved by, for errors.
    pub(crate) fn api(&self) -> &'static str {
        match self {
            Bytes::In(_) => "ibv_post_send(RDMA_WRITE)",
            Bytes::Out(_) => "ibv_post_send(RDMA_READ)",
        }
    }
}

impl Pair {
    pub(crate) fn open(domain: &Domain) -> Result<Pair, MoveError> {
        let port = Port::active(domain)?;
        let cq = Cq::new(domain)?;
        let (source, target) = (Qp::new(domain, &cq)?, Qp::new(domain, &cq)?);
        source.connect(&port, target.number(), domain)?;
        target.connect(&port, source.number(), domain)?;
        let piece_max = BOUNCE.min(usize::try_from(port.attr.max_msg_sz).unwrap_or(BOUNCE)).max(1);
        Ok(Pair { source, _target: target, cq, bounce: Bounce::new(domain)?, piece_max })
    }

    /// Moves bytes to or from the addresses from `remote` on, in pieces, with the key of the registration there.
    pub(crate) fn transfer(&self, rkey: u32, mut remote: u64, bytes: Bytes<'_>, deadline: &Deadline) -> Result<(), MoveError> {
        let api = bytes.api();
        match bytes {
            Bytes::In(from) => {
                for piece in from.chunks(self.piece_max) {
                    self.bounce.fill(piece)?;
                    self.operate(api, sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE, piece.len(), rkey, remote, deadline)?;
                    remote = remote.wrapping_add(piece.len() as u64);
                }
            }
            Bytes::Out(into) => {
                for piece in into.chunks_mut(self.piece_max) {
                    self.operate(api, sys::ibv_wr_opcode::IBV_WR_RDMA_READ, piece.len(), rkey, remote, deadline)?;
                    self.bounce.drain(piece)?;
                    remote = remote.wrapping_add(piece.len() as u64);
                }
            }
        }
        Ok(())
    }

    /// One work request from its posting to its completion.
    fn operate(
        &self,
        api: &'static str,
        opcode: sys::ibv_wr_opcode::Type,
        len: usize,
        rkey: u32,
        remote: u64,
        deadline: &Deadline,
    ) -> Result<(), MoveError> {
        let mut sge = self.bounce.element(len);
        // SAFETY: a structure of integers, pointers that may be null, and unions of such.
        let mut request: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
        request.sg_list = &raw mut sge;
        request.num_sge = 1;
        request.opcode = opcode;
        request.send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        request.wr.rdma = sys::rdma_t { remote_addr: remote, rkey };
        let mut refused = std::ptr::null_mut();
        // SAFETY: a connected queue pair; the request and its list live through the call. The buffer stays mapped until its
        // registration is gone.
        let posted = ffi::status(unsafe { sys::ibv_post_send(self.source.0.as_ptr(), &raw mut request, &raw mut refused) });
        posted.map_err(|errno| failed(api, errno))?;
        loop {
            // SAFETY: a structure of integers and unions of such.
            let mut completion: sys::ibv_wc = unsafe { std::mem::zeroed() };
            // SAFETY: an open queue, and room for one entry.
            match unsafe { sys::ibv_poll_cq(self.cq.0.as_ptr(), 1, &raw mut completion) } {
                0 => deadline.pause(api)?,
                1 if completion.status == sys::ibv_wc_status::IBV_WC_SUCCESS => return Ok(()),
                1 => return Err(not_completed(api, &completion)),
                // Without an errno, as ibv_poll_cq(3) has it.
                _ => return Err(other("ibv_poll_cq", None, "the completion queue cannot be read".to_owned())),
            }
        }
    }
}

fn not_completed(api: &'static str, completion: &sys::ibv_wc) -> MoveError {
    // SAFETY: no preconditions.
    let text = unsafe { sys::ibv_wc_status_str(completion.status) };
    // SAFETY: the library has a static string for every number.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    other(api, None, format!("{text} (completion status {}, vendor error {})", completion.status, completion.vendor_err))
}

fn failed(api: &'static str, errno: i32) -> MoveError {
    let cause = match errno {
        libc::EAGAIN => Cause::Again,
        libc::ENOMEM => Cause::Exhausted { what: "the device or the kernel has no room for it".to_owned() },
        libc::EOPNOTSUPP => Cause::NotSupported { what: "the device has no reliable connections".to_owned() },
        _ => Cause::Other { what: format!("the device says {} and nothing more", errno_name(errno)) },
    };
    MoveError::new(api, Some(errno), cause)
}

fn not_copied(why: std::io::Error) -> MoveError {
    other("process_vm_readv", why.raw_os_error(), format!("bytes cannot be copied to and from a buffer of ours: {why}"))
}

fn other(api: &'static str, errno: Option<i32>, what: String) -> MoveError {
    MoveError::new(api, errno, Cause::Other { what })
}

/// A port that is up, and where it is on its fabric.
struct Port {
    number: u8,
    attr: sys::ibv_port_attr,
    /// Where its link layer or its lack of a LID asks for global routing: a GID of the port and its place in the table.
    gid: Option<(u8, sys::ibv_gid)>,
}

impl Port {
    fn active(domain: &Domain) -> Result<Port, MoveError> {
        for number in 1..=u8::MAX {
            // SAFETY: a structure of integers, for which zero is a value.
            let mut attr: sys::ibv_port_attr = unsafe { std::mem::zeroed() };
            // The type of the parameter is the structure as it was before its last fields were added, which stay zero.
            // SAFETY: an open device, and room for more than the library writes.
            let queried = unsafe { sys::ibv_query_port(domain.context().as_ptr(), number, (&raw mut attr).cast()) };
            match ffi::status(queried) {
                Ok(()) if attr.state == sys::ibv_port_state::IBV_PORT_ACTIVE => return Port::at(domain, number, attr),
                Ok(()) => {}
                Err(_) => break,
            }
        }
        Err(other("ibv_query_port", None, format!("no port of {} is up", domain.device)))
    }

    fn at(domain: &Domain, number: u8, attr: sys::ibv_port_attr) -> Result<Port, MoveError> {
        if attr.link_layer != LINK_LAYER_ETHERNET && attr.lid != 0 {
            return Ok(Port { number, attr, gid: None });
        }
        let gids = (0..attr.gid_tbl_len.min(GIDS_LOOKED_AT)).map_while(|at| {
            let mut gid = sys::ibv_gid { raw: [0; 16] };
            // SAFETY: an open device, a port of it, and room for one GID.
            ffi::status(unsafe { sys::ibv_query_gid(domain.context().as_ptr(), number, at, &raw mut gid) }).ok()?;
            // SAFETY: each form of the union is sixteen bytes that were written.
            Some(unsafe { gid.raw })
        });
        let (at, raw) = choose(gids)
            .ok_or_else(|| other("ibv_query_gid", None, format!("port {number} of {} has no address (GID)", domain.device)))?;
        Ok(Port { number, attr, gid: Some((at, sys::ibv_gid { raw })) })
    }

    fn address(&self) -> sys::ibv_ah_attr {
        // SAFETY: a structure of integers and a union of such.
        let mut address: sys::ibv_ah_attr = unsafe { std::mem::zeroed() };
        address.port_num = self.number;
        address.dlid = self.attr.lid;
        if let Some((at, gid)) = self.gid {
            address.is_global = 1;
            address.grh.dgid = gid;
            address.grh.sgid_index = at;
            address.grh.hop_limit = 64;
        }
        address
    }
}

/// The first GID made of an IPv4 address, else the first that is none of zeroes: a link-local one alone may lead nowhere.
fn choose(gids: impl Iterator<Item = [u8; 16]>) -> Option<(u8, [u8; 16])> {
    const IPV4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let mut first = None;
    for (at, gid) in (0..).zip(gids) {
        if gid.starts_with(&IPV4_MAPPED) {
            return Some((at, gid));
        }
        first = first.or((gid != [0; 16]).then_some((at, gid)));
    }
    first
}

struct Cq(NonNull<sys::ibv_cq>);

impl Cq {
    fn new(domain: &Domain) -> Result<Cq, MoveError> {
        let (context, nothing) = (domain.context().as_ptr(), std::ptr::null_mut());
        // SAFETY: an open device; user data and channel may be null.
        let made = unsafe { sys::ibv_create_cq(context, 2, nothing, nothing.cast(), 0) };
        ffi::pointer(made).map(Cq).map_err(|errno| failed("ibv_create_cq", errno))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once; the library refuses if something still reports to it.
        unsafe { sys::ibv_destroy_cq(self.0.as_ptr()) };
    }
}

struct Qp(NonNull<sys::ibv_qp>);

impl Qp {
    fn new(domain: &Domain, cq: &Cq) -> Result<Qp, MoveError> {
        // SAFETY: a structure of integers and pointers that may be null.
        let mut attr: sys::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        attr.send_cq = cq.0.as_ptr();
        attr.recv_cq = cq.0.as_ptr();
        attr.qp_type = sys::ibv_qp_type::IBV_QPT_RC;
        attr.cap = sys::ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        // SAFETY: an open PD, an open queue of its device, a valid structure.
        let made = unsafe { sys::ibv_create_qp(domain.pd().as_ptr(), &raw mut attr) };
        ffi::pointer(made).map(Qp).map_err(|errno| failed("ibv_create_qp", errno))
    }

    fn number(&self) -> u32 {
        // SAFETY: a live queue pair; its number never changes.
        unsafe { self.0.as_ref() }.qp_num
    }

    /// Connects it to a queue pair on the same port.
    fn connect(&self, port: &Port, to: u32, domain: &Domain) -> Result<(), MoveError> {
        use sys::ibv_access_flags as Access;
        use sys::ibv_qp_state::{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
        // SAFETY: a structure of integers and unions of such.
        let mut attr: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.port_num = port.number;
        attr.qp_access_flags =
            (Access::IBV_ACCESS_LOCAL_WRITE | Access::IBV_ACCESS_REMOTE_READ | Access::IBV_ACCESS_REMOTE_WRITE).0;
        attr.path_mtu = port.attr.active_mtu;
        attr.dest_qp_num = to;
        attr.ah_attr = port.address();
        attr.max_dest_rd_atomic = 1;
        attr.max_rd_atomic = 1;
        // The shortest waits that a loaded software device keeps: 0.64 ms for a receiver that is not ready, 67 ms for an
        // acknowledgement, seven times; each transfer has a deadline of its own besides.
        (attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry) = (12, 14, 7, 7);
        let steps = [
            (IBV_QPS_INIT, Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_PORT | Mask::IBV_QP_ACCESS_FLAGS),
            (
                IBV_QPS_RTR,
                Mask::IBV_QP_AV
                    | Mask::IBV_QP_PATH_MTU
                    | Mask::IBV_QP_DEST_QPN
                    | Mask::IBV_QP_RQ_PSN
                    | Mask::IBV_QP_MAX_DEST_RD_ATOMIC
                    | Mask::IBV_QP_MIN_RNR_TIMER,
            ),
            (
                IBV_QPS_RTS,
                Mask::IBV_QP_TIMEOUT
                    | Mask::IBV_QP_RETRY_CNT
                    | Mask::IBV_QP_RNR_RETRY
                    | Mask::IBV_QP_SQ_PSN
                    | Mask::IBV_QP_MAX_QP_RD_ATOMIC,
            ),
        ];
        for (state, mask) in steps {
            attr.qp_state = state;
            let mask = (mask | Mask::IBV_QP_STATE).0.cast_signed();
            // SAFETY: a live queue pair, and a structure with every field that the mask names.
            let changed = ffi::status(unsafe { sys::ibv_modify_qp(self.0.as_ptr(), &raw mut attr, mask) });
            changed.map_err(|errno| {
                let what = format!("a queue pair of {} cannot be connected to another of the same port", domain.device);
                other("ibv_modify_qp", Some(errno), what)
            })?;
        }
        Ok(())
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once. Its request, if one is under way, ends with it.
        unsafe { sys::ibv_destroy_qp(self.0.as_ptr()) };
    }
}

/// The local buffer, and its registration: the device reaches the one only by the other.
struct Bounce {
    memory: ManuallyDrop<Memory>,
    mr: NonNull<sys::ibv_mr>,
}

impl Bounce {
    fn new(domain: &Domain) -> Result<Bounce, MoveError> {
        let mapping = Mapping::anonymous(BOUNCE as u64, Pages::Small, None)
            .map_err(|why| other("mmap", None, format!("no memory to move bytes through: {why}")))?;
        let memory = Memory::new(mapping);
        Ok(Bounce { mr: domain.register_local(memory.extent())?, memory: ManuallyDrop::new(memory) })
    }

    /// The first bytes of it, as a request names them.
    fn element(&self, len: usize) -> sys::ibv_sge {
        assert!(len <= BOUNCE);
        // SAFETY: a live MR; its key never changes.
        let lkey = unsafe { self.mr.as_ref() }.lkey;
        sys::ibv_sge { addr: self.memory.extent().start(), length: u32::try_from(len).expect("the buffer is small"), lkey }
    }

    fn fill(&self, from: &[u8]) -> Result<(), MoveError> {
        self.memory.write_at(0, from).map_err(not_copied)
    }

    fn drain(&self, into: &mut [u8]) -> Result<(), MoveError> {
        self.memory.read_at(0, into).map_err(not_copied)
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, deregistered once.
        if unsafe { sys::ibv_dereg_mr(self.mr.as_ptr()) } == 0 {
            // SAFETY: dropped once. Before, it would have been in the device's reach, and may have to stay there.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rdma-sys writes these by hand, as bindgen does not understand their unions; the sizes are those of a C compiler on
    /// a 64-bit machine.
    #[test]
    fn the_hand_written_bindings_have_the_headers_sizes() {
        assert_eq!(size_of::<sys::ibv_send_wr>(), 128);
        assert_eq!(size_of::<sys::ibv_wc>(), 48);
        assert_eq!(size_of::<sys::ibv_ah_attr>(), 32);
        assert_eq!(size_of::<sys::ibv_qp_attr>(), 144);
    }

    #[test]
    fn an_address_that_leads_somewhere_is_taken() {
        let local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0, 0, 1];
        let ipv4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        assert_eq!(choose([local, ipv4].into_iter()), Some((1, ipv4)));
        assert_eq!(choose([[0; 16], local, [0; 16]].into_iter()), Some((1, local)));
        assert_eq!(choose([[0; 16]].into_iter()), None);
    }
}

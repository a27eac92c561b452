//! Two connected queue pairs of the test's own, which know nothing of Pinrail but the keys it gave out.

use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

use pinrail_core::Mr;
use pinrail_verbs::sys;
use sys::ibv_access_flags as Access;
use sys::ibv_qp_attr_mask as Mask;
use sys::ibv_qp_state::{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};

pub(crate) use sys::ibv_wc_status::{IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS};
pub(crate) use sys::ibv_wr_opcode::{IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};

/// Both ends and their completion queue, on a PD that somebody keeps open.
pub(crate) struct Peer {
    context: NonNull<sys::ibv_context>,
    cq: *mut sys::ibv_cq,
    near: *mut sys::ibv_qp,
    far: *mut sys::ibv_qp,
}

/// The key that a peer names, as Pinrail gives it.
pub(crate) fn rkey(mr: &Mr) -> u32 {
    u32::from_ne_bytes(mr.keys().remote.as_slice().try_into().unwrap())
}

impl Peer {
    /// # Safety
    /// The PD is open on that device, and stays so until the peer is dropped.
    pub(crate) unsafe fn on(context: NonNull<sys::ibv_context>, pd: NonNull<sys::ibv_pd>) -> Peer {
        // SAFETY: an open device by the caller's promise.
        let cq = unsafe { sys::ibv_create_cq(context.as_ptr(), 16, null_mut(), null_mut(), 0) };
        assert!(!cq.is_null());
        let made = || {
            // SAFETY: integers and pointers that may be null.
            let mut attr: sys::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
            (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, sys::ibv_qp_type::IBV_QPT_RC);
            attr.cap = sys::ibv_qp_cap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
            // SAFETY: an open PD by the caller's promise, and a queue of its device.
            let qp = unsafe { sys::ibv_create_qp(pd.as_ptr(), &raw mut attr) };
            assert!(!qp.is_null(), "{}", std::io::Error::last_os_error());
            qp
        };
        let peer = Peer { context, cq, near: made(), far: made() };
        peer.connect(peer.near, peer.far);
        peer.connect(peer.far, peer.near);
        peer
    }

    fn connect(&self, from: *mut sys::ibv_qp, to: *mut sys::ibv_qp) {
        // SAFETY: integers and unions of such.
        let mut attr: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.port_num = 1;
        attr.qp_access_flags = (Access::IBV_ACCESS_REMOTE_READ | Access::IBV_ACCESS_REMOTE_WRITE).0;
        attr.path_mtu = sys::ibv_mtu::IBV_MTU_1024;
        // SAFETY: a live queue pair.
        attr.dest_qp_num = unsafe { (*to).qp_num };
        (attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.min_rnr_timer) = (1, 1, 12);
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (14, 7, 7);
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.hop_limit = 64;
        // The second GID of a soft-RoCE device is that of its IPv4 address.
        attr.ah_attr.grh.sgid_index = 1;
        // SAFETY: an open device, and room for one GID.
        assert_eq!(unsafe { sys::ibv_query_gid(self.context.as_ptr(), 1, 1, &raw mut attr.ah_attr.grh.dgid) }, 0);
        let to_init = Mask::IBV_QP_PKEY_INDEX | Mask::IBV_QP_PORT | Mask::IBV_QP_ACCESS_FLAGS;
        let to_receive = Mask::IBV_QP_AV | Mask::IBV_QP_PATH_MTU | Mask::IBV_QP_DEST_QPN | Mask::IBV_QP_RQ_PSN;
        let to_receive = to_receive | Mask::IBV_QP_MAX_DEST_RD_ATOMIC | Mask::IBV_QP_MIN_RNR_TIMER;
        let to_send = Mask::IBV_QP_TIMEOUT | Mask::IBV_QP_RETRY_CNT | Mask::IBV_QP_RNR_RETRY | Mask::IBV_QP_SQ_PSN;
        let to_send = to_send | Mask::IBV_QP_MAX_QP_RD_ATOMIC;
        for (state, mask) in [(IBV_QPS_INIT, to_init), (IBV_QPS_RTR, to_receive), (IBV_QPS_RTS, to_send)] {
            attr.qp_state = state;
            // SAFETY: a live queue pair, and every field that the mask names.
            let changed = unsafe { sys::ibv_modify_qp(from, &raw mut attr, (mask | Mask::IBV_QP_STATE).0.cast_signed()) };
            assert_eq!(changed, 0, "{}", std::io::Error::from_raw_os_error(changed));
        }
    }

    /// Moves the first `len` bytes of `local` to or from an address, and says how it completed.
    #[allow(clippy::disallowed_methods, reason = "no test waits for ever")]
    pub(crate) fn moves(
        &self,
        opcode: sys::ibv_wr_opcode::Type,
        local: &Mr,
        len: u32,
        (remote, rkey): (u64, u32),
    ) -> sys::ibv_wc_status::Type {
        let lkey = u32::try_from(local.keys().local).unwrap();
        let mut sge = sys::ibv_sge { addr: local.extent().start(), length: len, lkey };
        // SAFETY: integers, pointers that may be null, unions of such.
        let mut request: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
        (request.sg_list, request.num_sge, request.opcode) = (&raw mut sge, 1, opcode);
        request.send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        request.wr.rdma = sys::rdma_t { remote_addr: remote, rkey };
        let mut refused = null_mut();
        // SAFETY: a connected queue pair; the memory is registered, so it stays mapped.
        assert_eq!(unsafe { sys::ibv_post_send(self.near, &raw mut request, &raw mut refused) }, 0);
        let started = Instant::now();
        loop {
            // SAFETY: integers and unions of such.
            let mut completion: sys::ibv_wc = unsafe { std::mem::zeroed() };
            // SAFETY: an open queue, and room for one entry.
            match unsafe { sys::ibv_poll_cq(self.cq, 1, &raw mut completion) } {
                0 if started.elapsed() < Duration::from_secs(60) => std::thread::yield_now(),
                1 => return completion.status,
                other => panic!("polling says {other} after {:?}", started.elapsed()),
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for qp in [self.near, self.far] {
            // SAFETY: a queue pair of ours, destroyed once.
            assert_eq!(unsafe { sys::ibv_destroy_qp(qp) }, 0);
        }
        // SAFETY: as above, after what reported to it.
        assert_eq!(unsafe { sys::ibv_destroy_cq(self.cq) }, 0);
    }
}

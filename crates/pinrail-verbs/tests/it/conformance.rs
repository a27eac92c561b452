//! The suite for any registrar, on soft-RoCE devices.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pinrail_conformance::{DmaBuf, EXPECTED, Expected, Failing, Fixture, Peer, Peered, Told, run};
use pinrail_core::{Cause, Keys, Memory, MoveError, Mr, Rail, RailId, Registrar};
use pinrail_memory::testing;
use pinrail_verbs::{CallersPd, Handles, Verbs, devices, sys};

use crate::peer::{self, IBV_WC_SUCCESS, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};
use crate::support::{PAGE, alone, every_rail, guest_nodes, pages, register};

const LEN: u64 = 16 * PAGE;

/// The first device and the last: on several nodes they are not on the same one.
struct Devices;

impl Fixture for Devices {
    fn registrar(&self) -> Box<dyn Registrar> {
        let mut rails = devices().unwrap();
        if rails.len() > 2 {
            rails.drain(1..rails.len() - 1);
        }
        // Soft-RoCE has no limit of its own that a check could meet.
        rails.iter_mut().for_each(|rail| rail.limits.max_mr_size = Some(256 << 20));
        Box::new(Verbs::open(&rails).unwrap())
    }

    fn peer(&self) -> Option<Peered> {
        let registrar = Verbs::open_first(1).unwrap();
        let handles = registrar.handles(RailId(0)).unwrap();
        Some(Peered { peer: Box::new(QueuePairs::on(handles)), registrar: Box::new(registrar) })
    }

    fn unmapped(&self) -> Option<(Memory, u64)> {
        Some(testing::with_hole().unwrap())
    }

    fn read_only(&self) -> Option<Memory> {
        Some(testing::read_only(PAGE).unwrap())
    }

    fn dma_buf(&self) -> Option<DmaBuf> {
        // Soft-RoCE asks no descriptor what it is.
        Some(DmaBuf { memory: pages(1), fd: Arc::new(testing::memory_file().unwrap().into()), offset: 0 })
    }

    /// The device's descriptor is one of a file that takes no commands, for a while.
    fn failing_deregistration(&self) -> Option<Failing> {
        let (registrar, memory) = (Verbs::open_first(1).unwrap(), pages(1));
        let mr = register(&registrar, RailId(0), &memory, 0..PAGE).unwrap();
        let Handles { context, .. } = registrar.handles(RailId(0)).unwrap();
        // SAFETY: open while the MR lives.
        let device = unsafe { context.as_ref() }.cmd_fd;
        // SAFETY: an open descriptor.
        let kept = unsafe { libc::dup(device) };
        assert!(kept >= 0);
        // SAFETY: just made, and known to nobody else.
        let kept = unsafe { OwnedFd::from_raw_fd(kept) };
        let deaf = std::fs::File::open("/dev/null").unwrap();
        let replace = move |by: i32| {
            // SAFETY: both are open; the library's descriptor stays its own, with another file behind it.
            assert_eq!(unsafe { libc::dup2(by, device) }, device);
        };
        replace(deaf.as_raw_fd());
        Some(Failing { mr, repair: Box::new(move || replace(kept.as_raw_fd())), registrar: Box::new(registrar) })
    }
}

/// Names MRs by address and key, from queue pairs of its own, which are made for each transfer: a refusal breaks them.
struct QueuePairs {
    handles: Handles,
    /// What moves through here is registered too, by another registrar on the same PD.
    local: Verbs,
    memory: Memory,
    mr: Mr,
}

impl QueuePairs {
    fn on(handles: Handles) -> QueuePairs {
        // SAFETY: open until the suite has dropped the peer.
        let local = unsafe { Verbs::over(&[CallersPd { rail: Rail::named("peer"), pd: handles.pd }]) }.unwrap();
        let memory = pages(LEN / PAGE);
        let mr = register(&local, RailId(0), &memory, 0..LEN).unwrap();
        QueuePairs { handles, local, memory, mr }
    }

    fn moves(&self, opcode: sys::ibv_wr_opcode::Type, told: &Told, at: u64, len: usize) -> Result<(), MoveError> {
        // SAFETY: open until the suite has dropped the peer.
        let pair = unsafe { peer::Peer::on(self.handles.context, self.handles.pd) };
        let key = u32::from_ne_bytes(told.keys.remote.as_slice().try_into().unwrap());
        match pair.moves(opcode, &self.mr, u32::try_from(len).unwrap(), (told.base.wrapping_add(at), key)) {
            IBV_WC_SUCCESS => Ok(()),
            status => Err(MoveError::new("ibv_post_send", None, Cause::Other { what: format!("status {status}") })),
        }
    }
}

impl Drop for QueuePairs {
    fn drop(&mut self) {
        self.local.deregister(&mut self.mr).unwrap();
    }
}

impl Peer for QueuePairs {
    fn told(&self, mr: &Mr) -> Told {
        Told { rail: mr.rail(), keys: mr.keys().clone(), base: mr.extent().start() }
    }

    fn wrong(&self, told: &Told) -> Told {
        let mut keys: Keys = told.keys.clone();
        keys.remote[0] ^= 0x5a;
        Told { keys, ..told.clone() }
    }

    fn write(&self, told: &Told, at: u64, from: &[u8], _: Duration) -> Result<(), MoveError> {
        self.memory.write_at(0, from).unwrap();
        self.moves(IBV_WR_RDMA_WRITE, told, at, from.len())
    }

    fn read(&self, told: &Told, at: u64, into: &mut [u8], _: Duration) -> Result<(), MoveError> {
        self.moves(IBV_WR_RDMA_READ, told, at, into.len())?;
        self.memory.read_at(0, into).unwrap();
        Ok(())
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the table, for who asks for it with --nocapture")]
fn every_check_ends_as_the_table_says() {
    let _alone = alone();
    if every_rail().is_none() {
        return;
    }
    if guest_nodes().is_none() {
        return crate::support::skipped("the table is of soft-RoCE devices");
    }
    let report = run(Devices, Duration::from_secs(120));
    println!("{report}");
    report.against(&Expected::column(EXPECTED, "verbs").unwrap()).unwrap_or_else(|unexpected| panic!("{unexpected}"));
}

//! Calls on two rails are in the kernel at once. Shown without a clock: each call is held at a page fault that only this
//! test answers, and both faults are there before either is answered.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use pinrail_core::{Memory, Registrar};

use crate::support::{PAGE, alone, pages, register, rings, skipped};

/// userfaultfd(2): missing pages of a range become messages.
struct Faults(File);

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;

impl Faults {
    fn open() -> std::io::Result<Faults> {
        // SAFETY: flags only.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: just opened, and known to nobody else.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) });
        let faults = Faults(file);
        faults.control(UFFDIO_API, [0xaa, 0, 0, 0])?;
        Ok(faults)
    }

    fn control(&self, request: libc::c_ulong, mut arg: [u64; 4]) -> std::io::Result<()> {
        // SAFETY: the longest of the requests' structures has 32 bytes.
        let failed = unsafe { libc::ioctl(self.0.as_raw_fd(), request, arg.as_mut_ptr()) } != 0;
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    }

    fn watch(&self, memory: &Memory) {
        let missing = 1;
        self.control(UFFDIO_REGISTER, [memory.extent().start(), memory.len(), missing, 0]).unwrap();
    }

    /// The page of the next fault; a minute without one fails the test.
    fn next(&self) -> u64 {
        let mut wait = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, valid for the call.
        assert_eq!(unsafe { libc::poll(&raw mut wait, 1, 60_000) }, 1, "no call has reached the kernel's page faults");
        let mut message = [0; 32];
        (&self.0).read_exact(&mut message).unwrap();
        u64::from_ne_bytes(message[16..24].try_into().unwrap()) & !(PAGE - 1)
    }

    fn answer(&self, page: u64) {
        self.control(UFFDIO_ZEROPAGE, [page, PAGE, 0, 0]).unwrap();
    }
}

#[test]
fn registrations_on_two_rails_are_in_the_kernel_at_once() {
    let _alone = alone();
    let faults = match Faults::open() {
        Ok(faults) => faults,
        Err(error) => return skipped(&format!("userfaultfd (needs CAP_SYS_PTRACE): {error}")),
    };
    let (uring, memories) = (rings(2), [pages(1), pages(1)]);
    memories.iter().for_each(|memory| faults.watch(memory));
    let mut mrs = std::thread::scope(|threads| {
        let calls = [0u16, 1].map(|rail| {
            let (uring, memory) = (&uring, &memories[usize::from(rail)]);
            threads.spawn(move || register(uring, rail, memory, 0..PAGE).unwrap())
        });
        let mut held = [faults.next(), faults.next()];
        held.iter().for_each(|&page| faults.answer(page));
        held.sort_unstable();
        let mut pages = [0, 1].map(|nth: usize| memories[nth].extent().start());
        pages.sort_unstable();
        assert_eq!(held, pages, "one fault of each call, and neither answered before both were there");
        calls.map(|call| call.join().unwrap())
    });
    mrs.iter_mut().for_each(|mr| uring.deregister(mr).unwrap());
}

//! Each mr_mode bit, alone and together: registered as it asks, and proved by moving bytes.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use libfabric_sys::bindgen as fi;
use pinrail_core::{Access, Cause, Chunk, Memory, RailId, Registrar, Source};

use super::fake::Fake;
use super::pages::pages;
use crate::deadline::Deadline;
use crate::info::MR_MODE;
use crate::pair::{Bytes, Pair};
use crate::{Libfabric, OpenError};

const WAIT: Duration = Duration::from_secs(5);

pub(super) fn chunk(memory: &Memory) -> Chunk<'_> {
    Chunk { memory, range: 100..9000, access: Access::FULL, source: &Source::Address }
}

fn moves_bytes(fabric: &Libfabric, what: &str) {
    let memory = pages(3 * 4096);
    let mut mr = fabric.register(RailId(0), &chunk(&memory)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mover = fabric.mover().expect(what);
    mover.write(&mr, 4000, b"by key", WAIT).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut seen = [0; 6];
    memory.read_at(4100, &mut seen).unwrap();
    assert_eq!(&seen, b"by key", "{what}");
    mover.read(&mr, 3999, &mut seen, WAIT).unwrap();
    assert_eq!(&seen, b"\0by ke", "{what}");
    fabric.deregister(&mut mr).unwrap();
}

#[test]
fn every_combination_of_mode_bits_moves_bytes() {
    let bits: Vec<u32> = (0..32).map(|bit| 1 << bit).filter(|bit| MR_MODE & bit != 0).collect();
    assert_eq!(bits.len(), 7);
    for set in 0u32..1 << bits.len() {
        let mode = bits.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0).map(|(_, bit)| bit).sum();
        let fake = Fake::new(mode);
        let fabric = fake.opened();
        moves_bytes(&fabric, &format!("mr_mode {mode:#x}"));
        drop(fabric);
        assert_eq!(fake.live(), 0, "mr_mode {mode:#x}: the mover's own registration is closed too");
        assert_eq!(fake.inner().open, 1, "mr_mode {mode:#x}: only the domain that the test lends is open");
    }
}

#[test]
fn a_bit_that_is_not_implemented_is_refused() {
    for bit in [fi::FI_MR_MMU_NOTIFY, fi::FI_MR_RMA_EVENT, fi::FI_MR_COLLECTIVE] {
        let fake = Fake::new(fi::FI_MR_VIRT_ADDR | bit);
        // SAFETY: the fake's domain outlives the call.
        let error = unsafe { Libfabric::borrow(&[fake.borrowed()]) }.unwrap_err();
        assert!(matches!(error, OpenError::NotSupported { .. }), "{error}");
        assert!(error.to_string().contains(&format!("{bit:#x}")), "{error}");
    }
}

#[test]
fn only_a_thread_safe_domain_is_taken() {
    let fake = Fake::with(0, |domain| domain.threading = fi::fi_threading_FI_THREAD_DOMAIN);
    // SAFETY: the fake's domain outlives the call.
    let error = unsafe { Libfabric::borrow(&[fake.borrowed()]) }.unwrap_err();
    assert!(matches!(error, OpenError::NotThreadSafe { .. }), "{error}");
    assert!(error.diagnosis().hint.unwrap().contains("FI_THREAD_SAFE"));
}

#[test]
fn the_caller_says_what_a_borrowed_domain_needs() {
    let (bound, keyed) = (Fake::new(fi::FI_MR_ENDPOINT), Fake::with(0, |domain| domain.mr_key_size = 1));
    let borrowed = |fake: &Fake, keys| crate::Borrowed { keys, ..fake.borrowed() };
    let no_endpoint = borrowed(&bound, Some(1..=9));
    let empty = RangeInclusive::new(9, 8);
    for lent in [no_endpoint, borrowed(&keyed, None), borrowed(&keyed, Some(1..=256)), borrowed(&keyed, Some(empty))] {
        // SAFETY: the fakes' domains outlive the call.
        let error = unsafe { Libfabric::borrow(&[lent]) }.unwrap_err();
        assert!(matches!(error, OpenError::NotSupported { .. }), "{error}");
    }
}

#[test]
fn a_registration_is_bound_to_the_callers_endpoint_and_enabled_before_its_key_is_read() {
    let fake = Fake::new(fi::FI_MR_ENDPOINT | fi::FI_MR_PROV_KEY);
    let endpoint = fake.endpoint();
    let borrowed = crate::Borrowed { endpoint: Some(endpoint.raw()), ..fake.borrowed() };
    // SAFETY: domain and endpoint outlive the registrar.
    let fabric = unsafe { Libfabric::borrow(&[borrowed]) }.unwrap();
    assert!(fabric.mover().is_none(), "the endpoint's owner moves the bytes");
    let memory = pages(3 * 4096);
    let mut mr = fabric.register(RailId(0), &chunk(&memory)).unwrap();
    let key = 1001u64;
    assert_eq!(mr.keys().remote.as_slice(), key.to_ne_bytes(), "the provider's key, not the one that is not yet readable");
    let (ep, from, desc, context) =
        (endpoint.as_ptr(), b"by the caller".as_ptr().cast(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: an enabled endpoint, bytes for as long as the call, which is all the time that the fake takes.
    assert_eq!(unsafe { fi::fi_write(ep, from, 13, desc, 0, 4000, key, context) }, 0);
    let mut seen = [0; 13];
    memory.read_at(4100, &mut seen).unwrap();
    assert_eq!(&seen, b"by the caller");
    fabric.deregister(&mut mr).unwrap();
}

#[test]
fn keys_that_others_hold_are_passed_over_and_none_left_is_said() {
    let fake = Fake::new(0);
    fake.inner().keys_of_others.extend(1..=5);
    let fabric = fake.registrar();
    let memory = pages(3 * 4096);
    let mut live: Vec<_> = (0..95).map(|_| fabric.register(RailId(0), &chunk(&memory)).unwrap()).collect();
    let keys: BTreeSet<_> = live.iter().map(|mr| mr.keys().remote.clone()).collect();
    assert_eq!(keys.len(), 95);
    let error = fabric.register(RailId(0), &chunk(&memory)).unwrap_err();
    assert_eq!(error.cause, Cause::MrCount { limit: 100 }, "all keys are in use or others'");
    for mr in &mut live {
        fabric.deregister(mr).unwrap();
    }
    fake.inner().keys_of_others.extend(6..=100);
    let error = fabric.register(RailId(0), &chunk(&memory)).unwrap_err();
    assert_eq!(error.errno, Some(fi::FI_ENOKEY.cast_signed()), "{error}");
    assert!(error.to_string().contains("keys"), "{error}");
}

#[test]
fn a_key_is_as_wide_as_the_provider_takes_it() {
    let fake = Fake::with(0, |domain| domain.mr_key_size = 1);
    let fabric = fake.opened();
    let memory = pages(3 * 4096);
    let live: Vec<_> = (0..255).map(|_| fabric.register(RailId(0), &chunk(&memory)).unwrap()).collect();
    let error = fabric.register(RailId(0), &chunk(&memory)).unwrap_err();
    assert_eq!(error.cause, Cause::MrCount { limit: 255 });
    for mut mr in live {
        fabric.deregister(&mut mr).unwrap();
    }
}

#[test]
fn access_that_was_not_asked_for_is_not_granted() {
    let fake = Fake::new(fi::FI_MR_VIRT_ADDR);
    let fabric = fake.registrar();
    let memory = pages(3 * 4096);
    let mut mr = fabric.register(RailId(0), &Chunk { access: Access::REMOTE_READ, ..chunk(&memory) }).unwrap();
    let mover = fabric.mover().unwrap();
    let error = mover.write(&mr, 0, b"no", WAIT).unwrap_err();
    assert!(matches!(error.cause, Cause::Access { .. }), "{error}");
    // And the provider was not told more than that.
    let domain = &fabric.domains[0];
    let pair = Pair::open(domain, &Deadline::after(WAIT)).unwrap();
    let (base, key) = (memory.extent().start() + 100, mr.keys().remote.clone());
    let error = pair.transfer(domain, base, &key, base, Bytes::In(b"no"), &Deadline::after(WAIT)).unwrap_err();
    assert_eq!((error.api, error.errno), ("fi_write", Some(libc::EACCES)));
    mover.read(&mr, 0, &mut [0; 2], WAIT).unwrap();
    fabric.deregister(&mut mr).unwrap();
}

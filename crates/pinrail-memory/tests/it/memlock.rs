//! The limit on pinned memory, as this and other users have it.

use pinrail_core::{Cause, PinsCounted};
use pinrail_memory::Memlock;

use crate::{child, raw};

const MIB: u64 = 1 << 20;

#[test]
fn a_process_that_pins_nothing_holds_nothing() {
    let memlock = Memlock::read().unwrap();
    assert_eq!(memlock.pinned_bytes, 0);
    assert!(memlock.soft_bytes.is_none() || memlock.hard_bytes.is_none() || memlock.soft_bytes <= memlock.hard_bytes);
    if memlock.exempt {
        assert_eq!(memlock.precheck(u64::MAX, PinsCounted::Process), Ok(()));
    }
}

#[test]
fn the_limit_of_another_user_is_seen() {
    child::run_as_nobody("memlock::child_is_nobody");
}

#[test]
#[ignore = "started as another user"]
fn child_is_nobody() {
    raw::set_memlock(MIB, 8 * MIB);
    let memlock = Memlock::read().unwrap();
    let expected = Memlock { soft_bytes: Some(MIB), hard_bytes: Some(8 * MIB), pinned_bytes: 0, exempt: false };
    assert_eq!(memlock, expected);
    assert_eq!(memlock.precheck(MIB, PinsCounted::User), Ok(()));
    let refused = Cause::Memlock { limit: MIB, held: 0, need: MIB + 4096, others_unknown: true };
    assert_eq!(memlock.precheck(MIB + 4096, PinsCounted::User), Err(refused));

    assert_eq!(Memlock::raise_soft().unwrap(), Memlock { soft_bytes: Some(8 * MIB), ..expected });
    raw::set_memlock(MIB, MIB);
    assert_eq!(Memlock::raise_soft().unwrap().soft_bytes, Some(MIB), "nobody passes the hard limit");
}

#[test]
fn a_capability_in_another_user_namespace_exempts_from_nothing() {
    let wrapper = ["unshare", "--user", "--map-root-user", "sh", "-c", r#"exec "$0" "$@""#];
    child::run_under("memlock::child_is_root_of_its_own_namespace", &wrapper);
}

#[test]
#[ignore = "started with every capability, in a user namespace of its own"]
fn child_is_root_of_its_own_namespace() {
    assert!(raw::is_root(), "root here");
    assert!(!Memlock::read().unwrap().exempt, "and nobody outside");
}

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pinrail_conformance::{CHECKS, Check, EXPECTED, Expected, Fixture, Outcome, run};

use crate::fake::{Fakes, Fault};

const LIMIT: Duration = Duration::from_secs(60);

fn fakes(fault: Option<Fault>) -> Arc<dyn Fixture> {
    Arc::new(Fakes::with(fault))
}

fn check(name: &str) -> &'static Check {
    CHECKS.iter().find(|check| check.name == name).unwrap()
}

#[test]
fn a_registrar_that_keeps_every_promise_passes_every_check() {
    let report = run(Fakes::with(None), LIMIT);
    assert_eq!(report.against(&Expected::column(EXPECTED, "fake").unwrap()), Ok(()));
    assert!(report.outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Pass), "{report}");
}

/// Each way to be wrong, a check that sees it, and what it then says.
const BROKEN: &[(Fault, &str, &str)] = &[
    (Fault::AsksForZeroLength, "zero-length", "fail"),
    (Fault::AsksForOutside, "outside-memory", "fail"),
    (Fault::TakesImagined, "imagined-memory", "fail"),
    (Fault::PanicsOnRail, "unknown-rail", "fail"),
    (Fault::TakesTooLarge, "mr-size", "fail"),
    (Fault::MisstatesLimit, "mr-size", "fail"),
    (Fault::Shifts, "bytes", "fail"),
    (Fault::OneRailOnly, "bytes", "fail"),
    (Fault::RoundsToWords, "one-byte", "fail"),
    (Fault::KeyedByAddress, "same-start", "fail"),
    (Fault::WritesOneMore, "around", "fail"),
    (Fault::MovesOutside, "move-outside", "fail"),
    (Fault::IgnoresAccess, "move-against-access", "written"),
    (Fault::RepeatsKeys, "unique-keys", "fail"),
    (Fault::TakesAnyKey, "wrong-key-write", "reaches"),
    (Fault::TakesAnyKey, "wrong-key-read", "reaches"),
    (Fault::DropsSilently, "wrong-key-write", "completes"),
    (Fault::DropsSilently, "wrong-key-read", "completes"),
    (Fault::NeverAnswers, "wrong-key-write", "times out"),
    (Fault::NeverAnswers, "stale-key-read", "times out"),
    (Fault::KeepsKeys, "stale-key-write", "reaches"),
    (Fault::KeepsKeys, "stale-key-read", "reaches"),
    (Fault::PeersGoOver, "out-of-range-write", "reaches"),
    (Fault::PeersGoOver, "out-of-range-read", "reaches"),
    (Fault::TakesHole, "unmapped-memory", "accepted"),
    (Fault::MisplacesHole, "unmapped-memory", "fail"),
    (Fault::TakesReadOnly, "read-only-memory", "accepted"),
    (Fault::RefusesReading, "read-only-for-reading", "refused"),
    (Fault::TakesAnyDescriptor, "dma-buf", "fail"),
    (Fault::FailsOnDmaBuf, "dma-buf", "fail"),
    (Fault::DropsErrno, "api-and-errno", "fail"),
    (Fault::RetiresTwice, "retired-mr", "fail"),
    (Fault::MovesForeign, "foreign-mr", "fail"),
    (Fault::TakesForeign, "foreign-mr", "fail"),
    (Fault::LosesFailed, "failed-deregistration", "fail"),
    (Fault::StaysBroken, "failed-deregistration", "fail"),
    (Fault::LetsMemoryGo, "dropped-registrar", "fail"),
    (Fault::Races, "eight-threads", "fail"),
    (Fault::FullEarly, "many-mrs", "fail"),
    (Fault::NeverFull, "many-mrs", "fail"),
    (Fault::LosesSlots, "many-mrs", "fail"),
];

#[test]
fn every_check_sees_what_it_is_there_for() {
    for &(fault, name, cell) in BROKEN {
        let outcome = check(name).run(&fakes(Some(fault)), LIMIT);
        assert_eq!(outcome.cell(), cell, "{name} of a fake that {fault:?}: {outcome}");
    }
    let seen: BTreeSet<_> = BROKEN.iter().map(|(_, name, _)| *name).collect();
    assert_eq!(seen, CHECKS.iter().map(|check| check.name).collect(), "each check has been seen to notice something");
}

#[test]
fn a_call_that_does_not_return_is_a_failure_and_does_not_hold_the_suite_up() {
    let outcome = check("bytes").run(&fakes(Some(Fault::Hangs)), Duration::from_millis(100));
    assert!(matches!(&outcome, Outcome::Fail(why) if why.contains("did not end within 0.1 s")), "{outcome}");
}

#[test]
fn a_panic_is_told_with_its_words() {
    let outcome = check("unknown-rail").run(&fakes(Some(Fault::PanicsOnRail)), LIMIT);
    assert!(matches!(&outcome, Outcome::Fail(why) if why.contains("index out of bounds")), "{outcome}");
}

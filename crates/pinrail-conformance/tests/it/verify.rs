use std::ops::Range;
use std::time::Duration;

use pinrail_conformance::{Direction, Target, Verified, VerifyError, verify};
use pinrail_core::{
    Access, Cause, Chunk, ChunkId, DeregisterError, ErrorKind, Identity, Memory, MoveBytes, MoveError, Mr, Rail, RailId,
    RegisterError, Registrar,
};

use crate::support::{PAGE, WAIT, bytes, chunk, rings};

/// What is registered: chunks of buffers by name, each on every rail.
struct Registered<'a> {
    registrar: &'a dyn Registrar,
    parts: Vec<(&'a str, ChunkId, Chunk<'a>, Mr)>,
}

impl<'a> Registered<'a> {
    fn new(registrar: &'a dyn Registrar, chunks: &[(&'a str, Chunk<'a>)]) -> Registered<'a> {
        let mut parts = Vec::new();
        for (id, (buffer, chunk)) in (0..).map(ChunkId).zip(chunks) {
            for rail in (0..).map(RailId).take(registrar.rails().len()) {
                parts.push((*buffer, id, chunk.clone(), registrar.register(rail, chunk).unwrap()));
            }
        }
        Registered { registrar, parts }
    }

    fn targets(&self) -> Vec<Target<'_>> {
        let parts = self.parts.iter();
        parts.map(|(buffer, id, chunk, mr)| Target { buffer, id: *id, chunk: chunk.clone(), mr }).collect()
    }

    fn verify_by(&self, mover: &dyn MoveBytes) -> Result<Verified, VerifyError> {
        verify(mover, &self.targets(), WAIT)
    }

    fn verify(&self) -> Result<Verified, VerifyError> {
        self.verify_by(self.registrar.mover().unwrap())
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        for (.., mr) in &mut self.parts {
            self.registrar.deregister(mr).unwrap();
        }
    }
}

/// A mover that uses another MR, or another place in it, than it was told.
struct Astray<'a> {
    inner: &'a dyn MoveBytes,
    /// Of an MR and an offset: which of the MRs, and where.
    lead: &'a (dyn Fn(usize, u64) -> (usize, u64) + Sync),
    mrs: Vec<&'a Mr>,
}

impl Astray<'_> {
    fn led(&self, mr: &Mr, at: u64) -> (&Mr, u64) {
        let which = self.mrs.iter().position(|known| std::ptr::eq(*known, mr)).unwrap();
        let (which, at) = (self.lead)(which, at);
        (self.mrs[which], at)
    }
}

impl MoveBytes for Astray<'_> {
    fn write(&self, mr: &Mr, at: u64, from: &[u8], wait: Duration) -> Result<(), MoveError> {
        let (mr, at) = self.led(mr, at);
        self.inner.write(mr, at, from, wait)
    }

    fn read(&self, mr: &Mr, at: u64, into: &mut [u8], wait: Duration) -> Result<(), MoveError> {
        let (mr, at) = self.led(mr, at);
        self.inner.read(mr, at, into, wait)
    }
}

fn verify_astray(
    registered: &Registered<'_>,
    lead: &(dyn Fn(usize, u64) -> (usize, u64) + Sync),
) -> Result<Verified, VerifyError> {
    let mrs = registered.parts.iter().map(|(.., mr)| mr).collect();
    registered.verify_by(&Astray { inner: registered.registrar.mover().unwrap(), lead, mrs })
}

type Shift = fn(Range<u64>) -> Range<u64>;

/// A registrar that registers other bytes than it was asked to.
struct Shifted<'a> {
    inner: &'a dyn Registrar,
    shift: Shift,
}

impl Registrar for Shifted<'_> {
    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn rails(&self) -> &[Rail] {
        self.inner.rails()
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        self.inner.register(rail, &Chunk { range: (self.shift)(chunk.range.clone()), ..chunk.clone() })
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        self.inner.deregister(mr)
    }

    fn mover(&self) -> Option<&dyn MoveBytes> {
        self.inner.mover()
    }
}

fn differs(result: Result<Verified, VerifyError>) -> (Direction, u64) {
    match result.unwrap_err() {
        VerifyError::Differs { direction, at, .. } => (direction, at),
        other => panic!("{other}"),
    }
}

/// Three buffers of 8 pages, not on pages, in chunks of 3, 3 and 2.
fn three_by_three(memories: &[Memory; 3]) -> Vec<(&str, Chunk<'_>)> {
    let cuts = [100..3 * PAGE, 3 * PAGE..6 * PAGE, 6 * PAGE..8 * PAGE - 7];
    ["a", "b", "c"]
        .into_iter()
        .zip(memories)
        .flat_map(|(name, memory)| cuts.clone().map(|range| (name, chunk(memory, range))))
        .collect()
}

#[test]
fn every_mr_and_every_seam_is_counted_on_each_rail() {
    let memories = [(); 3].map(|()| bytes(8 * PAGE));
    for rails in [1, 2] {
        let uring = rings(rails);
        let registered = Registered::new(&uring, &three_by_three(&memories));
        let rails = u64::from(rails);
        // Two values, two directions, 64 bytes at each end and on each side of a seam.
        let bytes = rails * (9 * 2 + 6 * 2) * 64 * 4;
        let expected = Verified { mrs: 9 * rails, bytes, seams: 6 * rails, closed_to_peers: 0 };
        assert_eq!(registered.verify().unwrap(), expected);
        let mut backwards = registered.targets();
        backwards.reverse();
        assert_eq!(verify(uring.mover().unwrap(), &backwards, WAIT).unwrap(), expected, "the order means nothing");
    }
}

#[test]
fn chunks_that_do_not_touch_or_are_of_two_buffers_have_no_seam() {
    let (uring, memory) = (rings(1), bytes(4 * PAGE));
    let part = |range| chunk(&memory, range);
    let gap = [("a", part(0..PAGE - 1)), ("a", part(PAGE..2 * PAGE)), ("b", part(2 * PAGE..3 * PAGE))];
    assert_eq!(Registered::new(&uring, &gap).verify().unwrap().seams, 0);
    assert_eq!(verify(uring.mover().unwrap(), &[], WAIT).unwrap(), Verified::default());
}

#[test]
fn the_bytes_are_put_back() {
    let (uring, memory) = (rings(1), bytes(2 * PAGE));
    let all: Vec<u8> = (0..2 * PAGE).map(|at| u8::try_from(at % 251).unwrap()).collect();
    memory.write_at(0, &all).unwrap();
    let registered = Registered::new(&uring, &[("a", chunk(&memory, 0..PAGE)), ("a", chunk(&memory, PAGE..2 * PAGE))]);
    assert_eq!(registered.verify().unwrap().seams, 1);
    let mut seen = vec![0; all.len()];
    memory.read_at(0, &mut seen).unwrap();
    assert_eq!(seen, all);
}

#[test]
fn two_swapped_mrs_are_found_however_small_they_are() {
    let uring = rings(1);
    for len in [1, 2, 64, 128, 129, PAGE] {
        let (one, two) = (bytes(len), bytes(len));
        let registered = Registered::new(&uring, &[("one", chunk(&one, 0..len)), ("two", chunk(&two, 0..len))]);
        assert_eq!(registered.verify().unwrap().mrs, 2);
        let error = verify_astray(&registered, &|mr, at| (1 - mr, at)).unwrap_err();
        let VerifyError::Differs { place, direction: Direction::Write, at: 0, expected, seen } = &error else {
            panic!("{error}")
        };
        let complement: Vec<u8> = expected.iter().map(|byte| !byte).collect();
        assert_eq!((seen, seen.len() as u64), (&complement, len.min(8)), "the memory still shows what was put there");
        assert!(["one", "two"].contains(&place.buffer.as_str()));
    }
}

#[test]
fn mrs_swapped_for_reading_only_are_found_too() {
    let (uring, one, two) = (rings(1), bytes(1), bytes(1));
    let read = |memory| Chunk { access: Access::REMOTE_READ, ..chunk(memory, 0..1) };
    // Whatever the two bytes are, they cannot both follow a change of one.
    for there in 0..=u8::MAX {
        one.write_at(0, &[there]).unwrap();
        two.write_at(0, &[there]).unwrap();
        let registered = Registered::new(&uring, &[("one", read(&one)), ("two", read(&two))]);
        let (direction, at) = differs(verify_astray(&registered, &|mr, at| (1 - mr, at)));
        assert_eq!((direction, at), (Direction::Read, 0));
    }
}

#[test]
fn a_wrong_offset_is_found() {
    let (uring, memory) = (rings(1), bytes(3 * PAGE));
    // Its neighbours are mapped and registered, so that nothing fails but the comparison.
    let whole = [("whole", chunk(&memory, 0..3 * PAGE)), ("middle", chunk(&memory, PAGE..2 * PAGE))];
    let registered = Registered::new(&uring, &whole);
    let (direction, at) = differs(verify_astray(&registered, &|_, at| if at < PAGE { (0, at + 1) } else { (0, at) }));
    assert_eq!((direction, at), (Direction::Write, 0));
    // Wrong at the far end only.
    let (_, at) = differs(verify_astray(&registered, &|mr, at| (mr, if at >= 2 * PAGE { at - 8 } else { at })));
    assert_eq!(at, 3 * PAGE - 64);
    // What leaves the MR is refused by the kernel, and the error says where that was.
    let error = verify_astray(&registered, &|mr, at| (mr, at + 1)).unwrap_err();
    let text = error.diagnosis().message;
    assert!(text.starts_with("buffer \"whole\", chunk 0, rail 0: "), "{text}");
}

#[test]
fn a_registration_of_the_wrong_range_is_found() {
    let (uring, memory) = (rings(1), bytes(8 * PAGE));
    let middle = chunk(&memory, 2 * PAGE..4 * PAGE);
    let shifts: [(Shift, bool); 5] = [
        (|range| range.start + 1..range.end + 1, true),
        (|range| range.start - PAGE..range.end - PAGE, true),
        (|range| range.start + PAGE..range.end + PAGE, true),
        (|range| range.start..range.end - 1, false),
        (|range| range.start + 1..range.end, true),
    ];
    for (shift, in_bytes) in shifts {
        let wrong = Shifted { inner: &uring, shift };
        let error = Registered::new(&wrong, &[("middle", middle.clone())]).verify().unwrap_err();
        assert_eq!(matches!(error, VerifyError::Differs { .. }), in_bytes, "{error}");
        assert_eq!(matches!(error, VerifyError::Move { .. }), !in_bytes, "{error}");
    }
}

#[test]
fn a_seam_that_is_wrong_is_named_by_the_side_that_is() {
    let (uring, memory) = (rings(1), bytes(2 * PAGE));
    let registered = Registered::new(&uring, &[("a", chunk(&memory, 0..PAGE)), ("a", chunk(&memory, PAGE..2 * PAGE))]);
    // 16 transfers prove the four ends; what follows is the seam.
    let transfers = std::sync::atomic::AtomicU32::new(0);
    let error = verify_astray(&registered, &|mr, at| {
        let later = transfers.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 16;
        (mr, if later && mr == 1 { at + 3 } else { at })
    })
    .unwrap_err();
    let VerifyError::Differs { place, at: 0, .. } = &error else { panic!("{error}") };
    assert_eq!(place.chunk, ChunkId(1));
}

/// Two rails' MRs of one chunk are the same memory: the pattern cannot tell them apart, and does not claim to. That the
/// bytes came by a rail is proved by the mover, which uses the MR's own ring or endpoints.
#[test]
fn the_pattern_does_not_prove_the_rail() {
    let (uring, memory) = (rings(2), bytes(PAGE));
    let registered = Registered::new(&uring, &[("a", chunk(&memory, 0..PAGE))]);
    assert_eq!(verify_astray(&registered, &|mr, at| (1 - mr, at)).unwrap().mrs, 2);
}

#[test]
fn only_what_the_access_grants_to_peers_is_moved() {
    let (uring, memory) = (rings(1), bytes(PAGE));
    let of = |access| {
        let chunk = Chunk { access, ..chunk(&memory, 0..PAGE) };
        Registered::new(&uring, &[("a", chunk)]).verify().unwrap()
    };
    let one_way = Verified { mrs: 1, bytes: 2 * 2 * 64, seams: 0, closed_to_peers: 0 };
    assert_eq!(of(Access::REMOTE_READ), one_way);
    assert_eq!(of(Access::REMOTE_WRITE), one_way);
    assert_eq!(of(Access::LOCAL_WRITE), Verified { closed_to_peers: 1, ..Verified::default() });

    // A seam between a side to write and a side to read is crossed in neither direction.
    let part = |range, access| Chunk { access, ..chunk(&memory, range) };
    let halves = [("a", part(0..100, Access::REMOTE_READ)), ("a", part(100..200, Access::REMOTE_WRITE))];
    assert_eq!(Registered::new(&uring, &halves).verify().unwrap().seams, 0);
}

#[test]
fn a_failed_transfer_says_whose_it_was_and_why() {
    let (uring, memory) = (rings(1), bytes(PAGE));
    let mut registered = Registered::new(&uring, &[("late", chunk(&memory, 0..PAGE))]);
    uring.deregister(&mut registered.parts[0].3).unwrap();
    let error = registered.verify().unwrap_err();
    let VerifyError::Move { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.cause, Cause::NotOurs);
    let diagnosis = error.diagnosis();
    assert_eq!(
        (diagnosis.kind, diagnosis.buffer.as_deref(), diagnosis.rail.as_deref()),
        (ErrorKind::Backend, Some("late"), Some("rail 0"))
    );
    assert!(diagnosis.message.ends_with("the MR is not live on this registrar"), "{}", diagnosis.message);
    registered.parts.clear();
}

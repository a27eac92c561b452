//! Look-ups in a registration, beside a list of what is registered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arbitrary::{Result, Unstructured};
use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{
    Cause, Chunk, DeregisterError, Extent, Identity, Keys, Machine, Mr, Prepare, PrepareError, PrepareStep, Prepared, Rail,
    RailId, RegisterError, Registrar,
};
use pinrail_engine::{Engine, LookupError, OnFailure, Options, Registration};
use pinrail_plan::Plan;

/// Whatever range is asked for on whatever rail, the pieces are those of the MRs that are live there, in order and without
/// a gap, or the error names the first address that has none. Nothing is live in the end.
///
/// # Panics
/// Where one is not so.
pub fn lookup_ops(bytes: &[u8]) {
    // Bytes that run out end the case.
    let _ = run(&mut Unstructured::new(bytes));
}

fn run(bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut machine = Machine::of_rails(bytes.int_in_range(1..=3)?);
    for rail in &mut machine.rails {
        rail.limits.max_mr_size = if bytes.arbitrary()? { Some(4096 * bytes.int_in_range(1..=4)?) } else { None };
    }
    let policy = crate::plan::policy(bytes)?;
    let mut specs = Vec::new();
    for at in 0..bytes.int_in_range(1..=8)? {
        let allocation = bytes.ratio(1, 2)?.then(|| "shared".to_owned());
        specs.push(BufferSpec { allocation, ..BufferSpec::new(BufferSpec::default_name(at), bytes.int_in_range(1..=30_000)?) });
    }
    let buffers = BatchSpec::of(specs).layout().and_then(|layout| layout.imagined()).expect("small buffers have a layout");
    let Ok(plan) = Plan::new(buffers, &machine, &policy) else { return Ok(()) };
    let books = Arc::new(Books { rails: machine.rails, written: Mutex::default(), refuses: bytes.arbitrary()? });
    let engine = Engine::new(books.clone(), Arc::new(Nothing));
    let options = Options { on_failure: OnFailure::KeepComplete, threads_max: 1, ..Options::default() };
    // Where a call was refused, the buffers that are wholly registered are kept: a registration with holes.
    let registration = match engine.register(plan, &options) {
        Ok(registration) => registration,
        Err(failure) => match failure.kept {
            Some(kept) => kept,
            None => return Ok(()),
        },
    };
    let asked = ask(bytes, &registration, &books);
    registration.deregister().expect("nothing fails to deregister here");
    assert!(books.live().is_empty());
    asked
}

fn ask(bytes: &mut Unstructured<'_>, registration: &Registration, books: &Books) -> Result<()> {
    let extents: Vec<Extent> = registration.plan().buffers().iter().map(|buffer| buffer.extent()).collect();
    let live = books.live();
    assert_eq!(registration.live(), live.len() as u64);
    while !bytes.is_empty() {
        let near = bytes.choose(&extents)?;
        let start = if bytes.ratio(1, 16)? {
            bytes.arbitrary()?
        } else {
            near.start().saturating_add_signed(bytes.int_in_range(-5_000..=35_000)?)
        };
        let Ok(extent) = Extent::new(start, bytes.int_in_range(1..=70_000)?) else { continue };
        let rail = RailId(bytes.int_in_range(0..=3)?);
        let wanted = wanted(&live, &extents, extent, rail);
        match registration.range(extent, rail) {
            Ok(pieces) => {
                let seen: Vec<_> = pieces.iter().map(|piece| (piece.mr.keys().local, piece.extent, piece.at)).collect();
                assert_eq!(Ok(seen), wanted, "{extent} on {rail}");
            }
            Err(LookupError::NotRegistered { address } | LookupError::NotOnRail { address, .. }) => {
                assert_eq!(Err(address), wanted, "{extent} on {rail}");
            }
            Err(error) => panic!("{extent} on {rail}: {error}"),
        }
    }
    Ok(())
}

/// Key, addresses and place within the MR of each piece, or the first address without a key; found without any index.
fn wanted(live: &[Live], buffers: &[Extent], extent: Extent, rail: RailId) -> std::result::Result<Vec<(u64, Extent, u64)>, u64> {
    let mut pieces = Vec::new();
    let mut at = extent.start();
    while at < extent.end() {
        let covers = |live: &&Live| live.rail == rail && live.extent.range().contains(&at);
        let Some(found) = live.iter().find(covers) else { return Err(at) };
        assert!(buffers.iter().any(|buffer| buffer.range().contains(&at)), "registered beyond every buffer");
        let end = found.extent.end().min(extent.end());
        let piece = Extent::new(at, end - at).expect("not empty");
        pieces.push((found.key, piece, at - found.extent.start()));
        at = end;
    }
    Ok(pieces)
}

#[derive(Clone, Copy)]
struct Live {
    key: u64,
    rail: RailId,
    extent: Extent,
}

/// A registrar that writes down what is live, and refuses one of its calls.
struct Books {
    rails: Vec<Rail>,
    written: Mutex<Written>,
    refuses: u8,
}

#[derive(Default)]
struct Written {
    calls: u64,
    live: Vec<Live>,
}

impl Books {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Vec<Live> {
        self.written().live.clone()
    }
}

impl Registrar for Books {
    fn identity(&self) -> Identity {
        Identity { backend: "books".into(), provider: "books".into(), library: "books".into() }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> std::result::Result<Mr, RegisterError> {
        let mut written = self.written();
        written.calls += 1;
        let key = written.calls;
        if key == u64::from(self.refuses) {
            return Err(RegisterError::new("books", None, Cause::Exhausted { what: "as planned".into() }));
        }
        written.live.push(Live { key, rail, extent: chunk.extent() });
        Ok(Mr::new(rail, Keys { local: key, ..Keys::default() }, Token(key), chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> std::result::Result<(), DeregisterError> {
        let Some(Token(key)) = mr.retire() else { return Err(DeregisterError::new("books", None, Cause::NotOurs)) };
        self.written().live.retain(|live| live.key != key);
        Ok(())
    }
}

struct Token(u64);

struct Nothing;

impl Prepare for Nothing {
    fn prepare(&self, _: &PrepareStep<'_>) -> std::result::Result<Prepared, PrepareError> {
        Ok(Prepared::Skipped)
    }
}

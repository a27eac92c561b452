//! Whatever workers, callers and controllers do to a run, beside the oracle.

use std::num::NonZeroU32;

use arbitrary::{Result, Unstructured};
use pinrail_core::Limits;
use pinrail_dispatch::Outcome;
use pinrail_dispatch::testing::{Op, Shape, run_beside_oracle};
use pinrail_policy::{Control, Controller, ControllerReport, Finished, Tick};

/// Every hand-out, count and wake-up is the oracle's, and every run ends.
///
/// # Panics
/// Where one is not.
pub fn dispatch_ops(bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let Ok((shape, ceiling, control)) = start(&mut bytes) else { return };
    let mut ops = Vec::new();
    while !bytes.is_empty() && ops.len() < 400 {
        ops.extend(op(&mut bytes));
    }
    run_beside_oracle(&shape, ceiling, control, &ops);
}

fn start(bytes: &mut Unstructured<'_>) -> Result<(Shape, Limits, Control)> {
    let count = |bytes: &mut Unstructured<'_>| Ok(NonZeroU32::MIN.saturating_add(bytes.int_in_range(0..=3)?));
    let lanes = (0..bytes.int_in_range(1..=4)?).map(|_| count(bytes)).collect::<Result<_>>()?;
    let chunks = (0..bytes.int_in_range(0..=16)?).map(|_| bytes.arbitrary()).collect::<Result<_>>()?;
    let shape = Shape { lanes, chunks, series: bytes.arbitrary()? };
    let ceiling = if bytes.arbitrary()? { limits(bytes)? } else { Limits::NONE };
    let control = match bytes.int_in_range(0..=2)? {
        0 => Control::Fixed(Limits::NONE),
        1 => Control::Fixed(limits(bytes)?),
        _ => {
            let answers = (0..bytes.int_in_range(1..=6)?).map(|_| answer(bytes)).collect::<Result<_>>()?;
            Control::Adaptive(Box::new(Reads { first: limits(bytes)?, answers, at: 0 }))
        }
    };
    Ok((shape, ceiling, control))
}

fn limits(bytes: &mut Unstructured<'_>) -> Result<Limits> {
    let mut limit = || -> Result<NonZeroU32> { Ok(NonZeroU32::new(bytes.int_in_range(0..=5)?).unwrap_or(NonZeroU32::MAX)) };
    Ok(Limits { total: limit()?, prepare: limit()?, register: limit()?, per_rail: limit()?, ..Limits::NONE })
}

fn op(bytes: &mut Unstructured<'_>) -> Result<Op> {
    let outcome =
        |bytes: &mut Unstructured<'_>| bytes.choose(&[Outcome::Done, Outcome::Done, Outcome::Failed, Outcome::Skip]).copied();
    Ok(match bytes.int_in_range(0..=31)? {
        0..=11 => Op::Take(bytes.arbitrary()?),
        12..=20 => Op::DoneAndTake(bytes.arbitrary()?, outcome(bytes)?),
        21..=27 => Op::Done(bytes.arbitrary()?, outcome(bytes)?),
        28..=30 => Op::Limit(
            bytes.int_in_range(0..=5)?,
            bytes.int_in_range(0..=3)?,
            bytes.int_in_range(0..=4)?,
            bytes.int_in_range(0..=3)?,
        ),
        _ => Op::Stop,
    })
}

/// `None`: it panics.
type Answer = Option<Option<Limits>>;

fn answer(bytes: &mut Unstructured<'_>) -> Result<Answer> {
    Ok(match bytes.int_in_range(0..=7)? {
        0 => None,
        1..=3 => Some(None),
        _ => Some(Some(limits(bytes)?)),
    })
}

/// A controller that reads its answers from a list, over and over.
struct Reads {
    first: Limits,
    answers: Vec<Answer>,
    at: usize,
}

impl Controller for Reads {
    fn limits(&self) -> Limits {
        self.first
    }

    fn finished(&mut self, _: Tick, _: &Finished) -> Option<Limits> {
        self.at += 1;
        // As a panic, but without the hook, which is the fuzzer's sign of a crash.
        self.answers[self.at % self.answers.len()]
            .unwrap_or_else(|| std::panic::resume_unwind(Box::new("a bug of the controller")))
    }

    fn report(&self) -> ControllerReport {
        ControllerReport::default()
    }
}

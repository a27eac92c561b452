use pinrail_core::Kind;
use serde::{Deserialize, Serialize};

use crate::trial::Evidence;

/// The steps of one trial, in columns: one entry each for every step, in the order of hand-outs (of calls, where there is
/// no dispatch).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// One letter a step: `p` a preparation, `r` a registration.
    pub kind: String,
    /// The (first) buffer, by its place in the batch.
    pub buffer: Vec<u32>,
    /// Bytes.
    pub len: Vec<u64>,
    /// The rail, by its place in the machine; -1 for a preparation.
    pub rail: Vec<i32>,
    /// Who did it.
    pub worker: Vec<u32>,
    /// When its call began: nanoseconds since the start of the trial.
    pub start_ns: Vec<u64>,
    /// How long it took, in nanoseconds.
    pub took_ns: Vec<u64>,
    /// The limits that an adaptive policy set: moment in nanoseconds, steps in flight.
    pub levels: Vec<(u64, u32)>,
}

/// One step of a [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedStep {
    /// True for a registration.
    pub registers: bool,
    /// The (first) buffer, by its place in the batch.
    pub buffer: u32,
    /// Bytes.
    pub len: u64,
    /// The rail, by its place in the machine.
    pub rail: Option<u16>,
    /// Who did it.
    pub worker: u32,
    /// When its call began: nanoseconds since the start of the trial.
    pub start_ns: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
}

impl Record {
    /// What dispatch handed out; the calls, where there was no dispatch.
    pub(crate) fn of(evidence: &Evidence) -> Record {
        let mut record = Record::default();
        let mut buffers: Vec<(u64, u32)> = (0..).zip(&evidence.batch).map(|(at, of)| (of.extent().start(), at)).collect();
        buffers.sort_unstable();
        // The last buffer that begins at or before an address; the first, where a registration begins before all.
        let buffer = |address: u64| {
            let at = buffers.partition_point(|(start, _)| *start <= address).saturating_sub(1);
            buffers.get(at).map_or(0, |(_, buffer)| *buffer)
        };
        match evidence.ran.dispatched.as_slice() {
            [] => record.take_calls(evidence, &buffer),
            runs => {
                for run in runs {
                    record.levels.extend(&run.levels);
                    for step in &run.handouts {
                        record.push(RecordedStep {
                            registers: step.kind == Kind::Register,
                            buffer: buffer(step.start),
                            len: step.len,
                            rail: step.rail,
                            worker: step.worker.0,
                            start_ns: step.start_ns,
                            took_ns: step.end_ns - step.start_ns,
                        });
                    }
                }
            }
        }
        record
    }

    fn take_calls(&mut self, evidence: &Evidence, buffer: &dyn Fn(u64) -> u32) {
        let mut calls = evidence.calls.clone();
        calls.sort_by_key(|call| call.entered_ns);
        let mut workers = Vec::new();
        for call in calls {
            let worker = workers.iter().position(|thread| *thread == call.thread).unwrap_or_else(|| {
                workers.push(call.thread);
                workers.len() - 1
            });
            self.push(RecordedStep {
                registers: call.kind == Kind::Register,
                buffer: buffer(call.start),
                len: call.len,
                rail: call.rail.map(|rail| rail.0),
                worker: u32::try_from(worker).unwrap_or(u32::MAX),
                start_ns: call.entered_ns.saturating_sub(evidence.started_ns),
                took_ns: call.left_ns - call.entered_ns,
            });
        }
    }

    fn push(&mut self, step: RecordedStep) {
        self.kind.push(if step.registers { 'r' } else { 'p' });
        self.buffer.push(step.buffer);
        self.len.push(step.len);
        self.rail.push(step.rail.map_or(-1, i32::from));
        self.worker.push(step.worker);
        self.start_ns.push(step.start_ns);
        self.took_ns.push(step.took_ns);
    }

    /// Its steps.
    pub fn steps(&self) -> impl Iterator<Item = RecordedStep> {
        self.kind.chars().enumerate().map_while(|(at, kind)| {
            Some(RecordedStep {
                registers: kind == 'r',
                buffer: *self.buffer.get(at)?,
                len: *self.len.get(at)?,
                rail: u16::try_from(*self.rail.get(at)?).ok(),
                worker: *self.worker.get(at)?,
                start_ns: *self.start_ns.get(at)?,
                took_ns: *self.took_ns.get(at)?,
            })
        })
    }
}

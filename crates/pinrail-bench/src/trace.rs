//! Chrome's trace format: `chrome://tracing` and Perfetto open it.

use serde_json::{Value, json};

use crate::record::RecordedStep;
use crate::results::Results;

/// Tracks of rails are numbered from here on, so that they come after the workers.
const RAILS_FROM: u32 = 10_000;

/// The last trial of every variant: a process of the trace for each process of a variant, in it a track for each worker
/// with its steps and waits, a track for each rail and call it takes at once, and the steps in flight as a counter.
#[must_use]
pub fn chrome(results: &Results) -> Value {
    let mut events = Vec::new();
    let mut pid = 0u32;
    for variant in &results.variants {
        for (process, record) in variant.record.iter().enumerate() {
            pid += 1;
            let name = match variant.record.len() {
                1 => variant.name.clone(),
                _ => format!("{}, process {process}", variant.name),
            };
            events.push(json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}));
            let steps: Vec<RecordedStep> = record.steps().collect();
            workers(&mut events, pid, &steps, results);
            rails(&mut events, pid, &steps, results);
            counters(&mut events, pid, &steps, &record.levels);
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

/// Microseconds, as the format counts.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a trial are far below 2^53")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn track(events: &mut Vec<Value>, pid: u32, tid: u32, name: &str) {
    events.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}));
}

fn rail_name(results: &Results, rail: u16) -> &str {
    results.rails.get(usize::from(rail)).map_or("unknown rail", String::as_str)
}

fn buffer_name(results: &Results, buffer: u32) -> String {
    let name = &results.batch.file["buffers"][buffer as usize]["name"];
    name.as_str().map_or_else(|| format!("buffer {buffer}"), str::to_owned)
}

fn event(results: &Results, pid: u32, tid: u32, step: &RecordedStep) -> Value {
    let buffer = buffer_name(results, step.buffer);
    let rail = step.rail.map(|rail| rail_name(results, rail));
    let name = rail.map_or_else(|| format!("prepare {buffer}"), |rail| format!("{buffer} on {rail}"));
    json!({"ph": "X", "cat": if step.registers { "register" } else { "prepare" }, "name": name, "pid": pid, "tid": tid,
           "ts": us(step.start_ns), "dur": us(step.took_ns), "args": {"buffer": buffer, "rail": rail, "bytes": step.len}})
}

/// What each worker did, and its waits between.
fn workers(events: &mut Vec<Value>, pid: u32, steps: &[RecordedStep], results: &Results) {
    let last = steps.iter().map(|step| step.worker).max();
    for worker in last.map_or(0..0, |last| 0..last + 1) {
        let mut own: Vec<&RecordedStep> = steps.iter().filter(|step| step.worker == worker).collect();
        own.sort_by_key(|step| step.start_ns);
        track(events, pid, worker + 1, &format!("worker {worker}"));
        let mut free_ns = 0;
        for step in own {
            if step.start_ns > free_ns {
                events.push(json!({"ph": "X", "cat": "wait", "name": "wait", "pid": pid, "tid": worker + 1, "ts": us(free_ns),
                                   "dur": us(step.start_ns - free_ns), "args": {}}));
            }
            free_ns = step.start_ns + step.took_ns;
            events.push(event(results, pid, worker + 1, step));
        }
    }
}

/// What each rail did: as many tracks as it had calls at once, since events of a track must not overlap.
fn rails(events: &mut Vec<Value>, pid: u32, steps: &[RecordedStep], results: &Results) {
    let mut tid = RAILS_FROM;
    for rail in 0..u16::try_from(results.rails.len()).unwrap_or(u16::MAX) {
        let mut own: Vec<&RecordedStep> = steps.iter().filter(|step| step.rail == Some(rail)).collect();
        own.sort_by_key(|step| step.start_ns);
        // By track, when its last call ended.
        let mut tracks: Vec<u64> = Vec::new();
        for step in own {
            let at = tracks.iter().position(|free_ns| *free_ns <= step.start_ns).unwrap_or_else(|| {
                tracks.push(0);
                tracks.len() - 1
            });
            tracks[at] = step.start_ns + step.took_ns;
            events.push(event(results, pid, tid + u32::try_from(at).unwrap_or(0), step));
        }
        for (at, _) in (0..).zip(&tracks) {
            track(events, pid, tid + at, rail_name(results, rail));
        }
        tid += u32::try_from(tracks.len()).unwrap_or(0).max(1);
    }
}

/// Steps in flight, and the limit where a policy changes it.
fn counters(events: &mut Vec<Value>, pid: u32, steps: &[RecordedStep], levels: &[(u64, u32)]) {
    let mut edges: Vec<(u64, i64)> =
        steps.iter().flat_map(|step| [(step.start_ns, 1), (step.start_ns + step.took_ns, -1)]).collect();
    edges.sort_unstable();
    let mut in_flight = 0;
    for (ns, change) in edges {
        in_flight += change;
        events.push(json!({"ph": "C", "name": "in flight", "pid": pid, "tid": 0, "ts": us(ns), "args": {"steps": in_flight}}));
    }
    for (ns, limit) in levels {
        events.push(json!({"ph": "C", "name": "limit", "pid": pid, "tid": 0, "ts": us(*ns), "args": {"steps": limit}}));
    }
}

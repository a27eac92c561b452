//! A batch that was registered and deregistered: where the time went.

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::time::Duration;

use pinrail_core::Limits;
use pinrail_core::size::Bytes;
use pinrail_policy::{ControllerReport, Tick};
use serde_json::{Value, json};

use super::table::{self, Side};
use super::{Document, failure};
use crate::error::Error;
use crate::register::Ran;

impl Ran {
    /// Cores that were busy on average while it registered.
    fn cores_busy(&self) -> f64 {
        let over = self.cpu_over.as_secs_f64();
        if over > 0.0 { self.cpu.as_secs_f64() / over } else { 0.0 }
    }
}

impl Document for Ran {
    fn json(&self) -> Value {
        let s = Duration::as_secs_f64;
        let report = &self.registered;
        json!({"runs": [{
            "policy": self.policy,
            "backend": self.identity.backend,
            "provider": self.identity.provider,
            "stages": {"allocate_s": s(&self.allocate), "prefault_s": s(&report.prepare), "register_s": s(&report.tasks),
                       "deregister_s": s(&self.deregistered.tasks), "total_s": s(&report.total)},
            "cpu_s": s(&self.cpu),
            "cores_busy": self.cores_busy(),
            "peak_threads": report.threads,
            "peak_in_flight": report.peak_in_flight,
            "tasks": self.tasks,
            "controller": report.controller.as_ref().map(controller),
            "verified": self.verified.map(|of| json!({"mrs": of.mrs, "bytes": of.bytes, "seams": of.seams, "closed_to_peers": of.closed_to_peers})),
            "processes": [{"register_s": s(&report.tasks), "total_s": s(&report.total)}],
            "failed": self.failed.iter().map(failure::json).collect::<Vec<_>>(),
        }]})
    }

    fn human(&self, to: &mut dyn Write, width: usize) -> io::Result<()> {
        let (identity, report) = (&self.identity, &self.registered);
        writeln!(to, "backend  {} ({}, {})", identity.backend, identity.provider, identity.library)?;
        writeln!(to, "policy   {}", self.policy)?;
        writeln!(to, "tasks    {} on {} rails", self.tasks, self.rails)?;

        writeln!(to)?;
        let stages = [
            ("allocate", self.allocate),
            ("prefault", report.prepare),
            ("register", report.tasks),
            ("total, prefault to the last key", report.total),
            ("deregister", self.deregistered.tasks),
        ];
        let row = |(stage, time): (&str, Duration)| [stage.to_owned(), format!("{:.6}", time.as_secs_f64())];
        table::write(to, width, [("stage", Side::Left), ("seconds", Side::Right)], stages.into_iter().map(row))?;

        writeln!(to)?;
        let (cpu, busy) = (self.cpu.as_secs_f64(), self.cores_busy());
        let (threads, peak) = (report.threads, report.peak_in_flight);
        writeln!(to, "{cpu:.3} CPU seconds, {busy:.2} cores busy; {threads} threads, at most {peak} steps in flight")?;
        if let Some(of) = self.verified {
            writeln!(to, "verified {} registrations and {} seams, {} moved", of.mrs, of.seams, Bytes(of.bytes))?;
            if of.closed_to_peers > 0 {
                writeln!(to, "not verified: {} registrations, which no peer may read or write", of.closed_to_peers)?;
            }
        }
        self.failed.iter().try_for_each(|failed| writeln!(to, "failed ({}): {}", failed.kind, failed.message))
    }

    fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }
}

/// What an adaptive limit did.
pub(super) fn controller(report: &ControllerReport) -> Value {
    let limit = |limit: NonZeroU32| (limit != NonZeroU32::MAX).then_some(limit);
    let level = |&(Tick(ns), limits, why): &(Tick, Limits, &'static str)| {
        json!({
            "at_s": Duration::from_nanos(ns).as_secs_f64(),
            "total": limit(limits.total),
            "prepare": limit(limits.prepare),
            "register": limit(limits.register),
            "deregister": limit(limits.deregister),
            "why": why,
        })
    };
    json!({ "levels": report.levels.iter().map(level).collect::<Vec<_>>() })
}

//! What a simulation came to.

use std::io::{self, Write};

use pinrail_core::size::Mbps;
use pinrail_sim::{Found, Promise, Regret, Row, Run, Scenario, THREAD_PER_BUFFER, Verdict, markdown};
use serde_json::{Value, json};

use super::Document;
use super::run::controller;
use super::table::{self, Side};
use crate::sim::{Compared, Listed, Part, Simulated};

impl Document for Simulated {
    fn json(&self) -> Value {
        let runs: Vec<Value> = self.parts.iter().flat_map(|part| part.runs.iter().map(run)).collect();
        let verdicts: Vec<Value> = self.parts.iter().filter_map(|part| Some(decision(part, part.verdict.as_ref()?))).collect();
        let found: Vec<Value> = self.parts.iter().flat_map(|part| part.found.iter().map(search)).collect();
        let search = if found.is_empty() { Value::Null } else { found.into() };
        json!({"scenario": self.scenario, "seed": self.seed, "runs": runs, "verdicts": verdicts, "search": search})
    }

    fn human(&self, to: &mut dyn Write, width: usize) -> io::Result<()> {
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                writeln!(to)?;
            }
            part.human(to, width, self.seed)?;
        }
        Ok(())
    }
}

impl Part {
    fn human(&self, to: &mut dyn Write, width: usize, seed: u64) -> io::Result<()> {
        let Scenario { name, keys, .. } = &self.scenario;
        writeln!(to, "scenario  {name}")?;
        table::paragraph(to, width, 10, &format!("          {}", keys.about))?;
        let processes = keys.processes.map_or(1, |processes| processes.get() as usize);
        let processes = if processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") };
        let cores = super::count(keys.cores.get() as usize, "core");
        writeln!(to, "node      {processes}, {cores}; batch {} in each; seed {seed}\n", keys.batch)?;

        writeln!(to, "seconds of virtual time, of the slowest process; total is prefault to the last key")?;
        let columns = [
            ("total", Side::Right),
            ("prefault", Side::Right),
            ("register", Side::Right),
            ("deregister", Side::Right),
            ("CPU", Side::Right),
            ("threads", Side::Right),
            ("reach", Side::Right),
            ("profile", Side::Left),
            ("policy", Side::Left),
        ];
        table::write(to, width, columns, self.runs.iter().map(row))?;
        if let Some(all) = self.runs.iter().find_map(|run| run.mbps_all) {
            writeln!(to, "\nreach: bandwidth of the rails that a process's buffers are registered on, of {} in all", Mbps(all))?;
        }
        if let Some(assumed) = self.runs.iter().find_map(|run| run.assumed_allocations) {
            writeln!(to, "coalescing assumes {assumed} allocations")?;
        }
        if self.runs.iter().any(|run| !run.trusted) {
            let profiles: Vec<&str> = self.runs.iter().filter(|run| !run.trusted).map(|run| run.profile.as_str()).collect();
            let text =
                format!("note: {} is known to be wrong about unbounded, which is never taken for the best by it", profiles[0]);
            table::paragraph(to, width, 6, &text)?;
        }
        if let Some(verdict) = &self.verdict {
            winners(to, width, verdict)?;
        }
        self.found.iter().try_for_each(|found| regrets(to, width, found))
    }
}

fn row(run: &Run) -> [String; 9] {
    let s = |seconds: f64| format!("{seconds:.3}");
    [
        s(run.total_s),
        s(run.prefault_s),
        s(run.register_s),
        run.deregister_s.map_or_else(|| "-".to_owned(), s),
        format!("{:.1}", run.cpu_s),
        run.threads.to_string(),
        run.mbps.map_or_else(|| "-".to_owned(), |mbps| Mbps(mbps).to_string()),
        run.profile.clone(),
        run.name.clone(),
    ]
}

fn winners(to: &mut dyn Write, width: usize, verdict: &Verdict) -> io::Result<()> {
    writeln!(to)?;
    if verdict.decided {
        for policy in &verdict.best[0].policies {
            table::paragraph(to, width, 12, &format!("the fastest {policy}"))?;
        }
        if verdict.best[0].policies.len() > 1 {
            writeln!(to, "            (no difference: repeats of one published cell span 13 %)")?;
        }
        return Ok(());
    }
    writeln!(to, "not decided by the record")?;
    for best in &verdict.best {
        table::paragraph(to, width, 2, &format!("  {}: the fastest is {}", best.profile, best.policies.join(" or ")))?;
    }
    if !verdict.safe.is_empty() {
        table::paragraph(to, width, 2, &format!("  among the fastest under every profile: {}", verdict.safe.join(" and ")))?;
    }
    if let Some(decides) = &verdict.decides {
        let says: Vec<String> = decides.says.iter().map(|(profile, value)| format!("{value:.1} by {profile}")).collect();
        let text = format!("  what would decide it: {} of {}: {}", decides.what, decides.policy, says.join(", "));
        table::paragraph(to, width, 2, &text)?;
    }
    Ok(())
}

/// The best of a grid, and what others lose against it.
fn regrets(to: &mut dyn Write, width: usize, found: &Found) -> io::Result<()> {
    writeln!(to, "\nsearch under {}: {} policies tried", found.profile, found.tried)?;
    let best = [format!("{:.3}", found.best.total_s), "best".to_owned(), found.best.name.clone()];
    let loses = found
        .regrets
        .iter()
        .map(|of| [format!("{:.3}", of.run.total_s), format!("{:+.0} %", of.regret * 100.0), of.run.name.clone()]);
    let assuming = found.assuming.iter().map(|run| {
        let assumes = format!("{} (assumes {} allocations)", run.name, run.assumed_allocations.unwrap_or_default());
        [format!("{:.3}", run.total_s), format!("{:+.0} %", (run.total_s / found.best.total_s - 1.0) * 100.0), assumes]
    });
    let rows: Vec<_> = std::iter::once(best).chain(loses).chain(assuming).collect();
    let columns = [("total", Side::Right), ("regret", Side::Right), ("policy", Side::Left)];
    table::write(to, width, columns, rows.into_iter())?;
    let of = |name: &str| found.regrets.iter().find(|of| of.run.name == name).map(|of| of.run.total_s);
    if let (Some(default), Some(today)) = (of("default"), of(THREAD_PER_BUFFER))
        && default > today
    {
        let text = format!("the default loses to {THREAD_PER_BUFFER} here, by {:.0} %", (default / today - 1.0) * 100.0);
        table::paragraph(to, width, 0, &text)?;
    }
    Ok(())
}

fn search(found: &Found) -> Value {
    let brief = |run: &Run| {
        json!({"name": run.name, "policy": run.policy, "total_s": run.total_s, "mbps": run.mbps,
                                   "assumed_allocations": run.assumed_allocations})
    };
    let regret = |of: &Regret| {
        let mut value = brief(&of.run);
        value["regret"] = of.regret.into();
        value
    };
    json!({"scenario": found.scenario, "profile": found.profile, "tried": found.tried, "best": brief(&found.best),
           "regrets": found.regrets.iter().map(regret).collect::<Vec<_>>(),
           "assuming": found.assuming.iter().map(brief).collect::<Vec<_>>()})
}

fn run(run: &Run) -> Value {
    let process = |of: &pinrail_sim::ProcessRun| json!({"register_s": of.register_s, "total_s": of.total_s});
    json!({
        "scenario": run.scenario,
        "name": run.name,
        "policy": run.policy,
        "backend": format!("sim:{}", run.profile),
        "provider": run.profile,
        "stages": {"allocate_s": 0.0, "prefault_s": run.prefault_s, "register_s": run.register_s,
                   "deregister_s": run.deregister_s, "total_s": run.total_s},
        "cpu_s": run.cpu_s,
        "cores_busy": run.cores_busy(),
        "peak_threads": run.threads,
        "peak_in_flight": run.peak_in_flight,
        "tasks": run.tasks,
        "controller": run.controller.as_ref().map(controller),
        "verified": null,
        "processes": run.processes.iter().map(process).collect::<Vec<_>>(),
        "failed": [],
        "mbps": run.mbps,
        "mbps_all": run.mbps_all,
        "mrs_per_rail": run.mrs_per_rail,
        "assumed_allocations": run.assumed_allocations,
        "trusted": run.trusted,
        "trace_hash": format!("{:016x}", run.trace_hash),
    })
}

fn decision(part: &Part, verdict: &Verdict) -> Value {
    let best =
        verdict.best.iter().map(|best| json!({"profile": best.profile, "policies": best.policies, "total_s": best.total_s}));
    let decides = verdict.decides.as_ref().map(|of| {
        let says = of.says.iter().map(|(profile, value)| json!({"profile": profile, "value": value}));
        json!({"policy": of.policy, "measure": of.what, "says": says.collect::<Vec<_>>()})
    });
    json!({
        "scenario": part.scenario.name,
        "decided": verdict.decided,
        "verdict": if verdict.decided { verdict.best[0].policies.join(" or ") } else { "not decided by the record".to_owned() },
        "best": best.collect::<Vec<_>>(),
        "safe": verdict.safe,
        "would_decide": decides,
    })
}

impl Document for Compared {
    fn json(&self) -> Value {
        let row = |row: &Row| {
            let ours =
                row.ours.iter().map(|(profile, ours)| json!({"profile": profile, "value": ours, "error": row.error(*ours)}));
            let promise = match row.promise {
                Promise::Within(share) => json!({ "within": share }),
                Promise::Factor(factor) => json!({ "factor": factor }),
                Promise::None => Value::Null,
            };
            json!({"table": row.table, "what": row.what, "unit": row.unit, "published": row.published,
                   "ours": ours.collect::<Vec<_>>(), "promise": promise, "kept": row.kept(), "fitted": row.fitted,
                   "standing": row.standing})
        };
        json!({"rows": self.0.iter().map(row).collect::<Vec<_>>()})
    }

    fn human(&self, to: &mut dyn Write, _: usize) -> io::Result<()> {
        // The very text of docs/SIMULATION.md.
        write!(to, "{}", markdown(&self.0))
    }
}

impl Document for Listed {
    fn json(&self) -> Value {
        let scenario = |of: &Scenario| {
            json!({"name": of.name, "about": of.keys.about, "profiles": of.keys.profiles, "policies": of.keys.policies,
                   "batch": of.keys.batch, "processes": of.keys.processes, "cores": of.keys.cores})
        };
        let profiles = pinrail_sim::Profile::names().filter_map(|name| {
            let profile = pinrail_sim::Profile::named(name).ok()?;
            Some(json!({"name": name, "about": profile.about}))
        });
        json!({"scenarios": self.0.iter().map(scenario).collect::<Vec<_>>(), "profiles": profiles.collect::<Vec<_>>()})
    }

    fn human(&self, to: &mut dyn Write, width: usize) -> io::Result<()> {
        let columns = [("scenario", Side::Left), ("what it is", Side::Left)];
        let rows: Vec<_> = self.0.iter().map(|of| [of.name.clone(), of.keys.about.clone()]).collect();
        table::write(to, width, columns, rows.into_iter())?;
        writeln!(to)?;
        let columns = [("profile", Side::Left), ("what it is", Side::Left)];
        let profiles = pinrail_sim::Profile::names().filter_map(|name| {
            let profile = pinrail_sim::Profile::named(name).ok()?;
            Some([name.to_owned(), profile.about])
        });
        let rows: Vec<_> = profiles.collect();
        table::write(to, width, columns, rows.into_iter())
    }
}

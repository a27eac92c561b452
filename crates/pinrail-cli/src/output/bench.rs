//! What a bench has found: times, what they cost, and what can be said.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pinrail_bench::{Comparison, Figure, Results, Slope, VariantResults, Verdict};
use pinrail_core::size::Bytes;
use serde_json::{Value, json};

use super::table::{self, Side};
use super::{Document, count};
use crate::bench::{Compared, Measured, Swept};

/// Most pairs that are all shown; of more, each variant is shown against the fastest.
const PAIRS_SHOWN: usize = 10;

impl Document for Measured {
    fn json(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_else(|error| json!({ "error": error.to_string() }))
    }

    fn human(&self, to: &mut dyn Write, width: usize) -> io::Result<()> {
        let results = &self.0;
        heading(to, results)?;
        times(to, width, results)?;
        costs(to, width, results)?;
        processes(to, width, results)?;
        comparisons(to, width, results)?;
        results.notes.iter().try_for_each(|note| table::paragraph(to, width, 6, &format!("note: {note}")))
    }
}

fn heading(to: &mut dyn Write, results: &Results) -> io::Result<()> {
    let Results { batch, environment, .. } = results;
    writeln!(to, "backend  {} ({}, {})", results.backend, results.provider, environment.library)?;
    let buffers = count(usize::try_from(batch.buffers).unwrap_or(usize::MAX), "buffer");
    let rails = count(results.rails.len(), "rail");
    writeln!(to, "batch    {}: {buffers}, {}, on {rails}", batch.name, Bytes(batch.bytes))?;
    writeln!(to, "memory   {}, {} pages", results.memory, results.pages)?;
    writeln!(to, "machine  {}, {} usable", environment.cpu, count(environment.cores_usable as usize, "core"))?;
    writeln!(
        to,
        "trials   {} of each in {:.0} s, interleaved by seed {}; a fixed task moved by {:.1} %",
        results.trials,
        results.took_s,
        results.seed,
        results.drift * 100.0
    )
}

fn times(to: &mut dyn Write, width: usize, results: &Results) -> io::Result<()> {
    writeln!(to, "\nmedian milliseconds (99 % interval); total is prefault to the last key")?;
    let row = |of: &VariantResults| {
        let [prefault, register, deregister] = [&of.prefault, &of.register, &of.deregister].map(|stage| ms(stage.median_s));
        [of.name.clone(), interval(&of.total), prefault, register, deregister]
    };
    let columns = [
        ("variant", Side::Left),
        ("total", Side::Left),
        ("prefault", Side::Right),
        ("register", Side::Right),
        ("deregister", Side::Right),
    ];
    table::write(to, width, columns, results.variants.iter().map(row))
}

fn costs(to: &mut dyn Write, width: usize, results: &Results) -> io::Result<()> {
    writeln!(to, "\nwhat it cost; service and wait are a registration's, on average")?;
    let row = |of: &VariantResults| {
        let us = |seconds: f64| format!("{:.0} us", seconds * 1e6);
        [
            of.name.clone(),
            format!("{:.3}", of.cpu_s),
            format!("{:.1}", of.cores_busy),
            of.peak_threads.to_string(),
            of.peak_in_flight.to_string(),
            us(of.service_s),
            us(of.wait_s),
        ]
    };
    let columns = [
        ("variant", Side::Left),
        ("CPU s", Side::Right),
        ("cores", Side::Right),
        ("threads", Side::Right),
        ("in flight", Side::Right),
        ("service", Side::Right),
        ("wait", Side::Right),
    ];
    table::write(to, width, columns, results.variants.iter().map(row))?;
    for of in results.variants.iter().filter(|of| !of.outliers.is_empty()) {
        let far = of.outliers.iter().map(|&at| ms(of.samples[at])).collect::<Vec<_>>().join(", ");
        writeln!(to, "outliers, kept: {} {far} ms", of.name)?;
    }
    Ok(())
}

/// A line for each process, where there are several.
fn processes(to: &mut dyn Write, width: usize, results: &Results) -> io::Result<()> {
    if results.processes < 2 {
        return Ok(());
    }
    let skew = results.skew.map_or_else(String::new, |skew| format!("; process 0 is {skew}"));
    writeln!(to, "\n{} processes at once, medians in milliseconds{skew}", results.processes)?;
    let rows = results.variants.iter().flat_map(|of| {
        let row = |(at, process): (usize, &pinrail_bench::ProcessResults)| {
            [
                of.name.clone(),
                at.to_string(),
                ms(process.total_s),
                ms(process.register_s),
                ms(process.deregister_s),
                ms(process.cpu_s),
            ]
        };
        of.processes.iter().enumerate().map(row)
    });
    let columns = [
        ("variant", Side::Left),
        ("process", Side::Right),
        ("total", Side::Right),
        ("register", Side::Right),
        ("deregister", Side::Right),
        ("CPU", Side::Right),
    ];
    let rows: Vec<_> = rows.collect();
    table::write(to, width, columns, rows.into_iter())
}

fn comparisons(to: &mut dyn Write, width: usize, results: &Results) -> io::Result<()> {
    let said: Vec<&Comparison> = results.comparisons.iter().filter(|of| of.verdict != Verdict::Withheld).collect();
    let fastest = results.variants.iter().filter(|of| said.iter().any(|pair| pair.a == of.name || pair.b == of.name));
    let fastest = fastest.min_by(|a, b| a.total.median_s.total_cmp(&b.total.median_s));
    if let Some(fastest) = fastest {
        let all = said.len() <= PAIRS_SHOWN;
        let shown: Vec<[String; 4]> =
            said.iter().filter_map(|pair| if all { Some(row(pair)) } else { against(pair, &fastest.name) }).collect();
        let heading = if all { "total against total".to_owned() } else { format!("against {}", fastest.name) };
        writeln!(to, "\ntotals compared, trial by trial")?;
        let columns =
            [(heading.as_str(), Side::Left), ("ratio", Side::Right), ("99 % interval", Side::Left), ("verdict", Side::Left)];
        table::write(to, width, columns, shown.into_iter())?;
        if !all {
            writeln!(to, "  (--json has all {} pairs)", results.comparisons.len())?;
        }
    }
    let mut withheld: BTreeMap<&str, Vec<&Comparison>> = BTreeMap::new();
    for pair in results.comparisons.iter().filter(|of| of.verdict == Verdict::Withheld) {
        withheld.entry(pair.reason.as_deref().unwrap_or_default()).or_default().push(pair);
    }
    for (reason, pairs) in withheld {
        let which = match pairs.as_slice() {
            [pair] => format!("{} / {}", pair.a, pair.b),
            pairs => count(pairs.len(), "comparison"),
        };
        table::paragraph(to, width, 10, &format!("withheld, {which}: {reason}"))?;
    }
    Ok(())
}

fn row(pair: &Comparison) -> [String; 4] {
    let (low, high) = (pair.low, pair.high);
    [format!("{} / {}", pair.a, pair.b), format!("{:.3}", pair.ratio), format!("{low:.3} to {high:.3}"), said(pair, pair.verdict)]
}

/// A comparison with this variant, as the other's.
fn against(pair: &Comparison, name: &str) -> Option<[String; 4]> {
    let (other, ratio, low, high, verdict) = if pair.b == name {
        (&pair.a, pair.ratio, pair.low, pair.high, pair.verdict)
    } else if pair.a == name {
        let turned = match pair.verdict {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            same => same,
        };
        (&pair.b, 1.0 / pair.ratio, 1.0 / pair.high, 1.0 / pair.low, turned)
    } else {
        return None;
    };
    Some([other.clone(), format!("{ratio:.3}"), format!("{low:.3} to {high:.3}"), said(pair, verdict)])
}

fn said(pair: &Comparison, verdict: Verdict) -> String {
    let word = match verdict {
        Verdict::NoDifference => "no difference",
        other => other.as_str(),
    };
    pair.reason.as_ref().map_or_else(|| word.to_owned(), |reason| format!("{word}; {reason}"))
}

fn interval(figure: &Figure) -> String {
    format!("{} ({}-{})", ms(figure.median_s), ms(figure.low_s), ms(figure.high_s))
}

/// Milliseconds with three digits that count.
fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    let digits = if ms >= 100.0 {
        0
    } else if ms >= 10.0 {
        1
    } else {
        2
    };
    format!("{ms:.digits$}")
}

impl Document for Compared {
    fn json(&self) -> Value {
        json!({ "comparisons": self.0 })
    }

    fn human(&self, to: &mut dyn Write, width: usize) -> io::Result<()> {
        writeln!(to, "total of the second run against the first")?;
        let row = |pair: &Comparison| {
            let (low, high) = (pair.low, pair.high);
            [pair.a.clone(), format!("{:.3}", pair.ratio), format!("{low:.3} to {high:.3}"), said(pair, pair.verdict)]
        };
        let columns = [("variant", Side::Left), ("ratio", Side::Right), ("99 % interval", Side::Left), ("verdict", Side::Left)];
        table::write(to, width, columns, self.0.iter().map(row))
    }
}

impl Document for Swept {
    fn json(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_else(|error| json!({ "error": error.to_string() }))
    }

    fn human(&self, to: &mut dyn Write, width: usize) -> io::Result<()> {
        let sweep = &self.0;
        writeln!(to, "backend  {} ({}, {})", sweep.backend, sweep.provider, sweep.environment.library)?;
        let rails = count(sweep.rails.len(), "rail");
        let most = sweep.points.iter().map(|point| point.prior_bytes).max().unwrap_or(0);
        writeln!(to, "buffer   {} on {rails} that hold 0 to {}", Bytes(sweep.buffer_bytes), Bytes(most))?;
        writeln!(to, "calls    {} in {} trials on fresh rails, one at a time", sweep.points.len(), sweep.trials)?;
        writeln!(to, "\nhow a call's time grows with what its rail holds: ms a GiB and rail (99 % interval)")?;
        let row = |(what, of): (&str, Slope)| {
            let interval = match (of.low, of.high) {
                (Some(low), Some(high)) => format!("{low:.4} to {high:.4}"),
                _ => "too few trials".to_owned(),
            };
            let said = match (of.low, of.high) {
                _ if sweep.withheld.is_some() => "withheld",
                (Some(low), _) if low > 0.0 => "grows",
                (_, Some(high)) if high < 0.0 => "shrinks",
                (Some(_), Some(_)) => "flat",
                _ => "withheld",
            };
            [what.to_owned(), format!("{:.4}", of.ms_per_gib), interval, format!("{:.4}", of.empty_ms), said.to_owned()]
        };
        let columns = [
            ("call", Side::Left),
            ("slope", Side::Right),
            ("interval", Side::Left),
            ("on empty rails, ms", Side::Right),
            ("verdict", Side::Left),
        ];
        let rows = [("register", sweep.register), ("deregister", sweep.deregister)].into_iter().map(row);
        table::write(to, width, columns, rows)?;
        sweep.withheld.iter().try_for_each(|why| table::paragraph(to, width, 10, &format!("withheld: {why}")))
    }
}

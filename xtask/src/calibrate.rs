//! `cargo xtask calibrate`: the profile `uring` of the simulator, from what `pinrail bench` measures on this machine.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::Value;

use crate::workspace::Workspace;
use crate::{Result, command::Line};

const PROFILE: &str = "crates/pinrail-sim/profiles/uring.toml";

/// What is registered, on each of at most two rails: one buffer, so that a rail's call is one figure.
const BATCH: &str = "1x512MiB";
const PAGES_4KIB: f64 = (512 << 20) as f64 / 4096.0;

/// Enough for a median, and few enough for a minute or two.
const TRIALS: &str = "8";

const ONE: &str = "rails-in-series+capped=1+no-prefault";
const AT_ONCE: &str = "rails-in-parallel+unbounded+no-prefault";

/// Seconds of a bench with small or huge pages.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seconds {
    /// One rail, resident memory.
    pin: f64,
    /// Two rails at once.
    pin_both: f64,
    unpin: f64,
    unpin_both: f64,
    /// One rail, untouched memory.
    cold: f64,
    /// Two rails at once.
    cold_both: f64,
    /// What preparing takes by as many threads as there are cores.
    prefault: f64,
}

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    std::env::set_current_dir(&workspace.root).map_err(|why| format!("cannot enter the workspace: {why}"))?;
    let cores = std::thread::available_parallelism().map_err(|why| format!("cannot count the usable cores: {why}"))?.get();
    let build = Line::new("cargo build --locked --release --package pinrail-cli");
    println!("$ {build}");
    if !build.show()?.success() {
        return Err(format!("`{build}` failed"));
    }
    let pinrail = workspace.target.join("release/pinrail");
    let bench = |rails: &str, memory: &str, pages: &str, policy: &str| -> Result<Value> {
        let line = Line::program(pinrail.to_string_lossy()).words(["bench", "--backend", "uring", "--batch", BATCH, "--json"]);
        let line = line.words(["--rails", rails, "--memory", memory, "--pages", pages, "--policy", policy, "--trials", TRIALS]);
        println!("$ {line}");
        serde_json::from_str(&line.output()?).map_err(|why| format!("`{line}` printed no JSON: {why}"))
    };
    let measure = |pages: &str| -> Result<Seconds> {
        let (one, both) = (bench("1", "resident", pages, ONE)?, bench("2", "resident", pages, AT_ONCE)?);
        let prefaulted = bench("1", "untouched", pages, &format!("capped={cores}+prefault"))?;
        Ok(Seconds {
            pin: median(&one, "register")?,
            pin_both: median(&both, "register")?,
            unpin: median(&one, "deregister")?,
            unpin_both: median(&both, "deregister")?,
            cold: median(&bench("1", "untouched", pages, ONE)?, "register")?,
            cold_both: median(&bench("2", "untouched", pages, AT_ONCE)?, "register")?,
            prefault: median(&prefaulted, "prefault")?,
        })
    };
    let profile = profile(cores, &measure("4k")?, &measure("thp")?);
    std::fs::write(PROFILE, profile).map_err(|why| format!("cannot write {PROFILE}: {why}"))?;
    println!("{PROFILE} is this machine's");
    Ok(ExitCode::SUCCESS)
}

fn median(bench: &Value, stage: &str) -> Result<f64> {
    let found = bench["variants"][0][stage]["median_s"].as_f64();
    found.filter(|seconds| *seconds > 0.0).ok_or_else(|| format!("the bench has no {stage} time: {bench}"))
}

fn profile(cores: usize, small: &Seconds, huge: &Seconds) -> String {
    let ns = |seconds: f64| seconds.max(0.0) * 1e9 / PAGES_4KIB;
    // Beyond one call's time; two rails are one doubling.
    let slowdown = |one: f64, both: f64| (both / one - 1.0).max(0.0);
    let mut text = format!(
        "# Written by `cargo xtask calibrate`: {BATCH} on one and two rings, medians of {TRIALS} trials each.\n\
         version = 1\n\
         about = \"io_uring, host memory, one ring a rail, the machine with {cores} cores that it was calibrated on\"\n\
         # Published, P7: a clock of ours cannot tell it from noise.\n\
         thread_start_ns = 30_000\n"
    );
    for (table, one, both, one_huge) in
        [("register", small.pin, small.pin_both, huge.pin), ("deregister", small.unpin, small.unpin_both, huge.unpin)]
    {
        write!(
            text,
            "\n[{table}]\nns_per_4kib = {:.1}\nhuge_ns_per_4kib = {:.2}\nsame_pages_slowdown = {:.2}\n\n\
             # One ring takes one call at a time.\n[{table}.lock]\nscope = \"domain\"\nshare = 1\n",
            ns(one),
            ns(one_huge),
            slowdown(one, both)
        )
        .ok();
    }
    for (table, of) in [("touch", small), ("touch_huge", huge)] {
        let touch = (of.cold - of.pin).max(of.cold * 0.01);
        let storm = ((of.cold_both - of.pin_both) / touch).max(0.1);
        let knee = f64::from(u32::try_from(cores).unwrap_or(u32::MAX));
        let speed_up = (touch / of.prefault).clamp(1.0, knee);
        let efficiency = if cores > 1 { (speed_up - 1.0) / (knee - 1.0) } else { 0.0 };
        write!(
            text,
            "\n[{table}]\nns_per_4kib = {:.0}\nstorm = {storm:.2}\n\
             # The fastest that was tried: as many threads as cores.\nknee_threads = {cores}\nefficiency = {efficiency:.2}\n\
             past_knee = 1\n# mincore over 4 GiB in 5 ms, a 128th of it.\nprobe_ns_per_slice = 39_000\n",
            ns(touch)
        )
        .ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Seconds =
        Seconds { pin: 0.01, pin_both: 0.015, unpin: 0.002, unpin_both: 0.002, cold: 0.21, cold_both: 0.615, prefault: 0.125 };

    #[test]
    fn a_profile_is_what_was_measured() {
        let text = profile(2, &SECONDS, &SECONDS);
        for line in [
            "ns_per_4kib = 76.3",
            "same_pages_slowdown = 0.50",
            "same_pages_slowdown = 0.00",
            "ns_per_4kib = 1526",
            "storm = 3.00",
            "efficiency = 0.60",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(profile(1, &SECONDS, &SECONDS).contains("efficiency = 0.00"));
    }

    #[test]
    fn a_bench_without_a_time_is_an_error() {
        assert!(median(&serde_json::json!({"variants": []}), "register").is_err());
    }
}

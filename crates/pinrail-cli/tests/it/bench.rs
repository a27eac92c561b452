//! `pinrail bench` on rings: what it refuses, what its document and its trace hold, and several processes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use crate::signals::{Running, children, now};
use crate::support::{self, batch, folder, pinrail, refused, run, workspace};

const BACKEND: [&str; 3] = ["bench", "--backend", "uring"];

/// A bench of a small batch, and its document.
fn bench(arguments: &[&str]) -> Value {
    support::json(BACKEND.iter().chain(&["--batch", "8x256KiB", "--rails", "2"]).chain(arguments))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

#[test]
fn what_measures_nothing_is_refused() {
    let with = |more: &[&'static str]| [&BACKEND[..], &["--batch", "8x256KiB", "--rails", "2"], more].concat();
    for (arguments, part) in [
        (with(&[]), "name policies"),
        (with(&["--reference", "as-fast-as-possible"]), "is unknown"),
        (with(&["--reference", "bounded-pool=0"]), "number of threads"),
        (with(&["--reference", "bounded-pool"]), "number of threads"),
        (with(&["--reference", "thread-per-buffer=2"]), "takes no value"),
        (with(&["--policy", "", "--trials", "0"]), "--trials"),
        (with(&["--policy", "", "--memory", "warm"]), "untouched or resident"),
        (with(&["--policy", "", "--pages", "3k"]), "--pages"),
        (with(&["--policy", "", "--processes", "0"]), "--processes"),
        (with(&["--policy", "", "--skew", "late"]), "--processes 2"),
        (with(&["--policy", "", "--processes", "2", "--skew", "early"]), "none of late, heavy and idle"),
        (with(&["--sweep", "prior-bytes", "--policy", "capped=2"]), "--policy"),
        (with(&["--sweep", "prior-bytes", "--reference", "thread-per-buffer"]), "--reference"),
        (with(&["--sweep", "prior-bytes", "--processes", "2"]), "--processes"),
        (with(&["--sweep", "prior-bytes", "--memory", "untouched"]), "--memory resident"),
        (with(&["--sweep", "bytes"]), "prior-bytes"),
        ([&BACKEND[..], &["--sweep", "prior-bytes", "--batch", "1x1MiB"]].concat(), "at least two buffers"),
        ([&BACKEND[..], &["--sweep", "prior-bytes", "--batch", "kimi-k3/64"]].concat(), "of one size"),
        (vec!["bench", "--backend", "uring", "--policy", "capped=2"], "--batch"),
        (vec!["bench", "--batch", "8x256KiB", "--policy", "capped=2"], "--backend"),
        (vec!["bench"], "--backend"),
        (vec!["bench", "compare", "/nonexistent.json", "/nonexistent.json"], "/nonexistent.json"),
        (vec!["bench", "compare", "one.json"], "AFTER"),
    ] {
        let error = refused(&arguments, "usage", 2);
        let text = format!("{} {}", error["message"], error["hint"]);
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
    refused(&with(&["--policy", "fastest"]), "policy", 2);
    refused(&with(&["--policy", "rails=rail7"]), "unknown-rail", 2);
    refused(&[&BACKEND[..], &["--batch", "0x4096", "--policy", ""]].concat(), "empty-batch", 1);
    // What is free changes from one run to the next.
    for more in [["--policy", ""], ["--sweep", "prior-bytes"]] {
        let ran = run(pinrail().args(BACKEND).args(["--batch", "8x1TiB", "--json"]).args(more));
        assert!(ran.error("exhausted", 1)["need"].as_u64() == Some(8 << 40), "{ran:?}");
    }
    let gpu = batch("bench-gpu", r#"{"buffers":[{"name":"w","len":4096,"memory":"gpu:0000:53:00.0"}]}"#);
    refused(&[&BACKEND[..], &["--batch", gpu.to_str().unwrap(), "--policy", ""]].concat(), "no-device-path", 1);
}

/// What would be lost at the end is refused at the start: a run takes minutes.
#[test]
fn a_trace_that_cannot_be_written_is_refused_before_anything_runs() {
    for path in ["/nonexistent/trace.json", "/"] {
        let arguments = [&BACKEND[..], &["--batch", "8x256KiB", "--policy", "", "--trials", "10000", "--trace", path]].concat();
        let error = refused(&arguments, "io", 1);
        assert!(error["message"].as_str().unwrap().contains(path), "{error}");
    }
}

#[test]
fn the_document_holds_all_that_a_later_run_is_compared_by() {
    let limits = batch(
        "bench-limits",
        r#"{"buffers":[{"len":65536},{"len":4096},{"len":131072}],"rail_limits":{"*":{"max_mr_size":65536}}}"#,
    );
    let of = |trials: &str, batch: &str, more: &[&str]| {
        let run = ["--batch", batch, "--rails", "2", "--trials", trials, "--policy", "ascending", "--policy", ""];
        support::json(BACKEND.iter().chain(&run).chain(more))
    };
    let limits = limits.to_str().unwrap();
    let first = of("8", limits, &[]);
    assert_eq!((&first["version"], &first["backend"], &first["provider"]), (&json!(2), &json!("uring"), &json!("io_uring")));
    let environment = first["environment"].as_object().unwrap();
    let filled =
        |key: &str| environment[key].as_u64().is_some_and(|n| n > 0) || environment[key].as_str().is_some_and(|s| !s.is_empty());
    for key in ["kernel", "cpu", "cpus", "cores_usable", "numa_nodes", "memory_bytes", "transparent_huge_pages", "library"] {
        assert!(filled(key), "{key}: {environment:?}");
    }
    assert!(environment.contains_key("memlock_bytes") && environment.contains_key("memlock_exempt") && filled("commit"));
    let machine = first["machine"].as_str().unwrap();
    assert!(machine.matches("max_mr_size = 65536").count() == 2 && machine.contains("rail1"), "{machine}");
    for variant in list(&first["variants"]) {
        assert_eq!((list(&variant["samples"]).len(), list(&variant["raw"]).len(), list(&variant["record"]).len()), (8, 8, 1));
        let record = &variant["record"][0];
        let steps = record["kind"].as_str().unwrap().len();
        for column in ["buffer", "len", "rail", "worker", "start_ns", "took_ns"] {
            assert_eq!(list(&record[column]).len(), steps, "{column}");
        }
        assert_eq!(variant["tasks"], 8);
        assert!(variant["low_s"].as_f64() <= variant["median_s"].as_f64() && variant["outliers"].is_array());
    }

    let folder = folder("compare");
    let write = |name: &str, document: &Value| {
        let path = folder.join(name);
        fs::write(&path, document.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let a = write("a.json", &first);
    let compared = support::json(["bench", "compare", &a, &a]);
    let said: Vec<_> = list(&compared["comparisons"]).iter().map(|pair| (&pair["ratio"], &pair["verdict"])).collect();
    assert_eq!(said, [(&json!(1.0), &json!("no-difference")); 2]);
    assert!(run(pinrail().args(["bench", "compare", &a, &a])).out.contains("default"));

    let mut elsewhere = first.clone();
    elsewhere["environment"]["cpu"] = json!("another");
    let mut old = first.clone();
    old["version"] = json!(1);
    for (name, other, part) in [
        ("limits.json", of("2", "8x256KiB", &[]), "max_mr_size of rail0: 65536 and"),
        ("resident.json", of("2", limits, &["--memory", "resident"]), "memory: untouched"),
        ("elsewhere.json", elsewhere, "two machines (processor"),
        ("old.json", old, "version 1"),
        ("no-record.json", json!({"variants": []}), "no version"),
    ] {
        let other = write(name, &other);
        let error = refused(&["bench", "compare", a.as_str(), other.as_str()], "usage", 2);
        assert!(error["message"].as_str().unwrap().contains(part), "{part}: {error}");
    }
}

#[test]
fn too_few_trials_withhold_the_verdict_and_say_how_many_are_needed() {
    let results = bench(&["--trials", "1", "--policy", "capped=1", "--reference", "all-rails-at-once"]);
    let pair = &results["comparisons"][0];
    assert_eq!(pair["verdict"], "withheld");
    assert_eq!(pair["reason"], "1 trials are too few for an interval of 99 %: at least 8 are needed");
}

/// By process, what it did in each trial of a variant.
fn raw(variant: &Value, process: usize) -> impl Iterator<Item = &Value> {
    list(&variant["raw"]).iter().map(move |trial| &trial[process])
}

#[test]
fn the_slowest_of_several_processes_is_the_result_and_each_has_its_line() {
    let arguments = ["--trials", "2", "--processes", "4", "--policy", "capped=2", "--reference", "thread-per-buffer"];
    let results = bench(&arguments);
    assert_eq!((&results["processes"], &results["skew"]), (&json!(4), &Value::Null));
    for variant in list(&results["variants"]) {
        assert_eq!((list(&variant["processes"]).len(), &variant["tasks"]), (4, &json!(16)), "each has the whole batch");
        for (trial, sample) in list(&variant["raw"]).iter().zip(list(&variant["samples"])) {
            let totals: Vec<f64> = list(trial).iter().map(|of| of["stages"]["total_s"].as_f64().unwrap()).collect();
            assert_eq!(sample.as_f64().unwrap(), totals.iter().copied().fold(0.0, f64::max), "{totals:?}");
        }
        assert_eq!(variant["verified"]["mrs"], 16);
    }
    let human = run(pinrail().args(BACKEND).args(["--batch", "8x256KiB", "--rails", "2"]).args(arguments));
    let lines = |process: &str| human.out.lines().filter(|line| line.split_whitespace().nth(1) == Some(process)).count();
    assert!(human.out.contains("4 processes at once"), "{human:?}");
    assert!(["0", "1", "2", "3"].iter().all(|process| lines(process) >= 2), "{human:?}");
}

#[test]
fn eight_processes_start_together() {
    let results = bench(&["--trials", "1", "--processes", "8", "--policy", "capped=1"]);
    let variant = &results["variants"][0];
    assert_eq!(list(&variant["processes"]).len(), 8);
    assert!((0..8).all(|process| raw(variant, process).all(|trial| trial["tasks"] == 16)));
}

#[test]
fn one_process_that_is_late_heavy_or_idle_is_the_first_and_the_only() {
    let skewed = |skew| bench(&["--trials", "2", "--processes", "3", "--skew", skew, "--policy", "caller-order"]);
    let (heavy, idle, late) = (skewed("heavy"), skewed("idle"), skewed("late"));
    let each = |results: &Value, what: &str| -> Vec<f64> {
        let variant = &results["variants"][0];
        (0..3).map(|process| raw(variant, process).map(|of| of[what].as_f64().unwrap()).fold(f64::MAX, f64::min)).collect()
    };
    assert_eq!((&heavy["skew"], &idle["skew"], &late["skew"]), (&json!("heavy"), &json!("idle"), &json!("late")));
    assert_eq!(each(&heavy, "tasks"), [64.0, 16.0, 16.0]);
    assert_eq!(each(&idle, "tasks"), [0.0, 16.0, 16.0]);
    assert_eq!(each(&late, "tasks"), [16.0; 3]);
    let late_s = each(&late, "late_s");
    // Half of what the slowest took in the warm-up; the others start when they are told to.
    assert!(late_s[0] > 0.0001 && late_s[1] < late_s[0] && late_s[2] < late_s[0], "{late_s:?}");
    for results in [&heavy, &idle, &late] {
        assert_eq!(results["findings"], json!([]), "a skew is no broken rule");
    }
}

fn pids_of(running: &Running) -> Vec<i32> {
    children(running.id()).iter().filter_map(|stat| stat.split(' ').next()?.parse().ok()).collect()
}

/// Its processes, once there are so many.
fn processes_of(running: &Running, count: usize) -> Vec<i32> {
    let since = now();
    loop {
        let pids = pids_of(running);
        if pids.len() == count {
            return pids;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "no {count} processes at once within a minute");
        std::thread::yield_now();
    }
}

fn are_gone(pids: &[i32]) -> bool {
    let since = now();
    // One that nobody waits for any more is a zombie until the init process looks.
    let is_there = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while pids.iter().any(is_there) {
        if since.elapsed() > Duration::from_secs(60) {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

fn several(trials: &str) -> Running {
    let arguments =
        ["--batch", "8x4MiB", "--rails", "2", "--trials", trials, "--processes", "4", "--policy", "capped=1", "--json"];
    Running::start(pinrail().args(BACKEND).args(arguments).process_group(0))
}

#[test]
fn a_process_that_is_killed_ends_the_run_and_leaves_none_behind() {
    let running = several("1000");
    let mut pids = processes_of(&running, 4);
    // Trials are short: one that had answered already when it was killed is not missed.
    while !running.has_ended() {
        let there = pids_of(&running);
        if let [.., last] = there[..] {
            kill_process(Pid::from_raw(last).unwrap(), Signal::KILL).ok();
        }
        pids.extend(there);
        std::thread::yield_now();
    }
    let ran = running.end();
    let error = ran.error("backend", 1);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("process ") && message.contains("signal: 9"), "{message}");
    assert!(are_gone(&pids), "{pids:?}");
}

#[test]
fn ctrl_c_ends_all_processes_and_kill_9_of_the_first_too() {
    let running = several("1000");
    let pids = processes_of(&running, 4);
    // As a terminal sends it.
    kill_process_group(Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    let ran = running.end();
    assert_eq!(ran.error("cancelled", 130)["message"], "cancelled; everything that was registered has been deregistered");
    assert!(are_gone(&pids), "{pids:?}");

    let running = several("1000");
    let pids = processes_of(&running, 4);
    running.send(Signal::KILL);
    running.end();
    assert!(are_gone(&pids), "{pids:?}");
}

#[test]
fn ctrl_c_in_one_process_ends_after_the_trial() {
    let arguments = ["--batch", "8x4MiB", "--trials", "10000", "--policy", "capped=1", "--json"];
    let running = Running::start(pinrail().args(BACKEND).args(arguments));
    assert!(running.pins(1 << 20), "it ended before it was interrupted");
    running.send(Signal::INT);
    running.end().error("cancelled", 130);
}

#[test]
fn the_sweep_needs_no_batch_and_counts_every_call() {
    let sweep = support::json(BACKEND.iter().chain(&["--sweep", "prior-bytes", "--rails", "2", "--trials", "2"]));
    assert_eq!(
        (&sweep["buffer_bytes"], &sweep["sweep"], &sweep["withheld"]),
        (&json!(8 << 20), &json!("prior-bytes"), &Value::Null)
    );
    let points = list(&sweep["points"]);
    assert_eq!(points.len(), 2 * 9 * 2, "trials, levels, rails");
    let levels: BTreeMap<u64, usize> = points.iter().fold(BTreeMap::new(), |mut levels, point| {
        *levels.entry(point["prior_bytes"].as_u64().unwrap()).or_default() += 1;
        levels
    });
    assert_eq!((levels.len(), levels.first_key_value(), levels.last_key_value().unwrap().0), (9, Some((&0, &4)), &(256 << 20)));
    assert_eq!((&sweep["register"]["low"], &sweep["register"]["high"]), (&Value::Null, &Value::Null), "two trials say nothing");
    let human = run(pinrail().args(BACKEND).args(["--sweep", "prior-bytes", "--trials", "1"]));
    assert!(human.exit == Some(0) && human.out.contains("withheld") && human.out.contains("too few trials"), "{human:?}");
}

#[test]
fn a_trace_has_every_registration_of_every_process() {
    let path = folder("bench-trace").join("trace.json");
    let arguments = ["--trials", "1", "--processes", "2", "--policy", "capped=2", "--reference", "thread-per-buffer"];
    bench(&[&arguments[..], &["--trace", path.to_str().unwrap()]].concat());
    let trace: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let events = list(&trace["traceEvents"]);
    let names: Vec<&str> =
        events.iter().filter(|of| of["name"] == "process_name").map(|of| of["args"]["name"].as_str().unwrap()).collect();
    let variants = ["thread-per-buffer, process 0", "thread-per-buffer, process 1", "capped=2, process 0", "capped=2, process 1"];
    assert_eq!(names, variants);
    for pid in 1..=4 {
        let registers = events.iter().filter(|of| of["pid"] == pid && of["cat"] == "register").count();
        assert_eq!(registers, 2 * 16, "on its worker's track and on its rail's");
    }
}

#[test]
fn a_machine_file_is_part_of_the_record() {
    let machine = workspace().join("docs/machines/4-rails-2-nodes.toml");
    let arguments = ["--batch", "4x64KiB", "--machine", machine.to_str().unwrap(), "--trials", "1", "--policy", "all-rails"];
    let results = support::json(BACKEND.iter().chain(&arguments));
    let recorded = results["machine"].as_str().unwrap();
    assert!(recorded.matches("[[rail]]").count() == 4 && recorded.contains("node = 1"), "{recorded}");
}

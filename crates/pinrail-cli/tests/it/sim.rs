//! `pinrail sim`, and the simulator as a backend.

use serde_json::Value;

use crate::support::{folder, json, pinrail, run};

fn sim(arguments: &[&str]) -> Value {
    json([&["sim"], arguments].concat())
}

fn error(arguments: &[&str]) -> Value {
    let document = run(pinrail().args(arguments).arg("--json"));
    let kind = document.document()["error"]["kind"].as_str().unwrap_or("no error").to_owned();
    let exit = if ["usage", "policy", "batch"].contains(&kind.as_str()) { 2 } else { 1 };
    document.error(&kind, exit)
}

#[test]
fn a_scenario_runs_every_policy_under_every_profile() {
    let document = sim(&["--scenario", "p5-k3", "--set", "batch=kimi-k3/64", "--policy", "capped=1", "--policy", "rail-local"]);
    assert_eq!((document["scenario"].as_str(), document["seed"].as_u64()), (Some("p5-k3"), Some(1)));
    let runs = document["runs"].as_array().unwrap();
    let order: Vec<_> = runs.iter().map(|run| (run["name"].as_str().unwrap(), run["backend"].as_str().unwrap())).collect();
    let (joint, flat) = ("sim:efa-p5/joint", "sim:efa-p5/flat");
    assert_eq!(order, [("capped=1", joint), ("capped=1", flat), ("rail-local", joint), ("rail-local", flat)]);
    for run in runs {
        let stages = &run["stages"];
        let fields = ["allocate_s", "prefault_s", "register_s", "total_s"].map(|stage| stages[stage].as_f64());
        assert!(fields.iter().all(Option::is_some) && stages["deregister_s"].is_null(), "{run}");
        assert_eq!(run["processes"].as_array().map(Vec::len), Some(8));
        assert!(run["policy"].as_str().unwrap().contains("+coverage=full"), "resolved");
    }
    assert_eq!(runs[0]["tasks"], 8 * 182 * 4, "device memory is local by default");
    let all = sim(&["--scenario", "p5-k3", "--set", "batch=kimi-k3/64", "--policy", "all-rails+capped=1"]);
    assert_eq!(all["runs"][0]["tasks"], 8 * 182 * 32);
}

#[test]
fn a_scenario_may_be_a_file_and_says_what_is_wrong_with_it() {
    let folder = folder("sim-scenario");
    let file = folder.join("mine.toml");
    let path = file.to_str().unwrap();
    let text = "version = 1\nabout = 'mine'\nprofiles = ['rdma-host']\ncores = 8\nmemory = 'resident'\nbatch = '4x1GiB'\n";
    std::fs::write(&file, text).unwrap();
    let register_s = sim(&["--scenario", path])["runs"][0]["stages"]["register_s"].as_f64().unwrap();
    assert!((0.01..0.03).contains(&register_s), "{register_s}");
    std::fs::write(&file, text.replace("cores", "core")).unwrap();
    assert!(error(&["sim", "--scenario", path])["message"].as_str().unwrap().contains("core"));
    for (arguments, kind) in [
        (&["sim", "--scenario", "nonesuch"][..], "usage"),
        (&["sim", "--scenario", "nonesuch.toml"], "usage"),
        (&["sim", "--scenario", "p5-k3", "--set", "core=1"], "usage"),
        (&["sim", "--scenario", "p5-k3", "--policy", "fastest"], "policy"),
        (&["sim", "--scenario", "p5-k3", "--policy", "rails=nonesuch"], "unknown-rail"),
        (&["sim", "--scenario", "p5-k3", "--set", "batch=3y4"], "batch"),
        (&["sim", "--scenario", "p5-k3", "--set", "memory=resident"], "not-supported"),
        (&["sim"], "usage"),
        (&["register", "--backend", "sim:nonesuch", "--batch", "1x1MiB"], "usage"),
    ] {
        let document = run(pinrail().args(arguments).arg("--json")).document();
        assert_eq!(document["error"]["kind"], kind, "{arguments:?}");
    }
}

#[test]
fn a_search_says_what_the_default_loses() {
    let document = sim(&["--scenario", "p5-host-128x2g", "--set", "batch=16x2GiB", "--search"]);
    let found = &document["search"][0];
    let best = found["best"]["total_s"].as_f64().unwrap();
    for regret in found["regrets"].as_array().unwrap() {
        let (total, regret) = (regret["total_s"].as_f64().unwrap(), regret["regret"].as_f64().unwrap());
        assert!((total / best - 1.0 - regret).abs() < 1e-9 && regret >= 0.0);
    }
}

#[test]
fn the_engine_runs_on_simulated_rails_in_scaled_time() {
    let arguments =
        ["register", "--backend", "sim:efa-p5/flat@100", "--batch", "4x64GiB", "--rails", "2", "--policy", "capped=1"];
    let ran = json(arguments);
    let run = &ran["runs"][0];
    assert_eq!(
        (run["tasks"].as_u64(), run["backend"].as_str(), run["provider"].as_str()),
        (Some(8), Some("sim"), Some("efa-p5/flat@100"))
    );
    // Eight calls of 322 ms, and 0, 64, 128 and 192 GiB registered before each of a rail's four at 8.35 ms.
    let expected_s = (8.0 * 0.322 + 2.0 * 384.0 * 0.00835) / 100.0;
    let register_s = run["stages"]["register_s"].as_f64().unwrap();
    assert!(register_s >= expected_s * 0.99, "{register_s}");
    assert!(error(&["bench", "--backend", "sim:uring", "--batch", "2x1MiB", "--memory", "untouched", "--policy", "capped=1"])["message"]
        .as_str()
        .unwrap()
        .contains("resident"));
}

#[test]
fn everything_is_explained() {
    let document = json(["sim", "--list"]);
    assert_eq!(document["scenarios"].as_array().map(Vec::len), Some(8));
    assert!(document["profiles"].as_array().unwrap().iter().any(|profile| profile["name"] == "cuda-host"));
    let text = run(pinrail().args(["sim", "--scenario", "efa-serial-48x391"])).out;
    assert!(text.contains("reach") && text.contains("efa-p5/flat") && text.contains("3200 Gb/s"), "{text}");
}

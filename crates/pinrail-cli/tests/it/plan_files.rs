//! Plans in files: written, compared, registered later, and refused.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{self, batch, folder, pinrail, refused, run, workspace};

/// What `pinrail plan` writes of these arguments, in a file.
fn written(name: &str, arguments: &[&str]) -> (PathBuf, Value) {
    let plan = support::json(["plan"].iter().chain(arguments));
    let path = folder(&format!("plan-{name}")).join("plan.json");
    fs::write(&path, plan.to_string()).unwrap();
    (path, plan)
}

#[test]
fn what_has_changed_is_said_for_people_and_for_programs() {
    let (before, _) = written("before", &["--batch", "16x256MiB", "--rails", "2"]);
    let before = before.to_str().unwrap();
    let same = ["plan", "--batch", "16x256MiB", "--rails", "2", "--diff", before];
    let human = run(pinrail().args(same));
    assert!(human.exit == Some(0) && human.out.ends_with(&format!("\nno change since {before}\n")), "{human:?}");
    assert_eq!(support::json(same)["diff"], json!([]));

    let cut = r#"{"buffers":[{"len":268435456},{"len":268435456}],"rail_limits":{"*":{"max_mr_size":134217728}}}"#;
    let cut = batch("cut", cut);
    let other = ["plan", "--batch", cut.to_str().unwrap(), "--rails", "2", "--policy", "descending", "--diff", before];
    let diff = support::json(other)["diff"].clone();
    let of = |what: &str| diff.as_array().unwrap().iter().filter(|change| change["what"] == what).cloned().collect::<Vec<_>>();
    assert_eq!(of("policy"), [json!({"what":"policy","of":null,"before":"caller-order","after":"descending"})]);
    assert_eq!(of("buffer").len(), 14, "gone: {diff}");
    let limit = json!({"what":"limit","of":"rail1 max_mr_size","before":null,"after":134_217_728});
    assert!(of("limit").contains(&limit), "{diff}");
    let seams = json!([[0, 134_217_728], [134_217_728, 134_217_728]]);
    assert_eq!((&of("seams")[0]["before"], &of("seams")[0]["after"]), (&json!([[0, 268_435_456]]), &seams));
    assert!(!of("need").is_empty());
    let human = run(pinrail().args(other));
    for line in ["seams   buffer0 and 1 more", "buffer  buffer10 and 13 more", "policy", "caller-order → descending"] {
        assert!(human.out.contains(line), "{line}: {}", human.out);
    }
}

#[test]
fn a_plan_counts_beside_what_another_has_registered() {
    let limits = r#""rail_limits":{"*":{"max_pages":100}}}"#;
    let first = batch("first", &format!(r#"{{"buffers":[{{"len":245760}}],{limits}"#));
    let (live, _) = written("live", &["--batch", first.to_str().unwrap(), "--rails", "2"]);
    let (first, live) = (first.to_str().unwrap(), live.to_str().unwrap());
    let error = refused(&["plan", "--batch", first, "--rails", "2", "--beside", live], "page-budget", 1);
    assert_eq!((&error["limit"], &error["need"]), (&json!(100), &json!(120)));
    // What is live changes where this one goes, and the plan says so.
    let shared = ["plan", "--batch", first, "--rails", "2", "--policy", "coverage=disjoint", "--beside", live];
    let plan = support::json(shared);
    assert!(plan["shared_out"].as_str().unwrap().contains("of which 60 are live already"), "{}", plan["shared_out"]);
    assert!(plan["chunks"].as_array().unwrap().iter().all(|chunk| chunk["rails"].as_array().unwrap().len() == 1));
    assert!(run(pinrail().args(shared)).out.contains("30 beside 60 of 100"));
}

#[test]
fn the_rails_of_a_buffer_are_those_that_hold_it() {
    let text = r#"{"buffers":[{"name":"a","len":4096},{"name":"b","len":4096}],"rail_limits":{"*":{"max_pages":1}}}"#;
    let path = batch("one-each", text);
    let plan = support::json(["plan", "--batch", path.to_str().unwrap(), "--rails", "2", "--policy", "coverage=disjoint"]);
    assert_eq!((&plan["buffers"][0]["rails"], &plan["buffers"][1]["rails"]), (&json!(["rail0"]), &json!(["rail1"])));
}

#[test]
fn a_plan_is_registered_later() {
    let text = r#"{"buffers":[{"name":"a","len":69632,"allocation":"x"},{"name":"b","len":8192,"allocation":"x"},{"len":4096}],
                   "rail_limits":{"*":{"max_mr_size":32768}}}"#;
    let path = batch("later", text);
    let asked = ["--batch", path.to_str().unwrap(), "--rails", "3", "--policy", "rails=rail2,rail0+descending+capped=1"];
    let (plan, document) = written("later", &asked);
    let plan = plan.to_str().unwrap();
    let ran = support::json(["register", "--backend", "uring", "--plan", plan, "--verify"])["runs"][0].clone();
    assert_eq!((&ran["tasks"], &ran["policy"]), (&document["tasks"], &document["policy"]));
    assert_eq!((&ran["verified"]["mrs"], &ran["peak_in_flight"]), (&document["tasks"], &json!(1)));
    // The machine it was made for may be named again.
    support::json(["register", "--backend", "uring", "--plan", plan, "--rails", "3"]);
}

#[test]
fn a_plan_for_other_rails_or_pages_or_limits_is_refused() {
    let (plan, _) = written("elsewhere", &["--batch", "1x2GiB", "--rails", "2"]);
    let plan = plan.to_str().unwrap();
    let with = |more: &[&'static str]| [&["register", "--backend", "uring", "--plan", plan], more].concat();
    let error = refused(&with(&["--rails", "1"]), "unknown-rail", 1);
    assert!(error["message"].as_str().unwrap().contains("rail0, rail1"), "{error}");
    // A ring takes 1 GiB at once, which the plan did not know.
    let error = refused(&with(&[]), "mr-size", 1);
    assert_eq!((&error["limit"], &error["need"], &error["rail"]), (&json!(1 << 30), &json!(1u64 << 31), &json!("rail0")));
    let error = refused(&with(&["--pages", "2m"]), "usage", 2);
    assert!(error["hint"].as_str().unwrap().contains("--pages 4k"), "{error}");
    refused(&with(&["--policy", "ascending"]), "usage", 2);
    refused(&with(&["--batch", "1x1"]), "usage", 2);
    let machine = workspace().join("docs/machines/4-rails-2-nodes.toml");
    refused(&[&with(&["--machine"])[..], &[machine.to_str().unwrap()]].concat(), "unknown-rail", 1);
}

#[test]
fn what_is_no_plan_or_was_changed_is_refused_by_both_commands() {
    let (path, plan) = written("changed", &["--batch", "3x8KiB", "--rails", "2"]);
    let mut shorter = plan.clone();
    shorter["chunks"][1]["rails"] = json!(["rail0"]);
    let mut later = plan.clone();
    later["version"] = json!(2);
    let folder = path.parent().unwrap();
    for (name, text, registers) in [
        ("shorter", shorter.to_string(), "lead to another plan"),
        ("later", later.to_string(), "version 2"),
        ("half", plan.to_string()[..200].to_owned(), "EOF"),
        ("batch", r#"{"buffers":[{"len":1}]}"#.to_owned(), "names no version"),
        ("latin", "\u{e9}".to_owned(), "expected value"),
    ] {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let error = refused(&["register", "--backend", "uring", "--plan", file], "batch", 2);
        assert!(error["message"].as_str().unwrap().contains(registers), "{name}: {error}");
        if name != "shorter" {
            refused(&["plan", "--batch", "1x1", "--diff", file], "batch", 2);
            refused(&["plan", "--batch", "1x1", "--beside", file], "batch", 2);
        }
    }
    for none in ["/nonexistent.json", "/"] {
        refused(&["plan", "--batch", "1x1", "--diff", none], "usage", 2);
        refused(&["register", "--backend", "uring", "--plan", none], "usage", 2);
    }
    refused(&["register", "--backend", "uring"], "usage", 2);
}

//! `pinrail plan`: what it says, and that it touches nothing.

use serde_json::json;

use crate::support::{self, batch, pinrail, run, workspace};

#[test]
fn seventeen_pages_at_eight_are_8_8_1() {
    let path = batch("17", r#"{"buffers":[{"len":69632}],"rail_limits":{"*":{"max_mr_size":32768}}}"#);
    let plan = support::json(["plan", "--batch", path.to_str().unwrap(), "--rails", "1"]);
    let lens: Vec<_> = plan["chunks"].as_array().unwrap().iter().map(|chunk| chunk["len"].clone()).collect();
    assert_eq!(lens, [32768, 32768, 4096]);
    assert_eq!(plan["machine"]["rails"][0]["limits"]["max_mr_size"], 32768);
}

#[test]
fn a_plan_has_all_its_parts() {
    let plan = support::json(["plan", "--batch", "3x2500MiB", "--rails", "2", "--policy", "descending+capped=3"]);
    let parts: Vec<_> = plan.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        parts,
        [
            "batch",
            "buffers",
            "chunks",
            "limits",
            "machine",
            "needs",
            "order",
            "policy",
            "rails",
            "shared_out",
            "tasks",
            "version"
        ]
    );
    assert_eq!(plan["policy"], "device-local+share=fair+rails-in-parallel+descending+capped=3+prefault+coalesce+coverage=full");
    assert_eq!((&plan["tasks"], &plan["limits"]["total"]), (&json!(6), &json!(3)));
    let memlock = &plan["needs"]["memlock"];
    assert_eq!((&memlock["need"], &memlock["counts"]), (&json!(6 * (2500u64 << 20)), &json!("unknown")));
}

#[test]
fn a_plan_of_a_terabyte_touches_nothing_and_memlock_never_refuses_it() {
    let plan = support::json(["plan", "--batch", "1024x1GiB", "--rails", "32"]);
    assert_eq!(plan["needs"]["pinned_bytes"], 32u64 << 40);
}

#[test]
fn rail_local_keeps_to_the_node_and_a_fallback_is_said() {
    let machine = workspace().join("docs/machines/4-rails-2-nodes.toml");
    let path = batch("nodes", r#"{"buffers":[{"name":"near","len":4096,"memory":"host:1"},{"name":"anywhere","len":4096}]}"#);
    let arguments = ["plan", "--batch", path.to_str().unwrap(), "--machine", machine.to_str().unwrap(), "--policy", "rail-local"];
    let plan = support::json(arguments);
    assert_eq!(plan["buffers"][0]["rails"], json!(["rail2", "rail3"]));
    assert_eq!(plan["buffers"][1]["rails"].as_array().unwrap().len(), 4);
    assert!(plan["buffers"][1]["fallback"].is_string());
    let human = run(pinrail().args(arguments));
    assert!(human.out.contains("fallback for anywhere: "), "{human:?}");
}

#[test]
fn limits_and_their_use_are_shown_beside_what_the_rail_says() {
    let machine = support::folder("advertised").join("m.toml");
    std::fs::write(&machine, "version = 1\n[[rail]]\nname = \"a\"\nmax_mr_size = \"2GiB\"\nmax_mrs = 10\n").unwrap();
    let path = batch(
        "advertised",
        r#"{"buffers":[{"len":3221225472}],"rail_limits":{"a":{"max_mr_size":1073741824,"max_bytes":64000000000}}}"#,
    );
    let human = run(pinrail().args(["plan", "--batch", path.to_str().unwrap(), "--machine", machine.to_str().unwrap()]));
    let limits = "limits   a: max_mr_size 1 GiB (advertised 2 GiB), max_mrs 10, max_bytes 59.6 GiB\n";
    assert!(
        human.out.contains(limits) && human.out.contains("3 of 10") && human.out.contains("3 of up to 1 GiB"),
        "{}",
        human.out
    );
}

#[test]
fn buffers_that_are_planned_alike_are_one_line_for_people() {
    let human = run(pinrail().args(["plan", "--batch", "kimi-k3/8", "--rails", "4"]));
    assert!(human.out.contains("728 registrations on 4 rails: 182 buffers of 1.78 GiB"), "{human:?}");
    assert!(human.out.contains("k3-001 and 19 more (host)       313 B       1      1  all 4: all usable rails"), "{human:?}");
    let wide = human.out.lines().filter(|line| line.chars().count() > 80 && !line.starts_with("policy")).count();
    assert!(wide == 0 && human.out.lines().count() < 20, "{human:?}");
}

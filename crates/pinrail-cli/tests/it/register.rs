//! `pinrail register` on rings: real pages, counted, verified, gone again.

use std::fs;

use serde_json::{Value, json};

use crate::support::{self, batch, pinrail, refused, run, workspace};

fn register(arguments: &[&str]) -> Value {
    let document = support::json(["register", "--backend", "uring"].iter().chain(arguments));
    document["runs"][0].clone()
}

#[test]
fn the_published_batch_on_four_rails_is_registered_and_verified() {
    let ran = register(&["--batch", "kimi-k3/8", "--rails", "4", "--policy", "ascending+capped=2", "--verify"]);
    let fields: Vec<_> = ran.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        [
            "backend",
            "controller",
            "cores_busy",
            "cpu_s",
            "failed",
            "peak_in_flight",
            "peak_threads",
            "policy",
            "processes",
            "provider",
            "stages",
            "tasks",
            "verified"
        ]
    );
    assert_eq!((&ran["tasks"], &ran["peak_in_flight"], &ran["peak_threads"]), (&json!(728), &json!(2), &json!(2)));
    assert_eq!((&ran["verified"]["mrs"], &ran["verified"]["seams"]), (&json!(728), &json!(0)));
    assert_eq!(ran["policy"], "device-local+share=fair+rails-in-parallel+ascending+capped=2+prefault+coalesce+coverage=full");
    assert_eq!((&ran["backend"], &ran["provider"]), (&json!("uring"), &json!("io_uring")));
    assert_eq!((&ran["controller"], &ran["failed"]), (&Value::Null, &json!([])));
    let seconds = |stage: &str| ran["stages"][stage].as_f64().unwrap();
    for stage in ["allocate_s", "prefault_s", "register_s", "deregister_s", "total_s"] {
        assert!(seconds(stage) > 0.0, "{stage}: {ran}");
    }
    // Preparation and registration overlap; both lie within the total.
    assert!(seconds("total_s") >= seconds("register_s").max(seconds("prefault_s")), "{ran}");
    assert_eq!(ran["processes"], json!([{"register_s": seconds("register_s"), "total_s": seconds("total_s")}]));
    let (cpu, busy) = (ran["cpu_s"].as_f64().unwrap(), ran["cores_busy"].as_f64().unwrap());
    // Cores are counted over all of the time in which the processor was, the start of threads included.
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(cpu > 0.0 && busy > 0.0 && busy <= cores + 0.1, "{ran}");
}

#[test]
fn one_at_a_time_is_one_in_flight() {
    let ran = register(&["--batch", "kimi-k3/64", "--rails", "4", "--policy", "ascending+capped=1"]);
    assert_eq!((&ran["tasks"], &ran["peak_in_flight"], &ran["verified"]), (&json!(728), &json!(1), &Value::Null));
}

#[test]
fn buffers_longer_than_a_registration_have_their_seams_verified() {
    let available = fs::read_to_string("/proc/meminfo").unwrap();
    let available = available.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"));
    let available_bytes = available.unwrap().parse::<u64>().unwrap() * 1024;
    if available_bytes < 9 << 30 {
        eprintln!("SKIPPED: 3x2500MiB needs 9 GiB of free memory and there are {available_bytes} bytes");
        return;
    }
    let ran = register(&["--batch", "3x2500MiB", "--rails", "4", "--verify"]);
    assert_eq!(ran["tasks"], 36, "9 chunks, as a ring takes 1 GiB at a time");
    assert_eq!((&ran["verified"]["mrs"], &ran["verified"]["seams"]), (&json!(36), &json!(6 * 4)));
}

#[test]
fn seams_are_verified_on_every_rail() {
    let path = batch("seams", r#"{"buffers":[{"len":69632},{"len":4096}],"rail_limits":{"*":{"max_mr_size":32768}}}"#);
    let ran = register(&["--batch", path.to_str().unwrap(), "--rails", "3", "--verify"]);
    assert_eq!((&ran["tasks"], &ran["verified"]["mrs"], &ran["verified"]["seams"]), (&json!(12), &json!(12), &json!(6)));
}

/// Two neighbours share registrations: one of them has a seam within, though it begins in the middle of a chunk.
#[test]
fn a_seam_within_a_neighbour_is_verified() {
    let path = batch(
        "neighbours",
        r#"{"buffers":[{"len":12288,"allocation":"a"},{"len":20480,"allocation":"a"}],"rail_limits":{"*":{"max_mr_size":16384}}}"#,
    );
    let ran = register(&["--batch", path.to_str().unwrap(), "--verify"]);
    assert_eq!((&ran["tasks"], &ran["verified"]["mrs"], &ran["verified"]["seams"]), (&json!(2), &json!(2), &json!(1)));
}

#[test]
fn every_state_and_kind_of_memory_can_be_registered() {
    for arguments in [
        &["--memory", "resident"][..],
        &["--pages", "thp"],
        &["--memory", "resident", "--policy", "no-prefault"],
        &["--policy", "rails-in-series+unbounded+descending"],
    ] {
        let all = [&["--batch", "kimi-k3/128", "--rails", "2", "--verify"], arguments].concat();
        assert_eq!(register(&all)["verified"]["mrs"], 364, "{arguments:?}");
    }
    let machine = workspace().join("docs/machines/4-rails-2-nodes.toml");
    let path = batch(
        "on-node",
        r#"{"buffers":[{"len":1048576,"memory":"host:0","allocation":"a"},{"len":100,"memory":"host:0","allocation":"a"}]}"#,
    );
    let (path, machine) = (path.to_str().unwrap(), machine.to_str().unwrap());
    let ran = register(&["--batch", path, "--machine", machine, "--policy", "rail-local", "--verify"]);
    assert_eq!(
        (&ran["tasks"], &ran["verified"]["mrs"]),
        (&json!(2), &json!(2)),
        "neighbours share one MR, and two rails are on node 0"
    );
}

#[test]
fn addresses_in_a_batch_file_place_buffers_within_their_allocation() {
    let path = batch(
        "offsets",
        r#"{"buffers":[{"len":4096,"allocation":"a","addr":"0x7f0000001000"},{"len":8192,"allocation":"a","addr":"0x7f0000004000"}]}"#,
    );
    assert_eq!(register(&["--batch", path.to_str().unwrap(), "--verify"])["verified"]["mrs"], 2);
}

#[test]
fn huge_pages_that_are_not_there_are_refused_with_the_pool() {
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    if free.is_ok_and(|free| free.trim() != "0") {
        return assert_eq!(register(&["--batch", "1x2MiB", "--pages", "2m", "--verify"])["verified"]["mrs"], 1);
    }
    let ran = run(pinrail().args(["register", "--backend", "uring", "--batch", "3x2MiB", "--pages", "2m", "--json"]));
    let kind = ran.document()["error"]["kind"].as_str().map(str::to_owned);
    // A kernel without huge pages of that size supports none of them.
    assert!(matches!(kind.as_deref(), Some("hugepages" | "not-supported")) && ran.exit == Some(1), "{ran:?}");
}

#[test]
fn memory_of_a_gpu_is_refused_before_anything_is_touched() {
    let path = batch("gpu", r#"{"buffers":[{"name":"w","len":4096,"memory":"gpu:0000:53:00.0"}]}"#);
    let error = refused(&["register", "--backend", "uring", "--batch", path.to_str().unwrap()], "no-device-path", 1);
    assert_eq!((&error["buffer"], &error["rail"], &error["api"]), (&json!("w"), &json!("rail0"), &Value::Null));
}

#[test]
fn a_deadline_that_has_passed_cancels_everything() {
    let error = refused(
        &["register", "--backend", "uring", "--batch", "kimi-k3/64", "--rails", "4", "--deadline", "0.000001"],
        "deadline",
        1,
    );
    assert_eq!(error["message"], "the deadline passed; 0 registrations were undone, 728 not attempted");
}

#[test]
fn people_see_where_the_time_went() {
    let human = run(pinrail().args(["register", "--backend", "uring", "--batch", "8x1MiB", "--rails", "2", "--verify"]));
    assert_eq!((human.exit, human.err.as_str()), (Some(0), ""), "nobody looks on, so there is no progress");
    for part in
        ["backend  uring (io_uring, Linux ", "tasks    16 on 2 rails", "prefault", "deregister", "verified 16 registrations"]
    {
        assert!(human.out.contains(part), "{part}: {human:?}");
    }
}

//! What is typed wrongly, and what reads or writes badly.

use std::fs::{self, File};

use serde_json::Value;

use crate::support::{batch, folder, json, pinrail, refused, run};

#[test]
fn every_wrong_batch_is_one_clear_line_of_its_kind() {
    for (name, text, kind, exit) in [
        ("zero", r#"{"buffers":[{"len":4096},{"len":0},{"len":4096}]}"#, "zero-length", 1),
        ("overlap", r#"{"buffers":[{"len":8192,"addr":"0x10000"},{"len":4096,"addr":"0x11000"}]}"#, "overlap", 1),
        ("wrap", r#"{"buffers":[{"len":8192,"addr":"0xfffffffffffff000"}]}"#, "wrap", 1),
        ("2-64", r#"{"buffers":[{"len":18446744073709551616}]}"#, "batch", 2),
        ("negative", r#"{"buffers":[{"len":-1}]}"#, "batch", 2),
        ("empty", r#"{"buffers":[]}"#, "empty-batch", 1),
        ("no-json", "#!/bin/sh\necho {}\n", "batch", 2),
        ("key", r#"{"buffers":[{"length":1}]}"#, "batch", 2),
        ("rail", r#"{"buffers":[{"len":1}],"rail_limits":{"rail7":{"max_mrs":1}}}"#, "unknown-rail", 1),
    ] {
        let path = batch(name, text);
        refused(&["plan", "--batch", path.to_str().unwrap()], kind, exit);
        // The same file is refused in the same way before anything is registered.
        refused(&["register", "--backend", "uring", "--batch", path.to_str().unwrap()], kind, exit);
    }
    let unknown = batch("unknown-rail", r#"{"buffers":[{"len":1}],"rail_limits":{"mlx5_0":{"max_mrs":1}}}"#);
    let error = refused(&["plan", "--batch", unknown.to_str().unwrap(), "--rails", "2"], "unknown-rail", 1);
    let message = "rail_limits name rail \"mlx5_0\", which this machine does not have: there are rail0, rail1";
    assert_eq!(error["message"], message);
    let middle = batch("middle", r#"{"buffers":[{"len":4096},{"name":"second","len":0},{"len":4096}]}"#);
    assert_eq!(refused(&["plan", "--batch", middle.to_str().unwrap()], "zero-length", 1)["buffer"], "second");
}

#[test]
fn a_batch_that_is_no_file_or_too_large_a_file_is_a_wrong_argument() {
    refused(&["plan", "--batch", "/nonexistent.json"], "usage", 2);
    refused(&["plan", "--batch", "/"], "usage", 2);
    let path = folder("sparse").join("3GB.json");
    File::create(&path).unwrap().set_len(3_000_000_000).unwrap();
    let error = refused(&["plan", "--batch", path.to_str().unwrap()], "usage", 2);
    assert_eq!((&error["limit"], &error["need"]), (&Value::from(64u64 << 20), &Value::from(3_000_000_000u64)));
    fs::remove_file(path).unwrap();
    // A device has no length to look at first.
    assert_eq!(refused(&["plan", "--batch", "/dev/zero"], "usage", 2)["limit"], 64u64 << 20);
    let error = refused(&["plan", "--batch", "/dev/zero"], "usage", 2);
    assert_eq!(error["message"], "batch file /dev/zero does not end within the 64 MiB that are read");
    let error = refused(&["plan", "--batch", "nonsense"], "batch", 2);
    let message = "\"nonsense\" is no batch shape: neither kimi-k3 nor a count and a size with an x between them; and there is no file of that name";
    assert_eq!(error["message"], message);
    // Windows' editors begin a text with a mark.
    let marked = batch("marked", "\u{feff}{\"buffers\":[{\"len\":1}]}");
    assert_eq!(json(["plan", "--batch", marked.to_str().unwrap()])["tasks"], 1);
    let path = folder("latin").join("batch.json");
    fs::write(&path, b"{\"buffers\":[{\"name\":\"\xe9\",\"len\":1}]}").unwrap();
    refused(&["plan", "--batch", path.to_str().unwrap()], "batch", 2);
}

#[test]
fn a_policy_that_is_none_is_said_to_be_none() {
    let plan = |policy| ["plan", "--batch", "8x1MiB", "--rails", "2", "--policy", policy];
    for policy in ["fastest", "capped=2+capped=3", "capped=0", "ascending+descending", "capped=-1", "+"] {
        let error = refused(&plan(policy), "policy", 2);
        assert!(error["hint"].as_str().unwrap().contains("ascending"), "{error}");
    }
    let error = refused(&plan("rails=nosuch"), "unknown-rail", 2);
    assert_eq!(error["rail"], "nosuch");
}

#[test]
fn arguments_that_make_no_sense_are_usage_errors_also_as_json() {
    for arguments in [
        &["plan", "--batch", "8x1MiB", "--rails", "0"][..],
        &["plan", "--batch", "8x1MiB", "--rails", "4097"],
        &["plan", "--batch", "8x1MiB", "--rails", "1", "--machine", "x.toml"],
        &["plan", "--batch", "8x1MiB", "--machine", "/nonexistent.toml"],
        &["plan", "--batch", "8x1MiB", "--backend", "uring"],
        &["plan"],
        &["plan", "--batch"],
        &["register", "--batch", "1x1"],
        &["register", "--backend", "nosuch", "--batch", "1x1"],
        &["register", "--backend", "uring", "--batch", "1x1", "--pages", "3k"],
        &["register", "--backend", "uring", "--batch", "1x1", "--deadline", "0"],
        &["nosuch"],
        &[],
    ] {
        refused(arguments, "usage", 2);
    }
}

#[test]
fn json_that_is_asked_for_in_a_way_that_is_none_is_still_answered_in_json() {
    let ran = run(pinrail().args(["plan", "--batch", "1x1", "--json=true"]));
    assert_eq!(ran.error("usage", 2)["kind"], "usage");
}

#[test]
fn help_and_version_are_no_errors() {
    for arguments in [&["--help"][..], &["--version"], &["register", "--help"], &["help", "plan"]] {
        let ran = run(pinrail().args(arguments));
        assert!(ran.exit == Some(0) && ran.err.is_empty() && ran.out.contains("pinrail"), "{ran:?}");
    }
}

#[test]
fn a_machine_file_that_is_wrong_names_file_and_line() {
    let path = folder("machine").join("m.toml");
    fs::write(&path, "version = 1\n[[rail]]\nname = \"a\"\nmax_mr_sise = 1\n").unwrap();
    let error = refused(&["plan", "--batch", "1x1", "--machine", path.to_str().unwrap()], "usage", 2);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("m.toml") && message.contains("line 4") && message.contains("max_mr_sise"), "{message}");
}

#[test]
fn a_backend_that_was_not_built_names_its_feature() {
    let backends = [
        ("libfabric", "libfabric", cfg!(feature = "libfabric")),
        ("libfabric:tcp", "libfabric", cfg!(feature = "libfabric")),
        ("verbs", "verbs", cfg!(feature = "verbs")),
    ];
    for (backend, feature, _) in backends.iter().filter(|(_, _, built)| !built) {
        let error = refused(&["register", "--backend", backend, "--batch", "1x1"], "not-supported", 1);
        assert!(error["hint"].as_str().unwrap().contains(&format!("--features {feature}")), "{error}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure_and_a_full_disk_is_one() {
    for json in [&[][..], &["--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = run(pinrail().args(["plan", "--batch", "kimi-k3"]).args(json).stdout(writer));
        assert_eq!((ran.exit, ran.err.as_str()), (Some(0), ""));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = run(pinrail().args(["plan", "--batch", "kimi-k3"]).args(json).stdout(full));
        assert!(ran.exit == Some(1) && ran.err.starts_with("error (io): "), "{ran:?}");
    }
}

#[test]
fn what_reads_as_a_shape_is_one_whatever_files_there_are() {
    let folder = folder("shadow");
    fs::write(folder.join("2x4KiB"), r#"{"buffers":[{"len":7}]}"#).unwrap();
    let lens = |batch: &str| {
        let ran = run(pinrail().current_dir(&folder).args(["plan", "--json", "--batch", batch]));
        ran.document()["batch"]["buffers"].as_array().unwrap().iter().map(|b| b["len"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((lens("2x4KiB"), lens("./2x4KiB")), (vec![4096; 2], vec![7]));
    assert_eq!(json(["plan", "--batch", "kimi-k3/8"])["tasks"], 182);
}

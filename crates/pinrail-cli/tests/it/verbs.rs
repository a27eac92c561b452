//! `pinrail register --backend verbs`, and libfabric's provider of the same name: on a machine with RDMA devices, as the guest of `cargo xtask vm` is one.

use std::fs;
use std::io::Write;

use serde_json::json;

use crate::support::{self, folder, refused};

/// The devices by name. Where there are none a test says so, past the test runner; in the guest that is a failure.
#[allow(clippy::disallowed_methods, reason = "how the command that made the guest tells that it is one")]
fn devices() -> Option<Vec<String>> {
    let found = fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    let mut found: Vec<String> = found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort_unstable();
    if !found.is_empty() {
        return Some(found);
    }
    assert!(std::env::var_os("PINRAIL_GUEST_NODES").is_none(), "the guest has devices");
    std::io::stderr().write_all(b"SKIPPED: no RDMA device\n").unwrap();
    None
}

#[test]
fn every_device_registers_and_moves_bytes() {
    let Some(devices) = devices() else { return };
    let rails = devices.len();
    let arguments = ["register", "--backend", "verbs", "--batch", "kimi-k3/256", "--rails", &rails.to_string(), "--verify"];
    let document = support::json(arguments);
    let ran = &document["runs"][0];
    assert_eq!(ran["backend"], "verbs");
    assert_eq!((&ran["tasks"], &ran["verified"]["mrs"]), (&json!(182 * rails), &json!(182 * rails)));
}

#[cfg(feature = "libfabric")]
#[test]
fn libfabric_registers_on_the_same_devices() {
    let Some(devices) = devices() else { return };
    let register = |provider: &str| {
        let mut command = support::pinrail();
        // A queue of a soft-RoCE device has no room for the peers that rxm reckons with by itself.
        command.env("FI_UNIVERSE_SIZE", "64");
        let backend = format!("libfabric:{provider}");
        support::run(command.args(["register", "--backend", &backend, "--batch", "2x64KiB", "--verify", "--json"])).document()
    };
    let document = register("verbs;ofi_rxm");
    let on_loopback = fs::read_to_string(format!("/sys/class/infiniband/{}/parent", devices[0]));
    if on_loopback.is_ok_and(|interface| interface.trim() == "lo") {
        // libfabric looks for the address of a device among the interfaces, and passes the loop-back one over.
        assert!(["not-supported", "backend"].contains(&document["error"]["kind"].as_str().unwrap()), "{document}");
        return;
    }
    let ran = &document["runs"][0];
    assert_eq!((&ran["provider"], &ran["verified"]["mrs"]), (&json!("verbs;ofi_rxm"), &json!(2)), "{document}");
}

#[test]
fn a_machines_rails_are_its_devices_by_name() {
    let Some(devices) = devices() else { return };
    let path = folder("verbs").join("m.toml");
    let rails: String = devices.iter().rev().map(|name| format!("[[rail]]\nname = {name:?}\n")).collect();
    fs::write(&path, format!("version = 1\n{rails}")).unwrap();
    let last = format!("rails={}", devices.last().unwrap());
    let arguments = ["register", "--backend", "verbs", "--batch", "8x64KiB", "--machine", path.to_str().unwrap()];
    let document = support::json(arguments.iter().copied().chain(["--policy", &last, "--verify"]));
    assert_eq!(document["runs"][0]["verified"]["mrs"], 8);
    fs::write(&path, "version = 1\n[[rail]]\nname = \"no-such-device\"\n").unwrap();
    let error = refused(&arguments, "unknown-device", 1);
    assert!(error["message"].as_str().unwrap().contains(&devices[0]), "{error}");
}

#[test]
fn devices_that_are_not_there_are_not_replaced() {
    let ran = support::run(support::pinrail().args([
        "register",
        "--backend",
        "verbs",
        "--batch",
        "1x4096",
        "--rails",
        "4000",
        "--json",
    ]));
    let (document, exit) = (ran.document(), ran.exit);
    // The second where the kernel has no verbs at all.
    assert!(["unknown-rail", "not-supported"].contains(&document["error"]["kind"].as_str().unwrap()), "{document}");
    assert_eq!(exit, Some(1));
}

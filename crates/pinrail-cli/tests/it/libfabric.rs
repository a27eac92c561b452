//! `pinrail register` on libfabric's software providers.

use serde_json::json;

use crate::support::{self, folder, refused, workspace};

#[test]
fn a_software_provider_registers_and_moves_bytes() {
    let document =
        support::json(["register", "--backend", "libfabric:tcp", "--batch", "kimi-k3/256", "--rails", "2", "--verify"]);
    let ran = &document["runs"][0];
    assert_eq!((&ran["backend"], &ran["provider"]), (&json!("libfabric"), &json!("tcp")));
    assert_eq!((&ran["tasks"], &ran["verified"]["mrs"]), (&json!(364), &json!(364)));
}

#[test]
fn the_rails_of_a_machine_keep_their_names_on_a_provider_without_devices() {
    let machine = workspace().join("docs/machines/4-rails-2-nodes.toml");
    let arguments = ["register", "--backend", "libfabric:tcp", "--batch", "8x64KiB", "--machine", machine.to_str().unwrap()];
    let document = support::json(arguments.iter().chain(&["--policy", "rails=rail3,rail1", "--verify"]));
    assert_eq!(document["runs"][0]["verified"]["mrs"], 16);
}

#[test]
fn a_provider_that_is_not_there_is_not_replaced_by_another() {
    let error = refused(&["register", "--backend", "libfabric:nosuch", "--batch", "1x4096"], "not-supported", 1);
    assert!(error["message"].as_str().unwrap().contains("nosuch"), "{error}");
    // Without a name only hardware is looked for, which a machine that tests run on need not have.
    let bare = support::run(support::pinrail().args(["register", "--backend", "libfabric", "--batch", "1x4096", "--json"]));
    let document = bare.document();
    let provider = document["runs"][0]["provider"].as_str();
    match provider {
        Some(provider) => assert!(["efa", "cxi", "verbs;ofi_rxm"].contains(&provider), "{document}"),
        None => assert!(document["error"]["hint"].as_str().unwrap().contains("libfabric:tcp"), "{document}"),
    }
}

#[test]
fn a_machine_without_rails_has_none_to_choose() {
    let path = folder("no-rails").join("m.toml");
    std::fs::write(&path, "version = 1\n").unwrap();
    for backend in ["libfabric:tcp", "uring"] {
        let arguments = ["register", "--backend", backend, "--batch", "1x4096", "--machine", path.to_str().unwrap()];
        let error = refused(&arguments, "unknown-rail", 1);
        assert!(error["message"].as_str().unwrap().contains("the machine has no rail"), "{error}");
    }
}

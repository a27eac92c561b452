//! What fuzzing once found, and what taught it, replayed: `corpus/TARGET/*`.

use std::path::Path;

/// An empty corpus would pass for a good one.
const FILES_MIN: usize = 20;

fn replay(name: &str) {
    let (_, target) = pinrail_fuzz::TARGETS.into_iter().find(|(target, _)| *target == name).expect("the test names a target");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("the folder can be listed").path();
        // The file that breaks a promise is the last one printed.
        println!("{}", path.display());
        target(&std::fs::read(&path).expect("a corpus has readable files only"));
        files += 1;
    }
    assert!(files >= FILES_MIN, "{}: {files} files, and there were at least {FILES_MIN}", folder.display());
}

#[test]
fn policy_spec() {
    replay("policy_spec");
}

#[test]
fn batch_json() {
    replay("batch_json");
}

#[test]
fn descriptor_json() {
    replay("descriptor_json");
}

#[test]
fn machine_toml() {
    replay("machine_toml");
}

#[test]
fn plan() {
    replay("plan");
}

#[test]
fn plan_file() {
    replay("plan_file");
}

#[test]
fn dispatch_ops() {
    replay("dispatch_ops");
}

#[test]
fn lookup_ops() {
    replay("lookup_ops");
}

#[test]
fn nccl_xml() {
    replay("nccl_xml");
}

#[test]
fn pci_address() {
    replay("pci_address");
}

#[test]
fn hwloc_xml() {
    replay("hwloc_xml");
}

#[test]
fn topology_tree() {
    replay("topology_tree");
}

#[test]
fn registry_ops() {
    replay("registry_ops");
}

#[test]
fn every_target_has_its_program_and_its_test() {
    let this = include_str!("replay.rs");
    for (name, _) in pinrail_fuzz::TARGETS {
        assert!(this.contains(&format!("replay(\"{name}\")")), "{name} is not replayed");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets").join(format!("{name}.rs"));
        assert!(program.is_file(), "{} is missing", program.display());
    }
}

//! Fuzz targets: each takes any bytes and panics only where a promise is broken.
//!
//! They are plain functions, so that the tests of this package replay `corpus/` with the stable compiler; cargo-fuzz runs
//! the programs in `fuzz_targets/`, which do nothing but call them (feature `libfuzzer`).

mod dispatch;
mod lookup;
mod plan;
mod text;

pub use dispatch::dispatch_ops;
pub use lookup::lookup_ops;
pub use pinrail_engine::testing::registry as registry_ops;
pub use pinrail_topology::testing::{hwloc_xml, nccl_xml, parsed_tree as topology_tree, pci_address};
pub use plan::plan;
pub use text::{batch_json, descriptor_json, machine_toml, plan_file, policy_spec};

/// A target and its name, which is also that of its corpus.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 13] = [
    ("policy_spec", policy_spec),
    ("batch_json", batch_json),
    ("descriptor_json", descriptor_json),
    ("machine_toml", machine_toml),
    ("plan", plan),
    ("plan_file", plan_file),
    ("dispatch_ops", dispatch_ops),
    ("lookup_ops", lookup_ops),
    ("nccl_xml", nccl_xml),
    ("hwloc_xml", hwloc_xml),
    ("topology_tree", topology_tree),
    ("registry_ops", registry_ops),
    ("pci_address", pci_address),
];

//! The crates of docs/ARCHITECTURE.md as the rules need them: layer, unsafe code, purity.

/// Where a crate may hold unsafe code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsafe {
    /// Nowhere, and the library says `forbid`.
    Forbidden,
    /// Nowhere, but the library says `deny`, as macros of others may expand to some.
    Denied,
    /// In this one module of a library that says `deny`.
    Module(&'static str),
    /// In one module, whichever, of a library that says `deny`.
    OneModule,
    /// Anywhere.
    Allowed,
}

/// A crate that has its place.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) name: &'static str,
    /// It depends on lower layers only.
    pub(super) layer: u8,
    pub(super) unsafe_code: Unsafe,
    /// Whether it has no clock and no thread.
    pub(super) pure: bool,
}

const fn placed(layer: u8, name: &'static str, unsafe_code: Unsafe) -> Placed {
    Placed { name, layer, unsafe_code, pure: false }
}

const fn pure(layer: u8, name: &'static str, unsafe_code: Unsafe) -> Placed {
    Placed { name, layer, unsafe_code, pure: true }
}

/// Every crate there may be; one that does not exist is not missed.
pub(super) const CRATES: &[Placed] = &[
    pure(0, "pinrail-core", Unsafe::Module("memory")),
    pure(1, "pinrail-policy", Unsafe::Forbidden),
    pure(1, "pinrail-topology", Unsafe::Denied),
    placed(1, "pinrail-memory", Unsafe::Allowed),
    placed(1, "pinrail-node", Unsafe::Module("sys")),
    placed(2, "pinrail-uring", Unsafe::Allowed),
    placed(2, "pinrail-libfabric", Unsafe::Allowed),
    placed(2, "pinrail-verbs", Unsafe::Allowed),
    placed(2, "pinrail-conformance", Unsafe::Forbidden),
    pure(2, "pinrail-plan", Unsafe::Forbidden),
    pure(2, "pinrail-dispatch", Unsafe::Forbidden),
    pure(3, "pinrail-sim", Unsafe::Forbidden),
    placed(3, "pinrail-engine", Unsafe::OneModule),
    placed(4, "pinrail-bench", Unsafe::Forbidden),
    placed(4, "pinrail", Unsafe::Forbidden),
    placed(5, "pinrail-cli", Unsafe::Forbidden),
];

/// Packages outside the layers, by folder and name. Nobody depends on them.
pub(super) const OUTSIDE: &[(&str, &str)] = &[("xtask", XTASK), ("benches", "pinrail-benches")];

/// It depends on no crate of ours, so that it runs while they do not build.
pub(super) const XTASK: &str = "xtask";

/// What tests may lean on besides the lower layers: a backend runs the suite that is written for backends, the suite is
/// tested on the backend that every Linux has, and the answers for machines of the field are those of the policies.
pub(super) const FOR_TESTS: &[(&str, &str)] = &[
    ("pinrail-conformance", "pinrail-uring"),
    ("pinrail-uring", "pinrail-conformance"),
    ("pinrail-libfabric", "pinrail-conformance"),
    ("pinrail-verbs", "pinrail-conformance"),
    ("pinrail-topology", "pinrail-policy"),
];

pub(super) fn find(name: &str) -> Option<&'static Placed> {
    CRATES.iter().find(|placed| placed.name == name)
}

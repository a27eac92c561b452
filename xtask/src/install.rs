//! What a machine lacks for a build or a test: found, named, and installed where that harms nothing.

pub(crate) mod apt;

use crate::{Result, command::Line, workspace::Workspace};

/// A system library: who needs it and the Debian packages that bring it.
struct Library {
    /// The feature of pinrail-cli that brings the crate in.
    feature: &'static str,
    /// The crate that binds it.
    needed_by: &'static str,
    packages: &'static [&'static str],
}

/// All of them. bindgen, which the first two run, loads libclang; no compiler but cc is needed.
const LIBRARIES: &[Library] = &[
    Library { feature: "libfabric", needed_by: "ofi-libfabric-sys", packages: &["libfabric-dev", "libclang-dev", "pkg-config"] },
    Library {
        feature: "verbs",
        needed_by: "rdma-sys",
        packages: &["libibverbs-dev", "librdmacm-dev", "libclang-dev", "pkg-config"],
    },
    Library { feature: "topology", needed_by: "hwlocality-sys", packages: &["libhwloc-dev", "libudev-dev", "pkg-config"] },
];

/// A cargo subcommand that is no part of the toolchain.
struct Tool {
    name: &'static str,
    install: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool { name: "nextest", install: "cargo install --locked --version 0.9.143 cargo-nextest" },
    // Unoptimized it is built in 1.5 minutes on two cores, and judges the tree in three seconds.
    Tool { name: "deny", install: "cargo install --locked --version 0.20.2 --no-default-features --profile dev cargo-deny" },
];

/// What the long checks take besides; a few minutes each to build.
const FUZZ: Tool = Tool { name: "fuzz", install: "cargo install --locked --version 0.13.2 cargo-fuzz" };
const MUTANTS: Tool = Tool { name: "mutants", install: "cargo install --locked --version 27.1.0 cargo-mutants" };

/// Components of the nightly compiler, installed where they can be had; else why they cannot.
pub(crate) fn nightly(components: &[&str]) -> Result<()> {
    let list = Line::new("rustup component list --installed --toolchain nightly").output();
    let installed = list.map_err(|why| format!("there is no nightly compiler: {why}"))?;
    let has = |component: &&&str| installed.lines().any(|line| line.starts_with(**component));
    let missing: Vec<&str> = components.iter().filter(|component| !has(component)).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let line = Line::new("rustup component add --toolchain nightly").words(missing.iter().copied());
    println!("missing: {} of the nightly compiler\n$ {line}", missing.join(" and "));
    if line.show()?.success() { Ok(()) } else { Err(format!("`{line}` failed")) }
}

/// cargo-fuzz, and the nightly compiler that it runs.
pub(crate) fn for_fuzzing() -> Result<()> {
    nightly(&["rustc"])?;
    tools(&[FUZZ])
}

/// cargo-mutants.
pub(crate) fn for_mutants() -> Result<()> {
    tools(&[MUTANTS])
}

/// Installs every library that a crate of the lock file binds, and the tools of the test steps.
pub(crate) fn for_tests(workspace: &Workspace) -> Result<()> {
    let mut wanted = Vec::new();
    for library in LIBRARIES {
        if workspace.locks(library.needed_by)? {
            wanted.push(library);
        }
    }
    libraries(&wanted)?;
    tools(TOOLS)
}

fn tools(wanted: &[Tool]) -> Result<()> {
    for tool in wanted.iter().filter(|tool| !Line::new("cargo").word(tool.name).word("--version").succeeds()) {
        let line = Line::new(tool.install);
        println!("missing: cargo {}\n$ {line}", tool.name);
        if !line.show()?.success() {
            return Err(format!("`{line}` failed"));
        }
    }
    Ok(())
}

/// Installs the libraries behind these features of pinrail-cli.
pub(crate) fn for_features(features: &[&str]) -> Result<()> {
    let wanted: Vec<&Library> = LIBRARIES.iter().filter(|library| features.contains(&library.feature)).collect();
    libraries(&wanted)
}

fn libraries(wanted: &[&Library]) -> Result<()> {
    let mut packages: Vec<&str> = wanted.iter().flat_map(|library| library.packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    let missing: Vec<&str> = packages.into_iter().filter(|package| !apt::has(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        let users = wanted.iter().filter(|library| library.packages.contains(package)).map(|library| library.needed_by);
        println!("missing: {package}, for {}", users.collect::<Vec<_>>().join(" and "));
    }
    apt::install(&missing)
}

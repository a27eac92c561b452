//! `cargo xtask test`: all that CI runs, in the order in which it fails soonest.

use std::collections::BTreeSet;
use std::process::ExitCode;

use crate::steps::{self, Step, Work};
use crate::workspace::{Package, Workspace};
use crate::{Result, command::Line, deep, install};

/// Installs what is missing where asked to, then runs every step.
pub(crate) fn run(workspace: &Workspace, install_missing: bool) -> Result<ExitCode> {
    if install_missing {
        install::for_tests(workspace)?;
    }
    std::env::set_current_dir(&workspace.root).map_err(|why| format!("cannot enter the workspace: {why}"))?;
    let fuzz_exists = workspace.root.join("fuzz/Cargo.toml").is_file();
    let sum = steps::run(&steps(workspace, fuzz_exists, install_missing), &workspace.target.join("xtask-test"))?;
    // A desk where no guest can be had is told so, and may be content with all the rest.
    Ok(if sum.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn steps(workspace: &Workspace, fuzz_exists: bool, install_missing: bool) -> Vec<Step> {
    let one = |name, line: Line| Step { name, work: Work::Lines(vec![line]) };
    let crates = || workspace.packages.iter().filter(|package| package.folder.starts_with("crates/"));
    vec![
        one("format", Line::new("cargo fmt --all --check")),
        one("tidy", Line::new("cargo xtask tidy")),
        one("deny", Line::new("cargo deny --locked check bans licenses sources")),
        one("clippy", Line::new("cargo clippy --locked --workspace --all-targets --all-features -- --deny warnings")),
        one("tests", Line::new("cargo nextest run --locked --workspace --all-features")),
        one("examples", Line::new("cargo test --locked --workspace --all-features --doc")),
        Step { name: "loom", work: Work::Lines(deep::loom()) },
        Step { name: "alone", work: Work::Lines(crates().flat_map(each_feature_set).collect()) },
        Step { name: "alone-tests", work: Work::Lines(crates().map(tests_alone).collect()) },
        one("sim", Line::new("cargo xtask sim --seeds 10000")),
        // Here, because most of what it runs has just been built.
        one("vm", Line::new(if install_missing { "cargo xtask vm" } else { "cargo xtask vm --no-install" })),
        one(
            "docs",
            Line::new("cargo doc --locked --workspace --all-features --no-deps").variable("RUSTDOCFLAGS", "--deny warnings"),
        ),
        Step {
            name: "fuzz",
            work: if fuzz_exists {
                let fuzz = |line| Line::new(line).words(["--manifest-path", "fuzz/Cargo.toml"]);
                Work::Lines(vec![
                    fuzz("cargo fmt --check"),
                    // The programs need a C++ compiler; they are one line each.
                    fuzz("cargo clippy --locked --lib --tests").words(["--", "--deny", "warnings"]),
                    fuzz("cargo nextest run --locked"),
                ])
            } else {
                Work::Absent("fuzz/Cargo.toml")
            },
        },
    ]
}

/// What binds a library of the system: crates, and the features that bring them in.
const BINDING: [&str; 6] = ["pinrail-libfabric", "pinrail-verbs", "libfabric", "verbs", "topology", "live"];

/// One crate built without the others, so that none leans on a feature that only a neighbour switches on: with no
/// feature, each one, each pair, and all. clippy because it compiles as `cargo check` does and can be told to deny.
///
/// Where nothing is bound, a build script that looks for a library of the system finds none, and fails.
fn each_feature_set(package: &Package) -> impl Iterator<Item = Line> + use<'_> {
    feature_sets(&package.features).into_iter().map(|features| {
        let line = Line::new("cargo clippy --locked --no-default-features --manifest-path").word(manifest(package));
        let binds = features.iter().chain([&package.name.as_str()]).any(|name| BINDING.contains(name));
        let line = if binds { line } else { line.variable("PKG_CONFIG", "false") };
        let line = if features.is_empty() { line } else { line.word("--features").word(features.join(",")) };
        line.words(["--", "--deny", "warnings"])
    })
}

fn tests_alone(package: &Package) -> Line {
    Line::new("cargo test --locked --manifest-path").word(manifest(package))
}

fn manifest(package: &Package) -> String {
    format!("{}/Cargo.toml", package.folder)
}

fn feature_sets(features: &[String]) -> BTreeSet<Vec<&str>> {
    let features: Vec<&str> = features.iter().map(String::as_str).collect();
    let mut sets = BTreeSet::from([Vec::new(), features.clone()]);
    for (index, first) in features.iter().enumerate() {
        sets.insert(vec![first]);
        sets.extend(features[index + 1..].iter().map(|second| vec![*first, *second]));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(features: &[&str]) -> Package {
        let features = features.iter().map(|name| (*name).to_owned()).collect();
        Package { name: "pinrail-plan".into(), folder: "crates/pinrail-plan".into(), features, ..Package::default() }
    }

    #[test]
    fn a_crate_is_built_with_none_each_pair_and_all_of_its_features() {
        let plan = package(&["a", "b", "c"]);
        let sets: Vec<_> = feature_sets(&plan.features).into_iter().collect();
        assert_eq!(sets, [&[][..], &["a"], &["a", "b"], &["a", "b", "c"], &["a", "c"], &["b"], &["b", "c"], &["c"]]);
        assert_eq!(
            each_feature_set(&package(&[])).map(|line| line.to_string()).collect::<Vec<_>>(),
            ["PKG_CONFIG=false cargo clippy --locked --no-default-features --manifest-path crates/pinrail-plan/Cargo.toml \
                 -- --deny warnings"]
        );
        let blind = |package: &Package| each_feature_set(package).filter(|line| line.to_string().contains("PKG_CONFIG")).count();
        assert_eq!(blind(&package(&["files", "verbs"])), 2, "with no feature and with files");
        assert_eq!(blind(&Package { name: "pinrail-verbs".into(), ..package(&["files"]) }), 0);
        assert_eq!(each_feature_set(&package(&["a"])).count(), 2);
    }

    #[test]
    fn fuzz_corpora_are_replayed_where_there_are_any() {
        let workspace = Workspace { root: "/tree".into(), target: "/tree/target".into(), packages: vec![package(&[])] };
        let fuzz = |exists| steps(&workspace, exists, false).pop().unwrap().work;
        assert!(matches!(fuzz(false), Work::Absent(_)));
        assert!(matches!(fuzz(true), Work::Lines(lines) if lines.last().unwrap().to_string().contains("nextest")));
    }
}

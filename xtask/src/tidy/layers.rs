//! A crate depends on lower layers only.

use super::{Tree, table};
use crate::workspace::{Dependency, Package};

pub(super) fn check(tree: &Tree) -> Vec<String> {
    tree.packages.iter().flat_map(|package| place(package).into_iter().chain(dependencies(package))).collect()
}

/// Whether the package lies where the table has it.
fn place(package: &Package) -> Option<String> {
    let Package { name, folder, .. } = package;
    let outside = table::OUTSIDE.contains(&(folder, name));
    let inside = table::find(name).is_some() && *folder == format!("crates/{name}");
    (!outside && !inside).then(|| format!("{name} in {folder} has no place in xtask/src/tidy/table.rs"))
}

fn dependencies(package: &Package) -> impl Iterator<Item = String> {
    package.dependencies.iter().filter_map(|dependency| {
        let why = refused(&package.name, dependency)?;
        Some(format!("{} depends on {}: {why}", package.name, dependency.package))
    })
}

fn refused(name: &str, dependency: &Dependency) -> Option<String> {
    let on = dependency.package.as_str();
    if table::OUTSIDE.iter().any(|(_, outside)| *outside == on) {
        return Some("nobody may".to_owned());
    }
    let below = table::find(on)?;
    if name == table::XTASK {
        return Some("xtask must run while our crates do not build".to_owned());
    }
    // A package without a place has its finding already; pinrail-benches may use all.
    let own = table::find(name)?;
    // A crate's tests may switch on a feature of its own.
    let for_tests = dependency.dev && (name == on || table::FOR_TESTS.contains(&(name, on)));
    (own.layer <= below.layer && !for_tests).then(|| format!("layer {} is not below layer {}", below.layer, own.layer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(folder: &str, name: &str, on: &str, dev: bool) -> Vec<String> {
        let dependencies = vec![Dependency { package: on.to_owned(), dev }];
        let package = Package { name: name.to_owned(), folder: folder.to_owned(), dependencies, ..Package::default() };
        check(&Tree { packages: vec![package], ..Tree::default() })
    }

    #[test]
    fn lower_layers_are_allowed_and_no_others() {
        let plan = |on| found("crates/pinrail-plan", "pinrail-plan", on, false);
        assert_eq!(plan("pinrail-policy"), [""; 0]);
        assert_eq!(plan("serde"), [""; 0]);
        assert_eq!(plan("pinrail-dispatch"), ["pinrail-plan depends on pinrail-dispatch: layer 2 is not below layer 2"]);
        assert_eq!(plan("pinrail-engine"), ["pinrail-plan depends on pinrail-engine: layer 3 is not below layer 2"]);
    }

    #[test]
    fn tests_have_no_more_than_the_listed_exceptions() {
        let uring = |on, dev| found("crates/pinrail-uring", "pinrail-uring", on, dev).len();
        assert_eq!(uring("pinrail-conformance", true), 0);
        assert_eq!(uring("pinrail-conformance", false), 1);
        assert_eq!(uring("pinrail-engine", true), 1);
        assert_eq!(uring("pinrail-uring", true), 0);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        assert_eq!(found("crates/pinrail-new", "pinrail-new", "serde", false).len(), 1);
        assert_eq!(found("crates/plan", "pinrail-plan", "serde", false).len(), 1);
        assert_eq!(found("tools", "pinrail-tools", "serde", false).len(), 1);
    }

    #[test]
    fn xtask_stands_alone_and_the_benches_are_a_leaf() {
        assert_eq!(found("xtask", "xtask", "pinrail-core", false).len(), 1);
        assert_eq!(found("benches", "pinrail-benches", "pinrail-engine", false).len(), 0);
        assert_eq!(found("crates/pinrail", "pinrail", "pinrail-benches", true).len(), 1);
    }
}

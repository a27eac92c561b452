//! Unsafe code lies where the table says, and the compiler is told so.

use std::collections::BTreeSet;

use super::table::{self, Unsafe};
use super::{Tree, line_of, source};
use crate::workspace::Package;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let placed = tree.packages.iter().filter_map(|package| Some((package, table::find(&package.name)?.unsafe_code)));
    placed
        .flat_map(|(package, allowed)| attribute(tree, package, allowed).into_iter().chain(places(tree, package, allowed)))
        .collect()
}

/// The attribute that every library and program of the crate begins with.
fn attribute(tree: &Tree, package: &Package, allowed: Unsafe) -> Vec<String> {
    let wanted = match allowed {
        Unsafe::Forbidden => "forbid(unsafe_code)",
        Unsafe::Denied | Unsafe::Module(_) | Unsafe::OneModule => "deny(unsafe_code)",
        Unsafe::Allowed => return Vec::new(),
    };
    let says = |root: &&String| {
        let code = source::code_of(tree.text(root).unwrap_or_default());
        source::attributes(&code).any(|(at, attribute)| attribute == wanted && code[at..].starts_with("#!"))
    };
    package.crate_roots.iter().filter(|root| !says(root)).map(|root| format!("{root} does not say #![{wanted}]")).collect()
}

/// The places with unsafe code that the table does not allow, tests included.
fn places(tree: &Tree, package: &Package, allowed: Unsafe) -> Vec<String> {
    if allowed == Unsafe::Allowed {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut modules = BTreeSet::new();
    for (path, code) in tree.code_below(&package.folder) {
        let module = module_of(path, package);
        for at in source::places_of(&code, "unsafe") {
            match (allowed, module) {
                (Unsafe::Module(room), Some(module)) if module == room => {}
                (Unsafe::OneModule, Some(module)) => {
                    modules.insert(module);
                }
                _ => found.push(format!("{path}:{}: unsafe code outside its room", line_of(&code, at))),
            }
        }
    }
    if modules.len() > 1 {
        let modules: Vec<_> = modules.into_iter().collect();
        found.push(format!("{}: unsafe code in more than one module: {}", package.name, modules.join(", ")));
    }
    found
}

/// The module of the library, directly below its root, that a file belongs to.
fn module_of<'a>(path: &'a str, package: &Package) -> Option<&'a str> {
    let inside = path.strip_prefix(package.folder.as_str())?.strip_prefix("/src/")?;
    let module = inside.split('/').next()?;
    Some(module.strip_suffix(".rs").unwrap_or(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pure_crate_forbids_it() {
        let tree = |lib| Tree::of(&[("crates/pinrail-plan/src/lib.rs", lib)]).with("pinrail-plan");
        assert_eq!(check(&tree("#![forbid(unsafe_code)]")), [""; 0]);
        let missing = ["crates/pinrail-plan/src/lib.rs does not say #![forbid(unsafe_code)]"];
        assert_eq!(check(&tree("")), missing);
        assert_eq!(check(&tree("// #![forbid(unsafe_code)]")), missing);
        assert_eq!(check(&tree("#![deny(unsafe_code)]")), missing);
        assert_eq!(check(&tree("#[forbid(unsafe_code)]\nmod m {}")), missing);
    }

    #[test]
    fn its_tests_have_none_either() {
        let lib = ("crates/pinrail-plan/src/lib.rs", "#![forbid(unsafe_code)]");
        let tree = Tree::of(&[lib, ("crates/pinrail-plan/tests/it/main.rs", "// unsafe\nfn f() { unsafe { g() } }")]);
        assert_eq!(check(&tree.with("pinrail-plan")), ["crates/pinrail-plan/tests/it/main.rs:2: unsafe code outside its room"]);
    }

    #[test]
    fn a_named_room_holds_all_of_it() {
        let lib = ("crates/pinrail-core/src/lib.rs", "#![deny(unsafe_code)]");
        let core = |path| check(&Tree::of(&[lib, (path, "unsafe fn f() {}")]).with("pinrail-core")).len();
        assert_eq!(core("crates/pinrail-core/src/memory.rs"), 0);
        assert_eq!(core("crates/pinrail-core/src/memory/copy.rs"), 0);
        assert_eq!(core("crates/pinrail-core/src/mr.rs"), 1);
        assert_eq!(core("crates/pinrail-core/tests/memory.rs"), 1);
    }

    #[test]
    fn one_room_is_not_two() {
        let lib = ("crates/pinrail-engine/src/lib.rs", "#![deny(unsafe_code)]");
        let one = ("crates/pinrail-engine/src/raw.rs", "unsafe fn f() {}");
        let two = ("crates/pinrail-engine/src/run.rs", "unsafe fn g() {}");
        assert_eq!(check(&Tree::of(&[lib, one]).with("pinrail-engine")), [""; 0]);
        assert_eq!(
            check(&Tree::of(&[lib, one, two]).with("pinrail-engine")),
            ["pinrail-engine: unsafe code in more than one module: raw, run"]
        );
    }
}

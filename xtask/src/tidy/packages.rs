//! What every package has: the licence, the workspace's lints, and a README with an example that is compiled.

use super::Tree;
use crate::workspace::Package;

const LICENSE: &str = "MIT OR Apache-2.0";

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let texts = ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"].into_iter().filter(|path| tree.text(path).is_none());
    let texts = texts.map(|path| format!("there is no {path}"));
    texts.chain(tree.packages.iter().flat_map(|package| one(tree, package))).collect()
}

fn one(tree: &Tree, package: &Package) -> Vec<String> {
    let Package { name, folder, .. } = package;
    let mut found = Vec::new();
    if package.license.as_deref() != Some(LICENSE) {
        found.push(format!("{name}: the licence is not {LICENSE}"));
    }
    if !has_workspace_lints(tree.text(&format!("{folder}/Cargo.toml")).unwrap_or_default()) {
        found.push(format!("{name}: Cargo.toml lacks `[lints]` with `workspace = true`"));
    }
    match tree.text(&format!("{folder}/README.md")) {
        None => found.push(format!("{name}: there is no README.md")),
        Some(readme) => {
            let languages = languages(readme);
            if languages.is_empty() {
                found.push(format!("{name}: README.md has no example"));
            }
            // rustdoc takes a block without a language, and one with words of its own, for Rust.
            let rust = languages.iter().any(|language| ["", "rust", "no_run", "should_panic"].contains(language));
            let compiled = tree.texts().any(|(path, text)| {
                path.starts_with(&format!("{folder}/src/")) && text.contains("include_str!(\"../README.md\")")
            });
            if rust && !compiled {
                found.push(format!("{name}: nothing compiles the example in README.md"));
            }
        }
    }
    found
}

fn has_workspace_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    lines.next() == Some("workspace = true")
}

/// The language of every fenced block, up to its first comma.
fn languages(markdown: &str) -> Vec<&str> {
    let fences = markdown.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
    fences.step_by(2).map(|language| language.split(',').next().unwrap_or_default().trim()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: (&str, &str) = ("crates/pinrail-plan/src/lib.rs", "#![doc = include_str!(\"../README.md\")]");
    const MANIFEST: (&str, &str) = ("crates/pinrail-plan/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n");
    const README: (&str, &str) = ("crates/pinrail-plan/README.md", "# Plan\n```\nplan();\n```\n");
    const LICENSES: [(&str, &str); 3] = [("LICENSE", ""), ("LICENSE-APACHE", ""), ("LICENSE-MIT", "")];

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(&[&LICENSES, files].concat()).with("pinrail-plan"))
    }

    #[test]
    fn a_whole_package_is_in_order() {
        assert_eq!(found(&[LIB, MANIFEST, README]), [""; 0]);
        let shell = ("crates/pinrail-plan/README.md", "```sh\npinrail plan\n```\n");
        assert_eq!(found(&[MANIFEST, shell]), [""; 0]);
    }

    #[test]
    fn a_readme_without_an_example_is_found() {
        assert_eq!(found(&[LIB, MANIFEST]), ["pinrail-plan: there is no README.md"]);
        let bare = ("crates/pinrail-plan/README.md", "# Plan\n");
        assert_eq!(found(&[LIB, MANIFEST, bare]), ["pinrail-plan: README.md has no example"]);
    }

    #[test]
    fn an_example_that_nothing_compiles_is_found() {
        assert_eq!(found(&[MANIFEST, README]), ["pinrail-plan: nothing compiles the example in README.md"]);
    }

    #[test]
    fn lints_of_its_own_are_found() {
        let own = ("crates/pinrail-plan/Cargo.toml", "[package]\nworkspace = true\n[lints.rust]\nunsafe_code = \"allow\"\n");
        assert_eq!(found(&[LIB, own, README]), ["pinrail-plan: Cargo.toml lacks `[lints]` with `workspace = true`"]);
    }

    #[test]
    fn another_licence_is_found() {
        let mut tree = Tree::of(&[LIB, MANIFEST, README, LICENSES[0], LICENSES[1]]).with("pinrail-plan");
        tree.packages[0].license = None;
        assert_eq!(check(&tree), ["there is no LICENSE-MIT", "pinrail-plan: the licence is not MIT OR Apache-2.0"]);
    }
}

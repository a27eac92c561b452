//! `cargo xtask tidy`: the rules of the tree that no compiler and no lint knows.
//!
//! A rule is a function from a [`Tree`] to what it finds, so that each is tested on a tree that breaks it. Rules read
//! words, not syntax: they hold honest people to what was agreed, and are no defence against anyone else.

mod attributes;
mod layers;
mod packages;
mod pure;
mod source;
mod table;
mod text;
mod unsafe_code;

use std::collections::BTreeMap;
use std::process::ExitCode;

use crate::workspace::{Package, Workspace};
use crate::{Result, command::Line};

/// What the rules look at.
#[derive(Debug, Default)]
struct Tree {
    packages: Vec<Package>,
    /// By their path from the root, with `/`.
    files: BTreeMap<String, File>,
}

#[derive(Debug)]
struct File {
    bytes: u64,
    /// `None` for what is not UTF-8.
    text: Option<String>,
}

/// A rule by its name, and what it finds wrong, a line each.
type Rule = (&'static str, fn(&Tree) -> Vec<String>);

const RULES: &[Rule] = &[
    ("layers", layers::check),
    ("unsafe code", unsafe_code::check),
    ("pure crates", pure::check),
    ("packages", packages::check),
    ("reasons", attributes::check),
    ("unfinished marks", text::unfinished),
    ("machine's words", text::of_a_machine),
    ("large files", text::large),
];

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let tree = Tree::read(workspace)?;
    let mut findings = 0;
    for (name, check) in RULES {
        let found = check(&tree);
        println!("{} {name}", if found.is_empty() { "ok   " } else { "WRONG" });
        found.iter().for_each(|finding| println!("      {finding}"));
        findings += found.len();
    }
    println!("{} files, {} packages, {findings} findings", tree.files.len(), tree.packages.len());
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Tree {
    /// All files that are committed or could be: what git ignores is nobody's work.
    fn read(workspace: &Workspace) -> Result<Tree> {
        let list = Line::new("git -C").word(workspace.root.to_string_lossy());
        let list = list.words(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).output()?;
        let mut files = BTreeMap::new();
        for path in list.split_terminator('\0') {
            // git lists what was deleted but not yet committed, and links, which the file they lead to answers for.
            let whole = workspace.root.join(path);
            if !whole.symlink_metadata().is_ok_and(|what| what.is_file()) {
                continue;
            }
            let bytes = std::fs::read(&whole).map_err(|why| format!("cannot read {path}: {why}"))?;
            files.insert(path.to_owned(), File { bytes: bytes.len() as u64, text: String::from_utf8(bytes).ok() });
        }
        Ok(Tree { packages: workspace.packages.clone(), files })
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, file)| Some((path.as_str(), file.text.as_deref()?)))
    }

    /// The Rust files below a folder, without comments and the insides of strings.
    fn code_below(&self, folder: &str) -> impl Iterator<Item = (&str, String)> {
        let below = format!("{folder}/");
        self.texts()
            .filter(move |(path, _)| path.starts_with(&below) && path.ends_with(".rs"))
            .map(|(path, text)| (path, source::code_of(text)))
    }
}

/// The number of the line in which a byte lies, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tree {
        /// A tree of these files.
        pub(super) fn of(files: &[(&str, &str)]) -> Tree {
            let file = |text: &str| File { bytes: text.len() as u64, text: Some(text.to_owned()) };
            Tree { packages: Vec::new(), files: files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect() }
        }

        /// The same with a package in `crates/NAME` whose library is `src/lib.rs`.
        pub(super) fn with(mut self, name: &str) -> Tree {
            let folder = format!("crates/{name}");
            self.packages.push(Package {
                name: name.to_owned(),
                license: Some("MIT OR Apache-2.0".to_owned()),
                crate_roots: vec![format!("{folder}/src/lib.rs")],
                folder,
                ..Package::default()
            });
            self
        }
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!([0, 1, 2].map(|at| line_of("a\nb", at)), [1, 1, 2]);
    }
}

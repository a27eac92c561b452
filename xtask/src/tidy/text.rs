//! Rules about files as such: marks of unfinished work, words that only one machine knows, size.

use super::{Tree, line_of, source};

/// Larger files are data that belongs elsewhere, or were built.
const BYTES_MAX: u64 = 1 << 20;

// The words looked for are put together here, so that this file does not find itself.
const MARKS: [&str; 4] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
const UNWRITTEN: [&str; 2] = [concat!("to", "do"), concat!("unimpl", "emented")];
const HOSTS: [&str; 5] = [
    concat!("deb.deb", "ian.org"),
    concat!("crates", ".io/api"),
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("files.python", "hosted.org"),
];
const FOLDERS: [&str; 4] = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

pub(super) fn unfinished(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        let marks = MARKS.iter().flat_map(|mark| source::places_of(text, mark).map(move |at| (*mark, at)));
        found.extend(marks.map(|(mark, at)| format!("{path}:{}: {mark}", line_of(text, at))));
        if path.ends_with(".rs") {
            let code = source::code_of(text);
            for name in UNWRITTEN {
                let calls = source::places_of(&code, name).filter(|at| code[at + name.len()..].starts_with('!'));
                found.extend(calls.map(|at| format!("{path}:{}: {name}!", line_of(&code, at))));
            }
        }
    }
    found
}

/// Absolute paths into somebody's folders, and hosts of registries: neither is the same elsewhere.
pub(super) fn of_a_machine(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        for (at, word) in HOSTS.iter().flat_map(|host| text.match_indices(host)) {
            found.push(format!("{path}:{}: the host {word}", line_of(text, at)));
        }
        for (at, word) in FOLDERS.iter().flat_map(|folder| text.match_indices(folder)) {
            // Within a longer path it is a folder of that path.
            let inside = text[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~*}$".contains(c));
            if !inside {
                found.push(format!("{path}:{}: a path below {word}", line_of(text, at)));
            }
        }
    }
    found
}

pub(super) fn large(tree: &Tree) -> Vec<String> {
    let large = tree.files.iter().filter(|(_, file)| file.bytes > BYTES_MAX);
    large.map(|(path, file)| format!("{path}: {} bytes, more than {BYTES_MAX}", file.bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::File;
    use super::*;

    fn tree(path: &str, text: &str) -> Tree {
        Tree::of(&[(path, text)])
    }

    #[test]
    fn marks_of_unfinished_work_are_found() {
        for mark in MARKS {
            assert_eq!(unfinished(&tree("docs/A.md", &format!("a\n{mark}: b"))), [format!("docs/A.md:2: {mark}")]);
            assert_eq!(unfinished(&tree("docs/A.md", &format!("{mark}{mark}"))), [""; 0]);
        }
        for name in UNWRITTEN {
            assert_eq!(unfinished(&tree("src/lib.rs", &format!("fn f() {{ {name}!() }}"))).len(), 1);
            assert_eq!(unfinished(&tree("src/lib.rs", &format!("// {name}!()\nfn {name}() {{}}"))).len(), 0);
        }
    }

    #[test]
    fn words_of_a_machine_are_found() {
        for host in HOSTS {
            assert_eq!(of_a_machine(&tree("Dockerfile", &format!("FROM {host}/x"))).len(), 1);
        }
        for folder in FOLDERS {
            assert_eq!(of_a_machine(&tree("docs/A.md", &format!("see {folder}x"))).len(), 1);
            assert_eq!(of_a_machine(&tree("docs/A.md", &format!("see docs{folder}x"))).len(), 0);
        }
    }

    #[test]
    fn large_files_are_found() {
        let mut tree = tree("a.bin", "");
        tree.files.insert("b.bin".to_owned(), File { bytes: BYTES_MAX + 1, text: None });
        tree.files.insert("c.bin".to_owned(), File { bytes: BYTES_MAX, text: None });
        assert_eq!(large(&tree), ["b.bin: 1048577 bytes, more than 1048576"]);
    }
}

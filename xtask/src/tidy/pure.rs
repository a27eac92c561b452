//! Crates whose results depend on their arguments alone have no clock and no thread.

use super::{Tree, line_of, source, table};

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for placed in table::CRATES.iter().filter(|placed| placed.pure) {
        for (path, code) in tree.code_below(&format!("crates/{}/src", placed.name)) {
            if path.ends_with("/tests.rs") {
                continue;
            }
            let code = source::without_tests(&code);
            let words = ["Instant", "SystemTime", "thread", "sleep"];
            for (word, at) in words.iter().flat_map(|word| source::places_of(&code, word).map(move |at| (word, at))) {
                // `thread` may be a name of something else; a path with it is the module.
                if *word != "thread" || code[..at].ends_with("::") || code[at + word.len()..].starts_with("::") {
                    found.push(format!("{path}:{}: {word} in a crate without clock and threads", line_of(&code, at)));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, code: &str) -> usize {
        check(&Tree::of(&[(&format!("crates/{name}/src/run.rs"), code)])).len()
    }

    #[test]
    fn clocks_and_threads_are_found() {
        assert_eq!(found("pinrail-plan", "use std::time::Instant;"), 1);
        assert_eq!(found("pinrail-plan", "fn f() { std::thread::scope(|s| {}); thread::park(); }"), 2);
        assert_eq!(found("pinrail-sim", "use std::{thread::sleep};"), 2);
        assert_eq!(found("pinrail-core", "fn now() -> SystemTime {}"), 1);
    }

    #[test]
    fn words_tests_and_other_crates_are_free() {
        assert_eq!(found("pinrail-plan", "// std::thread\nlet thread = 1; struct Instants;"), 0);
        assert_eq!(found("pinrail-plan", "#[cfg(test)]\nmod tests { use std::thread; }"), 0);
        assert_eq!(found("pinrail-engine", "use std::time::Instant;"), 0);
    }
}

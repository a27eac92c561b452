//! What switches a check off says why.

use super::{Tree, line_of, source};

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        let code = source::code_of(text);
        for (at, attribute) in source::attributes(&code) {
            let lint = ["allow", "expect"].iter().any(|word| source::places_of(attribute, word).next().is_some());
            if lint && source::places_of(attribute, "reason").next().is_none() {
                found.push(format!("{path}:{}: a lint is switched off without a reason", line_of(&code, at)));
            }
            if attribute == "ignore" {
                found.push(format!("{path}:{}: a test is ignored without a reason", line_of(&code, at)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> usize {
        check(&Tree::of(&[("crates/pinrail-plan/src/lib.rs", code)])).len()
    }

    #[test]
    fn a_lint_switched_off_gives_its_reason() {
        assert_eq!(found("#[allow(unused)]\nfn f() {}"), 1);
        assert_eq!(found("#![allow(\n    clippy::a,\n    clippy::b\n)]"), 1);
        assert_eq!(found("#[cfg_attr(test, expect(unused))]"), 1);
        assert_eq!(found("#[allow(unused, reason = \"kept for the next\")]"), 0);
        assert_eq!(found("fn f() { g().expect(\"held\") } // #[allow(unused)]"), 0);
    }

    #[test]
    fn an_ignored_test_gives_its_reason() {
        assert_eq!(found("#[ignore]\n#[test]\nfn f() {}"), 1);
        assert_eq!(found("#[ignore = \"needs two nodes\"]\n#[test]\nfn f() {}"), 0);
    }
}

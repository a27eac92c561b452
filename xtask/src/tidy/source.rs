//! Rust source read as far as the rules need it: what is code, which words it has, what only tests compile.

/// The source with comments and the insides of strings and characters blanked; bytes stay where they were.
pub(super) fn code_of(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let after = match rest {
            [b'/', b'/', ..] => at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => at + block_comment_len(rest),
            [b'"', ..] => at + string_len(rest),
            [b'r', b'"' | b'#', ..] if !is_word_at(bytes, at) => at + raw_string_len(rest).unwrap_or(0),
            [b'b' | b'c', b'r', b'"' | b'#', ..] if !is_word_at(bytes, at) => at + 1 + raw_string_len(&rest[1..]).unwrap_or(0),
            [b'\'', ..] => at + char_len(rest),
            _ => at,
        };
        for byte in &mut code[at..after] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = after.max(at + 1);
    }
    // Whole characters or none of their bytes were blanked, as all that ends a literal or comment is ASCII.
    String::from_utf8(code).unwrap_or_default()
}

/// Whether the byte before belongs to the same word: `for"` is no raw string.
fn is_word_at(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1])
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn block_comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_len(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `None` for `r#word`.
fn raw_string_len(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let inside = 2 + hashes;
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let close = rest[inside..].windows(end.len()).position(|window| window == end);
    Some(close.map_or(rest.len(), |close| inside + close + end.len()))
}

/// Zero for a lifetime.
fn char_len(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', _, tail @ ..] => 3 + tail.iter().position(|byte| *byte == b'\'').map_or(0, |close| close + 1),
        // The longest character has four bytes.
        [_, inside @ ..] => (1..=4)
            .find(|len| {
                inside.get(*len) == Some(&b'\'') && std::str::from_utf8(&inside[..*len]).is_ok_and(|c| c.chars().count() == 1)
            })
            .map_or(0, |len| len + 2),
        [] => 0,
    }
}

/// Where a word stands in code, on its own.
pub(super) fn places_of<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let after = bytes.get(at + word.len());
        !is_word_at(bytes, *at) && !after.is_some_and(|byte| is_word(*byte))
    })
}

/// The code with every item under `#[cfg(test)]` blanked.
pub(super) fn without_tests(code: &str) -> String {
    let mut kept = code.to_owned();
    while let Some(start) = ["#[cfg(test)]", "#[cfg(all(test,"].iter().filter_map(|attribute| kept.find(attribute)).min() {
        let end = start + item_len(&kept[start..]);
        let blank: String = kept[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        kept.replace_range(start..end, &blank);
    }
    kept
}

/// To the end of the item's block, or to its semicolon where it has none.
fn item_len(item: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in item.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    item.len()
}

/// Every attribute, `#[…]` or `#![…]`, with its place.
pub(super) fn attributes(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.match_indices('#').filter_map(|(at, _)| {
        let body = code[at + 1..].trim_start_matches('!');
        let mut depth = 0_usize;
        if !body.starts_with('[') {
            return None;
        }
        for (end, c) in body.char_indices() {
            match c {
                '[' => depth += 1,
                ']' if depth == 1 => return Some((at, &body[1..end])),
                ']' => depth -= 1,
                _ => {}
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        let code = code_of(source);
        assert_eq!(code.len(), source.len(), "bytes stay where they were");
        code.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn comments_are_no_code() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(words("/// unsafe\n//! unsafe\nx"), ["x"]);
    }

    #[test]
    fn the_insides_of_literals_are_no_code() {
        assert_eq!(words(r#"f("a \" unsafe // ", 1)"#), ["f(", ",", "1)"]);
        assert_eq!(words("f(r#\"unsafe \" \"#, br\"unsafe\", 1)"), ["f(", ",", ",", "1)"]);
        assert_eq!(words(r"m('\'', '/', '/', 'ü', '\u{1f600}', b'x') k"), ["m(", ",", ",", ",", ",", ",", "b", ")", "k"]);
        assert_eq!(words("fn f<'a>(x: &'a str) {}"), ["fn", "f<'a>(x:", "&'a", "str)", "{}"]);
        assert_eq!(words("r#type"), ["r#type"]);
    }

    #[test]
    fn a_word_stands_on_its_own() {
        assert_eq!(places_of("unsafe_code unsafe {", "unsafe").collect::<Vec<_>>(), [12]);
    }

    #[test]
    fn what_only_tests_compile_is_left_out() {
        let code = "a\n#[cfg(test)]\nmod tests { fn f() { b } }\n#[cfg(all(test, loom))] mod c;\nd";
        assert_eq!(without_tests(code).split_whitespace().collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!(without_tests(code).lines().count(), code.lines().count());
    }

    #[test]
    fn attributes_are_found_whole() {
        let code = "#![deny(x)]\n#[a(b[0])]\nfn f() { r#type }";
        assert_eq!(attributes(code).collect::<Vec<_>>(), [(0, "deny(x)"), (12, "a(b[0])")]);
    }
}

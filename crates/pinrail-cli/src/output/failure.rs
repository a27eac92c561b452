//! An error, for people and for programs.

use std::io::{Write as _, stderr};

use pinrail_core::{Diagnosis, ErrorKind};
use serde_json::{Value, json};

use crate::error::Error;

/// The error object: every field is there, null where it does not apply.
pub(super) fn json(diagnosis: &Diagnosis) -> Value {
    let Diagnosis { kind, message, hint, buffer, rail, api, errno, limit, need } = diagnosis;
    json!({"kind": kind.as_str(), "message": message, "hint": hint, "buffer": buffer, "rail": rail, "api": api, "errno": errno,
           "limit": limit, "need": need})
}

/// One line that says what, and one that says what to do, on standard error.
pub(super) fn human(diagnosis: &Diagnosis) {
    let mut to = stderr().lock();
    // Where standard error is closed there is nobody to tell; the exit code says the rest.
    writeln!(to, "error ({}): {}", diagnosis.kind, one_line(&diagnosis.message)).ok();
    if let Some(hint) = &diagnosis.hint {
        writeln!(to, "hint: {}", one_line(hint)).ok();
    }
}

/// What the parser of the arguments found, out of the paragraphs that it renders: what is wrong, tips, the usage.
pub(super) fn of_arguments(rendered: &str) -> Error {
    let mut paragraphs = rendered.trim().split("\n\n").map(one_line);
    let message = paragraphs.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let hint = paragraphs.find(|paragraph| !paragraph.starts_with("For more information"));
    Diagnosis { hint, ..Diagnosis::new(ErrorKind::Usage, message) }.into()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_every_field() {
        let whole = json(&Diagnosis::new(ErrorKind::Memlock, "m").limit(8, 16));
        let fields: Vec<_> = whole.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["api", "buffer", "errno", "hint", "kind", "limit", "message", "need", "rail"]);
        assert_eq!((&whole["limit"], &whole["rail"]), (&json!(8), &Value::Null));
    }

    #[test]
    fn the_parsers_paragraphs_become_two_lines() {
        let error = of_arguments(
            "error: the following required arguments were not provided:\n  --batch <SHAPE|FILE>\n\nUsage: pinrail plan\n\nFor more information, try '--help'.\n",
        );
        assert_eq!(error.diagnosis.message, "the following required arguments were not provided: --batch <SHAPE|FILE>");
        assert_eq!(error.diagnosis.hint.as_deref(), Some("Usage: pinrail plan"));
        let tip =
            of_arguments("error: unexpected argument '--jsn' found\n\n  tip: a similar argument exists: '--json'\n\nUsage: x\n");
        assert_eq!(tip.diagnosis.hint.as_deref(), Some("tip: a similar argument exists: '--json'"));
    }
}

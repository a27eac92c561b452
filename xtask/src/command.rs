//! A command line: built from words, printed as it can be pasted, run in one of three ways.

use std::fmt;
use std::process::{Command, ExitStatus, Stdio};

use crate::Result;

/// A program with its arguments and the variables set for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    variables: Vec<(String, String)>,
    words: Vec<String>,
}

impl Line {
    /// Splits at spaces; a word with a space in it is added by [`Line::word`].
    pub(crate) fn new(words: &str) -> Line {
        Line { variables: Vec::new(), words: words.split_whitespace().map(str::to_owned).collect() }
    }

    pub(crate) fn program(path: impl Into<String>) -> Line {
        Line { variables: Vec::new(), words: vec![path.into()] }
    }

    pub(crate) fn word(mut self, word: impl Into<String>) -> Line {
        self.words.push(word.into());
        self
    }

    pub(crate) fn words<W: Into<String>>(mut self, words: impl IntoIterator<Item = W>) -> Line {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Line {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The program and its arguments, for another line that starts them.
    pub(crate) fn into_words(self) -> Vec<String> {
        self.words
    }

    /// The line as a process to be, without standard input: no step waits for an answer nobody gives.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// Runs it with its output on ours.
    pub(crate) fn show(&self) -> Result<ExitStatus> {
        self.command().status().map_err(|why| self.not_started(&why))
    }

    /// Runs it and returns what it wrote to standard output; a failure carries what it wrote to standard error.
    pub(crate) fn output(&self) -> Result<String> {
        let output = self.command().output().map_err(|why| self.not_started(&why))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`{self}` failed ({}): {}", output.status, said.trim()));
        }
        String::from_utf8(output.stdout).map_err(|_| format!("`{self}` wrote something that is not UTF-8"))
    }

    /// Runs it and returns whether it succeeded and what it wrote to standard output; its standard error is ours.
    pub(crate) fn said(&self) -> Result<(bool, String)> {
        let output = self.command().stderr(Stdio::inherit()).output().map_err(|why| self.not_started(&why))?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Whether it runs and succeeds; its output is dropped.
    pub(crate) fn succeeds(&self) -> bool {
        self.command().output().is_ok_and(|output| output.status.success())
    }

    pub(crate) fn not_started(&self, why: &std::io::Error) -> String {
        format!("cannot start `{self}`: {why}")
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = self.words.iter().map(|word| quoted(word));
        f.write_str(&variables.chain(words).collect::<Vec<_>>().join(" "))
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_prints_as_a_shell_reads_it_back() {
        let line = Line::new("printf %s").variable("A", "b c").word("it's").word("");
        assert_eq!(line.to_string(), r"A='b c' printf %s 'it'\''s' ''");
        let read_back = Line::new("sh -c").word(format!("printf '%s|' {}", quoted("it's; $HOME"))).output();
        assert_eq!(read_back.unwrap(), "it's; $HOME|");
    }

    #[test]
    fn a_failure_says_what_the_program_said() {
        let failure = Line::new("sh -c").word("echo no luck >&2; exit 3").output().unwrap_err();
        assert!(failure.contains("no luck") && failure.contains('3'), "{failure}");
        assert!(!Line::new("sh -c").word("exit 3").succeeds());
        assert!(Line::new("no-such-program-here").output().unwrap_err().starts_with("cannot start"));
    }
}

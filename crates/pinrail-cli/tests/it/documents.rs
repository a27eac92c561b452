//! Every command of the READMEs and of docs/ does what the reader is told it does: it is pasted into `sh`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{folder, run, workspace};

/// Lines that are not pasted, because they build and run the whole project, this test among it, or start a machine.
const NOT_PASTED: [&str; 6] = [
    "cargo xtask bench",
    "cargo xtask sim --seeds 1 --from 644",
    "cargo xtask sim --seeds 10000",
    "cargo xtask test",
    "cargo xtask vm",
    "cargo xtask vm --rails 4 -- rdma link",
];

/// README.md, this crate's own, and every Markdown file below docs/.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.join("README.md"), root.join("crates/pinrail-cli/README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(end) if end == "md" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// The blocks of a document that are marked as shell, with the line of each.
fn shell_blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((at, line)) = lines.next() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let inside: Vec<&str> =
                lines.by_ref().map(|(_, line)| line).take_while(|line| !line.trim_start().starts_with("```")).collect();
            if language.trim() == "sh" {
                blocks.push((at + 1, inside.join("\n")));
            }
        }
    }
    blocks
}

/// A folder with the project's files in it, where commands may write without touching them.
fn looks_like_the_project(root: &Path) -> PathBuf {
    let folder = folder("pasted");
    for entry in fs::read_dir(root).unwrap().map(|entry| entry.unwrap()) {
        symlink(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    folder
}

/// The built command first, then whatever else there is.
fn path() -> OsString {
    let ours = Path::new(env!("CARGO_BIN_EXE_pinrail")).parent().unwrap().to_owned();
    #[expect(clippy::disallowed_methods, reason = "the test sets the child's environment")]
    let theirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(ours).chain(std::env::split_paths(&theirs))).unwrap()
}

#[test]
fn every_command_of_the_documents_runs() {
    let root = workspace();
    let project = looks_like_the_project(&root);
    let mut not_pasted = BTreeSet::new();
    let mut pasted = 0;
    for document in documents(&root) {
        let text = fs::read_to_string(&document).unwrap();
        for (line, block) in shell_blocks(&text) {
            let (build, commands): (Vec<&str>, Vec<&str>) = block.lines().partition(|line| line.starts_with("cargo xtask"));
            let command = |line: &str| line.split(" #").next().unwrap_or_default().trim_end().to_owned();
            not_pasted.extend(build.into_iter().map(command));
            if commands.iter().all(|command| command.trim().is_empty()) {
                continue;
            }
            let script = commands.join("\n");
            let ran = run(Command::new("sh")
                .args(["-e", "-c", &script])
                .current_dir(&project)
                .env("PATH", path())
                .stdin(Stdio::null()));
            let place = format!("{}, line {line}", document.strip_prefix(&root).unwrap().display());
            if ran.exit == Some(1) && ran.err.contains("of pinrail-cli, which this build does not have") {
                eprintln!("SKIPPED: {place} needs a feature that this build does not have");
                continue;
            }
            assert_eq!(ran.exit, Some(0), "{place}:\n{script}\n{}{}", ran.out, ran.err);
            pasted += 1;
        }
    }
    let listed: BTreeSet<String> = NOT_PASTED.map(str::to_owned).into();
    assert_eq!(not_pasted, listed, "the lines that are not pasted are those of the list, and no others");
    eprintln!("{pasted} blocks pasted");
}

#[test]
fn only_shell_blocks_are_taken() {
    let text = "# A\n```sh\na\nb\n```\n```json\n{}\n```\n  ```sh\nc\n  ```\n";
    assert_eq!(shell_blocks(text), [(3, "a\nb".to_owned()), (10, "c".to_owned())]);
}

//! `cargo xtask guards`: takes ten guards out of a copy of the tree, one at a time, and shows the test of each failing.
//!
//! `docs/FIELD-REPORTS.md` says which test fails without which guard; a table that nobody runs is a claim.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::workspace::Workspace;
use crate::{Result, clock, command::Line};

/// What keeps a reported fault away, and the test that must notice when it is gone.
struct Guard {
    /// Rows of docs/FIELD-REPORTS.md.
    rows: &'static str,
    file: &'static str,
    /// Its text, once in the file, and what stands there without it.
    text: &'static str,
    without: &'static str,
    package: &'static str,
    /// Which of the package's test binaries, as cargo's options name it.
    binary: &'static str,
    test: &'static str,
}

const GUARDS: [Guard; 10] = [
    Guard {
        rows: "1",
        file: "crates/pinrail-plan/src/seams.rs",
        text: "at = if extent.end - start <= max { extent.end } else { step.seam_at_or_before(start + max) };",
        without: "at = extent.end;",
        package: "pinrail-plan",
        binary: "--test it",
        test: "seventeen_pages_at_eight_are_8_8_1_on_every_rail",
    },
    Guard {
        rows: "4, 6, 14, 16, 17",
        file: "crates/pinrail-plan/src/needs.rs",
        text: "filter(|&limit| need > 0 && need.saturating_add(live) > limit)",
        without: "filter(|_| false)",
        package: "pinrail-plan",
        binary: "--test it",
        test: "reports::the_sixteenth_quarter_gib_is_refused_and_on_2_mib_pages_none_is",
    },
    Guard {
        rows: "8",
        file: "crates/pinrail-core/src/machine.rs",
        text: "self.with(other, |a, b| a.into_iter().chain(b).min())",
        without: "self.with(other, |a, b| a.into_iter().chain(b).max())",
        package: "pinrail-core",
        binary: "--lib",
        test: "machine::tests::of_two_limits_the_smaller_holds",
    },
    Guard {
        rows: "9",
        file: "crates/pinrail-plan/src/shares.rs",
        text: "let max = self.on(rail).max_mr_size.min(room(rail)).min(equal);",
        without: "let max = self.on(rail).max_mr_size.min(equal);",
        package: "pinrail-plan",
        binary: "--test it",
        test: "shares_tile_within_every_budget",
    },
    Guard {
        rows: "12, 21",
        file: "crates/pinrail-plan/src/runs.rs",
        text: "runs[at].extent = start..end;",
        without: "runs[at].extent = extent;",
        package: "pinrail-plan",
        binary: "--test it",
        test: "reports::a_mapping_that_is_no_multiple_of_its_huge_pages_is_cut_on_them_to_the_mappings_end",
    },
    Guard {
        rows: "31, 42, 52",
        file: "crates/pinrail-policy/src/rails/device_local.rs",
        text: "Place::Gpu(gpu) => self.0.near_gpu(self, gpu, buffer, machine),",
        without: "",
        package: "pinrail-policy",
        binary: "--lib",
        test: "rails::device_local::tests::device_memory_is_local_and_host_memory_is_not",
    },
    Guard {
        rows: "70",
        file: "crates/pinrail-core/src/access.rs",
        text: "if self.contains(Access::REMOTE_WRITE) { self | Access::LOCAL_WRITE } else { self }",
        without: "self",
        package: "pinrail-core",
        binary: "--lib",
        test: "access::tests::remote_write_alone_gains_local_write",
    },
    Guard {
        rows: "55",
        file: "crates/pinrail-engine/src/registry/books.rs",
        text: "if batch.registration.is_none() {",
        without: "if false {",
        package: "pinrail-engine",
        binary: "--test it",
        test: "reports::the_same_again_counts_references_an_overlap_is_an_error_and_in_flight_is_busy",
    },
    Guard {
        rows: "72",
        file: "crates/pinrail-engine/src/run.rs",
        text: "(Some(Err(error)), Some(&pause)) if error.may_pass() => {",
        without: "(Some(Err(error)), Some(&pause)) if false && error.may_pass() => {",
        package: "pinrail-engine",
        binary: "--test it",
        test: "eagain_is_tried_again_bounded_and_nothing_else_is",
    },
    Guard {
        rows: "94",
        file: "crates/pinrail-engine/src/engine.rs",
        text: "if planned != have {",
        without: "if false {",
        package: "pinrail-engine",
        binary: "--test it",
        test: "reports::a_rail_that_is_not_there_is_an_error_before_any_call_and_the_range_is_free",
    },
];

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let tree = workspace.target.join("xtask-guards");
    copy_tracked(&workspace.root, &tree)?;
    std::env::set_current_dir(&tree).map_err(|why| format!("cannot enter {}: {why}", tree.display()))?;
    // What the crates depend on is built already; the crates of the copy are others, since they lie elsewhere.
    let target = workspace.target.display().to_string();
    let mut kept = 0;
    for (at, guard) in GUARDS.iter().enumerate() {
        let started = clock::now();
        let verdict = guard.tried(&target)?;
        kept += usize::from(verdict == Verdict::Noticed);
        println!("[{}/{}] rows {}: {}", at + 1, GUARDS.len(), guard.rows, guard.test);
        println!("      without its guard in {}: {verdict} in {}", guard.file, clock::shown(started.elapsed()));
    }
    println!("{kept} of {} tests fail without their guard, and pass with it", GUARDS.len());
    Ok(if kept == GUARDS.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The files that git knows, as they are in the working tree. What is there already and the same stays, so that only what
/// has changed is built again.
fn copy_tracked(root: &Path, tree: &Path) -> Result<()> {
    let listed = Line::new("git -C").word(root.display().to_string()).word("ls-files").output()?;
    for name in listed.lines() {
        let (from, to) = (root.join(name), tree.join(name));
        // A file that is deleted and not yet committed so is not copied.
        let Ok(text) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == text) {
            continue;
        }
        let failed = |why| format!("cannot copy {name} to {}: {why}", tree.display());
        fs::create_dir_all(to.parent().unwrap_or(tree)).map_err(failed)?;
        fs::write(&to, text).map_err(failed)?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The test fails without the guard and passes with it.
    Noticed,
    /// It passes without it.
    Missed,
    /// Without it nothing is built, so no test has failed.
    NotBuilt,
    /// It fails with the guard as well.
    FailsAnyway,
}

impl Guard {
    /// Runs the test with the guard and without it; the file is as it was in the end.
    fn tried(&self, target: &str) -> Result<Verdict> {
        if !self.passes(target) {
            return Ok(Verdict::FailsAnyway);
        }
        let failed = |why| format!("{}: {why}", self.file);
        let whole = fs::read_to_string(self.file).map_err(failed)?;
        fs::write(self.file, self.removed_from(&whole)?).map_err(failed)?;
        let verdict = match self.line(target).words(["--no-run"]).succeeds() {
            false => Verdict::NotBuilt,
            true if self.passes(target) => Verdict::Missed,
            true => Verdict::Noticed,
        };
        fs::write(self.file, whole).map_err(failed)?;
        Ok(verdict)
    }

    fn removed_from(&self, whole: &str) -> Result<String> {
        match whole.matches(self.text).count() {
            1 => Ok(whole.replace(self.text, self.without)),
            n => Err(format!("{}: the guard of rows {} is there {n} times: `{}`", self.file, self.rows, self.text)),
        }
    }

    fn line(&self, target: &str) -> Line {
        let line = Line::new("cargo test --locked --quiet --all-features --package").word(self.package);
        line.words(self.binary.split(' ')).variable("CARGO_TARGET_DIR", target)
    }

    /// Whether the test runs and passes: a name that no test has would pass as well.
    fn passes(&self, target: &str) -> bool {
        let output = self.line(target).words(["--", "--exact", self.test]).output();
        output.is_ok_and(|said| said.contains("test result: ok. 1 passed"))
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Noticed => "fails, as it must",
            Verdict::Missed => "PASSES: nobody noticed",
            Verdict::NotBuilt => "NOT BUILT: no test has failed",
            Verdict::FailsAnyway => "FAILS with the guard as well",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guard_is_where_the_table_says_and_its_test_is_in_the_list() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let rows = fs::read_to_string(root.join("docs/FIELD-REPORTS.md")).unwrap();
        for guard in &GUARDS {
            let whole = fs::read_to_string(root.join(guard.file)).unwrap();
            assert_ne!(guard.removed_from(&whole).unwrap(), whole);
            let test = guard.test.rsplit("::").next().unwrap();
            assert!(rows.contains(&format!("`{test}`")), "{test} is in no row");
        }
    }

    #[test]
    fn every_test_of_the_reports_is_one() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut sources = String::new();
        let mut folders = vec![root.join("crates")];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                match path.extension() {
                    _ if path.is_dir() => folders.push(path),
                    Some(end) if end == "rs" => sources += &fs::read_to_string(path).unwrap(),
                    _ => {}
                }
            }
        }
        let rows = fs::read_to_string(root.join("docs/FIELD-REPORTS.md")).unwrap();
        let mut before = 0;
        let mut tests = 0;
        for row in rows.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit()) {
            let cells: Vec<&str> = row.split(" | ").collect();
            let number: u32 = cells[0].trim_start_matches("| ").parse().unwrap();
            assert!(number > before && cells.len() == 4, "rows ascend and have four cells: {row}");
            before = number;
            for test in cells[2].split(", ") {
                assert!(sources.contains(&format!("fn {}(", test.trim_matches('`'))), "row {number}: there is no test {test}");
                tests += 1;
            }
        }
        assert!(tests > 60, "{tests}");
    }

    #[test]
    fn a_guard_that_is_not_found_or_found_twice_is_an_error() {
        assert!(GUARDS[0].removed_from("").unwrap_err().contains("0 times"));
        assert!(GUARDS[0].removed_from(&GUARDS[0].text.repeat(2)).unwrap_err().contains("2 times"));
    }
}

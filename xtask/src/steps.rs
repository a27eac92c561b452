//! Runs the steps of a check one after another: shows each with its time and verdict, keeps what it wrote, and closes
//! with a table and the output of the first that failed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::{Result, clock, command::Line};

/// One named check.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
}

/// What a step does.
#[derive(Debug)]
pub(crate) enum Work {
    /// These, in order, up to the first that fails.
    Lines(Vec<Line>),
    /// Nothing, as the tree has not what it would check: shown as such, never as passed.
    Absent(&'static str),
    /// Nothing, as this machine lacks what it takes: shown as such, never as passed.
    Skipped(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Absent,
    /// This machine cannot do it.
    Skipped,
}

/// A step that has ended.
#[derive(Debug)]
struct Ended {
    name: &'static str,
    verdict: Verdict,
    took: Duration,
    /// The closing lines of its test runners.
    counts: Vec<String>,
    log: PathBuf,
}

/// With this code a line ends that could not do its work here, as automake and others have it.
pub(crate) const SKIPPED: u8 = 77;

/// Most lines of a failed step that are shown; the log has them all.
const SHOWN_LINES_MAX: usize = 250;

/// Whether some step failed, and whether some was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) failed: bool,
    pub(crate) skipped: bool,
}

/// Runs every step, whatever became of those before it, and keeps its output as `FOLDER/NAME.log`.
pub(crate) fn run(steps: &[Step], folder: &Path) -> Result<Sum> {
    std::fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
    let mut ended: Vec<Ended> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("[{}/{}] {}: {}", index + 1, steps.len(), step.name, step.work);
        let log = folder.join(format!("{}.log", step.name));
        let step = run_one(step, log).map_err(|why| format!("step {}: {why}", step.name))?;
        println!("      {} in {}", step.verdict, clock::shown(step.took));
        step.counts.iter().for_each(|count| println!("      {count}"));
        ended.push(step);
    }
    let failed = ended.iter().find(|step| step.verdict == Verdict::Failed);
    if let Some(step) = failed {
        println!("\nThe first that failed is {}, whose output ends:\n", step.name);
        print!("{}", tail(&step.log)?);
    }
    print!("\n{}", table(&ended));
    let skipped: Vec<&str> = ended.iter().filter(|step| step.verdict == Verdict::Skipped).map(|step| step.name).collect();
    if !skipped.is_empty() {
        println!("SKIPPED, and nothing proved: {}", skipped.join(", "));
    }
    Ok(Sum { failed: failed.is_some(), skipped: !skipped.is_empty() })
}

fn run_one(step: &Step, log: PathBuf) -> Result<Ended> {
    let nothing_done = if matches!(step.work, Work::Skipped(_)) { Verdict::Skipped } else { Verdict::Absent };
    let mut ended = Ended { name: step.name, verdict: nothing_done, took: Duration::ZERO, counts: Vec::new(), log };
    if let Work::Lines(lines) = &step.work {
        let written = |why| format!("cannot write {}: {why}", ended.log.display());
        let mut file = File::create(&ended.log).map_err(written)?;
        let started = clock::now();
        // A step that lost its lines, say by a moved folder, has proved nothing.
        ended.verdict = if lines.is_empty() { Verdict::Failed } else { Verdict::Passed };
        for line in lines {
            let status = follow(line, &mut file, &mut ended.counts)?;
            if !status.success() {
                let skipped = status.code() == Some(SKIPPED.into());
                ended.verdict = if skipped { Verdict::Skipped } else { Verdict::Failed };
                break;
            }
        }
        ended.took = started.elapsed();
    }
    Ok(ended)
}

/// Runs a line with both its outputs into the log and, where somebody looks on, its latest words on one changing line.
fn follow(line: &Line, log: &mut File, counts: &mut Vec<String>) -> Result<ExitStatus> {
    let failed = |why: io::Error| format!("`{line}`: {why}");
    let (reader, writer) = io::pipe().map_err(failed)?;
    let mut command = line.command();
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    writeln!(log, "$ {line}").map_err(failed)?;
    let mut child = command.spawn().map_err(|why| line.not_started(&why))?;
    drop(command); // It holds our ends of the pipe, which would never close.
    let looked_on = io::stdout().is_terminal();
    let mut reader = BufReader::new(reader);
    let mut words = Vec::new();
    while reader.read_until(b'\n', &mut words).map_err(failed)? > 0 {
        log.write_all(&words).map_err(failed)?;
        let said = String::from_utf8_lossy(&words);
        counts.extend(count_of_tests(&said));
        if looked_on {
            let short: String = said.trim().chars().filter(|c| !c.is_control()).take(72).collect();
            print!("\r\x1b[K      {short}");
            io::stdout().flush().map_err(failed)?;
        }
        words.clear();
    }
    if looked_on {
        print!("\r\x1b[K");
    }
    child.wait().map_err(failed)
}

/// The closing line of nextest, as it stands.
fn count_of_tests(line: &str) -> Option<String> {
    let line = line.trim();
    (line.starts_with("Summary [") && line.contains(" run: ")).then(|| line.to_owned())
}

fn tail(log: &Path) -> Result<String> {
    let all = std::fs::read(log).map_err(|why| format!("cannot read {}: {why}", log.display()))?;
    let all = String::from_utf8_lossy(&all);
    let lines: Vec<&str> = all.lines().collect();
    let hidden = lines.len().saturating_sub(SHOWN_LINES_MAX);
    let mut shown = lines[hidden..].join("\n") + "\n";
    if hidden > 0 {
        shown = format!("({hidden} lines before these are in {})\n{shown}", log.display());
    }
    Ok(shown)
}

fn table(ended: &[Ended]) -> String {
    let width = ended.iter().map(|step| step.name.len()).max().unwrap_or(0);
    let rows = ended.iter().map(|step| {
        let mut notes = step.counts.clone();
        if step.verdict == Verdict::Failed {
            notes.push(step.log.display().to_string());
        }
        let row = format!("{:width$}  {:>12}  {}  {}", step.name, clock::shown(step.took), step.verdict, notes.join("  "));
        row.trim_end().to_owned() + "\n"
    });
    let total = clock::shown(ended.iter().map(|step| step.took).sum());
    rows.collect::<String>() + &format!("{:width$}  {total:>12}\n", "all")
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Work::Absent(what) => write!(f, "there is no {what}"),
            Work::Skipped(why) => f.write_str(why),
            Work::Lines(lines) => match lines.as_slice() {
                [] => f.write_str("nothing"),
                [only] => write!(f, "{only}"),
                [first, rest @ ..] => write!(f, "{first} and {} more", rest.len()),
            },
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Absent => "absent",
            Verdict::Skipped => "SKIPPED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &'static str, script: &str) -> Step {
        Step { name, work: Work::Lines(vec![Line::new("sh -c").word(script)]) }
    }

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("pinrail-steps-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_failure_stops_its_step_and_no_other() {
        let folder = folder("failure");
        let two = vec![Line::new("sh -c").word("echo lost >&2; exit 4"), Line::new("echo never")];
        let steps = [Step { name: "bad", work: Work::Lines(two) }, step("good", "echo fine")];
        assert_eq!(run(&steps, &folder).unwrap(), Sum { failed: true, skipped: false });
        let bad = std::fs::read_to_string(folder.join("bad.log")).unwrap();
        assert_eq!(bad, "$ sh -c 'echo lost >&2; exit 4'\nlost\n");
        let good = std::fs::read_to_string(folder.join("good.log")).unwrap();
        assert_eq!(good, "$ sh -c 'echo fine'\nfine\n");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_step_that_cannot_start_is_an_error() {
        let folder = folder("start");
        let steps = [Step { name: "gone", work: Work::Lines(vec![Line::new("no-such-program-here")]) }];
        assert!(run(&steps, &folder).unwrap_err().contains("no-such-program-here"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_absent_is_called_so() {
        let folder = folder("absent");
        let ended = run_one(&Step { name: "fuzz", work: Work::Absent("fuzz/Cargo.toml") }, folder.clone()).unwrap();
        assert_eq!(ended.verdict, Verdict::Absent);
        assert_eq!(table(&[ended]), "fuzz         0.0 s  absent\nall          0.0 s\n");
    }

    #[test]
    fn what_a_machine_cannot_do_is_neither_passed_nor_failed() {
        let folder = folder("skipped");
        let skipped = Step { name: "miri", work: Work::Skipped("there is no nightly compiler".to_owned()) };
        for skipped in [skipped, step("vm", "echo there is none; exit 77")] {
            assert_eq!(run(&[step("good", "true"), skipped], &folder).unwrap(), Sum { failed: false, skipped: true });
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_table_leads_to_the_log_of_what_failed() {
        let (took, log) = (Duration::from_secs(2), PathBuf::from("target/docs.log"));
        let ended = [Ended { name: "docs", verdict: Verdict::Failed, took, counts: Vec::new(), log }];
        assert!(table(&ended).starts_with("docs         2.0 s  FAILED  target/docs.log\n"));
    }

    #[test]
    fn the_count_of_the_test_runner_is_kept() {
        let folder = folder("counts");
        std::fs::create_dir_all(&folder).unwrap();
        let count = "Summary [   0.012s] 47 tests run: 47 passed, 0 skipped";
        let ended = run_one(&step("tests", &format!("echo '     {count}' >&2; echo Summary")), folder.join("log")).unwrap();
        assert_eq!((ended.verdict, ended.counts.as_slice()), (Verdict::Passed, [count.to_owned()].as_slice()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_long_log_is_shown_from_its_end() {
        let log = folder("tail");
        std::fs::write(&log, "early\n".repeat(5) + &"late\n".repeat(SHOWN_LINES_MAX)).unwrap();
        let shown = tail(&log).unwrap();
        assert!(shown.starts_with("(5 lines before") && !shown.contains("early"), "{shown}");
        std::fs::remove_file(log).unwrap();
    }
}

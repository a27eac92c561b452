//! `cargo xtask deep`: the checks that take too long for every change, each in a build of its own.

use std::process::ExitCode;

use crate::steps::{self, Step, Work};
use crate::workspace::Workspace;
use crate::{Result, command::Line, install};

/// The steps by name, in the order in which they end soonest.
const STEPS: [&str; 9] = ["loom", "node", "asan", "miri", "tsan", "soak", "guards", "fuzz", "mutants"];

/// Minutes of fuzzing a target where nobody says.
const FUZZ_MINUTES: u64 = 10;

/// Crates without a clock, a thread or, but for one room of core, unsafe code: an interpreter can run all of them.
const PURE: [&str; 5] = ["pinrail-core", "pinrail-policy", "pinrail-plan", "pinrail-dispatch", "pinrail-sim"];

/// Crates that call C libraries.
const FOREIGN: [&str; 2] = ["pinrail-libfabric", "pinrail-verbs"];

/// Crates whose decisions are worth a mutant each.
const MUTATED: [&str; 3] = ["pinrail-dispatch", "pinrail-plan", "pinrail-policy"];

pub(crate) fn run(workspace: &Workspace, named: &[&str]) -> Result<ExitCode> {
    std::env::set_current_dir(&workspace.root).map_err(|why| format!("cannot enter the workspace: {why}"))?;
    let folder = workspace.target.join("xtask-deep");
    let mut steps = Vec::new();
    for (name, number) in chosen(named)? {
        let lines = match name {
            "loom" => Ok(loom()),
            "node" => Ok(node()),
            "asan" => install::nightly(&["rustc"]).and_then(|()| asan(workspace)),
            "miri" => install::nightly(&["miri", "rust-src"]).map(|()| miri()),
            "tsan" => install::nightly(&["rust-src"]).and_then(|()| tsan()),
            "soak" => Ok(soak()),
            "guards" => Ok(vec![Line::new("cargo run --quiet --locked --package xtask -- guards")]),
            "fuzz" => install::for_fuzzing().and_then(|()| fuzz(workspace, number.unwrap_or(FUZZ_MINUTES))),
            _ => install::for_mutants().map(|()| mutants(workspace)),
        };
        steps.push(Step { name, work: lines.map_or_else(Work::Skipped, Work::Lines) });
    }
    // Who asked for a proof and did not get it has no success.
    let sum = steps::run(&steps, &folder)?;
    Ok(if sum.failed || sum.skipped { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The steps that were named, with their numbers, in our order; all where none was.
fn chosen(named: &[&str]) -> Result<Vec<(&'static str, Option<u64>)>> {
    let mut wanted = Vec::new();
    for text in named {
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name, Some(number)),
            None => (*text, None),
        };
        let Some(at) = STEPS.iter().position(|step| *step == name) else {
            return Err(format!("there is no step {name:?}: there are {}", STEPS.join(", ")));
        };
        let number = match number {
            None => None,
            Some(minutes) if name == "fuzz" => match minutes.parse() {
                Ok(minutes) if minutes > 0 => Some(minutes),
                _ => return Err(format!("fuzz={minutes}: the minutes of each target are a whole number from 1")),
            },
            Some(_) => return Err(format!("{name} takes no number")),
        };
        wanted.push((at, number));
    }
    wanted.sort_unstable();
    wanted.dedup_by_key(|(at, _)| *at);
    if wanted.is_empty() {
        wanted = (0..STEPS.len()).map(|at| (at, None)).collect();
    }
    Ok(wanted.into_iter().map(|(at, number)| (STEPS[at], number)).collect())
}

/// Every interleaving of a few threads. A folder of its own, or each build would throw the other away.
pub(crate) fn loom() -> Vec<Line> {
    let line = |package| {
        let line = Line::new("cargo test --locked --release --target-dir target/loom --lib --package").word(package);
        line.word("model").variable("RUSTFLAGS", "--cfg loom")
    };
    ["pinrail-engine", "pinrail-node"].map(line).to_vec()
}

/// A minute of 8 processes with 16 threads each on 2 tokens, while some are killed.
fn node() -> Vec<Line> {
    let line = Line::new("cargo test --locked --package pinrail-node --test it -- --ignored --exact --nocapture");
    vec![line.word("stress::eight_processes_of_sixteen_threads")]
}

/// Undefined behaviour and wrong pointers. Few cases of each property: an interpreter is some hundred times slower.
fn miri() -> Vec<Line> {
    let line = |package| {
        let line = Line::new("cargo +nightly miri test --locked --lib --tests --all-features --package").word(package);
        // Core hands addresses to the kernel, so out of the interpreter's sight; leaks are promised in its tests.
        let flags = "-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks";
        line.variable("MIRIFLAGS", flags).variable("PROPTEST_CASES", "4")
    };
    PURE.map(line).to_vec()
}

/// Memory that C code of ours or of a provider misuses, and what nobody frees: `xtask/deep/leaks` names what leaks on
/// purpose. A stack is walked by its tables, as the providers keep no frame pointers.
fn asan(workspace: &Workspace) -> Result<Vec<Line>> {
    let line = Line::new("cargo +nightly test --locked --no-fail-fast --lib --tests").words(["--target", &host()?]);
    let line = line.words(FOREIGN.iter().flat_map(|package| ["--package", package]));
    let leaks = workspace.root.join("xtask/deep/leaks");
    let line = line.variable("LSAN_OPTIONS", &format!("suppressions={}", leaks.display()));
    let line = line.variable("ASAN_OPTIONS", "detect_leaks=1:fast_unwind_on_malloc=0:malloc_context_size=60");
    Ok(vec![line.variable("RUSTFLAGS", "-Zsanitizer=address")])
}

/// Data races, with a standard library that is watched too.
fn tsan() -> Result<Vec<Line>> {
    let line = Line::new("cargo +nightly test --locked -Zbuild-std --package pinrail-engine --lib --tests --target");
    Ok(vec![line.word(host()?).variable("RUSTFLAGS", "-Zsanitizer=thread")])
}

/// The compiler's name for this machine: with it as the target, what runs while compiling is not watched.
fn host() -> Result<String> {
    let version = Line::new("rustc --version --verbose").output()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say its host".to_owned())
}

/// 60 rounds of 10,000 registrations, on pages that are really pinned: 2 GB.
fn soak() -> Vec<Line> {
    vec![Line::new("cargo test --locked --package pinrail-engine --test it -- --ignored --exact --nocapture soak::sixty_rounds")]
}

/// Each target for some minutes. What it finds new stays below the target folder; `cargo fuzz cmin` takes over what is
/// worth keeping.
fn fuzz(workspace: &Workspace, minutes: u64) -> Result<Vec<Line>> {
    let folder = workspace.root.join("fuzz/fuzz_targets");
    let files = std::fs::read_dir(&folder).map_err(|why| format!("cannot list {}: {why}", folder.display()))?;
    let names = files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    let mut lines = Vec::new();
    for name in names {
        let found = workspace.target.join("xtask-deep/fuzz").join(&name);
        std::fs::create_dir_all(&found).map_err(|why| format!("cannot make {}: {why}", found.display()))?;
        let line = Line::new("cargo +nightly fuzz run --features libfuzzer").word(&name).word(found.display().to_string());
        let limits = [format!("-max_total_time={}", minutes * 60), "-timeout=60".to_owned(), "-max_len=4096".to_owned()];
        lines.push(line.word(format!("fuzz/corpus/{name}")).word("--").words(limits));
    }
    Ok(lines)
}

/// Every small change to these crates is noticed by their tests, but for those that `.cargo/mutants.toml` lists.
fn mutants(workspace: &Workspace) -> Vec<Line> {
    let line = Line::new("cargo mutants --baseline skip --jobs 1 --output").word(workspace.target.display().to_string());
    vec![line.words(MUTATED.iter().flat_map(|package| ["--package", package]))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name_and_run_in_our_order() {
        let names = |named: &[&str]| -> Vec<&str> { chosen(named).unwrap().into_iter().map(|(name, _)| name).collect() };
        assert_eq!(names(&[]), STEPS);
        assert_eq!(names(&["fuzz=1", "loom", "fuzz"]), ["loom", "fuzz"]);
        assert_eq!(chosen(&["fuzz=60"]).unwrap(), [("fuzz", Some(60))]);
        for (wrong, part) in [("fuz", "there are loom"), ("fuzz=0", "from 1"), ("fuzz=x", "from 1"), ("miri=2", "no number")] {
            assert!(chosen(&[wrong]).unwrap_err().contains(part), "{wrong}");
        }
    }

    #[test]
    fn every_fuzz_target_has_its_minutes() {
        let root = std::env::temp_dir().join(format!("pinrail-deep-{}", std::process::id()));
        std::fs::create_dir_all(root.join("fuzz/fuzz_targets")).unwrap();
        for name in ["plan", "batch_json"] {
            std::fs::write(root.join(format!("fuzz/fuzz_targets/{name}.rs")), "").unwrap();
        }
        let workspace = Workspace { target: root.join("target"), root: root.clone(), packages: Vec::new() };
        let lines: Vec<String> = fuzz(&workspace, 2).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains(" batch_json ") && lines[1].contains(" fuzz/corpus/plan -- -max_total_time=120"), "{lines:?}");
        std::fs::remove_dir_all(root).unwrap();
    }
}

//! `cargo xtask bench`: the arguments with which `pinrail bench` compares every policy on this machine's own pages.

mod fit;

use std::path::Path;
use std::process::ExitCode;

use crate::workspace::Workspace;
use crate::{Result, command::Line, install};

/// Four rails on two NUMA nodes, so that `rail-local` has something to choose from.
const MACHINE: &str = "docs/machines/4-rails-2-nodes.toml";

/// One bench each.
const MEMORY_STATES: [&str; 2] = ["resident", "untouched"];

/// Builds the release, fits the batch to the machine, and measures once in each state of the memory.
///
/// What is said here goes to standard error: standard output is the bench's own, also with `--json`.
pub(crate) fn run(workspace: &Workspace, given: &[&str]) -> Result<ExitCode> {
    std::env::set_current_dir(&workspace.root).map_err(|why| format!("cannot enter the workspace: {why}"))?;
    let cores = std::thread::available_parallelism().map_err(|why| format!("cannot count the usable cores: {why}"))?.get();
    let features = features(given);
    install::for_features(&features)?;
    let mut build = Line::new("cargo build --locked --release --package pinrail-cli");
    if !features.is_empty() {
        build = build.word("--features").word(features.join(","));
    }
    eprintln!("$ {build}");
    if !build.show()?.success() {
        return Err(format!("`{build}` failed"));
    }
    let target = workspace.target.strip_prefix(&workspace.root).unwrap_or(&workspace.target);
    let pinrail = Line::program(target.join("release/pinrail").to_string_lossy());
    let batch = match values(given, "--batch").first() {
        Some(batch) => (*batch).to_owned(),
        None => fit::batch(passes(given, cores), |batch| pinrail.clone().words(slow_pass(given, batch)))?,
    };
    for arguments in benches(given, cores, &batch) {
        let line = pinrail.clone().words(arguments);
        eprintln!("$ {line}");
        let status = line.show()?;
        if !status.success() {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The features of pinrail-cli that the options need; the main path needs none.
fn features(given: &[&str]) -> Vec<&'static str> {
    let backend = |name| values(given, "--backend").iter().any(|backend| backend.split(':').next() == Some(name));
    let xml = |machine: &&str| Path::new(machine).extension().is_some_and(|extension| extension == "xml");
    let wanted = [
        ("libfabric", backend("libfabric")),
        ("verbs", backend("verbs")),
        ("topology", values(given, "--machine").iter().any(xml)),
    ];
    wanted.into_iter().filter_map(|(feature, wanted)| wanted.then_some(feature)).collect()
}

/// The arguments of each bench.
fn benches(given: &[&str], cores: usize, batch: &str) -> Vec<Vec<String>> {
    let policies = [
        "unbounded".to_owned(),
        format!("capped={cores}"),
        format!("ascending+capped={cores}"),
        format!("rails-in-series+capped={cores}"),
        "rail-local".to_owned(),
    ];
    let states = if values(given, "--memory").is_empty() { &MEMORY_STATES[..] } else { &MEMORY_STATES[..1] };
    let bench = |memory| {
        let mut defaults = place(given);
        defaults.extend([("--batch", batch), ("--memory", memory), ("--trials", "10")]);
        defaults
            .extend(["rails-in-series-one-by-one", "all-rails-at-once", "thread-per-buffer"].map(|name| ("--reference", name)));
        defaults.extend(policies.iter().map(|policy| ("--policy", policy.as_str())));
        let defaults = defaults.into_iter().filter(|(option, _)| values(given, option).is_empty());
        let defaults = defaults.flat_map(|(option, value)| [option, value]);
        ["bench"].into_iter().chain(defaults).chain(given.iter().copied()).map(str::to_owned).collect()
    };
    states.iter().copied().map(bench).collect()
}

/// A pass that is slower than most of those measured: nothing resident, one registration at a time.
fn slow_pass(given: &[&str], batch: &str) -> Vec<String> {
    let mut arguments = vec!["register"];
    for (option, default) in place(given) {
        arguments.extend([option, values(given, option).first().copied().unwrap_or(default)]);
    }
    arguments.extend(["--batch", batch, "--memory", "untouched", "--policy", "rails-in-series+capped=1"]);
    arguments.into_iter().map(str::to_owned).collect()
}

/// Where the batch is registered, and on which pages.
fn place<'a>(given: &[&'a str]) -> Vec<(&'static str, &'a str)> {
    let rails = match values(given, "--rails").first() {
        Some(rails) => ("--rails", *rails),
        None => ("--machine", MACHINE),
    };
    vec![("--backend", "uring"), rails, ("--pages", "4k")]
}

/// Registrations of the whole batch that all the benches make together.
fn passes(given: &[&str], cores: usize) -> u32 {
    let benches = benches(given, cores, "");
    let all = benches.iter().map(|arguments| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let variants = values(&arguments, "--reference").len() + values(&arguments, "--policy").len();
        // What is no number is for `pinrail bench` to refuse.
        let trials = values(&arguments, "--trials").first().and_then(|trials| trials.parse().ok()).unwrap_or(1);
        u32::try_from(variants).unwrap_or(u32::MAX).saturating_mul(trials)
    });
    all.fold(0, u32::saturating_add)
}

/// The values that the arguments give an option, in both of its spellings.
fn values<'a>(arguments: &[&'a str], option: &str) -> Vec<&'a str> {
    let value = |(index, word): (usize, &&'a str)| match word.strip_prefix(option)? {
        "" => arguments.get(index + 1).copied(),
        rest => rest.strip_prefix('='),
    };
    arguments.iter().enumerate().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[String]) -> String {
        arguments.join(" ")
    }

    #[test]
    fn without_arguments_every_variant_is_measured_in_both_states() {
        let benches = benches(&[], 2, "kimi-k3/16");
        let [resident, untouched] = benches.as_slice() else { panic!("{benches:?}") };
        assert_eq!(
            line(resident),
            "bench --backend uring --machine docs/machines/4-rails-2-nodes.toml --pages 4k --batch kimi-k3/16 \
             --memory resident --trials 10 --reference rails-in-series-one-by-one --reference all-rails-at-once \
             --reference thread-per-buffer --policy unbounded --policy capped=2 --policy ascending+capped=2 \
             --policy rails-in-series+capped=2 --policy rail-local"
        );
        assert_eq!(line(untouched), line(resident).replace("resident", "untouched"));
        assert_eq!(passes(&[], 2), 160);
    }

    #[test]
    fn what_is_given_replaces_the_default_of_its_name() {
        let given = ["--rails=2", "--memory", "resident", "--policy", "auto", "--trials", "3", "--json"];
        let benches = benches(&given, 2, "kimi-k3/16");
        let [only] = benches.as_slice() else { panic!("{benches:?}") };
        assert_eq!(
            line(only),
            "bench --backend uring --pages 4k --batch kimi-k3/16 --reference rails-in-series-one-by-one \
             --reference all-rails-at-once --reference thread-per-buffer \
             --rails=2 --memory resident --policy auto --trials 3 --json"
        );
        assert_eq!(passes(&given, 2), 12);
    }

    #[test]
    fn the_timed_pass_runs_where_the_bench_will() {
        assert_eq!(
            line(&slow_pass(&["--backend", "libfabric:tcp", "--rails", "2"], "kimi-k3/16")),
            "register --backend libfabric:tcp --rails 2 --pages 4k --batch kimi-k3/16 --memory untouched \
             --policy rails-in-series+capped=1"
        );
    }

    #[test]
    fn only_what_needs_a_system_library_asks_for_one() {
        assert!(features(&[]).is_empty());
        assert!(features(&["--backend", "uring", "--machine", "docs/machines/4-rails-2-nodes.toml"]).is_empty());
        assert_eq!(features(&["--backend=libfabric:tcp"]), ["libfabric"]);
        assert_eq!(features(&["--backend", "verbs", "--machine", "node.xml"]), ["verbs", "topology"]);
    }
}

//! `pinrail sim`: policies in virtual time.

use std::path::Path;

use pinrail_sim::{Found, Row, Run, Scenario, Verdict, fidelity, verdict};

use crate::error::Error;
use crate::file;
use crate::output::Answer;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What is simulated: a scenario by name (--list explains each), a scenario file, or all.
    #[arg(long, value_name = "NAME|FILE|all", required_unless_present_any = ["list", "fidelity"])]
    scenario: Option<String>,
    /// A policy instead of the scenario's: terms joined by +, as in ascending+capped=16. May be given again.
    #[arg(long = "policy", value_name = "SPEC")]
    policies: Vec<String>,
    /// Something of the scenario to be otherwise, as in cores=64, processes=4, rails=16, batch=48x391MiB. May be given again.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// What everything that is random is drawn from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Try a grid of policies besides, and say how much each named one and the default lose against the best.
    #[arg(long)]
    search: bool,
    /// Explain every scenario, and run none.
    #[arg(long, conflicts_with_all = ["scenario", "policies", "settings", "search", "fidelity"])]
    list: bool,
    /// Set every published figure beside what is simulated, with what is promised, and run nothing else.
    #[arg(long, conflicts_with_all = ["scenario", "policies", "settings", "search"])]
    fidelity: bool,
}

/// What a simulation answers.
pub(crate) struct Simulated {
    /// As it was asked for.
    pub(crate) scenario: String,
    pub(crate) seed: u64,
    /// One for each scenario.
    pub(crate) parts: Vec<Part>,
}

/// What one scenario came to.
pub(crate) struct Part {
    pub(crate) scenario: Scenario,
    pub(crate) runs: Vec<Run>,
    pub(crate) verdict: Option<Verdict>,
    /// By profile, where a grid was tried.
    pub(crate) found: Vec<Found>,
}

/// Every published figure beside ours.
pub(crate) struct Compared(pub(crate) Vec<Row>);

/// Every scenario.
pub(crate) struct Listed(pub(crate) Vec<Scenario>);

/// Most bytes of a scenario, profile or machine file, and of a batch file.
const FILE_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn run(args: &Args) -> Answer {
    if args.fidelity {
        return Ok(Box::new(Compared(fidelity()?)));
    }
    let Some(name) = &args.scenario else {
        return Ok(Box::new(Listed(Scenario::names().map(Scenario::named).collect::<Result<_, _>>()?)));
    };
    let mut parts = Vec::new();
    for scenario in args.scenarios(name)? {
        let policies = scenario.policies(&args.policies)?;
        let runs = scenario.run(&policies, args.seed, &text)?;
        let found = if args.search { scenario.search(&policies, args.seed, &text)? } else { Vec::new() };
        parts.push(Part { verdict: verdict(&runs), runs, found, scenario });
    }
    Ok(Box::new(Simulated { scenario: name.clone(), seed: args.seed, parts }))
}

impl Args {
    /// The scenarios of that name, with what was set.
    fn scenarios(&self, name: &str) -> Result<Vec<Scenario>, Error> {
        let scenarios = match name {
            "all" => Scenario::names().map(Scenario::named).collect::<Result<_, _>>()?,
            _ => vec![scenario(name)?],
        };
        let set = |scenario: Scenario| self.settings.iter().try_fold(scenario, |scenario, setting| scenario.set(setting));
        Ok(scenarios.into_iter().map(set).collect::<Result<_, _>>()?)
    }
}

/// A name, or a file: what has a dot or a slash, which no name has.
fn scenario(name: &str) -> Result<Scenario, Error> {
    if name.contains(['.', '/']) {
        let text = text(name).map_err(Error::usage)?;
        return Ok(Scenario::from_toml(name, &text)?);
    }
    Ok(Scenario::named(name)?)
}

/// The text of a file that a scenario names.
fn text(name: &str) -> Result<String, String> {
    let bytes = file::read(Path::new(name), FILE_BYTES_MAX, "file").map_err(|error| error.diagnosis.message)?;
    String::from_utf8(bytes)
        .map_err(|error| format!("file {name} is no text: byte {} is no UTF-8", error.utf8_error().valid_up_to()))
}

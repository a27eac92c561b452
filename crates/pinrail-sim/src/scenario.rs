//! What is simulated: a batch in so many processes on a machine, in a state of memory, under policies.
//!
//! A scenario is a TOML file. Those that come with the crate are one for each published table:
//!
//! | key | what | left out |
//! |---|---|---|
//! | `version` | of this format: 1 | an error |
//! | `about` | what it is, in a sentence | an error |
//! | `profiles` | list of profiles by name, or files; each policy runs under each | an error |
//! | `machine` | `p5`, `nic`, `ring`, or a machine file | `nic`: rails of which nothing is known |
//! | `rails` | so many rails: every nth of the machine's, or more of the same | the machine's |
//! | `cores` | cores of the node; also what the default policy takes for usable | an error |
//! | `processes` | processes, all starting at once | 1 |
//! | `memory` | `device` (process n on GPU n), `resident` or `untouched` | an error |
//! | `page_size` | of host memory, as in `"2MiB"` | what the batch says |
//! | `batch` | shapes joined by `+`, as in `"24x2925527+24x391MiB"`, or a batch file | an error |
//! | `shuffled_percent` | the batch in ascending order, with that share of its buffers shuffled by the seed | as the batch lists it |
//! | `allocations` | the buffers lie, by size, in so many allocations, so that `coalesce` may join them | each in its own |
//! | `allocations_below` | only buffers smaller than this do | all |
//! | `node_budget` | steps at once on the node, besides one of each process | no limit |
//! | `policies` | list of specs that run when none is named | the default policy |

use std::num::{NonZeroU16, NonZeroU32};

use pinrail_core::batch::{BatchSpec, BufferSpec};
use pinrail_core::{Machine, Place, size};
use serde::Deserialize;

use crate::rng::Rng;
use crate::{Error, Profile};

/// The version of the format.
const VERSION: i64 = 1;

/// The scenarios that come with the crate, in the order in which they are listed and run.
const NAMED: [(&str, &str); 8] = [
    ("rdma-500g-touched", include_str!("../scenarios/rdma-500g-touched.toml")),
    ("rdma-500g-untouched", include_str!("../scenarios/rdma-500g-untouched.toml")),
    ("efa-serial-order", include_str!("../scenarios/efa-serial-order.toml")),
    ("efa-serial-48x391", include_str!("../scenarios/efa-serial-48x391.toml")),
    ("p5-k3", include_str!("../scenarios/p5-k3.toml")),
    ("p5-k3-local", include_str!("../scenarios/p5-k3-local.toml")),
    ("p5-host-128x2g", include_str!("../scenarios/p5-host-128x2g.toml")),
    ("host32-rails", include_str!("../scenarios/host32-rails.toml")),
];

/// The machines that come with the crate.
const MACHINES: [(&str, &str); 3] = [
    ("p5", include_str!("../machines/p5.toml")),
    ("nic", include_str!("../machines/nic.toml")),
    ("ring", include_str!("../machines/ring.toml")),
];

/// How files that a scenario names are read: their text, or why there is none.
pub type Read<'r> = dyn Fn(&str) -> Result<String, String> + 'r;

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, or that of its file.
    pub name: String,
    /// What it says.
    pub keys: Keys,
}

/// The keys of a scenario file; the [module](self) explains them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    version: i64,
    /// What it is, in a sentence.
    pub about: String,
    /// Profiles by name, or files.
    pub profiles: Vec<String>,
    /// A machine by name, or a file.
    pub machine: Option<String>,
    /// So many rails.
    pub rails: Option<NonZeroU16>,
    /// Cores of the node.
    pub cores: NonZeroU32,
    /// Processes.
    pub processes: Option<NonZeroU32>,
    /// The kind and state of memory.
    pub memory: MemoryState,
    /// Pages of host memory.
    pub page_size: Option<Size>,
    /// Shapes, or a batch file.
    pub batch: String,
    /// Percent of the buffers that are not where ascending order would have them.
    pub shuffled_percent: Option<u32>,
    /// So many allocations.
    pub allocations: Option<NonZeroU32>,
    /// Only buffers smaller than this share them.
    pub allocations_below: Option<Size>,
    /// Steps at once on the node.
    pub node_budget: Option<NonZeroU32>,
    /// Specs that run when none is named.
    #[serde(default)]
    pub policies: Vec<String>,
}

/// The kind and state of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryState {
    /// Memory of GPUs.
    Device,
    /// Host memory that was used before.
    Resident,
    /// Host memory that nobody has touched.
    Untouched,
}

/// A size as people type it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

impl TryFrom<String> for Size {
    type Error = size::ParseSizeError;

    fn try_from(text: String) -> Result<Size, size::ParseSizeError> {
        size::parse(&text).map(Size)
    }
}

/// What a scenario names, read.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// By name, in order.
    pub(crate) profiles: Vec<(String, Profile)>,
    pub(crate) machine: Machine,
    /// In the caller's order, not yet on a GPU.
    pub(crate) batch: BatchSpec,
    /// Allocations that were assumed.
    pub(crate) assumed: Option<u32>,
}

/// Most processes.
const PROCESSES_MAX: u32 = 1024;

/// Most cores.
const CORES_MAX: u32 = 1 << 20;

impl Scenario {
    /// The names of the scenarios that come with the crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// A scenario that comes with the crate.
    ///
    /// # Errors
    /// [`Error::UnknownScenario`], listing those there are.
    pub fn named(name: &str) -> Result<Scenario, Error> {
        match NAMED.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Scenario::from_toml(name, text),
            None => Err(Error::UnknownScenario { name: name.to_owned() }),
        }
    }

    /// Reads a scenario; `name` is what results and errors call it.
    ///
    /// # Errors
    /// [`Error::File`], naming the key.
    pub fn from_toml(name: &str, text: &str) -> Result<Scenario, Error> {
        let scenario = Scenario { name: name.to_owned(), keys: crate::file::parse("scenario", name, text, VERSION)? };
        match scenario.keys.nonsense() {
            None => Ok(scenario),
            Some(message) => Err(Error::File { what: "scenario", name: name.to_owned(), line: None, message }),
        }
    }

    /// The scenario with `KEY=VALUE` in place of what it says.
    ///
    /// # Errors
    /// [`Error::Setting`], listing the keys or saying what the value must be.
    pub fn set(mut self, setting: &str) -> Result<Scenario, Error> {
        let wrong = |why: String| Error::Setting { setting: setting.to_owned(), why };
        let (key, value) = setting.split_once('=').ok_or_else(|| wrong("it is KEY=VALUE, as in cores=64".to_owned()))?;
        let keys = &mut self.keys;
        let done = match key {
            "cores" => number(value).map(|cores| keys.cores = cores),
            "processes" => number(value).map(|processes| keys.processes = Some(processes)),
            "rails" => number(value).map(|rails| keys.rails = Some(rails)),
            "node_budget" => number(value).map(|tokens| keys.node_budget = Some(tokens)),
            "allocations" => number(value).map(|allocations| keys.allocations = Some(allocations)),
            "shuffled_percent" => number(value).map(|percent| keys.shuffled_percent = Some(percent)),
            "allocations_below" => sized(value).map(|below| keys.allocations_below = Some(below)),
            "page_size" => sized(value).map(|page| keys.page_size = Some(page)),
            "memory" => memory(value).map(|memory| keys.memory = memory),
            "batch" => {
                value.clone_into(&mut keys.batch);
                Ok(())
            }
            "machine" => {
                keys.machine = Some(value.to_owned());
                Ok(())
            }
            "profile" => {
                keys.profiles = value.split(',').map(str::to_owned).collect();
                Ok(())
            }
            _ => Err(format!("there is no such key: there are {SETTINGS}")),
        };
        done.map_err(wrong)?;
        match self.keys.nonsense() {
            None => Ok(self),
            Some(why) => Err(wrong(why)),
        }
    }

    /// Reads what it names.
    pub(crate) fn build(&self, seed: u64, read: &Read<'_>) -> Result<Built, Error> {
        let keys = &self.keys;
        let profiles = keys.profiles.iter().map(|name| Ok((name.clone(), profile(name, read)?)));
        let profiles = profiles.collect::<Result<Vec<_>, Error>>()?;
        let mut machine = with_rails(machine(keys.machine.as_deref().unwrap_or("nic"), read)?, keys.rails);
        let mut batch = batch(&keys.batch, read)?;
        batch.limit_rails(&mut machine)?;
        if let Some(percent) = keys.shuffled_percent {
            shuffle(&mut batch.buffers, percent, seed);
        }
        if keys.memory != MemoryState::Device
            && let Some(Size(page)) = keys.page_size
        {
            batch.buffers.iter_mut().for_each(|buffer| buffer.page_size = page);
        }
        let below = keys.allocations_below.map_or(u64::MAX, |Size(below)| below);
        let assumed = keys.allocations.map(|count| share_allocations(&mut batch.buffers, count, below));
        Ok(Built { profiles, machine, batch, assumed })
    }
}

/// What `--set` takes.
const SETTINGS: &str = "cores, processes, rails, batch, memory, page_size, machine, profile, node_budget, shuffled_percent, \
                        allocations, allocations_below";

impl Keys {
    /// What no scenario can say.
    fn nonsense(&self) -> Option<String> {
        if self.profiles.is_empty() {
            return Some("profiles names none".to_owned());
        }
        if self.cores.get() > CORES_MAX {
            return Some(format!("cores is {}, and it must be at most {CORES_MAX}", self.cores));
        }
        if let Some(processes) = self.processes.filter(|processes| processes.get() > PROCESSES_MAX) {
            return Some(format!("processes is {processes}, and it must be at most {PROCESSES_MAX}"));
        }
        if let Some(rails) = self.rails.filter(|rails| usize::from(rails.get()) > pinrail_core::Rail::MAX) {
            return Some(format!("rails is {rails}, and it must be at most {}", pinrail_core::Rail::MAX));
        }
        let percent = self.shuffled_percent.filter(|percent| *percent > 100);
        percent.map(|percent| format!("shuffled_percent is {percent}, and it must be from 0 to 100"))
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "it must be a whole number in range, from 1 (shuffled_percent from 0)".to_owned())
}

fn memory(text: &str) -> Result<MemoryState, String> {
    match text {
        "device" => Ok(MemoryState::Device),
        "resident" => Ok(MemoryState::Resident),
        "untouched" => Ok(MemoryState::Untouched),
        _ => Err("it is device, resident or untouched".to_owned()),
    }
}

fn sized(text: &str) -> Result<Size, String> {
    size::parse(text).map(Size).map_err(|error| error.to_string())
}

fn text(name: &str, read: &Read<'_>) -> Result<String, Error> {
    read(name).map_err(|why| Error::Setting { setting: name.to_owned(), why })
}

fn looks_like_a_file(name: &str) -> bool {
    name.contains('.') || name.starts_with('/')
}

fn profile(name: &str, read: &Read<'_>) -> Result<Profile, Error> {
    match Profile::named(name) {
        Err(Error::UnknownProfile { .. }) if looks_like_a_file(name) => Profile::from_toml(name, &text(name, read)?),
        profile => profile,
    }
}

fn machine(name: &str, read: &Read<'_>) -> Result<Machine, Error> {
    match MACHINES.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok(Machine::from_toml(text)?),
        None if looks_like_a_file(name) => Ok(Machine::from_toml(&text(name, read)?)?),
        None => {
            let why = format!("there is no such machine: there are {}, and files", MACHINES.map(|(name, _)| name).join(", "));
            Err(Error::Setting { setting: name.to_owned(), why })
        }
    }
}

fn batch(name: &str, read: &Read<'_>) -> Result<BatchSpec, Error> {
    let shapes: Result<Vec<BatchSpec>, _> = name.split('+').map(BatchSpec::shape).collect();
    let shapes = match shapes {
        Ok(shapes) => shapes,
        Err(pinrail_core::batch::BatchError::Shape { .. }) if looks_like_a_file(name) => {
            return Ok(BatchSpec::from_json(&text(name, read)?)?);
        }
        Err(error) => return Err(error.into()),
    };
    let mut batch = BatchSpec::default();
    for buffer in shapes.into_iter().flat_map(|shape| shape.buffers) {
        let name = BufferSpec::default_name(batch.buffers.len());
        batch.buffers.push(BufferSpec { name, ..buffer });
    }
    if batch.buffers.is_empty() {
        return Err(Error::Setting { setting: name.to_owned(), why: "the batch has no buffer".to_owned() });
    }
    Ok(batch)
}

/// So many rails: every nth, so that each part of the machine keeps its share, or copies of those there are.
fn with_rails(mut machine: Machine, rails: Option<NonZeroU16>) -> Machine {
    let Some(rails) = rails.map(|rails| usize::from(rails.get())) else { return machine };
    let have = machine.rails.len();
    if have == 0 {
        // The policy will say that there is no rail.
        return machine;
    }
    if rails <= have {
        machine.rails = (0..rails).map(|at| machine.rails[at * have / rails].clone()).collect();
    } else {
        let copy = |at: usize| {
            let mut rail = machine.rails[at % have].clone();
            (rail.pci, rail.name) = (None, format!("{}.{}", rail.name, at / have));
            rail
        };
        let copies: Vec<_> = (have..rails).map(copy).collect();
        machine.rails.extend(copies);
    }
    machine
}

/// Ascending order in which that share of the places have exchanged their buffers.
fn shuffle(buffers: &mut [BufferSpec], percent: u32, seed: u64) {
    buffers.sort_by_key(|buffer| buffer.len);
    let mut rng = Rng::new(seed);
    let mut places: Vec<usize> = (0..buffers.len()).collect();
    rng.shuffle(&mut places);
    places.truncate(buffers.len() * percent as usize / 100);
    let mut chosen: Vec<BufferSpec> = places.iter().map(|&place| buffers[place].clone()).collect();
    rng.shuffle(&mut chosen);
    places.into_iter().zip(chosen).for_each(|(place, buffer)| buffers[place] = buffer);
}

/// Puts buffers of like size together into at most so many allocations of like bytes; how many that came to.
fn share_allocations(buffers: &mut [BufferSpec], count: NonZeroU32, below: u64) -> u32 {
    let mut by_size: Vec<usize> = (0..buffers.len()).filter(|&at| buffers[at].len < below).collect();
    by_size.sort_by_key(|&at| buffers[at].len);
    let all: u128 = by_size.iter().map(|&at| u128::from(buffers[at].len)).sum();
    let (mut before, mut last, mut used) = (0u128, None, 0);
    for at in by_size {
        let allocation = before * u128::from(count.get()) / all.max(1);
        before += u128::from(buffers[at].len);
        buffers[at].allocation = Some(format!("shared{allocation}"));
        used += u32::from(last.replace(allocation) != Some(allocation));
    }
    used
}

/// The buffers on a GPU.
pub(crate) fn on_gpu(batch: &BatchSpec, gpu: pinrail_core::PciAddress) -> BatchSpec {
    let mut batch = batch.clone();
    batch.buffers.iter_mut().for_each(|buffer| buffer.place = Place::Gpu(gpu));
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_files(name: &str) -> Result<String, String> {
        Err(format!("{name} is not there"))
    }

    fn built(name: &str, settings: &[&str]) -> Built {
        let scenario = Scenario::named(name).unwrap();
        let scenario = settings.iter().try_fold(scenario, |scenario, setting| scenario.set(setting)).unwrap();
        scenario.build(1, &no_files).unwrap()
    }

    #[test]
    fn every_scenario_that_comes_along_can_be_built() {
        for name in Scenario::names() {
            assert!(!built(name, &[]).batch.buffers.is_empty(), "{name}");
        }
    }

    #[test]
    fn settings_replace_what_the_scenario_says() {
        let of = built("p5-k3", &["rails=16", "batch=3x1MiB+2x1GiB", "profile=efa-p5/flat", "allocations=2"]);
        assert_eq!((of.machine.rails.len(), of.batch.buffers.len(), of.profiles.len(), of.assumed), (16, 5, 1, Some(2)));
        let near = |gpu: usize| of.machine.rails.iter().filter(|rail| rail.bridges == of.machine.gpus[gpu].bridges).count();
        assert!((0..8).all(|gpu| near(gpu) == 2), "each GPU keeps its share");
        let more = built("p5-k3", &["rails=64"]);
        assert!(more.machine.rails.len() == 64 && more.machine.check().is_ok());
    }

    #[test]
    fn what_is_wrong_with_a_setting_is_said() {
        for (setting, why) in [
            ("cores", "KEY=VALUE"),
            ("core=1", "shuffled_percent"),
            ("cores=0", "whole number"),
            ("cores=-1", "whole number"),
            ("cores=4294967295", "at most"),
            ("processes=5000", "at most"),
            ("rails=5000", "at most"),
            ("shuffled_percent=101", "0 to 100"),
            ("memory=cold", "untouched"),
            ("page_size=3", "page"),
        ] {
            let scenario = Scenario::named("host32-rails").unwrap();
            let error = match scenario.set(setting).and_then(|scenario| {
                let built = scenario.build(1, &no_files)?;
                Ok(built.batch.layout()?)
            }) {
                Err(error) => error.to_string(),
                Ok(_) => panic!("{setting}"),
            };
            assert!(error.contains(why), "{setting}: {error}");
        }
        for setting in
            ["batch=nonsense", "batch=no.json", "machine=p6", "machine=no.toml", "profile=efa", "profile=no.toml", "batch=0x1"]
        {
            assert!(Scenario::named("p5-k3").unwrap().set(setting).unwrap().build(1, &no_files).is_err(), "{setting}");
        }
    }

    #[test]
    fn a_shuffled_share_leaves_the_rest_ascending_and_follows_the_seed() {
        let order = |seed| -> Vec<u64> {
            let scenario = Scenario::named("p5-k3").unwrap();
            scenario.build(seed, &no_files).unwrap().batch.buffers.iter().map(|buffer| buffer.len).collect()
        };
        let mut sorted = order(1);
        sorted.sort_unstable();
        let moved = order(1).iter().zip(&sorted).filter(|(a, b)| a != b).count();
        assert!((10..=54).contains(&moved), "{moved}");
        assert!(order(1) == order(1) && order(1) != order(2));
    }

    #[test]
    fn allocations_hold_buffers_of_like_size() {
        let of = built("p5-k3", &["allocations=4", "allocations_below=10MiB"]);
        let in_some = |below: bool| of.batch.buffers.iter().filter(|b| b.allocation.is_some() == below).count();
        assert_eq!((of.assumed, in_some(true), in_some(false)), (Some(4), 70, 112));
    }
}

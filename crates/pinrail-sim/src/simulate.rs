//! Runs a scenario: each policy under each profile.

use pinrail_core::{Kind, Place};
use pinrail_plan::Plan;
use pinrail_policy::{ControllerReport, Policy, Tick};

use crate::Error;
use crate::cost::float;
use crate::faults::NoFaults;
use crate::node::Node;
use crate::profile::Profile;
use crate::scenario::{Built, MemoryState, Read, Scenario, on_gpu};
use crate::trace::{Event, Trace};

/// What a policy came to under a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The scenario.
    pub scenario: String,
    /// The policy as it was named; `default` where nothing was.
    pub name: String,
    /// The whole policy.
    pub policy: String,
    /// The profile.
    pub profile: String,
    /// False where the profile is known to be wrong about this policy.
    pub trusted: bool,
    /// From the first preparation's start to the last one's end, in seconds; of the slowest process, as all of these.
    pub prefault_s: f64,
    /// From the first registration's start to the last one's end.
    pub register_s: f64,
    /// The same of deregistrations, in a run of its own; `None` where the profile has no figures for them.
    pub deregister_s: Option<f64>,
    /// From the start to the moment every key is usable.
    pub total_s: f64,
    /// Core time of all processes until then.
    pub cpu_s: f64,
    /// Threads of all processes.
    pub threads: u32,
    /// The most steps that were in flight at once in a process.
    pub peak_in_flight: u32,
    /// Registrations of all processes.
    pub tasks: u64,
    /// Steps simulated, deregistrations among them.
    pub steps: u64,
    /// The hash of every event.
    pub trace_hash: u64,
    /// Each process by itself.
    pub processes: Vec<ProcessRun>,
    /// Megabits a second of the rails that a process's buffers are registered on; of the process with the least. `None`
    /// where speeds are not known.
    pub mbps: Option<u64>,
    /// Of all rails.
    pub mbps_all: Option<u64>,
    /// MRs of a process on a rail, the most.
    pub mrs_per_rail: u64,
    /// Allocations that the buffers were assumed to lie in.
    pub assumed_allocations: Option<u32>,
    /// What an adaptive limit of the first process did.
    pub controller: Option<ControllerReport>,
}

/// A process by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessRun {
    /// From the first registration's start to the last one's end, in seconds.
    pub register_s: f64,
    /// From the start to the moment every key is usable.
    pub total_s: f64,
}

/// Most steps of a run: about half a minute and some gigabytes of memory.
const STEPS_MAX: u64 = 1 << 25;

/// Bytes of a slice that is made resident, as plans cut them.
const SLICE_BYTES: u64 = 32 << 20;

impl Scenario {
    /// Runs every policy under every profile of the scenario, in that order: all profiles of the first policy first.
    ///
    /// # Errors
    /// What is wrong with the scenario, a policy or a file.
    pub fn run(&self, policies: &[(String, Policy)], seed: u64, read: &Read<'_>) -> Result<Vec<Run>, Error> {
        let built = self.build(seed, read)?;
        let mut runs = Vec::new();
        for (name, policy) in policies {
            let planned = Planned::new(self, &built, policy)?;
            for (profile, costs) in &built.profiles {
                runs.push(planned.run(name, profile, costs, &mut |_| {})?);
            }
        }
        Ok(runs)
    }

    /// Runs one policy under one of the scenario's profiles, by its place, showing `see` every step as it ends.
    pub(crate) fn watch(
        &self,
        policy: &Policy,
        profile: usize,
        seed: u64,
        read: &Read<'_>,
        see: &mut dyn FnMut(&Event),
    ) -> Result<Run, Error> {
        let built = self.build(seed, read)?;
        let (name, profile) = &built.profiles[profile];
        Planned::new(self, &built, policy)?.run("", name, profile, see)
    }

    /// The default policy on the scenario's machine.
    #[must_use]
    pub fn default_policy(&self) -> Policy {
        Policy::new(self.keys.cores)
    }

    /// The specs that were named, or the scenario's own where none was, with the policies they mean here.
    ///
    /// # Errors
    /// What is wrong with a spec.
    pub fn policies(&self, named: &[String]) -> Result<Vec<(String, Policy)>, Error> {
        let own = if self.keys.policies.is_empty() { &[String::new()] } else { self.keys.policies.as_slice() };
        let specs = if named.is_empty() { own } else { named };
        specs.iter().map(|spec| Ok((called(spec), self.default_policy().with(spec)?))).collect()
    }
}

/// A scenario under one policy, planned: what profiles have in common.
pub(crate) struct Planned<'s> {
    scenario: &'s Scenario,
    built: &'s Built,
    policy: &'s Policy,
    /// One for each GPU that processes are on; one in all for host memory.
    plans: Vec<Plan>,
}

impl<'s> Planned<'s> {
    pub(crate) fn new(scenario: &'s Scenario, built: &'s Built, policy: &'s Policy) -> Result<Planned<'s>, Error> {
        scenario.bounded(built)?;
        let plan = |batch: &pinrail_core::batch::BatchSpec| -> Result<Plan, Error> {
            Ok(Plan::new(batch.layout()?.imagined()?, &built.machine, policy)?)
        };
        let on_host =
            |why: &str| Error::Setting { setting: format!("memory of scenario {}", scenario.name), why: why.to_owned() };
        let plans = if scenario.keys.memory == MemoryState::Device {
            if built.machine.gpus.is_empty() {
                return Err(on_host("it is device, and the machine has no GPU: set machine=p5, or memory=resident"));
            }
            let gpus = built.machine.gpus.iter().take(scenario.processes());
            gpus.map(|gpu| plan(&on_gpu(&built.batch, gpu.pci))).collect::<Result<Vec<_>, _>>()?
        } else {
            if built.batch.buffers.iter().any(|buffer| matches!(buffer.place, Place::Gpu(_))) {
                return Err(on_host("it is host memory, and the batch names a GPU: set memory=device"));
            }
            vec![plan(&built.batch)?]
        };
        Ok(Planned { scenario, built, policy, plans })
    }

    /// By process.
    pub(crate) fn plans(&self) -> Vec<&Plan> {
        (0..self.scenario.processes()).map(|process| &self.plans[process % self.plans.len()]).collect()
    }

    /// `name` is what the policy is called.
    pub(crate) fn run(&self, name: &str, of: &str, profile: &Profile, see: &mut dyn FnMut(&Event)) -> Result<Run, Error> {
        self.check(of, profile)?;
        let keys = &self.scenario.keys;
        let (cores, budget) = (keys.cores, keys.node_budget);
        let node = Node { profile, cores, resident: keys.memory != MemoryState::Untouched, budget };
        let plans = self.plans();
        let registered = node.run(&plans, Kind::Register, &mut NoFaults, see)?;
        let deregistered = match profile.deregister {
            Some(_) => Some(node.run(&plans, Kind::Deregister, &mut NoFaults, &mut |_| {})?),
            None => None,
        };
        let run = self.told(profile, &registered, deregistered.as_ref());
        Ok(Run { name: name.to_owned(), profile: of.to_owned(), ..run })
    }

    /// Whether the profile has figures for this memory.
    fn check(&self, name: &str, profile: &Profile) -> Result<(), Error> {
        let lacks = |why: &str| Err(Error::NotMeasured { profile: name.to_owned(), why: why.to_owned() });
        match (self.scenario.keys.memory, &profile.touch) {
            (MemoryState::Device, Some(_)) => return lacks("is of host memory: set memory=resident or memory=untouched"),
            (MemoryState::Resident | MemoryState::Untouched, None) => return lacks("is of device memory: set memory=device"),
            _ => {}
        }
        let huge = self.plans.iter().flat_map(Plan::chunks).any(|chunk| chunk.page_size() >= crate::node::HUGE_BYTES);
        let is_host = profile.touch.is_some();
        let knows_huge = profile.register.huge_ns_per_4kib.is_some()
            && (self.scenario.keys.memory != MemoryState::Untouched || profile.touch_huge.is_some());
        if is_host && huge && !knows_huge { lacks("has no figures for huge pages: set page_size=4KiB") } else { Ok(()) }
    }

    fn told(&self, profile: &Profile, registered: &Trace, deregistered: Option<&Trace>) -> Run {
        let span = |span: Option<(Tick, Tick)>| span.map_or(0.0, |(Tick(start), Tick(end))| seconds(end - start));
        let slowest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let processes = registered.processes.iter();
        let machine = &self.built.machine;
        let reach = self.plans.iter().map(|plan| {
            let mut rails: Vec<_> = plan.rail_sets().iter().flatten().copied().collect();
            rails.sort_unstable();
            rails.dedup();
            machine.mbps(&rails)
        });
        Run {
            scenario: self.scenario.name.clone(),
            name: String::new(),
            policy: self.policy.spec(),
            profile: String::new(),
            trusted: profile.trust_unbounded || self.policy.concurrency.spec() != "unbounded",
            prefault_s: slowest(&mut processes.clone().map(|process| span(process.prepare))),
            register_s: slowest(&mut processes.clone().map(|process| span(process.tasks))),
            deregister_s: deregistered.map(|trace| slowest(&mut trace.processes.iter().map(|process| span(process.tasks)))),
            total_s: seconds(registered.end.0),
            cpu_s: seconds(registered.cpu_ns),
            threads: processes.clone().map(|process| process.threads).fold(0, u32::saturating_add),
            peak_in_flight: processes.clone().map(|process| process.peak_in_flight).max().unwrap_or(0),
            tasks: self.plans().iter().map(|plan| plan.tasks()).sum(),
            steps: registered.steps + deregistered.map_or(0, |trace| trace.steps),
            trace_hash: registered.hash,
            processes: processes
                .map(|process| ProcessRun { register_s: span(process.tasks), total_s: seconds(process.end().0) })
                .collect(),
            mbps: reach.min().flatten(),
            mbps_all: machine.mbps(&machine.usable().collect::<Vec<_>>()),
            mrs_per_rail: self.plans.iter().flat_map(|plan| &plan.needs().rails).map(|rail| rail.mrs).max().unwrap_or(0),
            assumed_allocations: self.built.assumed,
            controller: registered.processes.first().and_then(|process| process.controller.clone()),
        }
    }
}

impl Run {
    /// Cores that were busy on average while it registered.
    #[must_use]
    pub fn cores_busy(&self) -> f64 {
        if self.total_s > 0.0 { self.cpu_s / self.total_s } else { 0.0 }
    }
}

impl Scenario {
    fn processes(&self) -> usize {
        self.keys.processes.map_or(1, |processes| processes.get() as usize)
    }

    /// Refuses what would take all memory to plan: every buffer on every rail, and all slices.
    fn bounded(&self, built: &Built) -> Result<(), Error> {
        let (buffers, rails) = (built.batch.buffers.len() as u64, built.machine.rails.len() as u64);
        let slices = built.batch.bytes().unwrap_or(u64::MAX) / SLICE_BYTES;
        let steps = buffers.saturating_mul(rails).saturating_add(slices).saturating_mul(self.processes() as u64);
        if steps <= STEPS_MAX {
            return Ok(());
        }
        let why = format!("it may have {steps} steps in all of its processes, and at most {STEPS_MAX} are run");
        Err(Error::Setting { setting: format!("scenario {}", self.name), why })
    }
}

fn called(spec: &str) -> String {
    if spec.is_empty() { "default".to_owned() } else { spec.to_owned() }
}

fn seconds(ns: u64) -> f64 {
    float(ns) / 1e9
}

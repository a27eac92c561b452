//! A plan as data: what `pinrail plan --json` prints, what another plan is compared with, and what is registered later.
//!
//! The machine is in it twice: as it described itself (`machine.file`, the keys of a machine file), and by rail the limits that
//! held beside the advertised ones.

mod diff;

use pinrail_core::batch::BatchSpec;
use pinrail_core::{Buffer, BufferId, Diagnosis, ErrorKind, Kind, Limits, Machine, RailId, RailLimits};
use pinrail_policy::{Control, Policy, PolicyError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Plan, PlanError, RailNeeds};

pub use diff::{Change, What};

/// The version of the format that is written, and the only one that is read.
const VERSION: u64 = 1;

/// A plan as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    version: u64,
    #[serde(with = "batch")]
    batch: BatchSpec,
    machine: MachineDocument,
    chunks: Vec<ChunkDocument>,
    tasks: u64,
    order: Vec<u32>,
    rails: Vec<RailDocument>,
    buffers: Vec<BufferDocument>,
    shared_out: Option<String>,
    needs: NeedsDocument,
    limits: LimitsDocument,
    policy: String,
    /// What has changed since another plan, where that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    diff: Option<Vec<Change>>,
}

/// What the host has of memlock, as the caller found it; a plan itself touches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemlockSeen {
    /// Bytes this process may lock; `None` is without limit.
    pub have_bytes: Option<u64>,
}

/// A text that is no plan, or none that may be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFileError {
    /// It is no JSON, or a key or value is not one of the format's.
    #[error("plan file: {message}")]
    Syntax {
        /// What is wrong, with line and column.
        message: String,
    },
    /// It names another version of the format, or none.
    #[error("plan file: {found}, and this release reads version {VERSION}")]
    Version {
        /// What it says.
        found: String,
    },
    /// Its policy.
    #[error("plan file: {0}")]
    Policy(#[from] PolicyError),
    /// What it was made from cannot be planned.
    #[error("plan file: its own batch, machine and policy make no plan: {0}")]
    Plan(#[from] PlanError),
    /// It says something else than what its batch, machine and policy lead to.
    #[error(
        "plan file: it was changed, or made by another release: its own batch, machine and policy lead to another plan ({what})"
    )]
    Changed {
        /// The first difference.
        what: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineDocument {
    rails: Vec<RailSeen>,
    mbps: Option<u64>,
    #[serde(with = "machine")]
    file: Machine,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RailSeen {
    name: String,
    pci: Option<String>,
    node: Option<u32>,
    mbps: Option<u64>,
    limits: RailLimitsDocument,
    advertised: RailLimitsDocument,
    calls_in_parallel: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RailLimitsDocument {
    max_mr_size: Option<u64>,
    max_mrs: Option<u64>,
    max_pages: Option<u64>,
    max_pages_remote_write: Option<u64>,
    max_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChunkDocument {
    id: u32,
    buffers: Vec<String>,
    offset: u64,
    len: u64,
    pages: u64,
    rails: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RailDocument {
    rail: String,
    #[serde(flatten)]
    needs: RailNeeds,
    live: RailNeeds,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BufferDocument {
    buffer: String,
    rails: Vec<String>,
    path: Option<String>,
    mbps: Option<u64>,
    why: String,
    fallback: Option<String>,
    chunks: Vec<u32>,
    pages: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeedsDocument {
    pinned_bytes: u64,
    mrs: u64,
    pages: u64,
    foreign_bytes: u64,
    memlock: MemlockDocument,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemlockDocument {
    need: u64,
    have: Option<u64>,
    counts: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsDocument {
    total: Option<u32>,
    prepare: Option<u32>,
    register: Option<u32>,
    deregister: Option<u32>,
    per_rail: Option<u32>,
}

impl PlanFileError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        Diagnosis::new(ErrorKind::Batch, self.to_string()).hint("pinrail plan --json writes plans")
    }
}

impl PlanDocument {
    /// A plan as data. `batch` is what it was made from, `machine` what the machine says of itself, without the batch's
    /// limits.
    #[must_use]
    pub fn of(plan: &Plan, batch: &BatchSpec, machine: &Machine, memlock: MemlockSeen) -> PlanDocument {
        let names = |rails: &[RailId]| rails.iter().map(|rail| plan.rails()[rail.index()].name.clone()).collect::<Vec<_>>();
        let chunk = |id: pinrail_core::ChunkId| {
            let chunk = &plan.chunks()[id.index()];
            let members = plan.buffers_of(id).iter().map(|member| plan.buffers()[member.index()].name.to_string());
            let (offset, len, pages) = (chunk.range.start, chunk.len(), chunk.pages);
            ChunkDocument { id: id.0, buffers: members.collect(), offset, len, pages, rails: names(plan.rails_of(id)) }
        };
        let buffer = |(id, buffer): (BufferId, &Buffer)| {
            let (selection, rails) = (plan.selection(id), plan.rails_of_buffer(id));
            BufferDocument {
                buffer: buffer.name.to_string(),
                rails: names(&rails),
                path: selection.path.map(|path| path.as_str().to_owned()),
                mbps: plan.machine().mbps(&rails),
                why: selection.why.to_string(),
                fallback: selection.fallback.clone(),
                chunks: plan.chunks_of(id).collect(),
                pages: buffer.extent().pages(buffer.page_size),
            }
        };
        let rail = |(at, of): (usize, &RailNeeds)| {
            let live = plan.live().get(at).copied().unwrap_or_default();
            RailDocument { rail: plan.rails()[at].name.clone(), needs: *of, live }
        };
        let needs = plan.needs();
        PlanDocument {
            version: VERSION,
            batch: batch.clone(),
            machine: MachineDocument::of(plan.machine(), machine),
            chunks: plan.chunk_ids().map(chunk).collect(),
            tasks: plan.tasks(),
            order: plan.order().map(|chunk| chunk.0).collect(),
            rails: needs.rails.iter().enumerate().map(rail).collect(),
            buffers: (0..).map(BufferId).zip(plan.buffers()).map(buffer).collect(),
            shared_out: plan.shared_out().map(ToString::to_string),
            needs: NeedsDocument {
                pinned_bytes: needs.pinned_bytes,
                mrs: needs.mrs,
                pages: needs.pages,
                foreign_bytes: needs.foreign_bytes,
                memlock: MemlockDocument { need: needs.memlock_bytes, have: memlock.have_bytes, counts: plan.memlock_counts() },
            },
            limits: LimitsDocument::of(plan),
            policy: plan.policy().spec(),
            diff: None,
        }
    }

    /// Reads a plan; whether it is one that its own batch, machine and policy lead to is for [`PlanDocument::plan`] to say.
    ///
    /// # Errors
    /// [`PlanFileError::Syntax`], [`PlanFileError::Version`].
    pub fn from_json(text: &str) -> Result<PlanDocument, PlanFileError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: Option<Value>,
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let syntax = |error: serde_json::Error| PlanFileError::Syntax { message: error.to_string() };
        // The version is looked at first, so that a later format is not called misspelt.
        let Versioned { version } = serde_json::from_str(text).map_err(syntax)?;
        match version {
            Some(version) if version == VERSION => serde_json::from_str(text).map_err(syntax),
            Some(version) => Err(PlanFileError::Version { found: format!("it is of version {version}") }),
            None => Err(PlanFileError::Version { found: "it names no version".to_owned() }),
        }
    }

    /// The document as JSON.
    #[must_use]
    pub fn to_json_value(&self) -> Value {
        serde_json::to_value(self).expect("plain data has a text")
    }

    /// The batch it was made from.
    #[must_use]
    pub fn batch(&self) -> &BatchSpec {
        &self.batch
    }

    /// The machine it was made for, as it described itself.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine.file
    }

    /// What it registers on a machine's rails, together with what was live beside it: what
    /// [`Plan::beside`] takes. Rails are the same by name.
    #[must_use]
    pub fn used_on(&self, machine: &Machine) -> Vec<RailNeeds> {
        let used = |rail: &pinrail_core::Rail| self.rails.iter().find(|of| of.rail == rail.name);
        machine.rails.iter().map(|rail| used(rail).map_or_else(RailNeeds::default, |of| of.needs.plus(of.live))).collect()
    }

    /// The plan over these buffers, which are those of its [batch](PlanDocument::batch), imagined or real.
    ///
    /// # Errors
    /// [`PlanFileError`] unless planning leads to exactly this document.
    pub fn plan(&self, buffers: Vec<Buffer>) -> Result<Plan, PlanFileError> {
        let mut machine = self.machine.file.clone();
        self.batch.limit_rails(&mut machine).map_err(PlanError::Batch)?;
        let policy = Policy::new(std::num::NonZeroU32::MIN).with(&self.policy)?;
        let live: Vec<RailNeeds> = self.rails.iter().map(|rail| rail.live).collect();
        let live = if live.iter().all(|live| *live == RailNeeds::default()) { &[][..] } else { &live[..] };
        let plan = Plan::beside(buffers, &machine, &policy, live)?;
        let have_bytes = self.needs.memlock.have;
        let mut anew = PlanDocument::of(&plan, &self.batch, &self.machine.file, MemlockSeen { have_bytes });
        anew.diff.clone_from(&self.diff);
        if anew == *self {
            return Ok(plan);
        }
        let first = anew.changes_since(self).into_iter().next();
        let what = first.map_or_else(|| "in what it says of itself".to_owned(), |change| change.to_string());
        Err(PlanFileError::Changed { what })
    }

    /// The same with what has changed since another plan, for whoever reads it.
    #[must_use]
    pub fn with_diff(self, changes: Vec<Change>) -> PlanDocument {
        PlanDocument { diff: Some(changes), ..self }
    }
}

impl Plan {
    /// Whose memlock budget the plan's pins count against: `process`, `user`, `unknown` (until a backend says so), several
    /// of them joined by ` and `, or `nothing` where nothing is pinned.
    #[must_use]
    pub fn memlock_counts(&self) -> String {
        let needs = self.needs();
        let known_bytes = needs.memlock_process_bytes.saturating_add(needs.memlock_user_bytes);
        let whose = [
            ("process", needs.memlock_process_bytes > 0),
            ("user", needs.memlock_user_bytes > 0),
            ("unknown", needs.memlock_bytes > known_bytes),
        ];
        let whose: Vec<&str> = whose.into_iter().filter(|(_, counts)| *counts).map(|(whose, _)| whose).collect();
        if whose.is_empty() { "nothing".to_owned() } else { whose.join(" and ") }
    }
}

impl MachineDocument {
    fn of(limited: &Machine, file: &Machine) -> MachineDocument {
        let seen = |(rail, advertised): (&pinrail_core::Rail, &pinrail_core::Rail)| RailSeen {
            name: rail.name.clone(),
            pci: rail.pci.map(|pci| pci.to_string()),
            node: rail.node.map(|node| node.0),
            mbps: rail.mbps,
            limits: RailLimitsDocument::of(rail.limits),
            advertised: RailLimitsDocument::of(advertised.limits),
            calls_in_parallel: Some(rail.calls_in_parallel.get()).filter(|calls| *calls < u32::MAX),
        };
        MachineDocument {
            rails: limited.rails.iter().zip(&file.rails).map(seen).collect(),
            mbps: limited.mbps(&limited.usable().collect::<Vec<_>>()),
            file: file.clone(),
        }
    }
}

impl RailLimitsDocument {
    fn of(limits: RailLimits) -> RailLimitsDocument {
        let RailLimits { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes } = limits;
        RailLimitsDocument { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes }
    }

    fn limits(self) -> RailLimits {
        let RailLimitsDocument { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes } = self;
        RailLimits { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes }
    }
}

impl LimitsDocument {
    fn of(plan: &Plan) -> LimitsDocument {
        let controlled = match plan.policy().concurrency.begin(&plan.shape(Kind::Register)) {
            Control::Fixed(limits) => limits,
            Control::Adaptive(controller) => controller.limits(),
        };
        let limits = plan.policy().ceiling().least(controlled);
        let shown = |limit: std::num::NonZeroU32| Some(limit.get()).filter(|_| limit != Limits::NONE.total);
        LimitsDocument {
            total: shown(limits.total),
            prepare: shown(limits.prepare),
            register: shown(limits.register),
            deregister: shown(limits.deregister),
            per_rail: shown(limits.per_rail),
        }
    }
}

/// The batch file, every default written.
mod batch {
    use super::*;

    pub(super) fn serialize<S: serde::Serializer>(batch: &BatchSpec, to: S) -> Result<S::Ok, S::Error> {
        batch.to_json_value().serialize(to)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BatchSpec, D::Error> {
        let value = Value::deserialize(from)?;
        BatchSpec::from_json(&value.to_string()).map_err(serde::de::Error::custom)
    }
}

/// The machine file.
mod machine {
    use super::*;

    pub(super) fn serialize<S: serde::Serializer>(machine: &Machine, to: S) -> Result<S::Ok, S::Error> {
        machine.to_json_value().serialize(to)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Machine, D::Error> {
        Machine::from_json_value(Value::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

//! What has changed between two plans.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{BufferDocument, ChunkDocument, LimitsDocument, PlanDocument};

/// One thing that is otherwise in the later of two plans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// What it is.
    pub what: What,
    /// Whose: a buffer, a rail, a limit by name.
    pub of: Option<String>,
    /// As it was; null where it was not there.
    pub before: Value,
    /// As it is; null where it is no more.
    pub after: Value,
}

/// What can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum What {
    /// Terms of the policy.
    Policy,
    /// A buffer of the batch, as the batch file has it.
    Buffer,
    /// A rail or GPU of the machine, as the machine file has it but for its limits.
    Machine,
    /// A limit: `RAIL NAME` for what a rail can hold, `NAME` for what may be in flight.
    Limit,
    /// The rails of a buffer.
    Rails,
    /// Where a buffer is cut: offset and length of its chunks in its allocation.
    Seams,
    /// The order in which chunks are registered: `BUFFER@OFFSET`, those that both plans have.
    Order,
    /// What is needed: `RAIL NAME`, or `NAME` for all rails together.
    Need,
}

impl What {
    /// Its name in a document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            What::Policy => "policy",
            What::Buffer => "buffer",
            What::Machine => "machine",
            What::Limit => "limit",
            What::Rails => "rails",
            What::Seams => "seams",
            What::Order => "order",
            What::Need => "need",
        }
    }
}

impl PlanDocument {
    /// What is otherwise here than in an earlier plan, causes before what follows from them. Buffers and rails are the same
    /// by name.
    #[must_use]
    pub fn changes_since(&self, earlier: &PlanDocument) -> Vec<Change> {
        let (before, after) = (Parts::of(earlier), Parts::of(self));
        let mut changes = Vec::new();
        terms(&earlier.policy, &self.policy, &mut changes);
        for (what, before, after) in [
            (What::Buffer, &before.batch, &after.batch),
            (What::Machine, &before.machine, &after.machine),
            (What::Limit, &before.limits, &after.limits),
            (What::Rails, &before.rails, &after.rails),
            (What::Seams, &before.seams, &after.seams),
        ] {
            compare(what, before, after, &mut changes);
        }
        let both: BTreeSet<&String> = before.order.iter().filter(|chunk| after.chunks.contains(*chunk)).collect();
        let order = |order: &[String]| order.iter().filter(|chunk| both.contains(chunk)).cloned().collect::<Vec<_>>();
        let (was, is) = (order(&before.order), order(&after.order));
        if was != is {
            changes.push(Change { what: What::Order, of: None, before: json!(was), after: json!(is) });
        }
        compare(What::Need, &before.needs, &after.needs, &mut changes);
        changes
    }
}

/// What a plan is compared by. A buffer that is only in one of two plans is one change, so its rails and seams are not
/// compared.
struct Parts {
    batch: BTreeMap<String, Value>,
    machine: BTreeMap<String, Value>,
    limits: BTreeMap<String, Value>,
    rails: BTreeMap<String, Value>,
    seams: BTreeMap<String, Value>,
    order: Vec<String>,
    chunks: BTreeSet<String>,
    needs: BTreeMap<String, Value>,
}

impl Parts {
    fn of(document: &PlanDocument) -> Parts {
        let chunk_of = |id: u32| document.chunks.get(id as usize);
        let named = |chunk: &ChunkDocument| {
            let buffer = chunk.buffers.first().map_or("", String::as_str);
            format!("{buffer}@{:#x}", chunk.offset)
        };
        let order: Vec<String> = document.order.iter().filter_map(|&id| chunk_of(id)).map(named).collect();
        let seams = |buffer: &BufferDocument| {
            let chunks = buffer.chunks.iter().filter_map(|&id| chunk_of(id));
            json!(chunks.map(|chunk| [chunk.offset, chunk.len]).collect::<Vec<_>>())
        };
        let mut limits = BTreeMap::new();
        for rail in &document.machine.rails {
            let of_rail = rail.limits.limits().named();
            limits.extend(of_rail.map(|(name, value)| (format!("{} {name}", rail.name), json!(value))));
        }
        let LimitsDocument { total, prepare, register, deregister, per_rail } = document.limits;
        for (name, value) in
            [("total", total), ("prepare", prepare), ("register", register), ("deregister", deregister), ("per_rail", per_rail)]
        {
            limits.insert(format!("{name} in flight"), json!(value));
        }
        let mut needs = BTreeMap::new();
        for rail in &document.rails {
            for (name, value) in
                [("registrations", rail.needs.mrs), ("bytes", rail.needs.bytes), ("page entries", rail.needs.pages)]
            {
                needs.insert(format!("{} {name}", rail.rail), json!(value));
            }
        }
        let all = &document.needs;
        for (name, value) in
            [("pinned bytes", all.pinned_bytes), ("foreign bytes", all.foreign_bytes), ("memlock bytes", all.memlock.need)]
        {
            needs.insert(name.to_owned(), json!(value));
        }
        let by_buffer = |of: &dyn Fn(&BufferDocument) -> Value| {
            document.buffers.iter().map(|buffer| (buffer.buffer.clone(), of(buffer))).collect::<BTreeMap<_, _>>()
        };
        Parts {
            batch: by_name(document.batch.to_json_value()["buffers"].take(), "name"),
            machine: machine(document),
            limits,
            rails: by_buffer(&|buffer| json!(buffer.rails)),
            seams: by_buffer(&seams),
            chunks: order.iter().cloned().collect(),
            order,
            needs,
        }
    }
}

/// Rails and GPUs by name, without the limits, which are compared as they hold.
fn machine(document: &PlanDocument) -> BTreeMap<String, Value> {
    let mut file = document.machine.file.to_json_value();
    let mut devices = by_name(file["rail"].take(), "name");
    for rail in devices.values_mut().filter_map(Value::as_object_mut) {
        rail.retain(|key, _| !key.starts_with("max_"));
    }
    devices.extend(by_name(file["gpu"].take(), "pci"));
    devices
}

fn by_name(list: Value, key: &str) -> BTreeMap<String, Value> {
    let Value::Array(list) = list else { return BTreeMap::new() };
    list.into_iter().map(|of| (of[key].as_str().unwrap_or_default().to_owned(), of)).collect()
}

fn terms(before: &str, after: &str, changes: &mut Vec<Change>) {
    let of = |spec: &str, other: &str| {
        let other: BTreeSet<&str> = other.split('+').collect();
        spec.split('+').filter(|term| !other.contains(term)).collect::<Vec<_>>().join("+")
    };
    let (was, is) = (of(before, after), of(after, before));
    if was != is {
        changes.push(Change { what: What::Policy, of: None, before: json!(was), after: json!(is) });
    }
}

fn compare(what: What, before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>, changes: &mut Vec<Change>) {
    // What hangs on a buffer or a rail that only one plan has goes without saying.
    let one_side_says_it = matches!(what, What::Rails | What::Seams);
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (was, is) = (before.get(name), after.get(name));
        if one_side_says_it && (was.is_none() || is.is_none()) {
            continue;
        }
        let (before, after) = (was.cloned().unwrap_or_default(), is.cloned().unwrap_or_default());
        if before != after {
            changes.push(Change { what, of: Some(name.clone()), before, after });
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.of.as_ref().map_or_else(String::new, |of| format!(" {of}"));
        write!(f, "{}{of}: {}", self.what.as_str(), self.difference())
    }
}

impl Change {
    /// Before and after for a person, without whose they are.
    #[must_use]
    pub fn difference(&self) -> String {
        let (before, after) = (&self.before, &self.after);
        match (self.what, before, after) {
            (What::Buffer | What::Machine, Value::Null, _) => "new".to_owned(),
            (What::Buffer | What::Machine, _, Value::Null) => "gone".to_owned(),
            (What::Buffer | What::Machine, Value::Object(before), Value::Object(after)) => {
                let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
                let shown = |value: Option<&Value>| value.map_or_else(|| "none".to_owned(), plain);
                let differs = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
                let each = differs.map(|key| format!("{key} {} → {}", shown(before.get(key)), shown(after.get(key))));
                each.collect::<Vec<_>>().join(", ")
            }
            (What::Seams, Value::Array(before), Value::Array(after)) => format!("{} → {}", pieces(before), pieces(after)),
            (What::Order, Value::Array(before), Value::Array(after)) => {
                let moved = before.iter().zip(after).filter(|(before, after)| before != after).count();
                let first = before.iter().zip(after).find(|(before, after)| before != after);
                let first =
                    first.map_or_else(String::new, |(before, after)| format!(", first {} → {}", plain(before), plain(after)));
                format!("{moved} of {} chunks have another place{first}", before.len())
            }
            _ => format!("{} → {}", plain(before), plain(after)),
        }
    }
}

/// `3 chunks of at most 1 GiB`.
fn pieces(chunks: &[Value]) -> String {
    let longest = chunks.iter().filter_map(|chunk| chunk[1].as_u64()).max().unwrap_or(0);
    let longest = pinrail_core::size::Bytes(longest);
    match chunks {
        [one] => format!("1 chunk of {longest} at {:#x}", one[0].as_u64().unwrap_or(0)),
        several => format!("{} chunks of at most {longest}", several.len()),
    }
}

fn plain(value: &Value) -> String {
    const SHOWN: usize = 8;
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let shown: Vec<String> = list.iter().take(SHOWN).map(plain).collect();
            let hidden = if list.len() > SHOWN { format!(" … ({} in all)", list.len()) } else { String::new() };
            format!("{}{hidden}", shown.join(" "))
        }
        other => other.to_string(),
    }
}

use pinrail_core::batch::BatchSpec;
use pinrail_core::{BufferId, Kind, Limits, Rail, RailId};
use pinrail_policy::Control;
use serde_json::{Value, json};

use crate::{Needs, Plan};

/// What the host has of memlock, as the caller found it; a plan itself touches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemlockSeen {
    /// Bytes this process may lock; `None` is without limit.
    pub have_bytes: Option<u64>,
}

impl Plan {
    /// The plan as a JSON document: `batch` is what it was made from.
    #[must_use]
    pub fn to_json_value(&self, batch: &BatchSpec, memlock: MemlockSeen) -> Value {
        let names =
            |rails: &[RailId]| -> Vec<&str> { rails.iter().map(|rail| self.rails()[rail.index()].name.as_str()).collect() };
        let chunks: Vec<Value> = self
            .chunk_ids()
            .map(|id| {
                let chunk = &self.chunks()[id.index()];
                let members: Vec<&str> = self.buffers_of(id).iter().map(|member| &*self.buffers()[member.index()].name).collect();
                json!({"id": id.0, "buffers": members, "offset": chunk.range.start, "len": chunk.len(), "pages": chunk.pages,
                       "rails": names(self.rails_of(id))})
            })
            .collect();
        let buffers: Vec<Value> = (0..)
            .map(BufferId)
            .zip(self.buffers())
            .map(|(id, buffer)| {
                let selection = self.selection(id);
                json!({"buffer": &*buffer.name, "rails": names(&selection.rails), "path": selection.path.map(|path| path.as_str()),
                       "mbps": self.machine().mbps(&selection.rails), "why": selection.why, "fallback": selection.fallback,
                       "chunks": self.chunks_of(id).collect::<Vec<u32>>()})
            })
            .collect();
        let needs = self.needs();
        let rails: Vec<Value> = self
            .rails()
            .iter()
            .zip(&needs.rails)
            .enumerate()
            .map(|(at, (rail, of))| {
                let live = self.live().get(at).copied().unwrap_or_default();
                json!({"rail": rail.name, "mrs": of.mrs, "bytes": of.bytes, "pages": of.pages,
                       "live": {"mrs": live.mrs, "pages": live.pages}})
            })
            .collect();
        json!({
            "version": 1,
            "batch": batch.to_json_value(),
            "machine": {"rails": self.rails().iter().map(rail_json).collect::<Vec<_>>(),
                        "mbps": self.machine().mbps(&self.machine().usable().collect::<Vec<_>>())},
            "chunks": chunks,
            "tasks": self.tasks(),
            "order": self.order().map(|chunk| chunk.0).collect::<Vec<u32>>(),
            "rails": rails,
            "buffers": buffers,
            "needs": {"pinned_bytes": needs.pinned_bytes, "mrs": needs.mrs, "pages": needs.pages, "foreign_bytes": needs.foreign_bytes,
                      "memlock": {"need": needs.pinned_bytes, "have": memlock.have_bytes, "counts": self.memlock_counts()}},
            "limits": self.limits_json(),
            "policy": self.policy().spec(),
        })
    }

    /// Whose memlock budget the plan's pins count against: `process`, `user`, `unknown` (until a backend says so), several
    /// of them joined by ` and `, or `nothing` where nothing is pinned.
    #[must_use]
    pub fn memlock_counts(&self) -> String {
        let Needs { pinned_bytes, memlock_process_bytes, memlock_user_bytes, .. } = *self.needs();
        let known_bytes = memlock_process_bytes.saturating_add(memlock_user_bytes);
        let whose =
            [("process", memlock_process_bytes > 0), ("user", memlock_user_bytes > 0), ("unknown", pinned_bytes > known_bytes)];
        let whose: Vec<&str> = whose.into_iter().filter(|(_, counts)| *counts).map(|(whose, _)| whose).collect();
        if whose.is_empty() { "nothing".to_owned() } else { whose.join(" and ") }
    }

    fn limits_json(&self) -> Value {
        let controlled = match self.policy().concurrency.begin(&self.shape(Kind::Register)) {
            Control::Fixed(limits) => limits,
            Control::Adaptive(controller) => controller.limits(),
        };
        let limits = self.policy().ceiling().least(controlled);
        let shown = |limit: std::num::NonZeroU32| if limit == Limits::NONE.total { Value::Null } else { json!(limit) };
        json!({"total": shown(limits.total), "prepare": shown(limits.prepare), "register": shown(limits.register),
               "deregister": shown(limits.deregister), "per_rail": shown(limits.per_rail)})
    }
}

fn rail_json(rail: &Rail) -> Value {
    let lanes = (rail.calls_in_parallel < std::num::NonZeroU32::MAX).then_some(rail.calls_in_parallel);
    json!({"name": rail.name, "pci": rail.pci.map(|pci| pci.to_string()), "node": rail.node.map(|node| node.0), "mbps": rail.mbps,
           "limits": {"max_mr_size": rail.limits.max_mr_size, "max_mrs": rail.limits.max_mrs, "max_pages": rail.limits.max_pages},
           "calls_in_parallel": lanes})
}

//! A plan: what it needs, and by rail and by buffer what would be registered, and why.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pinrail_core::size::{Bytes, Mbps};
use pinrail_core::{BufferId, Rail, RailId};
use pinrail_plan::{Plan, RailNeeds};
use serde_json::Value;

use super::table::{self, Side};
use super::{Document, count, names};
use crate::plan::Planned;

impl Document for Planned {
    fn json(&self) -> Value {
        self.plan.to_json_value(&self.batch, self.memlock)
    }

    fn human(&self, to: &mut dyn Write, width: usize) -> io::Result<()> {
        let Planned { plan, memlock, .. } = self;
        let needs = plan.needs();
        let bytes = plan.buffers().iter().fold(0u64, |sum, buffer| sum.saturating_add(buffer.len()));
        let (buffers, chunks) = (count(plan.buffers().len(), "buffer"), count(plan.chunks().len(), "chunk"));
        writeln!(
            to,
            "{} on {}: {buffers} of {}, {chunks}",
            registrations(plan),
            count(plan.rails().len(), "rail"),
            Bytes(bytes)
        )?;
        writeln!(to, "policy   {}", plan.policy())?;
        writeln!(to, "pinned   {} in {} page entries", Bytes(needs.pinned_bytes), needs.pages)?;
        let have = memlock.have_bytes.map_or_else(|| "unlimited".to_owned(), |bytes| Bytes(bytes).to_string());
        writeln!(to, "memlock  need {}, have {have}; {}", Bytes(needs.pinned_bytes), counted(plan))?;

        writeln!(to)?;
        let rail = |(rail, of): (&Rail, &RailNeeds)| {
            [rail.name.clone(), of.mrs.to_string(), Bytes(of.bytes).to_string(), of.pages.to_string()]
        };
        let columns =
            [("rail", Side::Left), ("registrations", Side::Right), ("bytes", Side::Right), ("page entries", Side::Right)];
        table::write(to, width, columns, plan.rails().iter().zip(&needs.rails).map(rail))?;

        writeln!(to)?;
        let columns = [("buffers", Side::Left), ("each", Side::Right), ("chunks", Side::Right), ("rails", Side::Left)];
        let groups = grouped(plan, |id| Some(kind(plan, id)));
        table::write(to, width, columns, groups.into_iter().map(|group| row(plan, group)))?;
        for group in grouped(plan, |id| plan.selection(id).fallback.as_deref()) {
            // A fallback is never silent: each is said once, with the buffers that met it.
            let fallback = plan.selection(group.0).fallback.as_deref().unwrap_or_default();
            table::paragraph(to, width, 10, &format!("fallback for {}: {fallback}", called(plan, group)))?;
        }
        Ok(())
    }
}

fn registrations(plan: &Plan) -> String {
    count(usize::try_from(plan.tasks()).unwrap_or(usize::MAX), "registration")
}

/// Whose memlock budget the pins count against.
fn counted(plan: &Plan) -> String {
    match plan.memlock_counts().as_str() {
        "nothing" => "nothing is pinned".to_owned(),
        "unknown" => "the backend says whose budget it is".to_owned(),
        whose => format!("counted by {whose}"),
    }
}

/// Buffers that are planned alike: the first of them, and how many others.
type Group = (BufferId, usize);

/// Groups the buffers that have a key by it, in the caller's order of each group's first.
fn grouped<K: Ord>(plan: &Plan, key: impl Fn(BufferId) -> Option<K>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places = BTreeMap::new();
    for id in (0..).map(BufferId).take(plan.buffers().len()) {
        let Some(key) = key(id) else { continue };
        let fresh = groups.len();
        match groups.get_mut(*places.entry(key).or_insert(fresh)) {
            Some((_, others)) => *others += 1,
            None => groups.push((id, 0)),
        }
    }
    groups
}

/// What tells buffers apart in a plan that is looked at.
fn kind(plan: &Plan, id: BufferId) -> impl Ord {
    let (buffer, selection) = (&plan.buffers()[id.index()], plan.selection(id));
    (buffer.len(), buffer.place, plan.chunks_of(id).len(), &selection.rails, &selection.why)
}

fn row(plan: &Plan, group: Group) -> [String; 4] {
    let (first, _) = group;
    let (buffer, selection) = (&plan.buffers()[first.index()], plan.selection(first));
    // What fewer rails cost: the bandwidth in reach, beside that of all of them.
    let whole: Vec<RailId> = plan.machine().usable().collect();
    let all = plan.machine().mbps(&whole).map_or_else(String::new, |mbps| format!(" of {}", Mbps(mbps)));
    let speed = plan.machine().mbps(&selection.rails).map_or_else(String::new, |mbps| format!(", {}{all}", Mbps(mbps)));
    [
        format!("{} ({})", called(plan, group), buffer.place),
        Bytes(buffer.len()).to_string(),
        plan.chunks_of(first).len().to_string(),
        format!("{}: {}{speed}", names(plan.rails(), &selection.rails), selection.why),
    ]
}

fn called(plan: &Plan, (first, others): Group) -> String {
    let name = &plan.buffers()[first.index()].name;
    if others == 0 { name.to_string() } else { format!("{name} and {others} more") }
}

//! A plan: what it needs, and by rail and by buffer what would be registered, and why.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pinrail_core::size::{Bytes, Mbps};
use pinrail_core::{BufferId, Rail, RailId, RailLimits};
use pinrail_plan::{Budget, Change, Plan, RailNeeds};
use serde_json::Value;

use super::table::{self, Side};
use super::{Document, count, names};
use crate::plan::Planned;

impl Document for Planned {
    fn json(&self) -> Value {
        let document = self.document();
        match &self.since {
            Some((_, changes)) => document.with_diff(changes.clone()).to_json_value(),
            None => document.to_json_value(),
        }
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
        if needs.foreign_bytes > 0 {
            let foreign = format!("foreign  {} become reachable that no buffer asked for", Bytes(needs.foreign_bytes));
            table::paragraph(to, width, HEADING, &foreign)?;
        }
        let have = memlock.have_bytes.map_or_else(|| "unlimited".to_owned(), |bytes| Bytes(bytes).to_string());
        writeln!(to, "memlock  need {}, have {have}; {}", Bytes(needs.memlock_bytes), counted(plan))?;
        for limits in limits(plan.rails(), &self.advertised.rails) {
            table::paragraph(to, width, HEADING, &format!("limits   {limits}"))?;
        }
        if let Some(over) = plan.shared_out() {
            table::paragraph(to, width, HEADING, &format!("shares   each chunk on one rail, as not all fit: {over}"))?;
        }

        writeln!(to)?;
        let rail = |(at, (rail, of)): (usize, (&Rail, &RailNeeds))| {
            let live = plan.live().get(at).copied().unwrap_or_default();
            let [mrs, bytes, pages] = [Budget::Mrs, Budget::Bytes, Budget::Pages].map(|budget| used(budget, rail, of, &live));
            [rail.name.clone(), mrs, bytes, pages]
        };
        let columns =
            [("rail", Side::Left), ("registrations", Side::Right), ("bytes", Side::Right), ("page entries", Side::Right)];
        table::write(to, width, columns, plan.rails().iter().zip(&needs.rails).enumerate().map(rail))?;

        writeln!(to)?;
        let columns = [
            ("buffers", Side::Left),
            ("each", Side::Right),
            ("chunks", Side::Right),
            ("pages", Side::Right),
            ("rails", Side::Left),
        ];
        let groups = grouped(plan, |id| Some(kind(plan, id)));
        table::write(to, width, columns, groups.into_iter().map(|group| row(plan, group)))?;
        for group in grouped(plan, |id| plan.selection(id).fallback.as_deref()) {
            // A fallback is never silent: each is said once, with the buffers that met it.
            let fallback = plan.selection(group.0).fallback.as_deref().unwrap_or_default();
            table::paragraph(to, width, 10, &format!("fallback for {}: {fallback}", called(plan, group)))?;
        }
        match &self.since {
            Some((path, changes)) => since(to, width, &path.display().to_string(), changes),
            None => Ok(()),
        }
    }
}

/// Characters of a line's heading.
const HEADING: usize = 9;

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

/// The limits in force, each beside what the rail itself says where that is otherwise, for rails that have any.
fn limits(rails: &[Rail], advertised: &[Rail]) -> Vec<String> {
    let mut alike: Vec<((RailLimits, RailLimits), Vec<RailId>)> = Vec::new();
    for ((rail, own), id) in rails.iter().zip(advertised).zip((0..).map(RailId)) {
        let both = (rail.limits, own.limits);
        match alike.iter_mut().find(|(limits, _)| *limits == both) {
            Some((_, of)) => of.push(id),
            None => alike.push((both, vec![id])),
        }
    }
    let shown = |((held, own), of): ((RailLimits, RailLimits), Vec<RailId>)| {
        let each = held.named().into_iter().zip(own.named()).filter_map(|((name, held), (_, own))| {
            let value = |value: u64| {
                if matches!(name, "max_mr_size" | "max_bytes") { Bytes(value).to_string() } else { value.to_string() }
            };
            let beside = match own {
                Some(advertised) if own != held => format!(" (advertised {})", value(advertised)),
                _ => String::new(),
            };
            Some(format!("{name} {}{beside}", value(held?)))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("{}: {}", names(rails, &of), each.join(", ")))
    };
    alike.into_iter().filter_map(shown).collect()
}

/// What is needed of a budget, and of how much where there is a limit.
fn used(budget: Budget, rail: &Rail, of: &RailNeeds, live: &RailNeeds) -> String {
    let shown = |n: u64| if budget == Budget::Bytes { Bytes(n).to_string() } else { n.to_string() };
    let limit = budget.limit(&rail.limits).map_or_else(String::new, |limit| format!(" of {}", shown(limit)));
    let live = if budget.of(live) == 0 { String::new() } else { format!(" beside {}", shown(budget.of(live))) };
    format!("{}{live}{limit}", shown(budget.of(of)))
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
    (buffer.len(), buffer.place, plan.chunks_of(id).len(), plan.rails_of_buffer(id), &selection.why)
}

fn row(plan: &Plan, group: Group) -> [String; 5] {
    let (first, _) = group;
    let (buffer, selection, rails) = (&plan.buffers()[first.index()], plan.selection(first), plan.rails_of_buffer(first));
    // What fewer rails cost: the bandwidth in reach, beside that of all of them.
    let whole: Vec<RailId> = plan.machine().usable().collect();
    let all = plan.machine().mbps(&whole).map_or_else(String::new, |mbps| format!(" of {}", Mbps(mbps)));
    let speed = plan.machine().mbps(&rails).map_or_else(String::new, |mbps| format!(", {}{all}", Mbps(mbps)));
    [
        format!("{} ({})", called(plan, group), buffer.place),
        Bytes(buffer.len()).to_string(),
        chunks(plan, first),
        buffer.extent().pages(buffer.page_size).to_string(),
        format!("{}: {}{speed}", names(plan.rails(), &rails), selection.why),
    ]
}

/// How many pieces a buffer is registered in, and how long they are where it is cut.
fn chunks(plan: &Plan, id: BufferId) -> String {
    let of = plan.chunks_of(id);
    let longest = of.clone().map(|chunk| plan.chunks()[chunk as usize].len()).max().unwrap_or(0);
    if of.len() == 1 { "1".to_owned() } else { format!("{} of up to {}", of.len(), Bytes(longest)) }
}

fn called(plan: &Plan, (first, others): Group) -> String {
    let name = &plan.buffers()[first.index()].name;
    and_more(name, others)
}

fn and_more(name: &str, others: usize) -> String {
    if others == 0 { name.to_owned() } else { format!("{name} and {others} more") }
}

/// What has changed since an earlier plan; the same change of several is one row.
fn since(to: &mut dyn Write, width: usize, file: &str, changes: &[Change]) -> io::Result<()> {
    if changes.is_empty() {
        return writeln!(to, "\nno change since {file}");
    }
    writeln!(to, "\n{} since {file}", count(changes.len(), "change"))?;
    let mut rows: Vec<(&Change, String, usize)> = Vec::new();
    let mut places = BTreeMap::new();
    for change in changes {
        let (difference, fresh) = (change.difference(), rows.len());
        match rows.get_mut(*places.entry((change.what, difference.clone())).or_insert(fresh)) {
            Some((.., others)) => *others += 1,
            None => rows.push((change, difference, 0)),
        }
    }
    let row = |(change, difference, others): (&Change, String, usize)| {
        let of = change.of.as_deref().map_or_else(String::new, |of| and_more(of, others));
        [change.what.as_str().to_owned(), of, difference]
    };
    table::write(to, width, [("what", Side::Left), ("of", Side::Left), ("change", Side::Left)], rows.into_iter().map(row))
}

//! A machine: how near its devices are to each other, and which rails memory gets.

use std::io::{self, Write};

use pinrail_core::size::Mbps;
use pinrail_core::{Machine, Rail, RailId, RailState};
use serde_json::{Value, json};

use super::Document;
use super::table::{self, Side};
use crate::topo::{Near, Topo};

impl Document for Topo {
    fn json(&self) -> Value {
        let machine = &self.machine;
        let rails: Vec<Value> = machine.rails.iter().map(rail).collect();
        let gpu = |((pci, near), gpu): (&(_, Near), &pinrail_core::Gpu)| {
            let mut shown = chosen(machine, near);
            (shown["pci"], shown["node"]) = (json!(pinrail_core::PciAddress::to_string(pci)), json!(gpu.node.map(|node| node.0)));
            shown
        };
        let gpus: Vec<Value> = self.gpus.iter().zip(&machine.gpus).map(gpu).collect();
        let node = |(node, near): &(pinrail_core::NodeId, Near)| {
            let mut shown = chosen(machine, near);
            shown["node"] = json!(node.0);
            shown
        };
        let nodes: Vec<Value> = self.nodes.iter().map(node).collect();
        let mut whole = json!({"rails": rails, "gpus": gpus, "nodes": nodes, "notes": machine.notes});
        if let Some(toml) = &self.saved {
            whole["toml"] = json!(toml);
        }
        whole
    }

    fn human(&self, to: &mut dyn Write, width: usize) -> io::Result<()> {
        if let Some(toml) = &self.saved {
            return to.write_all(toml.as_bytes());
        }
        let machine = &self.machine;
        write!(to, "{}", pinrail_topology::matrix(machine, width))?;
        let gpus = self.gpus.iter().map(|(pci, near)| row(machine, format!("GPU {pci}"), near));
        let nodes = self.nodes.iter().map(|(node, near)| row(machine, format!("host memory on {node}"), near));
        let rows: Vec<[String; 4]> = gpus.chain(nodes).collect();
        if !rows.is_empty() {
            writeln!(to)?;
            let columns = [("memory", Side::Left), ("path", Side::Left), ("reach", Side::Right), ("rails", Side::Left)];
            table::write(to, width, columns, rows.into_iter())?;
        }
        let whole: Vec<RailId> = machine.usable().collect();
        if let Some(mbps) = machine.mbps(&whole).filter(|mbps| *mbps > 0) {
            writeln!(to, "  all usable rails together reach {}", Mbps(mbps))?;
        }
        let of_gpus = self.gpus.iter().map(|(pci, near)| (format!("GPU {pci}"), near));
        let of_nodes = self.nodes.iter().map(|(node, near)| (format!("host memory on {node}"), near));
        for (memory, near) in of_gpus.chain(of_nodes) {
            let fallback = near.as_ref().map_or_else(|why| Some(why.as_str()), |selection| selection.fallback.as_deref());
            if let Some(fallback) = fallback {
                table::paragraph(to, width, 10, &format!("fallback for {memory}: {fallback}"))?;
            }
        }
        machine.notes.iter().try_for_each(|note| table::paragraph(to, width, 6, &format!("note: {note}")))
    }
}

fn rail(rail: &Rail) -> Value {
    let state = match rail.state {
        RailState::Up => "up",
        RailState::Down => "down",
        RailState::Unknown => "unknown",
    };
    json!({"name": rail.name, "pci": rail.pci.map(|pci| pci.to_string()), "node": rail.node.map(|node| node.0), "mbps": rail.mbps,
           "state": state})
}

/// The rails by name, how near they are, what they reach together, and what could not be had.
fn chosen(machine: &Machine, near: &Near) -> Value {
    match near {
        Ok(selection) => {
            let names: Vec<&str> = selection.rails.iter().map(|rail| machine.rails[rail.index()].name.as_str()).collect();
            json!({"rails": names, "path": selection.path.map(|path| path.as_str()), "mbps": machine.mbps(&selection.rails),
                   "fallback": selection.fallback})
        }
        Err(why) => json!({"rails": [], "path": null, "mbps": null, "fallback": why}),
    }
}

fn row(machine: &Machine, memory: String, near: &Near) -> [String; 4] {
    let unknown = || "?".to_owned();
    let Ok(selection) = near else { return [memory, unknown(), unknown(), "none".to_owned()] };
    let path = selection.path.map_or_else(unknown, |path| path.as_str().to_owned());
    let reach = machine.mbps(&selection.rails).map_or_else(unknown, |mbps| Mbps(mbps).to_string());
    [memory, path, reach, super::names(&machine.rails, &selection.rails)]
}

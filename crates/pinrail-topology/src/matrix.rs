use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use pinrail_core::size::Mbps;
use pinrail_core::{Attachment, Machine, NodeId, PathClass, Rail, RailState};

/// The path classes between a machine's devices as `nvidia-smi topo -m` draws them, with a legend, on lines of at most
/// `columns` characters.
///
/// Neighbouring rails that are equally far from every other device are one row. There is a column for each GPU, and one
/// for each row of rails where they fit too; GPUs that do not fit beside each other are drawn in several blocks. The
/// numbers are of this drawing alone: a device is known by its PCI address, which the legend gives.
///
/// Ends with a newline, and is empty for a machine without devices.
#[must_use]
pub fn matrix(machine: &Machine, columns: usize) -> String {
    let rows = rows(machine);
    let gpus = machine.gpus.len();
    let label = rows.iter().map(|row| row.label.len()).max().unwrap_or(0);
    let widths: Vec<usize> = rows.iter().map(|row| row.label.len().max(4) + 2).collect();
    let (all, room): (usize, usize) = (widths.iter().sum(), columns.saturating_sub(label + NODE.len()));
    let drawn = if gpus == 0 || all <= room { rows.len() } else { gpus };
    let mut text = String::new();
    for block in blocks(&widths[..drawn], room) {
        draw(&mut text, machine, &rows, label, &widths, block);
        text.push('\n');
    }
    names(&mut text, machine, &rows, label, columns);
    text.push_str(if rows.is_empty() { "" } else { "\n" });
    legend(&mut text, machine, &rows);
    text
}

const NODE: &str = "  node";

/// What a cell says where no class can be.
const UNKNOWN: &str = "?";

/// A GPU, or rails that differ in nothing that the matrix shows.
struct Row<'m> {
    label: String,
    attachment: Attachment<'m>,
    /// The rails, as positions in the machine's list; empty for a GPU.
    rails: Range<usize>,
}

fn rows(machine: &Machine) -> Vec<Row<'_>> {
    let gpu = |at: usize| Row { label: format!("GPU{at}"), attachment: machine.gpus[at].attachment(), rails: 0..0 };
    let mut rows: Vec<Row> = (0..machine.gpus.len()).map(gpu).collect();
    let mut first = 0;
    for at in 1..=machine.rails.len() {
        if machine.rails.get(at).is_some_and(|rail| alike(machine, &machine.rails[first], rail)) {
            continue;
        }
        let label = if at - first == 1 { format!("NIC{first}") } else { format!("NIC{first}-{}", at - 1) };
        rows.push(Row { label, attachment: machine.rails[first].attachment(), rails: first..at });
        first = at;
    }
    rows
}

/// Whether two rails are on one node and equally far from every other device.
fn alike(machine: &Machine, a: &Rail, b: &Rail) -> bool {
    let others = machine.rails.iter().filter(|rail| rail.name != a.name && rail.name != b.name).map(Rail::attachment);
    let mut others = others.chain(machine.gpus.iter().map(|gpu| gpu.attachment()));
    let (a, b) = (a.attachment(), b.attachment());
    a.node == b.node && others.all(|other| PathClass::between(a, other) == PathClass::between(b, other))
}

/// Columns that fit beside each other, at least one in each block.
fn blocks(widths: &[usize], room: usize) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (at, width) in widths.iter().enumerate() {
        match blocks.last_mut() {
            Some(block) if used + width <= room => block.end = at + 1,
            _ => {
                blocks.push(at..at + 1);
                used = 0;
            }
        }
        used += width;
    }
    blocks
}

fn draw(text: &mut String, machine: &Machine, rows: &[Row], label: usize, widths: &[usize], block: Range<usize>) {
    pad(text, "", label);
    for column in block.clone() {
        pad_left(text, &rows[column].label, widths[column]);
    }
    text.push_str(NODE);
    text.push('\n');
    for (at, row) in rows.iter().enumerate() {
        pad(text, &row.label, label);
        for column in block.clone() {
            pad_left(text, cell(machine, rows, at, column), widths[column]);
        }
        pad_left(text, &node(row.attachment.node), NODE.len());
        text.push('\n');
    }
}

fn cell(machine: &Machine, rows: &[Row], row: usize, column: usize) -> &'static str {
    let class = match rows[row].rails.clone() {
        _ if row != column => PathClass::between(rows[row].attachment, rows[column].attachment),
        // Rails of one row are near each other in their own way.
        rails if rails.len() > 1 => {
            PathClass::between(machine.rails[rails.start].attachment(), machine.rails[rails.start + 1].attachment())
        }
        _ => return "X",
    };
    class.map_or(UNKNOWN, PathClass::as_str)
}

fn node(node: Option<NodeId>) -> String {
    node.map_or_else(|| UNKNOWN.to_owned(), |node| node.0.to_string())
}

/// What each row is: PCI addresses of GPUs; names, state and speed of rails.
fn names(text: &mut String, machine: &Machine, rows: &[Row], label: usize, columns: usize) {
    let gpus = machine.gpus.iter().map(|gpu| vec![gpu.pci.to_string()]);
    let rails = rows[machine.gpus.len()..].iter().map(|row| {
        let rails = &machine.rails[row.rails.clone()];
        let mut words: Vec<String> = rails.iter().map(|rail| format!("{}{}", rail.name, state(rail))).collect();
        words.push(speed(rails));
        words
    });
    for (row, words) in rows.iter().zip(gpus.chain(rails)) {
        pad(text, &row.label, label);
        let mut used = label;
        for word in words {
            if used > label && used + 2 + word.len() > columns {
                text.push('\n');
                pad(text, "", label);
                used = label;
            }
            text.push_str("  ");
            text.push_str(&word);
            used += 2 + word.len();
        }
        text.push('\n');
    }
}

fn state(rail: &Rail) -> &'static str {
    if rail.state == RailState::Down { " (down)" } else { "" }
}

fn speed(rails: &[Rail]) -> String {
    let speeds: BTreeSet<Option<u64>> = rails.iter().map(|rail| rail.mbps).collect();
    let shown = |mbps: &Option<u64>| mbps.map_or_else(|| "speed not known".to_owned(), |mbps| Mbps(mbps).to_string());
    let all: Vec<String> = speeds.iter().map(shown).collect();
    if rails.len() > 1 && all.len() == 1 { format!("{} each", all[0]) } else { all.join(", ") }
}

/// The classes that occur, nearest first.
fn legend(text: &mut String, machine: &Machine, rows: &[Row]) {
    let seen: BTreeSet<&str> = (0..rows.len())
        .flat_map(|row| (0..=row).map(move |column| (row, column)))
        .map(|(row, column)| cell(machine, rows, row, column))
        .collect();
    let known = [
        ("X", "itself"),
        ("PIX", "through one PCIe switch, or at one port"),
        ("PXB", "through several PCIe switches, not through the host bridge"),
        ("PHB", "through a PCIe host bridge (the CPU)"),
        ("NODE", "between host bridges of one NUMA node"),
        ("SYS", "between NUMA nodes"),
        (UNKNOWN, "not known: no common bridge, and the NUMA node of one is not known"),
    ];
    for (class, meaning) in known.iter().filter(|(class, _)| seen.contains(class)) {
        writeln!(text, "{class:<4}  {meaning}").expect("a string takes whatever is written");
    }
}

fn pad(text: &mut String, word: &str, width: usize) {
    write!(text, "{word:<width$}").expect("a string takes whatever is written");
}

fn pad_left(text: &mut String, word: &str, width: usize) {
    write!(text, "{word:>width$}").expect("a string takes whatever is written");
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinrail_core::{Gpu, PciAddress};

    /// Two nodes; on each a switch with these GPUs and rails at its ports.
    fn machine(gpus: u8, rails: u8) -> Machine {
        let mut machine = Machine::default();
        for node in 0..2u8 {
            let mut port = 0;
            let mut bridges = || {
                port += 1;
                ["host", "root", "up", &format!("port{port}")].map(|name| format!("{name}@{node}")).to_vec()
            };
            for at in 0..gpus {
                let pci = PciAddress::new(0, 0x10 * (node + 1) + at, 0, 0).unwrap();
                machine.gpus.push(Gpu { pci, node: Some(NodeId(node.into())), bridges: bridges() });
            }
            for at in 0..rails {
                let (node, bridges) = (Some(NodeId(node.into())), bridges());
                machine.rails.push(Rail {
                    node,
                    bridges,
                    mbps: Some(100_000),
                    ..Rail::named(format!("mlx5_{}", at + rails * u8::from(node == Some(NodeId(1)))))
                });
            }
        }
        machine
    }

    #[test]
    fn neighbours_that_differ_in_nothing_are_one_row() {
        let mut machine = machine(1, 2);
        machine.rails[3].state = RailState::Down;
        assert_eq!(
            matrix(&machine, 80).lines().collect::<Vec<_>>(),
            [
                "        GPU0  GPU1  NIC0-1  NIC2-3  node",
                "GPU0       X   SYS     PIX     SYS     0",
                "GPU1     SYS     X     SYS     PIX     1",
                "NIC0-1   PIX   SYS     PIX     SYS     0",
                "NIC2-3   SYS   PIX     SYS     PIX     1",
                "",
                "GPU0    0000:10:00.0",
                "GPU1    0000:20:00.0",
                "NIC0-1  mlx5_0  mlx5_1  100 Gb/s each",
                "NIC2-3  mlx5_2  mlx5_3 (down)  100 Gb/s each",
                "",
                "X     itself",
                "PIX   through one PCIe switch, or at one port",
                "SYS   between NUMA nodes",
            ]
        );
    }

    #[test]
    fn a_narrow_terminal_gets_gpus_only_and_then_blocks() {
        let machine = machine(2, 4);
        let headers = |columns| {
            let text = matrix(&machine, columns);
            let headers = text.lines().filter(|line| line.ends_with("node"));
            headers.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(headers(80), ["GPU0 GPU1 GPU2 GPU3 NIC0-3 NIC4-7 node"]);
        assert_eq!(headers(40), ["GPU0 GPU1 GPU2 GPU3 node"]);
        assert_eq!(headers(26), ["GPU0 GPU1 node", "GPU2 GPU3 node"]);
        assert_eq!(headers(0).len(), 4);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let machine = machine(4, 16);
        for columns in [72, 80, 120, 200] {
            for line in matrix(&machine, columns).lines() {
                assert!(line.len() <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        let mut machine = machine(1, 1);
        machine.rails[1] = Rail::named("siw0");
        let text = matrix(&machine, 80);
        assert!(text.contains("NIC1     ?     ?     ?     X     ?\n"), "{text}");
        assert!(text.contains("NIC1  siw0  speed not known\n") && text.contains("?     not known:"), "{text}");
        assert_eq!(matrix(&Machine::default(), 80), "");
    }
}

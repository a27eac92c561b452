//! `cargo xtask fidelity`: the simulator's own word on how near it is to what was published, kept in its document.

use std::process::ExitCode;

use crate::workspace::Workspace;
use crate::{Result, command::Line};

const DOCUMENT: &str = "docs/SIMULATION.md";

/// What is between these lines is written; a test of pinrail-sim holds it against the simulator.
const BEGIN: &str = "<!-- written by `cargo xtask fidelity` -->\n";
const END: &str = "<!-- end of what it writes -->\n";

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    std::env::set_current_dir(&workspace.root).map_err(|why| format!("cannot enter the workspace: {why}"))?;
    let line = Line::new("cargo run --locked --quiet --package pinrail-cli -- sim --fidelity");
    println!("$ {line}");
    let table = line.output()?;
    let document = std::fs::read_to_string(DOCUMENT).map_err(|why| format!("cannot read {DOCUMENT}: {why}"))?;
    let written =
        with_table(&document, &table).ok_or_else(|| format!("{DOCUMENT} has not both of the lines around the table"))?;
    std::fs::write(DOCUMENT, written).map_err(|why| format!("cannot write {DOCUMENT}: {why}"))?;
    println!("{DOCUMENT} holds it");
    Ok(ExitCode::SUCCESS)
}

fn with_table(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_lines_changes() {
        let document = format!("# A\n{BEGIN}old\n{END}# B\n");
        let written = with_table(&document, "| new |\n").unwrap();
        assert_eq!(written, format!("# A\n{BEGIN}\n| new |\n\n{END}# B\n"));
        assert_eq!(with_table(&written, "| new |\n").unwrap(), written);
        assert_eq!(with_table("# A\n", "x"), None);
    }
}

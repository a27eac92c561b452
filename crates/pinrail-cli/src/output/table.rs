//! Columns that line up.

use std::io::{self, Write};

/// On which side a column's cells end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Left,
    Right,
}

/// Most rows shown: a table is looked at, a program takes the JSON.
const ROWS_MAX: usize = 40;

/// Writes rows under a heading, with two spaces before each cell.
pub(super) fn write<const N: usize>(
    to: &mut dyn Write,
    columns: [(&str, Side); N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
) -> io::Result<()> {
    let hidden = rows.len().saturating_sub(ROWS_MAX);
    let heading = columns.map(|(name, _)| name.to_owned());
    let rows: Vec<[String; N]> = std::iter::once(heading).chain(rows.take(ROWS_MAX)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in &rows {
        let mut line = String::new();
        for ((cell, (_, side)), width) in row.iter().zip(columns).zip(widths) {
            line += &match side {
                Side::Left => format!("  {cell:<width$}"),
                Side::Right => format!("  {cell:>width$}"),
            };
        }
        writeln!(to, "{}", line.trim_end())?;
    }
    if hidden > 0 {
        writeln!(to, "  … and {hidden} more (--json has them)")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 2]]) -> String {
        let mut text = Vec::new();
        write(&mut text, [("name", Side::Left), ("n", Side::Right)], rows.iter().map(|row| row.map(str::to_owned))).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn cells_line_up_and_lines_have_no_tail() {
        assert_eq!(table(&[["a", "10"], ["long…", "9"]]), "  name    n\n  a      10\n  long…   9\n");
    }

    #[test]
    fn a_long_table_says_what_it_leaves_out() {
        let text = table(&[["a", "1"]; 100]);
        assert_eq!(text.lines().count(), 1 + ROWS_MAX + 1);
        assert!(text.ends_with("  … and 60 more (--json has them)\n"), "{text}");
    }
}

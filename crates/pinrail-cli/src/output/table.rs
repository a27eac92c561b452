//! Columns that line up, and lines that fit.

use std::io::{self, Write};

/// On which side a column's cells end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Left,
    Right,
}

/// Most rows shown: a table is looked at, a program takes the JSON.
const ROWS_MAX: usize = 40;

/// The least room that is worth wrapping for.
const ROOM_MIN: usize = 20;

/// Writes rows under a heading, with two spaces before each cell. Cells of the last column are wrapped between words
/// where a line would have more than `width` characters. Where that leaves them no room, what the rows are about (a first
/// column on the left side) gets lines of its own.
pub(super) fn write<const N: usize>(
    to: &mut dyn Write,
    width: usize,
    columns: [(&str, Side); N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
) -> io::Result<()> {
    let hidden = rows.len().saturating_sub(ROWS_MAX);
    let heading = columns.map(|(name, _)| name.to_owned());
    let rows: Vec<[String; N]> = std::iter::once(heading).chain(rows.take(ROWS_MAX)).collect();
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(widest);
    let last = match columns[N - 1].1 {
        Side::Left => widths[N - 1].min(ROOM_MIN),
        Side::Right => widths[N - 1],
    };
    let needs = widths[..N - 1].iter().map(|width| width + 2).sum::<usize>() + 2 + last;
    let own_lines = usize::from(needs > width && matches!(columns[0].1, Side::Left) && N > 2);
    for row in &rows {
        if own_lines > 0 {
            paragraph(to, width, 4, &format!("  {}", row[0]))?;
        }
        let mut line = "  ".repeat(own_lines);
        for (((cell, (_, side)), width), left) in row.iter().zip(columns).zip(widths).zip((0..N).rev()).skip(own_lines) {
            match side {
                Side::Left if left == 0 => line += &format!("  {cell}"),
                Side::Left => line += &format!("  {cell:<width$}"),
                Side::Right => line += &format!("  {cell:>width$}"),
            }
        }
        let indent = 2 * own_lines + widths[own_lines..N - 1].iter().map(|width| width + 2).sum::<usize>() + 2;
        paragraph(to, width, indent, &line)?;
    }
    if hidden > 0 {
        writeln!(to, "  … and {hidden} more (--json has them)")?;
    }
    Ok(())
}

/// Writes a text that is wrapped between words, after its first `indent` characters: lines after the first begin there.
pub(super) fn paragraph(to: &mut dyn Write, width: usize, indent: usize, text: &str) -> io::Result<()> {
    let room = width.saturating_sub(indent).max(ROOM_MIN);
    let start = text.char_indices().nth(indent).map_or(text.len(), |(at, _)| at);
    let mut line = text[..start].to_owned();
    let mut used = 0;
    for word in text[start..].split_inclusive(' ') {
        let len = word.trim_end().chars().count();
        if used > 0 && used + len > room {
            writeln!(to, "{}", line.trim_end())?;
            line = " ".repeat(indent);
            used = 0;
        }
        line += word;
        used += word.chars().count();
    }
    writeln!(to, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: usize, rows: &[[&str; 2]]) -> String {
        let mut text = Vec::new();
        let rows = rows.iter().map(|row| row.map(str::to_owned));
        write(&mut text, width, [("n", Side::Right), ("name", Side::Left)], rows).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn cells_line_up_and_lines_have_no_tail() {
        assert_eq!(table(80, &[["10", "a"], ["9", "long…"]]), "   n  name\n  10  a\n   9  long…\n");
    }

    #[test]
    fn the_last_column_is_wrapped_between_words_under_itself() {
        let words = "one-word-of-20-chars two three-of-more-than-there-is-room-for";
        assert_eq!(
            table(30, &[["1", words]]),
            "  n  name\n  1  one-word-of-20-chars two\n     three-of-more-than-there-is-room-for\n"
        );
        assert_eq!(table(usize::MAX, &[["1", words]]).lines().count(), 2);
        assert_eq!(table(0, &[["1", "a b"]]), "  n  name\n  1  a b\n", "no terminal is that narrow");
    }

    #[test]
    fn a_name_that_leaves_no_room_has_a_line_of_its_own() {
        let row = ["a-name-of-26-characters-xx", "1234", "a verdict of many words"].map(str::to_owned);
        let table = |width| {
            let mut text = Vec::new();
            let columns = [("name", Side::Left), ("n", Side::Right), ("said", Side::Left)];
            write(&mut text, width, columns, std::iter::once(row.clone())).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(table(40), "  name\n       n  said\n  a-name-of-26-characters-xx\n    1234  a verdict of many words\n");
        assert_eq!(table(80).lines().count(), 2);
    }

    #[test]
    fn a_long_table_says_what_it_leaves_out() {
        let text = table(80, &[["1", "a"]; 100]);
        assert_eq!(text.lines().count(), 1 + ROWS_MAX + 1);
        assert!(text.ends_with("  … and 60 more (--json has them)\n"), "{text}");
    }
}

//! What is expected of a registrar: a column of a table that people read too.

use std::collections::BTreeMap;

use crate::{CHECKS, Report};

/// The expected cell of every check of one registrar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    cells: BTreeMap<String, String>,
}

/// A table that says nothing about a registrar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The registrar has no column.
    #[error("the table has no column {column:?}; it has {}", .columns.join(", "))]
    NoColumn {
        /// The registrar.
        column: String,
        /// Those there are.
        columns: Vec<String>,
    },
    /// A row has too few or too many cells.
    #[error("row {check:?} has {cells} cells and the table {columns} columns")]
    Ragged {
        /// The row.
        check: String,
        /// Its cells.
        cells: usize,
        /// The table's columns.
        columns: usize,
    },
    /// A check has two rows.
    #[error("check {check:?} has two rows")]
    Twice {
        /// The check.
        check: String,
    },
    /// A broken contract cannot be what is expected.
    #[error("the cell of {check:?} says fail: mend the registrar, and expect what is right")]
    Fail {
        /// The check.
        check: String,
    },
}

/// Outcomes that were not expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of {} checks ended otherwise than the table says:{}", .differences.len(), CHECKS.len(), lines(.differences))]
pub struct Unexpected {
    /// What differs, check by check.
    pub differences: Vec<Difference>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The check.
    pub check: String,
    /// The table's cell; `None` where it has no such row.
    pub expected: Option<String>,
    /// How it ended, with the reason of a failure; `None` where the suite has no such check.
    pub seen: Option<String>,
}

impl Expected {
    /// Reads the column of one registrar from a Markdown table: checks down, registrars across. Lines that are no rows
    /// are for people.
    ///
    /// # Errors
    /// [`TableError`].
    ///
    /// ```
    /// use pinrail_conformance::{EXPECTED, Expected, TableError};
    ///
    /// assert!(Expected::column(EXPECTED, "uring").is_ok());
    /// assert!(matches!(Expected::column(EXPECTED, "carrier-pigeon"), Err(TableError::NoColumn { .. })));
    /// ```
    pub fn column(table: &str, registrar: &str) -> Result<Expected, TableError> {
        let mut rows = table.lines().filter_map(cells_of);
        let header = rows.next().unwrap_or_default();
        let at = header.iter().skip(1).position(|column| *column == registrar).ok_or_else(|| TableError::NoColumn {
            column: registrar.to_owned(),
            columns: header.iter().skip(1).map(|column| (*column).to_owned()).collect(),
        })?;
        let mut cells = BTreeMap::new();
        for row in rows.filter(|row| !row.iter().all(|cell| cell.starts_with('-'))) {
            let check = row.first().copied().unwrap_or_default().to_owned();
            if row.len() != header.len() {
                return Err(TableError::Ragged { check, cells: row.len(), columns: header.len() });
            }
            if row[at + 1].starts_with("fail") {
                return Err(TableError::Fail { check });
            }
            if cells.insert(check.clone(), row[at + 1].to_owned()).is_some() {
                return Err(TableError::Twice { check });
            }
        }
        Ok(Expected { cells })
    }

    /// The same with another cell, where a fact of the machine was checked that changes it.
    #[must_use]
    pub fn with(mut self, check: &str, cell: &str) -> Expected {
        self.cells.insert(check.to_owned(), cell.to_owned());
        self
    }
}

fn cells_of(line: &str) -> Option<Vec<&str>> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(row.split('|').map(str::trim).collect())
}

impl Unexpected {
    pub(crate) fn between(report: &Report, expected: &Expected) -> Result<(), Unexpected> {
        let mut cells = expected.cells.clone();
        let mut differences = Vec::new();
        for (check, outcome) in &report.outcomes {
            let expected = cells.remove(check.name);
            if expected.as_ref() != Some(&outcome.cell()) {
                differences.push(Difference { check: check.name.to_owned(), expected, seen: Some(outcome.to_string()) });
            }
        }
        let rows = cells.into_iter().map(|(check, cell)| Difference { check, expected: Some(cell), seen: None });
        differences.extend(rows);
        if differences.is_empty() { Ok(()) } else { Err(Unexpected { differences }) }
    }
}

fn lines(differences: &[Difference]) -> String {
    let line = |Difference { check, expected, seen }: &Difference| {
        let expected = expected.as_deref().unwrap_or("no such row");
        format!("\n  {check}: expected {expected}, seen {}", seen.as_deref().unwrap_or("no such check"))
    };
    differences.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EXPECTED, Outcome};

    const TABLE: &str =
        "What is known.\n\n| check | good | bad |\n|---|---|---|\n| bytes | pass | skip: mover |\n| dma-buf | pass | no |\n";

    fn report(outcomes: &[(&str, Outcome)]) -> Report {
        let check = |name: &str| CHECKS.iter().find(|check| check.name == name).unwrap();
        Report { outcomes: outcomes.iter().map(|(name, outcome)| (check(name), outcome.clone())).collect() }
    }

    #[test]
    fn a_column_is_read_by_its_name() {
        let bad = Expected::column(TABLE, "bad").unwrap();
        let as_expected = report(&[("bytes", Outcome::Skip("mover")), ("dma-buf", Outcome::Weaker("no"))]);
        assert_eq!(as_expected.against(&bad), Ok(()));
        assert!(as_expected.against(&Expected::column(TABLE, "good").unwrap()).is_err());
    }

    #[test]
    fn any_other_result_is_told_a_skip_and_a_row_too_many_included() {
        let good = Expected::column(TABLE, "good").unwrap();
        let seen = report(&[("bytes", Outcome::Skip("mover")), ("one-byte", Outcome::Pass)]);
        let unexpected = seen.against(&good).unwrap_err();
        let checks: Vec<_> = unexpected.differences.iter().map(|difference| difference.check.as_str()).collect();
        assert_eq!(checks, ["bytes", "one-byte", "dma-buf"]);
        let text = unexpected.to_string();
        assert!(
            text.contains("\n  bytes: expected pass, seen skip: mover\n  one-byte: expected no such row, seen pass"),
            "{text}"
        );
        let failed = report(&[("bytes", Outcome::Fail("they differ".into())), ("dma-buf", Outcome::Pass)]);
        assert!(failed.against(&good).unwrap_err().to_string().contains("seen fail: they differ"));
    }

    #[test]
    fn a_fact_changes_a_cell() {
        let changed = Expected::column(TABLE, "good").unwrap().with("bytes", "skip: mover");
        assert_eq!(report(&[("bytes", Outcome::Skip("mover")), ("dma-buf", Outcome::Pass)]).against(&changed), Ok(()));
    }

    #[test]
    fn a_table_that_is_wrong_is_refused() {
        let column = |rows: &str| Expected::column(&format!("{TABLE}{rows}"), "good").unwrap_err();
        assert_eq!(column("| x | pass |"), TableError::Ragged { check: "x".into(), cells: 2, columns: 3 });
        assert_eq!(column("| bytes | pass | pass |"), TableError::Twice { check: "bytes".into() });
        assert_eq!(column("| x | fail | pass |"), TableError::Fail { check: "x".into() });
        assert!(matches!(Expected::column("", "good"), Err(TableError::NoColumn { .. })));
    }

    #[test]
    fn the_projects_table_has_the_suites_rows_in_its_order() {
        let names: Vec<_> = EXPECTED.lines().filter_map(cells_of).skip(2).map(|row| row[0]).collect();
        assert_eq!(names, CHECKS.iter().map(|check| check.name).collect::<Vec<_>>());
    }
}

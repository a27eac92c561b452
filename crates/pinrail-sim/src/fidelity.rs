//! How near the simulator comes to what was published: every figure, ours, the promise, and whether it is kept.
//!
//! The figures are facts with a source and a standing; what was retracted or contradicts another row is shown as such.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;

use pinrail_core::{Limits, StepWhat};
use pinrail_policy::{Concurrency, Control, Policy, RunShape, Tick};

use crate::cost::float;
use crate::published::{Cell, Look, PUBLISHED};
use crate::{Error, Event, Run, Scenario};

/// How near a figure is promised to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Promise {
    /// Off by no more than this share.
    Within(f64),
    /// Off by no more than this factor.
    Factor(f64),
    /// Nothing.
    None,
}

/// A published figure and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The published table.
    pub table: &'static str,
    /// The figure.
    pub what: &'static str,
    /// Its unit: `s`, or `CPU s`.
    pub unit: &'static str,
    /// As published; several where it was repeated.
    pub published: &'static [f64],
    /// By profile: ours. The first is the one that the promise is of.
    pub ours: Vec<(String, f64)>,
    /// How near it is promised to be.
    pub promise: Promise,
    /// True where a figure of the profile was taken from this row, so that it proves nothing.
    pub fitted: bool,
    /// Its standing: a conflict, a retraction, an assumption.
    pub standing: &'static str,
}

impl Row {
    /// The mean of what was published.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let count = self.published.iter().fold(0.0, |count, _| count + 1.0);
        self.published.iter().sum::<f64>() / count
    }

    /// Ours beside the published mean: 0.1 is a tenth too much.
    #[must_use]
    pub fn error(&self, ours: f64) -> f64 {
        ours / self.mean() - 1.0
    }

    /// Whether the promise is kept; `None` where there is none.
    #[must_use]
    pub fn kept(&self) -> Option<bool> {
        let ours = self.ours.first().map_or(f64::NAN, |(_, ours)| *ours);
        match self.promise {
            Promise::None => None,
            Promise::Within(share) => Some(self.error(ours).abs() <= share),
            Promise::Factor(factor) => Some(ours <= self.mean() * factor && ours >= self.mean() / factor),
        }
    }
}

/// Every published figure that a profile is about, in the order of the tables.
///
/// # Errors
/// None that a test has not already found: the scenarios come with the crate.
pub fn fidelity() -> Result<Vec<Row>, Error> {
    PUBLISHED.iter().map(row).collect()
}

fn row(cell: &Cell) -> Result<Row, Error> {
    let mut scenario = Scenario::named(cell.scenario)?;
    for setting in cell.settings {
        scenario = scenario.set(setting)?;
    }
    let mut policy = scenario.default_policy().with(cell.policy)?;
    if let Some(threads) = cell.prefault_by {
        policy = Policy { concurrency: Arc::new(PrefaultBy(threads)), ..policy };
    }
    let mut ours = Vec::new();
    for (at, profile) in scenario.keys.profiles.iter().enumerate() {
        let mut spans = Spans::default();
        let run = scenario.watch(&policy, at, 1, &no_files, &mut |event| spans.see(event))?;
        ours.push((profile.clone(), cell.look.at(&run, &spans)));
    }
    let unit = if cell.look == Look::Cpu { "CPU s" } else { "s" };
    let Cell { table, what, published, promise, fitted, standing, .. } = *cell;
    Ok(Row { table, what, unit, published, ours, promise, fitted, standing })
}

/// The scenarios name none.
fn no_files(name: &str) -> Result<String, String> {
    Err(format!("{name} is no file of a published scenario"))
}

/// So many threads prefault, then every rail registers: what P8 measured and no policy says.
struct PrefaultBy(NonZeroU32);

impl Concurrency for PrefaultBy {
    fn begin(&self, _: &RunShape) -> Control {
        Control::Fixed(Limits { prepare: self.0, ..Limits::NONE })
    }

    fn spec(&self) -> String {
        format!("prefault-by={}", self.0)
    }
}

/// When each buffer of the first process began and ended, in the order in which they began.
#[derive(Default)]
struct Spans(Vec<(u32, Tick, Tick)>);

impl Spans {
    fn see(&mut self, event: &Event) {
        if event.process > 0 {
            return;
        }
        let StepWhat::Task { chunk, .. } = event.what else { return };
        match self.0.iter_mut().rev().find(|(of, ..)| *of == chunk.0) {
            Some((_, _, end)) => *end = event.end,
            None => self.0.push((chunk.0, event.start, event.end)),
        }
    }

    fn seconds(&self) -> Vec<f64> {
        self.0.iter().map(|(_, start, end)| float(end.0 - start.0) / 1e9).collect()
    }
}

impl Look {
    fn at(self, run: &Run, spans: &Spans) -> f64 {
        let of = spans.seconds();
        match self {
            Look::Register => run.register_s,
            Look::Deregister => run.deregister_s.unwrap_or(f64::NAN),
            Look::Total => run.total_s,
            Look::Cpu => run.cpu_s,
            Look::FirstBuffer => of.first().copied().unwrap_or(f64::NAN),
            Look::LastBuffer => of.last().copied().unwrap_or(f64::NAN),
            Look::MeanOfLast(n) => {
                let last = &of[of.len().saturating_sub(n)..];
                last.iter().sum::<f64>() / float(last.len() as u64)
            }
        }
    }
}

/// The rows as a document's tables: predicted and fitted ones apart.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    let predicted = "Predicted: no figure of a profile was taken from these rows.";
    let fitted = "Fitted: a figure of the profile was taken from the row, or from one that it is tied to. They show that the model can say it, no more.";
    for (title, of) in [(predicted, false), (fitted, true)] {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.fitted == of).collect();
        let (promised, kept) = rows.iter().fold((0, 0), |(promised, kept), row| match row.kept() {
            None => (promised, kept),
            Some(is_kept) => (promised + 1, kept + u32::from(is_kept)),
        });
        writeln!(text, "{title} Kept: {kept} of {promised} promises.\n").ok();
        text += "| table | what | published | ours | error | other reading | error | promise | kept | standing |\n";
        text += "|---|---|---|---|---|---|---|---|---|---|\n";
        rows.iter().for_each(|row| text += &line(row));
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

fn percent(share: f64) -> String {
    let percent = (share * 100.0).round();
    if percent == 0.0 { "0 %".to_owned() } else { format!("{percent:+} %") }
}

fn line(row: &Row) -> String {
    let figure = |value: f64| {
        let digits = [1.0, 10.0, 100.0].iter().fold(0, |digits, bound| digits + usize::from(value < *bound));
        format!("{value:.digits$}")
    };
    let published: Vec<String> = row.published.iter().map(|value| figure(*value)).collect();
    let ours = |at: usize| match row.ours.get(at) {
        Some((_, ours)) => (figure(*ours), percent(row.error(*ours))),
        None => ("".to_owned(), "".to_owned()),
    };
    let ((first, first_error), (other, other_error)) = (ours(0), ours(1));
    let promise = match row.promise {
        Promise::Within(share) => format!("{:.0} %", share * 100.0),
        Promise::Factor(factor) => format!("factor {factor}"),
        Promise::None => "none".to_owned(),
    };
    let kept = row.kept().map_or("", |kept| if kept { "yes" } else { "**no**" });
    let (unit, published) = (row.unit, published.join(", "));
    format!(
        "| {} | {} | {published} {unit} | {first} | {first_error} | {other} | {other_error} | {promise} | {kept} | {} |\n",
        row.table, row.what, row.standing
    )
}

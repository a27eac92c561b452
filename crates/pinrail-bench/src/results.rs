use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check::Check;
use crate::environment::Environment;
use crate::processes::Skew;
use crate::record::Record;
use crate::spec::MemoryState;
use crate::trial::{Moved, Trial};

/// The version of the document that is written, and the only one that is read.
pub const VERSION: u32 = 2;

/// One run: raw samples, what was seen, and what can be said. Serialises to the document that docs/MEASURING.md describes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`VERSION`].
    pub version: u32,
    /// What was compared.
    pub variants: Vec<VariantResults>,
    /// Every pair of them.
    pub comparisons: Vec<Comparison>,
    /// The backend that ran, as it calls itself.
    pub backend: String,
    /// The provider that ran, as it calls itself.
    pub provider: String,
    /// Where.
    pub environment: Environment,
    /// What was registered.
    pub batch: BatchRecord,
    /// Names of the rails.
    pub rails: Vec<String>,
    /// The machine file: the rails with the limits that held, the smaller of what was asked for and what the provider has.
    pub machine: String,
    /// The state of the memory before the clock started.
    pub memory: MemoryState,
    /// The pages of the memory.
    pub pages: String,
    /// Trials of each variant.
    pub trials: u32,
    /// What the order and the resamples were drawn from.
    pub seed: u64,
    /// The confidence of each interval.
    pub confidence: f64,
    /// Processes that registered at once.
    pub processes: u32,
    /// What the first of them did otherwise.
    pub skew: Option<Skew>,
    /// The variants of each block, in the order in which they were tried.
    pub schedule: Vec<Vec<usize>>,
    /// Seconds of the fixed task before each trial.
    pub canary_s: Vec<f64>,
    /// The largest of the medians of its quarters over the smallest, less one.
    pub drift: f64,
    /// What of that is more than scatter: a smaller difference between variants is withheld.
    pub drift_at_least: f64,
    /// Rules that were broken.
    pub findings: Vec<Finding>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// When the run began, in seconds since 1970.
    pub started_unix_s: u64,
    /// How long it took, warm-up included.
    pub took_s: f64,
}

/// The batch, and what people call it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// As it was asked for.
    pub name: String,
    /// Its buffers.
    pub buffers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The batch file.
    pub file: Value,
}

/// A median with its interval, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The median.
    pub median_s: f64,
    /// The low end of the interval.
    pub low_s: f64,
    /// The high end.
    pub high_s: f64,
}

/// What one variant did. With several processes each figure of time is the slowest's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantResults {
    /// The spec or reference as typed; a repeat gets `#2`.
    pub name: String,
    /// The resolved policy; null for a reference.
    pub policy: Option<String>,
    /// From the start of preparation to the moment every key is usable: the figure that is compared.
    #[serde(flatten)]
    pub total: Figure,
    /// From the first preparation's call to the last return.
    pub prefault: Figure,
    /// From the first registration's call to the last return.
    pub register: Figure,
    /// All of deregistration.
    pub deregister: Figure,
    /// The median of deregistration.
    pub deregister_s: f64,
    /// Median seconds of mapping the memory and bringing it into its state.
    pub allocate_s: f64,
    /// Median seconds of planning.
    pub plan_s: f64,
    /// Median seconds of CPU while it registered, of all processes together.
    pub cpu_s: f64,
    /// Median cores that were busy on average meanwhile.
    pub cores_busy: f64,
    /// The most threads at once in a process, of all trials.
    pub peak_threads: u32,
    /// The most steps in flight at once in a process, of all trials.
    pub peak_in_flight: u32,
    /// Registrations of a process.
    pub tasks: u64,
    /// Seconds inside the call of a registration, on average; the median of all trials and processes.
    pub service_s: f64,
    /// Seconds that a registration waited for its turn once it could have begun, likewise.
    pub wait_s: f64,
    /// Each rail's share, in a process.
    pub load: Vec<LoadResults>,
    /// By process, medians of its own.
    pub processes: Vec<ProcessResults>,
    /// What was moved through the registrations of the warm-up, at both ends and across every seam; null where the backend
    /// cannot move bytes by itself.
    pub verified: Option<Moved>,
    /// `total_s` of each trial, in the order of blocks.
    pub samples: Vec<f64>,
    /// Which of these lie far outside (three times the distance between the quartiles). They are kept.
    pub outliers: Vec<usize>,
    /// By block, then by process: everything that was measured.
    pub raw: Vec<Vec<Trial>>,
    /// The steps of the last trial, by process.
    pub record: Vec<Record>,
}

/// Medians of one process's own, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessResults {
    /// From the first registration's call to the last return.
    pub register_s: f64,
    /// From the start of preparation to the moment every key is usable.
    pub total_s: f64,
    /// All of deregistration.
    pub deregister_s: f64,
    /// CPU while it registered.
    pub cpu_s: f64,
}

/// What one rail did in a trial of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResults {
    /// The rail.
    pub rail: String,
    /// Registrations.
    pub tasks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Median seconds inside its calls.
    pub busy_s: f64,
}

/// Two variants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The one.
    pub a: String,
    /// The other.
    pub b: String,
    /// How many times as long `a` takes: the median of the ratios of each block.
    pub ratio: f64,
    /// The low end of the ratio's interval.
    pub low: f64,
    /// The high end.
    pub high: f64,
    /// What can be said of `a`.
    pub verdict: Verdict,
    /// Why it is withheld, or how fine the interval is.
    pub reason: Option<String>,
    /// How many trials would tell a difference of 10 %, where these have told nothing.
    pub trials_wanted: Option<u32>,
}

/// What can be said of one variant against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It takes less time: the whole interval lies below 1.
    Faster,
    /// It takes more time: the whole interval lies above 1.
    Slower,
    /// The interval holds 1.
    NoDifference,
    /// Nothing: a rule was broken.
    Withheld,
}

impl Verdict {
    /// The word in the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NoDifference => "no-difference",
            Verdict::Withheld => "withheld",
        }
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule.
    pub check: String,
    /// The variant; null where it concerns all.
    pub variant: Option<String>,
    /// What was found.
    pub what: String,
}

impl Finding {
    pub(crate) fn new(check: Check, variant: Option<&str>, what: String) -> Finding {
        Finding { check: check.as_str().to_owned(), variant: variant.map(str::to_owned), what }
    }
}

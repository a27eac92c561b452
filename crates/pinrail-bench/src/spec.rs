use std::fmt;
use std::num::NonZeroU32;

use pinrail_core::batch::BatchSpec;
use pinrail_memory::Pages;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::error::BenchError;
use crate::variant::Variant;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The backend as it was asked for: `uring`, `libfabric:tcp`. Another one running is refused.
    pub backend: String,
    /// What people call the batch: `kimi-k3/8`, a file's name.
    pub batch_name: String,
    /// The batch. Every variant gets it as it is.
    pub batch: BatchSpec,
    /// The state of the memory before the clock starts.
    pub memory: MemoryState,
    /// The pages of the memory.
    pub pages: Pages,
    /// What is compared, in the order in which it is shown.
    pub variants: Vec<Variant>,
    /// Trials of each variant.
    pub trials: u32,
    /// What the order of trials and the resamples are drawn from.
    pub seed: u64,
    /// Cores this process may use: what makes memory resident between trials.
    pub cores: NonZeroU32,
    /// What times are read from: [`Clock::wall`], unless the backend simulates.
    pub clock: Clock,
}

impl Spec {
    /// Refuses what measures nothing.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let usage = |what: &str| Err(BenchError::Usage { what: what.to_owned() });
        if self.variants.is_empty() {
            return usage("there is nothing to compare: name policies or references");
        }
        if self.trials == 0 {
            return usage("0 trials measure nothing");
        }
        if self.batch.buffers.is_empty() {
            return usage("the batch has no buffers");
        }
        Ok(())
    }
}

/// The state of memory before it is registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryState {
    /// Mapped and never used: the first touch is part of what is measured.
    #[default]
    Untouched,
    /// Used before.
    Resident,
}

impl fmt::Display for MemoryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryState::Untouched => "untouched",
            MemoryState::Resident => "resident",
        })
    }
}

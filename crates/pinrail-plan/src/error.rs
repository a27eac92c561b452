use pinrail_core::batch::BatchError;
use pinrail_core::{Diagnosis, ErrorKind, StepsError};
use pinrail_policy::PolicyError;

/// A batch that cannot be planned. Nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Two buffers share a byte.
    #[error("buffers {first:?} and {second:?} overlap at {address:#x}")]
    Overlap {
        /// The buffer at the lower address.
        first: String,
        /// The other.
        second: String,
        /// The first shared byte.
        address: u64,
    },
    /// A buffer's own numbers are impossible.
    #[error("buffer {buffer:?}: {what}")]
    Buffer {
        /// The buffer.
        buffer: String,
        /// What is wrong.
        what: String,
    },
    /// A GPU that the machine does not have.
    #[error("buffer {buffer:?} lies on GPU {gpu}; this machine has {have}")]
    UnknownDevice {
        /// The buffer.
        buffer: String,
        /// The GPU asked for.
        gpu: String,
        /// The GPUs there are.
        have: String,
    },
    /// A rail that cannot reach device memory.
    #[error("buffer {buffer:?} is device memory, which rail {rail:?} cannot reach")]
    NoDevicePath {
        /// The buffer.
        buffer: String,
        /// The rail.
        rail: String,
    },
    /// A rail that does not grant the access.
    #[error("buffer {buffer:?} asks for access {asked} and rail {rail:?} grants {granted}")]
    Access {
        /// The buffer.
        buffer: String,
        /// The rail.
        rail: String,
        /// What was asked for.
        asked: String,
        /// What the rail grants.
        granted: String,
    },
    /// Not even one page fits into a registration.
    #[error("rail {rail:?} takes {limit} bytes a registration, less than one page of {page_size} bytes of buffer {buffer:?}")]
    MrSize {
        /// The buffer.
        buffer: String,
        /// The rail.
        rail: String,
        /// The rail's limit in bytes.
        limit: u64,
        /// The buffer's page size in bytes.
        page_size: u64,
    },
    /// Not even one unit fits into a registration.
    #[error("rail {rail:?} takes {limit} bytes a registration, less than one unit of {unit} bytes of buffer {buffer:?}")]
    Unit {
        /// The buffer.
        buffer: String,
        /// The rail.
        rail: String,
        /// The rail's limit in bytes.
        limit: u64,
        /// The buffer's unit in bytes.
        unit: u64,
    },
    /// More registrations than a rail takes.
    #[error("rail {rail:?} takes {limit} registrations{} and {need} are needed", beside(*.live))]
    MrCount {
        /// The rail.
        rail: String,
        /// The rail's limit.
        limit: u64,
        /// Registrations needed.
        need: u64,
        /// Registrations live already.
        live: u64,
    },
    /// More page entries than a rail has.
    #[error("rail {rail:?} maps at most {limit} pages{} and {need} are needed", beside(*.live))]
    PageBudget {
        /// The rail.
        rail: String,
        /// The rail's limit.
        limit: u64,
        /// Pages needed.
        need: u64,
        /// Pages live already.
        live: u64,
        /// Bytes of the batch on this rail.
        bytes: u64,
    },
    /// Not even a share of the batch on each rail fits.
    #[error("even in disjoint shares the {rails} rails of buffer {buffer:?} run out of {what}; in full, {over}")]
    Shares {
        /// The first buffer that finds no place.
        buffer: String,
        /// Its rails.
        rails: usize,
        /// What ran out.
        what: &'static str,
        /// What did not fit in full.
        over: Box<PlanError>,
    },
    /// The policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// More steps than can be counted.
    #[error(transparent)]
    Steps(#[from] StepsError),
    /// The batch on paper.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl PlanError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let of = |kind| Diagnosis::new(kind, self.to_string());
        match self {
            PlanError::Overlap { second, .. } => {
                of(ErrorKind::Overlap).buffer(second).hint("register the union once and look ranges up in it")
            }
            PlanError::Buffer { buffer, .. } => of(ErrorKind::Batch).buffer(buffer),
            PlanError::UnknownDevice { buffer, .. } => of(ErrorKind::UnknownDevice).buffer(buffer),
            PlanError::NoDevicePath { buffer, rail } => of(ErrorKind::NoDevicePath)
                .buffer(buffer)
                .rail(rail)
                .hint("choose rails that reach device memory with rails=NAME,NAME, or register host memory"),
            PlanError::Access { buffer, rail, .. } => of(ErrorKind::Access).buffer(buffer).rail(rail),
            PlanError::MrSize { buffer, rail, limit, page_size } => of(ErrorKind::MrSize)
                .buffer(buffer)
                .rail(rail)
                .limit(*limit, *page_size)
                .hint("use smaller pages, or raise rail_limits.max_mr_size if the device takes more than it says"),
            PlanError::Unit { buffer, rail, limit, unit } => {
                of(ErrorKind::Unit).buffer(buffer).rail(rail).limit(*limit, *unit).hint("make the unit smaller, or drop it")
            }
            PlanError::MrCount { rail, limit, need, live } => of(ErrorKind::MrCount)
                .rail(rail)
                .limit(*limit, need.saturating_add(*live))
                .hint("let neighbours share registrations (coalesce, coalesce=gaps), choose fewer rails, share the batch out (coverage=disjoint), or split it"),
            PlanError::PageBudget { rail, limit, need, live, bytes } => of(ErrorKind::PageBudget)
                .rail(rail)
                .limit(*limit, need.saturating_add(*live))
                .hint(page_hint(limit.saturating_sub(*live), *bytes)),
            PlanError::Shares { buffer, over, .. } => Diagnosis { message: self.to_string(), ..over.diagnosis() }.buffer(buffer),
            PlanError::Policy(error) => error.diagnosis(),
            PlanError::Batch(error) => error.diagnosis(),
            PlanError::Steps(_) => of(ErrorKind::Batch).hint("register the batch in parts"),
        }
    }
}

fn beside(live: u64) -> String {
    if live == 0 { String::new() } else { format!(", of which {live} are live already,") }
}

/// What would fit, from the batch's own numbers.
fn page_hint(left: u64, bytes: u64) -> String {
    let sizes = [("2 MiB", 2u64 << 20), ("1 GiB", 1 << 30)];
    let fits = sizes.iter().find(|(_, page)| bytes.div_ceil(*page) <= left);
    let huge = fits.map_or_else(String::new, |(name, page)| format!("with {name} pages {} would do; ", bytes.div_ceil(*page)));
    format!("{huge}or choose fewer rails, share the batch out (coverage=disjoint), or split it")
}

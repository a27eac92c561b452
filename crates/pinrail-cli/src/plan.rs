//! `pinrail plan`: what would be registered where, and why.

use std::path::{Path, PathBuf};

use pinrail_core::batch::BatchSpec;
use pinrail_core::{Diagnosis, ErrorKind, Machine};
use pinrail_memory::Memlock;
use pinrail_plan::{Change, MemlockSeen, Plan, PlanDocument, PlanFileError};

use crate::args::{BatchArgs, TermsArgs};
use crate::error::Error;
use crate::file;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    terms: TermsArgs,
    /// Also say what has changed since an earlier plan: a file that --json has written.
    #[arg(long, value_name = "FILE")]
    diff: Option<PathBuf>,
    /// Plan beside what an earlier plan has registered: it counts against the limits of rails of the same name.
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
}

/// A plan, and what it is shown with.
pub(crate) struct Planned {
    pub(crate) batch: BatchSpec,
    pub(crate) plan: Plan,
    /// The machine as it described itself, without the batch's limits.
    pub(crate) advertised: Machine,
    pub(crate) memlock: MemlockSeen,
    /// The earlier plan's file, and what has changed since.
    pub(crate) since: Option<(PathBuf, Vec<Change>)>,
}

/// Most bytes of a plan file: a plan of 100,000 buffers on 32 rails has less than 100 MB.
const FILE_BYTES_MAX: u64 = 512 << 20;

pub(crate) fn run(args: &Args) -> Result<Planned, Error> {
    let policy = args.terms.policy.read()?;
    let batch = args.batch.read()?;
    let advertised = args.terms.machine.read()?.machine();
    let earlier = args.diff.as_ref().map(|path| Ok::<_, Error>((path, read(path)?))).transpose()?;
    let live = args.beside.as_deref().map(read).transpose()?;
    let mut machine = advertised.clone();
    batch.limit_rails(&mut machine)?;
    let live = live.map_or_else(Vec::new, |live| live.used_on(&machine));
    let plan = Plan::beside(batch.layout()?.imagined()?, &machine, &policy, &live)?;
    let memlock = Memlock::read().map_err(|error| Error::io("this process's memlock limit", &error))?;
    let memlock = MemlockSeen { have_bytes: memlock.soft_bytes.filter(|_| !memlock.exempt) };
    let mut planned = Planned { batch, plan, advertised, memlock, since: None };
    planned.since = earlier.map(|(path, earlier)| (path.clone(), planned.document().changes_since(&earlier)));
    Ok(planned)
}

impl Planned {
    pub(crate) fn document(&self) -> PlanDocument {
        PlanDocument::of(&self.plan, &self.batch, &self.advertised, self.memlock)
    }
}

/// Reads what `pinrail plan --json` has written.
pub(crate) fn read(path: &Path) -> Result<PlanDocument, Error> {
    let bytes = file::read(path, FILE_BYTES_MAX, "plan file")?;
    let no_text = |error: std::str::Utf8Error| {
        let message = format!("{}: a plan file is text, and byte {} is no UTF-8", path.display(), error.valid_up_to());
        Diagnosis::new(ErrorKind::Batch, message)
    };
    let text = std::str::from_utf8(&bytes).map_err(no_text)?;
    PlanDocument::from_json(text).map_err(|error| about(path, &error))
}

/// What is wrong with a plan file, by its name.
pub(crate) fn about(path: &Path, error: &PlanFileError) -> Error {
    let diagnosis = error.diagnosis();
    let message = format!("{}: {}", path.display(), diagnosis.message);
    Diagnosis { message, ..diagnosis }.into()
}

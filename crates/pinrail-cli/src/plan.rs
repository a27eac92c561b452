//! `pinrail plan`: what would be registered where, and why.

use pinrail_core::batch::BatchSpec;
use pinrail_memory::Memlock;
use pinrail_plan::{MemlockSeen, Plan};

use crate::args::{BatchArgs, MachineArgs, PolicyArgs};
use crate::error::Error;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// A plan, and what it is shown with.
pub(crate) struct Planned {
    pub(crate) batch: BatchSpec,
    pub(crate) plan: Plan,
    pub(crate) memlock: MemlockSeen,
}

pub(crate) fn run(args: &Args) -> Result<Planned, Error> {
    let policy = args.policy.read()?;
    let batch = args.batch.read()?;
    let mut machine = args.machine.read()?.machine();
    batch.limit_rails(&mut machine)?;
    let plan = Plan::new(batch.layout()?.imagined()?, &machine, &policy)?;
    let memlock = Memlock::read().map_err(|error| Error::io("this process's memlock limit", &error))?;
    let have_bytes = memlock.soft_bytes.filter(|_| !memlock.exempt);
    Ok(Planned { batch, plan, memlock: MemlockSeen { have_bytes } })
}

use std::fmt;
use std::sync::Arc;

use pinrail_core::descriptor::{Descriptor, DescriptorError};
use pinrail_core::{BufferId, ChunkId, Extent, ExtentError, Mr, RailId, Registrar};
use pinrail_plan::Plan;

use crate::crew::Crew;
use crate::deregister::{self, InCallersOrder, StillRegistered};
use crate::descriptor;
use crate::report::Report;
use crate::table::Mrs;

/// A batch that is registered: the owner of its MRs and of its memory.
///
/// Dropping it deregisters; what cannot be deregistered then is leaked with its memory, because a NIC may still reach it.
/// [`Registration::deregister`] tells.
#[must_use = "a registration that is dropped deregisters at once"]
pub struct Registration {
    /// `None` once its parts have been taken.
    inner: Option<Inner>,
}

struct Inner {
    plan: Arc<Plan>,
    registrar: Arc<dyn Registrar>,
    mrs: Mrs,
    /// Chunks by their first address.
    by_address: Vec<(u64, ChunkId)>,
    crew: Crew,
    report: Report,
}

pub(crate) type Parts = (Arc<Plan>, Arc<dyn Registrar>, Mrs, Crew, Report);

/// A part of a range that one MR covers.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'r> {
    /// The MR, with its keys.
    pub mr: &'r Mr,
    /// The addresses.
    pub extent: Extent,
    /// The piece's first byte, counted from the MR's first.
    pub at: u64,
}

/// Why a range has no keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// Part of the range is not registered at all.
    #[error("address {address:#x} is not registered")]
    NotRegistered {
        /// The first such address.
        address: u64,
    },
    /// Part of the range is registered, but not on this rail.
    #[error("address {address:#x} is not registered on {rail}")]
    NotOnRail {
        /// The first such address.
        address: u64,
        /// The rail.
        rail: RailId,
    },
    /// The range is none.
    #[error(transparent)]
    Extent(#[from] ExtentError),
}

impl Registration {
    pub(crate) fn new(plan: Arc<Plan>, registrar: Arc<dyn Registrar>, mrs: Mrs, crew: Crew, report: Report) -> Registration {
        let mut by_address: Vec<(u64, ChunkId)> = plan.chunk_ids().map(|chunk| (plan.extent(chunk).start(), chunk)).collect();
        by_address.sort_unstable();
        Registration { inner: Some(Inner { plan, registrar, mrs, by_address, crew, report }) }
    }

    fn inner(&self) -> &Inner {
        self.inner.as_ref().expect("parts are taken only by value")
    }

    /// The plan it carries out.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.inner().plan
    }

    /// Where the time of registering went.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.inner().report
    }

    /// Live MRs.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.inner().mrs.live(self.plan()).len() as u64
    }

    /// The MR of a chunk on a rail.
    #[must_use]
    pub fn mr(&self, chunk: ChunkId, rail: RailId) -> Option<&Mr> {
        let Inner { plan, mrs, .. } = self.inner();
        mrs.get(plan, chunk, rail)
    }

    /// All live MRs with their chunks, in the caller's order.
    pub fn mrs(&self) -> impl Iterator<Item = (ChunkId, &Mr)> {
        let Inner { plan, mrs, .. } = self.inner();
        mrs.live(plan).into_iter().filter_map(|(chunk, rail)| Some((chunk, mrs.get(plan, chunk, rail)?)))
    }

    /// The keys of a whole buffer on a rail, in ascending addresses.
    ///
    /// # Errors
    /// [`LookupError::NotOnRail`] where the plan did not choose the rail.
    pub fn buffer(&self, buffer: BufferId, rail: RailId) -> Result<Vec<Piece<'_>>, LookupError> {
        self.range(self.plan().buffers()[buffer.index()].extent(), rail)
    }

    /// The keys of a range of addresses on a rail: one piece for each MR it touches, in order, together the whole range.
    ///
    /// # Errors
    /// [`LookupError::NotRegistered`] and [`LookupError::NotOnRail`] with the first address that has no key.
    pub fn range(&self, extent: Extent, rail: RailId) -> Result<Vec<Piece<'_>>, LookupError> {
        let Inner { plan, by_address, .. } = self.inner();
        let mut pieces = Vec::with_capacity(1);
        let mut at = extent.start();
        // Chunks do not overlap: the last that begins at or before an address is the only one that can cover it.
        let mut next = by_address.partition_point(|&(start, _)| start <= at).wrapping_sub(1);
        while at < extent.end() {
            let chunk = by_address.get(next).map(|&(_, chunk)| chunk);
            let Some(covers) = chunk.map(|chunk| plan.extent(chunk)).filter(|covers| covers.range().contains(&at)) else {
                return Err(LookupError::NotRegistered { address: at });
            };
            let mr = chunk.and_then(|chunk| self.mr(chunk, rail)).ok_or(LookupError::NotOnRail { address: at, rail })?;
            let piece = Extent::new(at, covers.end().min(extent.end()) - at)?;
            pieces.push(Piece { mr, extent: piece, at: at - covers.start() });
            at = piece.end();
            next = next.wrapping_add(1);
        }
        Ok(pieces)
    }

    /// What a peer must know to reach the buffers. It is good until they are deregistered, and whoever has it can reach
    /// them: it is for the peer alone.
    ///
    /// # Errors
    /// [`DescriptorError`] where buffers overlap, or are more than a descriptor takes.
    pub fn descriptor(&self) -> Result<Descriptor, DescriptorError> {
        let buffers = (0..).map(BufferId).take(self.plan().buffers().len());
        descriptor::of(self.plan().rails(), buffers.map(|buffer| (self, buffer)))
    }

    /// Deregisters everything, in parallel under the policy's limits, and tries all of it whatever fails.
    ///
    /// # Errors
    /// [`StillRegistered`] with what is left.
    pub fn deregister(self) -> Result<Report, Box<StillRegistered>> {
        deregister::run(self, InCallersOrder, None)
    }

    /// The buffers all of whose tasks are live.
    pub(crate) fn complete_buffers(&self) -> impl Iterator<Item = BufferId> {
        let Inner { plan, mrs, .. } = self.inner();
        (0..).map(BufferId).take(plan.buffers().len()).filter(|&buffer| {
            let mut chunks = plan.chunks_of(buffer).map(ChunkId);
            chunks.all(|chunk| plan.rails_of(chunk).iter().all(|&rail| mrs.get(plan, chunk, rail).is_some()))
        })
    }

    pub(crate) fn plan_arc(&self) -> Arc<Plan> {
        Arc::clone(&self.inner().plan)
    }

    /// The tasks whose MR is live.
    pub(crate) fn tasks(&self) -> Vec<(ChunkId, RailId)> {
        self.inner().mrs.live(self.plan())
    }

    /// Two registrations of one plan: of the chunks that are wanted, and of the others.
    pub(crate) fn split(self, wanted: impl Fn(ChunkId) -> bool) -> (Registration, Registration) {
        let (plan, registrar, mrs, crew, report) = self.into_parts();
        let (kept, rest) = (Mrs::empty(&plan).shared(), mrs.shared());
        for chunk in plan.chunk_ids().filter(|&chunk| wanted(chunk)) {
            for &rail in plan.rails_of(chunk) {
                if let Some(mr) = rest.take(&plan, chunk, rail) {
                    kept.put(&plan, chunk, rail, mr).unwrap_or_else(|_| unreachable!("nobody has closed it"));
                }
            }
        }
        let part = |mrs: crate::table::SharedMrs| {
            Registration::new(Arc::clone(&plan), Arc::clone(&registrar), mrs.close(), crew.clone(), report.clone())
        };
        (part(kept), part(rest))
    }

    pub(crate) fn into_parts(mut self) -> Parts {
        let Inner { plan, registrar, mrs, crew, report, .. } = self.inner.take().expect("parts are taken only by value");
        (plan, registrar, mrs, crew, report)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if inner.mrs.live(&inner.plan).is_empty() {
            return;
        }
        if let Err(still) = deregister::run(Registration { inner: Some(inner) }, InCallersOrder, None) {
            // Taken apart, so that it is not tried for ever: an MR that is dropped live keeps its pin and its memory.
            drop(still.left.0.into_parts());
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registration({} live of {})", self.live(), self.plan().tasks())
    }
}

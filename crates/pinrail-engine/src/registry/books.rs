//! What the registry knows besides what readers see: who holds what, what is being registered, what could not be undone.

use std::collections::BTreeMap;
use std::sync::Arc;

use pinrail_core::{Buffer, BufferId, ChunkId, Extent, RailId};
use pinrail_plan::{Plan, PlannedChunk, RailNeeds};

use super::layers::{Layer, Layers};
use super::{ClaimError, Counts, Overlap};
use crate::Registration;

/// A batch by its number; numbers are never used again, so that nothing of an old batch is mistaken for a new one's.
pub(super) type BatchId = u64;

/// A buffer of a batch.
pub(super) type Member = (BatchId, BufferId);

#[derive(Default)]
pub(super) struct Books {
    pub(super) closed: bool,
    next: BatchId,
    /// Buffers that are registered or being registered, by address. What was invalidated is not among them.
    buffers: Layers<Member>,
    /// Chunks that readers see; the layers are those of the index.
    chunks: Layers<(BatchId, ChunkId)>,
    batches: BTreeMap<BatchId, Batch>,
    /// What rails hold for all batches, quarantined registrations too.
    pub(super) used: Vec<RailNeeds>,
    pub(super) quarantine: Vec<Registration>,
}

struct Batch {
    plan: Arc<Plan>,
    /// `None` while it is being registered.
    registration: Option<Registration>,
    buffers: Vec<BufferState>,
    chunks: Vec<ChunkState>,
}

#[derive(Clone, Copy)]
struct BufferState {
    references: u64,
    /// Where it lies in [`Books::buffers`]; `None` once it was invalidated.
    layer: Option<Layer>,
}

#[derive(Clone, Copy)]
struct ChunkState {
    /// Buffers in it that are referenced.
    users: u32,
    /// Where readers see it.
    layer: Option<Layer>,
}

/// A chunk that readers shall see or no longer see: its layer and first address.
pub(super) type Place = (Layer, u64);

/// What a claim found.
pub(super) struct Claimed {
    /// Buffers that are registered already and are referenced once more.
    pub(super) shared: Vec<Member>,
    /// The others, in the caller's order.
    pub(super) fresh: Vec<BufferId>,
}

/// What a batch came to.
#[derive(Default)]
pub(super) struct Opened {
    /// Buffers that are wholly registered.
    pub(super) held: Vec<Member>,
    /// The others.
    pub(super) lost: Vec<Member>,
    /// Chunks that readers shall see: none that was invalidated while it was being registered.
    pub(super) seen: Vec<(ChunkId, Layer)>,
}

impl Books {
    /// Looks at every buffer of a plan and changes nothing.
    pub(super) fn look(&self, plan: &Plan, overlap: Overlap) -> Result<Claimed, ClaimError> {
        if self.closed {
            return Err(ClaimError::Closed);
        }
        let mut claimed = Claimed { shared: Vec::new(), fresh: Vec::new() };
        for (id, buffer) in (0..).map(BufferId).zip(plan.buffers()) {
            match self.look_at(buffer, &plan.selection(id).rails, overlap)? {
                Some(member) => claimed.shared.push(member),
                None => claimed.fresh.push(id),
            }
        }
        Ok(claimed)
    }

    fn look_at(&self, buffer: &Buffer, rails: &[RailId], overlap: Overlap) -> Result<Option<Member>, ClaimError> {
        let extent = buffer.extent();
        let mut refused = None;
        for (other, member) in self.buffers.overlapping(extent) {
            let batch = &self.batches[&member.0];
            if other == extent {
                let name = buffer.name.to_string();
                if batch.registration.is_none() {
                    return Err(ClaimError::Busy { buffer: name, extent });
                }
                let known = &batch.plan.buffers()[member.1.index()];
                let same_rails = batch.plan.selection(member.1).rails == rails;
                // Another `Memory` over the same addresses may be another mapping: only clones are known to be the same.
                if known.memory.same(&buffer.memory) && known.access.effective() == buffer.access.effective() && same_rails {
                    return Ok(Some(member));
                }
            }
            refused.get_or_insert(other);
        }
        match (refused, overlap) {
            (Some(other), Overlap::Refuse) => {
                Err(ClaimError::Overlap { buffer: buffer.name.to_string(), extent, registered: other })
            }
            (None, _) | (Some(_), Overlap::Allow) => Ok(None),
        }
    }

    /// Those of these that were not invalidated, with the registration that they are in.
    pub(super) fn current(&self, members: &[Member]) -> impl Iterator<Item = (&Registration, BufferId)> {
        members.iter().filter_map(|&(id, buffer)| {
            let batch = self.batches.get(&id)?;
            batch.buffers[buffer.index()].layer.and(batch.registration.as_ref()).map(|registration| (registration, buffer))
        })
    }

    /// What all batches hold, or what somebody knew of before where that is more: other registrars' on the same rails.
    pub(super) fn live_beside(&self, known: &[RailNeeds]) -> Vec<RailNeeds> {
        let rails = self.used.len().max(known.len());
        let of = |list: &[RailNeeds], rail: usize| list.get(rail).copied().unwrap_or_default();
        (0..rails).map(|rail| of(&self.used, rail).most(of(known, rail))).collect()
    }

    /// One more reference on each of these.
    pub(super) fn reference(&mut self, members: &[Member]) {
        for &(batch, buffer) in members {
            if let Some(batch) = self.batches.get_mut(&batch) {
                batch.buffers[buffer.index()].references += 1;
            }
        }
    }

    /// A new batch that is about to be registered.
    pub(super) fn open(&mut self, plan: &Arc<Plan>) -> BatchId {
        let id = self.next;
        self.next += 1;
        let buffers = (0..).map(BufferId).zip(plan.buffers());
        let buffers = buffers
            .map(|(buffer, what)| BufferState { references: 1, layer: Some(self.buffers.insert(what.extent(), (id, buffer))) })
            .collect();
        let chunks = unseen(plan);
        add(&mut self.used, &plan.needs().rails);
        self.batches.insert(id, Batch { plan: Arc::clone(plan), registration: None, buffers, chunks });
        id
    }

    /// A batch is registered, or what was kept of it; perhaps in other chunks than were planned, where sharing them was
    /// refused.
    pub(super) fn opened(&mut self, id: BatchId, registration: Registration) -> Opened {
        let mut opened = Opened::default();
        let Some(batch) = self.batches.get_mut(&id) else { return opened };
        let plan = registration.plan_arc();
        if !Arc::ptr_eq(&plan, &batch.plan) {
            subtract_all(&mut self.used, &batch.plan);
            add(&mut self.used, &plan.needs().rails);
            batch.chunks = unseen(&plan);
            batch.plan = Arc::clone(&plan);
        }
        let whole = |chunk| plan.rails_of(chunk).iter().all(|&rail| registration.mr(chunk, rail).is_some());
        for buffer in (0..).map(BufferId).take(plan.buffers().len()) {
            let is_whole = plan.chunks_of(buffer).map(ChunkId).all(whole);
            (if is_whole { &mut opened.held } else { &mut opened.lost }).push((id, buffer));
        }
        for chunk in plan.chunk_ids().filter(|&chunk| whole(chunk)) {
            let current = |buffer: &BufferId| batch.buffers[buffer.index()].layer.is_some();
            if plan.buffers_of(chunk).iter().all(current) {
                let layer = self.chunks.insert(plan.extent(chunk), (id, chunk));
                batch.chunks[chunk.index()].layer = Some(layer);
                opened.seen.push((chunk, layer));
            }
        }
        for chunk in plan.chunk_ids() {
            for &rail in plan.rails_of(chunk).iter().filter(|&&rail| registration.mr(chunk, rail).is_none()) {
                subtract(&mut self.used, rail, &plan.chunks()[chunk.index()]);
            }
        }
        batch.registration = Some(registration);
        opened
    }

    /// A batch that was not registered after all.
    pub(super) fn abandon(&mut self, id: BatchId) {
        let Some(batch) = self.batches.remove(&id) else { return };
        for (buffer, state) in batch.plan.buffers().iter().zip(&batch.buffers) {
            if let Some(layer) = state.layer {
                self.buffers.remove(layer, buffer.extent().start());
            }
        }
        subtract_all(&mut self.used, &batch.plan);
    }

    /// One reference less on each of these: what readers shall no longer see, and what is to be deregistered.
    pub(super) fn release(&mut self, members: &[Member]) -> (Vec<Place>, Vec<Registration>) {
        let (mut unseen, mut over) = (Vec::new(), BTreeMap::<BatchId, Vec<ChunkId>>::new());
        for &(id, buffer) in members {
            let Some(batch) = self.batches.get_mut(&id) else { continue };
            let state = &mut batch.buffers[buffer.index()];
            state.references -= 1;
            if state.references > 0 {
                continue;
            }
            if let Some(layer) = state.layer.take() {
                self.buffers.remove(layer, batch.plan.buffers()[buffer.index()].extent().start());
            }
            for chunk in batch.plan.chunks_of(buffer).map(ChunkId) {
                let state = &mut batch.chunks[chunk.index()];
                state.users -= 1;
                if state.users == 0 {
                    over.entry(id).or_default().push(chunk);
                    if let Some(layer) = state.layer.take() {
                        let start = batch.plan.extent(chunk).start();
                        self.chunks.remove(layer, start);
                        unseen.push((layer, start));
                    }
                }
            }
        }
        let registrations = over.into_iter().filter_map(|(id, chunks)| self.take(id, &chunks)).collect();
        (unseen, registrations)
    }

    /// The MRs of chunks that nobody uses any more.
    fn take(&mut self, id: BatchId, chunks: &[ChunkId]) -> Option<Registration> {
        let batch = self.batches.get_mut(&id)?;
        let registration = batch.registration.take()?;
        if batch.chunks.iter().all(|chunk| chunk.users == 0) {
            self.batches.remove(&id);
            return Some(registration);
        }
        let (over, rest) = registration.split(|chunk| chunks.binary_search(&chunk).is_ok());
        batch.registration = Some(rest);
        Some(over)
    }

    /// No reader shall see what lies here any more, nor what shares a registration with it.
    pub(super) fn invalidate(&mut self, extent: Extent) -> Vec<Place> {
        let mut buffers: Vec<Member> = self.buffers.overlapping(extent).map(|(_, member)| member).collect();
        for (_, (id, chunk)) in self.chunks.overlapping(extent) {
            buffers.extend(self.batches[&id].plan.buffers_of(chunk).iter().map(|&buffer| (id, buffer)));
        }
        let mut unseen = Vec::new();
        while let Some((id, buffer)) = buffers.pop() {
            let Some(batch) = self.batches.get_mut(&id) else { continue };
            let Some(layer) = batch.buffers[buffer.index()].layer.take() else { continue };
            self.buffers.remove(layer, batch.plan.buffers()[buffer.index()].extent().start());
            for chunk in batch.plan.chunks_of(buffer).map(ChunkId) {
                buffers.extend(batch.plan.buffers_of(chunk).iter().map(|&other| (id, other)));
                if let Some(layer) = batch.chunks[chunk.index()].layer.take() {
                    let start = batch.plan.extent(chunk).start();
                    self.chunks.remove(layer, start);
                    unseen.push((layer, start));
                }
            }
        }
        unseen
    }

    /// A registration that could not be undone.
    pub(super) fn quarantine(&mut self, left: Registration) {
        self.quarantine.push(left);
    }

    /// MRs of a plan that are gone.
    pub(super) fn freed(&mut self, plan: &Plan, tasks: impl Iterator<Item = (ChunkId, RailId)>) {
        tasks.for_each(|(chunk, rail)| subtract(&mut self.used, rail, &plan.chunks()[chunk.index()]));
    }

    pub(super) fn counts(&self) -> Counts {
        let (in_flight, live): (Vec<&Batch>, Vec<&Batch>) = self.batches.values().partition(|batch| batch.registration.is_none());
        let mrs = live.iter().filter_map(|batch| batch.registration.as_ref()).map(Registration::live).sum();
        Counts {
            batches: live.len() as u64,
            in_flight: in_flight.len() as u64,
            mrs,
            quarantined: self.quarantine.iter().map(Registration::live).sum(),
        }
    }

    /// Nothing is registered, being registered or in quarantine.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.quarantine.is_empty()
    }
}

fn add(used: &mut Vec<RailNeeds>, needs: &[RailNeeds]) {
    used.resize(used.len().max(needs.len()), RailNeeds::default());
    for (used, need) in used.iter_mut().zip(needs) {
        *used = used.plus(*need);
    }
}

fn unseen(plan: &Plan) -> Vec<ChunkState> {
    let users = |chunk| u32::try_from(plan.buffers_of(chunk).len()).unwrap_or(u32::MAX);
    plan.chunk_ids().map(|chunk| ChunkState { users: users(chunk), layer: None }).collect()
}

fn subtract_all(used: &mut [RailNeeds], plan: &Plan) {
    for chunk in plan.chunk_ids() {
        plan.rails_of(chunk).iter().for_each(|&rail| subtract(used, rail, &plan.chunks()[chunk.index()]));
    }
}

fn subtract(used: &mut [RailNeeds], rail: RailId, chunk: &PlannedChunk) {
    let Some(used) = used.get_mut(rail.index()) else { return };
    *used = used.minus(RailNeeds::of(chunk));
}

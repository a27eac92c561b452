use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use pinrail_core::{
    Buffer, BufferId, Chunk, ChunkId, DevicePath, Extent, Group, Kind, Machine, Memory, Place, PrepareStep, Rail, RailId, Source,
    Steps, StepsError,
};
use pinrail_policy::{ChunkInfo, Coverage, FanOut, Permutation, Policy, PolicyError, Preparation, RunShape, Selection, Slices};

use crate::runs::{self, Run};
use crate::seams::{self, CannotCut};
use crate::shares::{Left, NoShare};
use crate::{Budget, Needs, PlanError, PlannedChunk, RailNeeds, fits, validate};

/// Most chunks of a plan: as many registrations as the largest NICs take, and below a gigabyte of plan.
pub(crate) const CHUNKS_MAX: usize = 1 << 24;

/// One schedule: chunks, rails, order, dependencies, and why.
#[derive(Clone, Debug)]
pub struct Plan {
    buffers: Vec<Buffer>,
    policy: Policy,
    chunks: Vec<PlannedChunk>,
    /// The buffers of every run, in ascending addresses; chunks name ranges of it.
    members: Vec<BufferId>,
    /// By buffer: its chunks.
    chunks_of: Vec<(u32, u32)>,
    /// The different answers of the rail policy, and by buffer which one.
    selections: Vec<Selection>,
    selection_of: Vec<u32>,
    sets: Arc<[Box<[RailId]>]>,
    order: Permutation,
    slices: Slices,
    needs: Needs,
    /// What was live beside it when it was made, by rail.
    live: Vec<RailNeeds>,
    /// Why it is in disjoint shares, where it is.
    shared_out: Option<Box<PlanError>>,
    machine: Machine,
}

impl Plan {
    /// Plans a batch. The machine's rails carry the limits that hold; their order is the registrar's.
    ///
    /// An empty batch is a plan with nothing to do.
    ///
    /// # Errors
    /// [`PlanError`], naming the buffer, the rail and the limit; nothing was touched.
    pub fn new(buffers: Vec<Buffer>, machine: &Machine, policy: &Policy) -> Result<Plan, PlanError> {
        Plan::beside(buffers, machine, policy, &[])
    }

    /// Plans a batch beside registrations that are live: `live` is what they hold, by rail ([`Needs::rails`] of their
    /// plans, added up), and counts against the rails' limits. Budgets are taken in the caller's order of buffers.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn beside(buffers: Vec<Buffer>, machine: &Machine, policy: &Policy, live: &[RailNeeds]) -> Result<Plan, PlanError> {
        Plan::made(buffers, machine, policy, live, &|_| false)
    }

    /// The same plan with these buffers in registrations of their own: for when one that they shared was refused.
    ///
    /// # Errors
    /// As [`Plan::new`]: more registrations may be more than a rail takes.
    pub fn without_coalescing(&self, alone: &dyn Fn(BufferId) -> bool) -> Result<Plan, PlanError> {
        let plan = Plan::made(self.buffers.clone(), &self.machine, &self.policy, &self.live, alone)?;
        Ok(plan.with_slices(self.slices))
    }

    fn made(
        buffers: Vec<Buffer>,
        machine: &Machine,
        policy: &Policy,
        live: &[RailNeeds],
        alone: &dyn Fn(BufferId) -> bool,
    ) -> Result<Plan, PlanError> {
        buffers.iter().try_for_each(validate::numbers)?;
        let by_address = validate::by_address_without_overlap(&buffers)?;
        let mut sets: Interned<Box<[RailId]>> = Interned::default();
        let mut selections: Interned<Selection> = Interned::default();
        let (mut selection_of, mut set_of) = (Vec::with_capacity(buffers.len()), Vec::with_capacity(buffers.len()));
        let mut of_places: HashMap<Place, (u32, u32)> = HashMap::new();
        for buffer in &buffers {
            validate::device_is_known(buffer, machine)?;
            let (selection, set) = match of_places.get(&buffer.place).filter(|_| policy.rails.is_by_place()) {
                Some(known) => *known,
                None => {
                    let chosen = select(buffer, machine, policy)?;
                    let set = sets.index(chosen.rails.as_slice().into());
                    let fresh = (selections.index(chosen), set);
                    of_places.insert(buffer.place, fresh);
                    fresh
                }
            };
            validate::rails_serve(buffer, &sets.values()[set as usize], machine)?;
            set_of.push(set);
            selection_of.push(selection);
        }
        let runs = runs::group(&buffers, &set_of, &by_address, policy.coalescing, alone);
        let draft = Draft::new(&buffers, machine, live, sets);
        let Draft { mut chunks, members, chunks_of, sets, shared_out, .. } = draft.fill(&runs, policy.coverage)?;
        // Buffers that are cut have made the list grow by doubling.
        chunks.shrink_to_fit();
        let sets = sets.into_values();
        let needs = Needs::of(&buffers, &chunks, &sets, &machine.rails);
        let order = order(&chunks, &members, &sets, policy)?;
        let plan = Plan {
            buffers,
            policy: policy.clone(),
            chunks,
            members,
            chunks_of,
            selections: selections.into_values(),
            selection_of,
            sets: sets.into(),
            order,
            slices: Slices::default(),
            needs,
            live: live.to_vec(),
            shared_out,
            machine: machine.clone(),
        };
        // More steps than can be counted are refused now rather than when the plan is run.
        let prepares = plan.chunk_ids().map(|chunk| plan.prepares(chunk)).fold(0, u64::saturating_add);
        let steps = plan.needs.mrs.saturating_add(prepares);
        if steps > u32::MAX.into() { Err(StepsError::TooMany { max: u32::MAX }.into()) } else { Ok(plan) }
    }

    /// Whether no rail holds more than it can where this is live beside the plan, which may have been made beside less.
    #[must_use]
    pub fn fits_beside(&self, live: &[RailNeeds]) -> bool {
        self.needs.fit(&self.machine.rails, live).is_ok()
    }

    /// The same plan for the rails as they are found when it is run: what was planned with what was known then. Chunks,
    /// rails and order stay as they are; limits, lanes and how pins are counted are the machine's.
    ///
    /// # Errors
    /// [`PlanError::OtherMachine`] where the rails are others, by name or by PCI address; [`PlanError::ChunkTooLong`] and
    /// [`PlanError::Budget`] where a limit no longer holds; [`PlanError::Access`] and [`PlanError::NoDevicePath`].
    pub fn on(self, machine: &Machine) -> Result<Plan, PlanError> {
        validate::same_rails(&self.machine, machine)?;
        for id in self.chunk_ids() {
            let buffer = self.buffer_of(id);
            validate::rails_serve(buffer, self.rails_of(id), machine)?;
            let need = self.chunks[id.index()].len();
            let limit = |rail: &RailId| Some((machine.rails[rail.index()].limits.max_mr_size?, &machine.rails[rail.index()]));
            if let Some((limit, rail)) = self.rails_of(id).iter().filter_map(limit).find(|(limit, _)| need > *limit) {
                let (buffer, rail) = (buffer.name.to_string(), rail.name.clone());
                return Err(PlanError::ChunkTooLong { buffer, rail, limit, need });
            }
        }
        let needs = Needs::of(&self.buffers, &self.chunks, &self.sets, &machine.rails);
        let planned = fits::Planned {
            chunks: &self.chunks,
            members: &self.members,
            sets: &self.sets,
            rails: &machine.rails,
            live: &self.live,
            buffers: self.buffers.len(),
        };
        needs.fit(&machine.rails, &self.live).map_err(|over| planned.error(over, self.policy.coverage == Coverage::Full))?;
        Ok(Plan { needs, machine: machine.clone(), ..self })
    }

    /// The same plan with preparation in slices of another length.
    #[must_use]
    pub fn with_slices(self, slices: Slices) -> Plan {
        Plan { slices, ..self }
    }

    /// The buffers in the caller's order.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The rails, as the machine listed them.
    #[must_use]
    pub fn rails(&self) -> &[Rail] {
        &self.machine.rails
    }

    /// The machine it was made for.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The policy it was made by.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The chunks, in the caller's order of buffers.
    #[must_use]
    pub fn chunks(&self) -> &[PlannedChunk] {
        &self.chunks
    }

    /// The chunks' ids, in the caller's order of their first buffers.
    pub fn chunk_ids(&self) -> impl Iterator<Item = ChunkId> + use<> {
        (0..u32::try_from(self.chunks.len()).unwrap_or(u32::MAX)).map(ChunkId)
    }

    /// The chunks that a buffer lies in, in ascending addresses.
    #[must_use]
    pub fn chunks_of(&self, buffer: BufferId) -> Range<u32> {
        let (first, end) = self.chunks_of[buffer.index()];
        first..end
    }

    /// The buffers that lie in a chunk, in ascending addresses; at least one.
    #[must_use]
    pub fn buffers_of(&self, chunk: ChunkId) -> &[BufferId] {
        let (first, end) = self.chunks[chunk.index()].members;
        &self.members[first as usize..end as usize]
    }

    /// A buffer of a chunk: the one an error names, and whose allocation and kind of memory all of them share.
    #[must_use]
    pub fn buffer_of(&self, chunk: ChunkId) -> &Buffer {
        &self.buffers[self.buffers_of(chunk)[0].index()]
    }

    /// What was live beside it when it was made, by rail; empty where nothing was.
    #[must_use]
    pub fn live(&self) -> &[RailNeeds] {
        &self.live
    }

    /// Why every chunk is on one of its rails only: what did not fit in full, with what was live already. `None` where
    /// every chunk is on all of them.
    #[must_use]
    pub fn shared_out(&self) -> Option<&PlanError> {
        self.shared_out.as_deref()
    }

    /// The rails that a buffer lies on, in the policy's order: those of its chunks. In disjoint shares that are fewer than
    /// were [chosen](Plan::selection).
    #[must_use]
    pub fn rails_of_buffer(&self, buffer: BufferId) -> Vec<RailId> {
        let chosen = &self.selection(buffer).rails;
        match self.shared_out {
            None => chosen.clone(),
            Some(_) => {
                let on = |rail: &RailId| self.chunks_of(buffer).any(|chunk| self.rails_of(ChunkId(chunk)).contains(rail));
                chosen.iter().copied().filter(on).collect()
            }
        }
    }

    /// The different rail sets.
    #[must_use]
    pub fn rail_sets(&self) -> &[Box<[RailId]>] {
        &self.sets
    }

    /// A chunk's rails.
    #[must_use]
    pub fn rails_of(&self, chunk: ChunkId) -> &[RailId] {
        &self.sets[self.chunks[chunk.index()].set as usize]
    }

    /// Which rails a buffer is registered on, and why.
    #[must_use]
    pub fn selection(&self, buffer: BufferId) -> &Selection {
        &self.selections[self.selection_of[buffer.index()] as usize]
    }

    /// The chunks in the order in which they are registered.
    pub fn order(&self) -> impl Iterator<Item = ChunkId> {
        self.order.as_slice().iter().map(|&at| ChunkId(at))
    }

    /// What it needs of the machine.
    #[must_use]
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Registrations: chunks x their rails.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.needs.mrs
    }

    /// A chunk's addresses.
    #[must_use]
    pub fn extent(&self, chunk: ChunkId) -> Extent {
        let PlannedChunk { range, .. } = &self.chunks[chunk.index()];
        Extent::new(self.memory(chunk).extent().start() + range.start, range.end - range.start)
            .expect("a chunk lies inside its memory")
    }

    /// The allocation a chunk lies in.
    #[must_use]
    pub fn memory(&self, chunk: ChunkId) -> &Memory {
        &self.buffer_of(chunk).memory
    }

    /// A chunk as a registrar sees it.
    #[must_use]
    pub fn chunk<'p>(&'p self, chunk: ChunkId, source: &'p Source) -> Chunk<'p> {
        let PlannedChunk { range, access, .. } = &self.chunks[chunk.index()];
        Chunk { memory: self.memory(chunk), range: range.clone(), access: *access, source }
    }

    /// How many preparations a chunk has.
    #[must_use]
    pub fn prepares(&self, chunk: ChunkId) -> u64 {
        let PlannedChunk { range, .. } = &self.chunks[chunk.index()];
        match self.buffer_of(chunk).place {
            Place::Gpu(_) => u64::from(self.is_exported(chunk)),
            _ if self.policy.preparation == Preparation::Prefault => {
                let page = self.chunks[chunk.index()].page_size();
                self.slices.count(self.extent(chunk).start() % page + (range.end - range.start), page)
            }
            _ => 0,
        }
    }

    /// A chunk's `slice`th preparation.
    #[must_use]
    pub fn prepare_step(&self, chunk: ChunkId, slice: u32) -> PrepareStep<'_> {
        let PlannedChunk { range, access, .. } = &self.chunks[chunk.index()];
        let Buffer { memory, place, .. } = self.buffer_of(chunk);
        match place {
            Place::Gpu(_) => PrepareStep::Export { memory, range: range.clone(), place: *place },
            _ => {
                // Pages are where addresses say, and memory may begin inside one.
                let base = memory.extent().start();
                let page = self.chunks[chunk.index()].page_size();
                let slice = self.slices.nth(&self.extent(chunk).range(), page, slice.into());
                PrepareStep::Populate { memory, range: slice.start - base..slice.end - base, access: *access, place: *place }
            }
        }
    }

    /// Everything there is to do: preparations and registrations in the plan's order, or the deregistrations of every
    /// task in the caller's.
    ///
    /// # Errors
    /// [`StepsError::TooMany`]; a plan's own registrations were counted when it was made.
    pub fn steps(&self, tasks: Kind) -> Result<Steps, StepsError> {
        let mut steps = Steps::new(tasks, self.in_series(), self.lanes(), Arc::clone(&self.sets))?;
        let mut push = |chunk: ChunkId, prepares: u64| {
            let planned = &self.chunks[chunk.index()];
            let prepares = u32::try_from(prepares).map_err(|_| StepsError::TooMany { max: u32::MAX })?;
            steps.push(Group { chunk, set: planned.set, prepares, bytes: planned.len() })
        };
        match tasks {
            Kind::Deregister => self.chunk_ids().try_for_each(|chunk| push(chunk, 0))?,
            Kind::Register | Kind::Prepare => self.order().try_for_each(|chunk| push(chunk, self.prepares(chunk)))?,
        }
        Ok(steps)
    }

    /// The shape of a run, as limits are chosen by.
    #[must_use]
    pub fn shape(&self, tasks_do: Kind) -> RunShape {
        let prepares = if tasks_do == Kind::Deregister { 0 } else { self.chunk_ids().map(|chunk| self.prepares(chunk)).sum() };
        let rails = self.needs.rails.iter().filter(|rail| rail.mrs > 0).fold(0, |rails, _| rails + 1);
        let bytes = self.chunks.iter().fold(0u64, |sum, chunk| sum.saturating_add(chunk.len()));
        let task_bytes = self.needs.rails.iter().fold(0u64, |sum, rail| sum.saturating_add(rail.bytes));
        RunShape { tasks_do, tasks: self.tasks(), prepares, bytes, task_bytes, rails }
    }

    /// True when a chunk's rails are registered one after another.
    #[must_use]
    pub fn in_series(&self) -> bool {
        self.policy.fan_out == FanOut::InSeries
    }

    /// How many calls each rail takes at once.
    #[must_use]
    pub fn lanes(&self) -> Vec<NonZeroU32> {
        self.machine.rails.iter().map(|rail| rail.calls_in_parallel).collect()
    }

    fn is_exported(&self, chunk: ChunkId) -> bool {
        self.rails_of(chunk).iter().any(|rail| self.machine.rails[rail.index()].device == DevicePath::DmaBuf)
    }
}

/// Asks the rail policy and checks its answer.
fn select(buffer: &Buffer, machine: &Machine, policy: &Policy) -> Result<Selection, PolicyError> {
    let selection = policy.rails.select(buffer, machine)?;
    let wrong = |what: String| PolicyError::BadSelection { policy: policy.rails.spec(), buffer: buffer.name.to_string(), what };
    if selection.rails.is_empty() {
        return Err(wrong("no rail".to_owned()));
    }
    for (at, rail) in selection.rails.iter().enumerate() {
        if rail.index() >= machine.rails.len() {
            return Err(wrong(format!("there is no {rail}: the machine has {}", machine.rails.len())));
        }
        if selection.rails[..at].contains(rail) {
            return Err(wrong(format!("{rail} comes twice")));
        }
    }
    Ok(selection)
}

fn order(
    chunks: &[PlannedChunk],
    members: &[BufferId],
    sets: &[Box<[RailId]>],
    policy: &Policy,
) -> Result<Permutation, PolicyError> {
    let info = |(chunk, planned): (u32, &PlannedChunk)| ChunkInfo {
        chunk: ChunkId(chunk),
        buffer: members[planned.members.0 as usize],
        len: planned.len(),
        rails: sets[planned.set as usize].iter().fold(0, |rails, _| rails + 1),
    };
    let infos: Vec<ChunkInfo> = (0..).zip(chunks).map(info).collect();
    Permutation::ask(policy.order.as_ref(), &infos)
}

/// Chunks as they come about, run by run.
struct Draft<'m> {
    buffers: &'m [Buffer],
    machine: &'m Machine,
    live: &'m [RailNeeds],
    chunks: Vec<PlannedChunk>,
    members: Vec<BufferId>,
    chunks_of: Vec<(u32, u32)>,
    sets: Interned<Box<[RailId]>>,
    shared_out: Option<Box<PlanError>>,
}

impl<'m> Draft<'m> {
    fn new(buffers: &'m [Buffer], machine: &'m Machine, live: &'m [RailNeeds], sets: Interned<Box<[RailId]>>) -> Draft<'m> {
        let (chunks, members) = (Vec::with_capacity(buffers.len()), Vec::with_capacity(buffers.len()));
        Draft { buffers, machine, live, chunks, members, chunks_of: vec![(0, 0); buffers.len()], sets, shared_out: None }
    }

    /// Every run on all of its rails; where that does not fit and the policy allows, every piece on one of them.
    fn fill(mut self, runs: &[Run], coverage: Coverage) -> Result<Draft<'m>, PlanError> {
        let tightest: Vec<Option<(u64, &Rail)>> = self.sets.values().iter().map(|set| self.tightest(set)).collect();
        runs.iter().try_for_each(|run| self.cover(run, tightest[run.terms.set as usize]))?;
        let needs = Needs::of(self.buffers, &self.chunks, self.sets.values(), &self.machine.rails);
        let Err(over) = needs.fit(&self.machine.rails, self.live) else { return Ok(self) };
        let planned = fits::Planned {
            chunks: &self.chunks,
            members: &self.members,
            sets: self.sets.values(),
            rails: &self.machine.rails,
            live: self.live,
            buffers: self.buffers.len(),
        };
        let over = planned.error(over, coverage == Coverage::Full);
        if coverage == Coverage::Full {
            return Err(over);
        }
        let mut shared = Draft::new(self.buffers, self.machine, self.live, self.sets);
        let mut left = Left::of(&self.machine.rails, self.live);
        runs.iter().try_for_each(|run| shared.share(run, &mut left, &over))?;
        Ok(Draft { shared_out: Some(Box::new(over)), ..shared })
    }

    /// The rail of a set that takes the shortest registrations.
    fn tightest(&self, set: &[RailId]) -> Option<(u64, &'m Rail)> {
        let rails = set.iter().map(|rail| &self.machine.rails[rail.index()]);
        rails.filter_map(|rail| Some((rail.limits.max_mr_size?, rail))).min_by_key(|(max, _)| *max)
    }

    /// The chunks of one run: as long as all of its rails take.
    fn cover(&mut self, run: &Run, tightest: Option<(u64, &Rail)>) -> Result<(), PlanError> {
        let max = tightest.map_or(u64::MAX, |(max, _)| max);
        let Range { start, end } = run.extent;
        let step = seams::step(start, end - start, run.terms.page_size, run.terms.unit, max)
            .map_err(|cannot| self.refused(cannot, run, tightest.map(|(_, rail)| rail)))?;
        let pieces = seams::cut(run.extent.clone(), max, step).map(|piece| (piece, run.terms.set));
        self.append(run, pieces)
    }

    /// The chunks of one run, each on one of its rails.
    fn share(&mut self, run: &Run, left: &mut Left, over: &PlanError) -> Result<(), PlanError> {
        let rails = self.sets.values()[run.terms.set as usize].clone();
        let pieces = left.share(run, &rails).map_err(|none| match none {
            NoShare::Cut(cannot, rail) => self.refused(cannot, run, Some(&self.machine.rails[rail.index()])),
            NoShare::Exhausted(budget) => self.exhausted(run, &rails, budget, over),
            NoShare::TooMany => self.too_many(run),
        })?;
        let pieces: Vec<(Range<u64>, u32)> =
            pieces.into_iter().map(|(piece, rail)| (piece, self.sets.index(Box::from([rail])))).collect();
        self.append(run, pieces.into_iter())
    }

    fn append(&mut self, run: &Run, pieces: impl Iterator<Item = (Range<u64>, u32)>) -> Result<(), PlanError> {
        let place = |at: usize| u32::try_from(at).map_err(|_| PlanError::Steps(StepsError::TooMany { max: u32::MAX }));
        let base = self.buffers[run.members[0].index()].memory.extent().start();
        let first_member = place(self.members.len())?;
        self.members.extend_from_slice(&run.members);
        place(self.members.len())?;
        // Members and pieces both ascend: one walk finds who lies in what.
        let extent = |member: u32| self.buffers[run.members[member as usize].index()].extent();
        let all = place(run.members.len())?;
        let mut first = 0;
        for (piece, set) in pieces {
            let id = place(self.chunks.len())?;
            if self.chunks.len() == CHUNKS_MAX {
                return Err(self.too_many(run));
            }
            while first + 1 < all && extent(first).end() <= piece.start {
                first += 1;
            }
            let mut end = first;
            while end < all && extent(end).start() < piece.end {
                end += 1;
            }
            if end == first {
                // It lies in a gap between two buffers: nobody asked for a byte of it.
                continue;
            }
            for member in first..end {
                let chunks = &mut self.chunks_of[run.members[member as usize].index()];
                *chunks = if chunks.1 == 0 { (id, id + 1) } else { (chunks.0, id + 1) };
            }
            let page = run.terms.page_size;
            self.chunks.push(PlannedChunk {
                range: piece.start - base..piece.end - base,
                members: (first_member + first, first_member + end),
                set,
                pages: (piece.end - 1) / page - piece.start / page + 1,
                page_shift: u8::try_from(page.trailing_zeros()).unwrap_or(u8::MAX),
                access: run.terms.access,
            });
        }
        Ok(())
    }

    fn refused(&self, cannot: CannotCut, run: &Run, rail: Option<&Rail>) -> PlanError {
        let buffer = self.buffers[run.members[0].index()].name.to_string();
        let limit = rail.and_then(|rail| rail.limits.max_mr_size).unwrap_or(u64::MAX);
        let rail = rail.map_or_else(String::new, |rail| rail.name.clone());
        match cannot {
            CannotCut::Page => PlanError::MrSize { buffer, rail, limit, page_size: run.terms.page_size },
            CannotCut::Unit => PlanError::Unit { buffer, rail, limit, unit: run.terms.unit.unwrap_or_default() },
        }
    }

    /// Not even disjoint shares fit: the limits of the rails together, against what was over one of them.
    fn exhausted(&self, run: &Run, rails: &[RailId], budget: Budget, over: &PlanError) -> PlanError {
        let buffer = self.buffers[run.members[0].index()].name.to_string();
        PlanError::Shares { buffer, rails: rails.len(), budget, over: Box::new(over.clone()) }
    }

    fn too_many(&self, run: &Run) -> PlanError {
        PlanError::TooManyChunks { buffer: self.buffers[run.members[0].index()].name.to_string(), max: CHUNKS_MAX }
    }
}

/// Values that come again and again, each kept once.
struct Interned<T> {
    values: Vec<T>,
    places: HashMap<T, u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Interned<T> {
        Interned { values: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interned<T> {
    fn index(&mut self, value: T) -> u32 {
        // The map is only looked up, never walked: its order reaches nothing.
        let next = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        *self.places.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            next
        })
    }

    fn values(&self) -> &[T] {
        &self.values
    }

    fn into_values(self) -> Vec<T> {
        self.values
    }
}

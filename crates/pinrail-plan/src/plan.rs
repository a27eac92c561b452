use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use pinrail_core::{
    Buffer, BufferId, Chunk, ChunkId, DevicePath, Extent, Group, Kind, Machine, Memory, Place, PrepareStep, Rail, RailId, Source,
    Steps, StepsError,
};
use pinrail_policy::{ChunkInfo, FanOut, Permutation, Policy, PolicyError, Preparation, RunShape, Selection, Slices};

use crate::seams::{self, CannotCut};
use crate::{Needs, PlanError, PlannedChunk, validate};

/// One schedule: chunks, rails, order, dependencies, and why.
#[derive(Clone, Debug)]
pub struct Plan {
    buffers: Vec<Buffer>,
    policy: Policy,
    chunks: Vec<PlannedChunk>,
    /// By buffer: its first chunk; one entry more at the end.
    first_chunk: Vec<u32>,
    /// The different answers of the rail policy, and by buffer which one.
    selections: Vec<Selection>,
    selection_of: Vec<u32>,
    sets: Arc<[Box<[RailId]>]>,
    order: Permutation,
    slices: Slices,
    needs: Needs,
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
        buffers.iter().try_for_each(validate::numbers)?;
        validate::no_overlap(&buffers)?;
        let mut draft = Draft { machine, chunks: Vec::new(), first_chunk: vec![0], sets: Interned::default() };
        let mut selections: Interned<Selection> = Interned::default();
        let mut selection_of = Vec::with_capacity(buffers.len());
        for (at, buffer) in (0..).map(BufferId).zip(&buffers) {
            validate::device_is_known(buffer, machine)?;
            let selection = select(buffer, machine, policy)?;
            validate::rails_serve(buffer, &selection.rails, machine)?;
            draft.cut(at, buffer, &selection.rails)?;
            selection_of.push(selections.index(selection));
        }
        let Draft { chunks, first_chunk, sets, .. } = draft;
        let sets: Vec<Box<[RailId]>> = sets.into_values();
        let needs = Needs::of(&chunks, &sets, &machine.rails);
        needs.fit(&machine.rails)?;
        let order = order(&chunks, &sets, policy)?;
        let plan = Plan {
            buffers,
            policy: policy.clone(),
            chunks,
            first_chunk,
            selections: selections.into_values(),
            selection_of,
            sets: sets.into(),
            order,
            slices: Slices::default(),
            needs,
            machine: machine.clone(),
        };
        // More steps than can be counted are refused now rather than when the plan is run.
        plan.steps(Kind::Register)?;
        Ok(plan)
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

    /// The chunks' ids, in the caller's order of buffers.
    pub fn chunk_ids(&self) -> impl Iterator<Item = ChunkId> + use<> {
        (0..*self.first_chunk.last().unwrap_or(&0)).map(ChunkId)
    }

    /// A buffer's chunks, in ascending addresses.
    #[must_use]
    pub fn chunks_of(&self, buffer: BufferId) -> Range<u32> {
        self.first_chunk[buffer.index()]..self.first_chunk[buffer.index() + 1]
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
        &self.buffers[self.chunks[chunk.index()].buffer.index()].memory
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
        let PlannedChunk { range, buffer, .. } = &self.chunks[chunk.index()];
        match self.buffers[buffer.index()].place {
            Place::Gpu(_) => u64::from(self.is_exported(chunk)),
            _ if self.policy.preparation == Preparation::Prefault => {
                self.slices.count(range.end - range.start, self.chunks[chunk.index()].page_size())
            }
            _ => 0,
        }
    }

    /// A chunk's `slice`th preparation.
    #[must_use]
    pub fn prepare_step(&self, chunk: ChunkId, slice: u32) -> PrepareStep<'_> {
        let PlannedChunk { range, buffer, access, .. } = &self.chunks[chunk.index()];
        let Buffer { memory, place, .. } = &self.buffers[buffer.index()];
        match place {
            Place::Gpu(_) => PrepareStep::Export { memory, range: range.clone(), place: *place },
            _ => {
                let range = self.slices.nth(range, self.chunks[chunk.index()].page_size(), slice.into());
                PrepareStep::Populate { memory, range, access: *access, place: *place }
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
        RunShape { tasks_do, tasks: self.tasks(), prepares, bytes, rails }
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

fn order(chunks: &[PlannedChunk], sets: &[Box<[RailId]>], policy: &Policy) -> Result<Permutation, PolicyError> {
    let info = |(chunk, planned): (u32, &PlannedChunk)| ChunkInfo {
        chunk: ChunkId(chunk),
        buffer: planned.buffer,
        len: planned.len(),
        rails: sets[planned.set as usize].iter().fold(0, |rails, _| rails + 1),
    };
    let infos: Vec<ChunkInfo> = (0..).zip(chunks).map(info).collect();
    Permutation::ask(policy.order.as_ref(), &infos)
}

struct Draft<'m> {
    machine: &'m Machine,
    chunks: Vec<PlannedChunk>,
    first_chunk: Vec<u32>,
    sets: Interned<Box<[RailId]>>,
}

impl Draft<'_> {
    /// Appends the chunks of one buffer: as long as all of its rails take.
    fn cut(&mut self, at: BufferId, buffer: &Buffer, rails: &[RailId]) -> Result<(), PlanError> {
        let set = self.sets.index(rails.into());
        let (extent, base) = (buffer.extent(), buffer.memory.extent().start());
        let limited = rails.iter().map(|rail| &self.machine.rails[rail.index()]);
        let tightest = limited.filter_map(|rail| rail.limits.max_mr_size.map(|max| (max, rail))).min_by_key(|(max, _)| *max);
        let max = tightest.map_or(u64::MAX, |(max, _)| max);
        let step = seams::step(extent.start(), extent.len(), buffer.page_size, buffer.unit, max)
            .map_err(|cannot| refused(cannot, buffer, max, tightest.map_or("", |(_, rail)| &rail.name)))?;
        for piece in seams::cut(extent.range(), max, step) {
            let pages = Extent::new(piece.start, piece.end - piece.start).map_or(0, |piece| piece.pages(buffer.page_size));
            self.chunks.push(PlannedChunk {
                range: piece.start - base..piece.end - base,
                buffer: at,
                set,
                pages,
                page_shift: u8::try_from(buffer.page_size.trailing_zeros()).unwrap_or(u8::MAX),
                access: buffer.access.effective(),
            });
            if u32::try_from(self.chunks.len()).is_err() {
                return Err(StepsError::TooMany { max: u32::MAX }.into());
            }
        }
        self.first_chunk.push(u32::try_from(self.chunks.len()).unwrap_or(u32::MAX));
        Ok(())
    }
}

fn refused(cannot: CannotCut, buffer: &Buffer, limit: u64, rail: &str) -> PlanError {
    let (buffer_name, rail) = (buffer.name.to_string(), rail.to_owned());
    match cannot {
        CannotCut::Page => PlanError::MrSize { buffer: buffer_name, rail, limit, page_size: buffer.page_size },
        CannotCut::Unit => PlanError::Unit { buffer: buffer_name, rail, limit, unit: buffer.unit.unwrap_or_default() },
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

    fn into_values(self) -> Vec<T> {
        self.values
    }
}

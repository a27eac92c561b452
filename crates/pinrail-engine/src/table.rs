use std::sync::PoisonError;

use pinrail_core::{ChunkId, Mr, RailId};
use pinrail_plan::Plan;

use crate::sync::{Mutex, lock};

/// One place for each task of a plan.
pub(crate) struct Table<T> {
    /// By chunk: its first place; one entry more at the end.
    first: Vec<u32>,
    places: Vec<T>,
}

/// The live MRs of a plan, while nobody changes them.
pub(crate) type Mrs = Table<Option<Mr>>;

/// The live MRs of a plan while workers fill and empty different places at once; nobody holds a place's lock during a
/// provider call.
pub(crate) type SharedMrs = Table<Mutex<Option<Mr>>>;

impl<T> Table<T> {
    fn place(&self, plan: &Plan, chunk: ChunkId, rail: RailId) -> Option<&T> {
        let nth = plan.rails_of(chunk).iter().position(|&other| other == rail)?;
        self.places.get(*self.first.get(chunk.index())? as usize + nth)
    }

    fn map<U>(self, f: impl FnMut(T) -> U) -> Table<U> {
        Table { first: self.first, places: self.places.into_iter().map(f).collect() }
    }
}

impl Mrs {
    pub(crate) fn empty(plan: &Plan) -> Mrs {
        let mut first = vec![0];
        let mut places = Vec::new();
        for chunk in plan.chunk_ids() {
            places.extend(plan.rails_of(chunk).iter().map(|_| None));
            first.push(u32::try_from(places.len()).expect("a plan has counted its tasks"));
        }
        Mrs { first, places }
    }

    pub(crate) fn shared(self) -> SharedMrs {
        self.map(Mutex::new)
    }

    pub(crate) fn get(&self, plan: &Plan, chunk: ChunkId, rail: RailId) -> Option<&Mr> {
        self.place(plan, chunk, rail)?.as_ref()
    }

    /// The tasks whose MR is live, in the caller's order.
    pub(crate) fn live(&self, plan: &Plan) -> Vec<(ChunkId, RailId)> {
        let tasks = plan.chunk_ids().flat_map(|chunk| plan.rails_of(chunk).iter().map(move |&rail| (chunk, rail)));
        tasks.zip(&self.places).filter(|(_, place)| place.is_some()).map(|(task, _)| task).collect()
    }
}

impl SharedMrs {
    pub(crate) fn put(&self, plan: &Plan, chunk: ChunkId, rail: RailId, mr: Mr) {
        *lock(self.place(plan, chunk, rail).expect("the step came from this plan")) = Some(mr);
    }

    pub(crate) fn take(&self, plan: &Plan, chunk: ChunkId, rail: RailId) -> Option<Mr> {
        lock(self.place(plan, chunk, rail)?).take()
    }

    pub(crate) fn settled(self) -> Mrs {
        self.map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

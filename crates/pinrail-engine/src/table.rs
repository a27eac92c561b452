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
pub(crate) type SharedMrs = Table<Mutex<Place>>;

/// A place for the MR of one task.
pub(crate) enum Place {
    Empty,
    Live(Mr),
    /// The table was read out: what comes now comes too late.
    Closed,
}

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
        self.map(|mr| Mutex::new(mr.map_or(Place::Empty, Place::Live)))
    }

    pub(crate) fn get(&self, plan: &Plan, chunk: ChunkId, rail: RailId) -> Option<&Mr> {
        self.place(plan, chunk, rail)?.as_ref()
    }

    /// The tasks whose MR is live, in the caller's order.
    pub(crate) fn live(&self, plan: &Plan) -> Vec<(ChunkId, RailId)> {
        let tasks = plan.chunk_ids().flat_map(|chunk| plan.rails_of(chunk).iter().map(move |&rail| (chunk, rail)));
        let mut live: Vec<_> = tasks.zip(&self.places).filter(|(_, place)| place.is_some()).map(|(task, _)| task).collect();
        if planted!(ResultOrder) {
            live.reverse();
        }
        live
    }
}

impl SharedMrs {
    /// Gives the MR back where nobody will look for it any more.
    pub(crate) fn put(&self, plan: &Plan, chunk: ChunkId, rail: RailId, mr: Mr) -> Result<(), Mr> {
        let mut place = lock(self.place(plan, chunk, rail).expect("the step came from this plan"));
        if let Place::Closed = *place {
            return Err(mr);
        }
        *place = Place::Live(mr);
        Ok(())
    }

    pub(crate) fn take(&self, plan: &Plan, chunk: ChunkId, rail: RailId) -> Option<Mr> {
        let mut place = lock(self.place(plan, chunk, rail)?);
        match std::mem::replace(&mut *place, Place::Empty) {
            Place::Live(mr) => Some(mr),
            Place::Empty => None,
            Place::Closed => {
                *place = Place::Closed;
                None
            }
        }
    }

    /// Reads the table out for good: calls that have not returned find it closed.
    pub(crate) fn close(&self) -> Mrs {
        let mr = |place: &Mutex<Place>| match std::mem::replace(&mut *lock(place), Place::Closed) {
            Place::Live(mr) => Some(mr),
            Place::Empty | Place::Closed => None,
        };
        Mrs { first: self.first.clone(), places: self.places.iter().map(mr).collect() }
    }
}

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::{ChunkId, RailId, StepId};

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Makes memory ready.
    Prepare,
    /// Registers one chunk on one rail. These are the tasks.
    Register,
    /// Deregisters one MR.
    Deregister,
}

/// How many steps may be in flight at once. The smallest that applies wins; zero is not a limit, so that no limit can
/// stop a batch for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps of every kind together.
    pub total: NonZeroU32,
    /// Preparations.
    pub prepare: NonZeroU32,
    /// Registrations.
    pub register: NonZeroU32,
    /// Deregistrations.
    pub deregister: NonZeroU32,
    /// Registrations or deregistrations on one rail.
    pub per_rail: NonZeroU32,
}

impl Limits {
    /// No limit of any kind.
    pub const NONE: Limits = Limits {
        total: NonZeroU32::MAX,
        prepare: NonZeroU32::MAX,
        register: NonZeroU32::MAX,
        deregister: NonZeroU32::MAX,
        per_rail: NonZeroU32::MAX,
    };

    /// At most `n` steps of every kind together.
    #[must_use]
    pub fn total(n: NonZeroU32) -> Limits {
        Limits { total: n, ..Limits::NONE }
    }

    /// The smaller of the two, limit by limit.
    #[must_use]
    pub fn least(self, other: Limits) -> Limits {
        Limits {
            total: self.total.min(other.total),
            prepare: self.prepare.min(other.prepare),
            register: self.register.min(other.register),
            deregister: self.deregister.min(other.deregister),
            per_rail: self.per_rail.min(other.per_rail),
        }
    }

    /// The limit on one kind of step.
    #[must_use]
    pub fn of(&self, kind: Kind) -> NonZeroU32 {
        match kind {
            Kind::Prepare => self.prepare,
            Kind::Register => self.register,
            Kind::Deregister => self.deregister,
        }
    }
}

/// The steps of one chunk: its preparations, then one task for each of its rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its rails: an index into [`Steps::sets`].
    pub set: u32,
    /// Its preparations; the tasks wait for all of them.
    pub prepares: u32,
    /// Bytes of the chunk.
    pub bytes: u64,
}

/// Everything a run has to do, in the order in which it is wanted: what a plan hands to dispatch.
///
/// Steps are numbered through: group after group, within a group first the preparations, then the tasks in the order
/// of the group's rails. The numbering is arithmetic; eight bytes a step are stored.
#[derive(Clone, Debug)]
pub struct Steps {
    tasks: Kind,
    series: bool,
    sets: Arc<[Box<[RailId]>]>,
    lanes: Vec<NonZeroU32>,
    groups: Vec<Group>,
    firsts: Vec<u32>,
    group_of: Vec<u32>,
}

/// What one step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepWhat {
    /// The `slice`th preparation of a chunk.
    Prepare {
        /// The chunk.
        chunk: ChunkId,
        /// Counted from 0.
        slice: u32,
    },
    /// A task: a registration or deregistration of a chunk on a rail.
    Task {
        /// The chunk.
        chunk: ChunkId,
        /// The rail.
        rail: RailId,
        /// The rail's position in the chunk's rail set.
        nth: u32,
    },
}

/// Steps that cannot be numbered or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepsError {
    /// More than 2^32 - 1 steps.
    #[error("a run has at most {max} steps and this one needs more: register the batch in parts")]
    TooMany {
        /// The limit.
        max: u32,
    },
    /// A group names a rail set that does not exist, or one without rails.
    #[error("rail set {set} does not exist or has no rails")]
    NoSuchSet {
        /// The set.
        set: u32,
    },
    /// A rail set names a rail without a lane.
    #[error("{rail} has no lane: there are {lanes}")]
    NoSuchRail {
        /// The rail.
        rail: RailId,
        /// Lanes given.
        lanes: usize,
    },
}

impl Steps {
    /// No steps yet: `tasks` is what they do, `lanes` how many calls each rail takes at once, `sets` the rail sets that
    /// groups will name; in `series` a group's tasks run one after another.
    ///
    /// # Errors
    /// [`StepsError::NoSuchRail`] for a set that names a rail beyond `lanes`.
    pub fn new(tasks: Kind, series: bool, lanes: Vec<NonZeroU32>, sets: Arc<[Box<[RailId]>]>) -> Result<Steps, StepsError> {
        match sets.iter().flatten().find(|rail| rail.index() >= lanes.len()) {
            Some(&rail) => Err(StepsError::NoSuchRail { rail, lanes: lanes.len() }),
            None => Ok(Steps { tasks, series, sets, lanes, groups: Vec::new(), firsts: Vec::new(), group_of: Vec::new() }),
        }
    }

    /// Appends the steps of one chunk.
    ///
    /// # Errors
    /// [`StepsError::TooMany`] and [`StepsError::NoSuchSet`]; nothing is appended then.
    pub fn push(&mut self, group: Group) -> Result<(), StepsError> {
        let set = usize::try_from(group.set).ok().and_then(|set| self.sets.get(set)).filter(|set| !set.is_empty());
        let Some(set) = set else { return Err(StepsError::NoSuchSet { set: group.set }) };
        let too_many = StepsError::TooMany { max: u32::MAX };
        let (Ok(first), Ok(at)) = (u32::try_from(self.group_of.len()), u32::try_from(self.groups.len())) else {
            return Err(too_many);
        };
        let count = u64::from(group.prepares) + set.len() as u64;
        if u64::from(first) + count > u64::from(u32::MAX) {
            return Err(too_many);
        }
        self.group_of.extend(std::iter::repeat_n(at, usize::try_from(count).map_err(|_| too_many)?));
        self.firsts.push(first);
        self.groups.push(group);
        Ok(())
    }

    /// All steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.group_of.len()
    }

    /// True when there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.group_of.is_empty()
    }

    /// What the tasks do.
    #[must_use]
    pub fn tasks(&self) -> Kind {
        self.tasks
    }

    /// True when a group's tasks run one after another.
    #[must_use]
    pub fn in_series(&self) -> bool {
        self.series
    }

    /// The rail sets that groups name.
    #[must_use]
    pub fn sets(&self) -> &[Box<[RailId]>] {
        &self.sets
    }

    /// How many calls each rail takes at once.
    #[must_use]
    pub fn lanes(&self) -> &[NonZeroU32] {
        &self.lanes
    }

    /// The groups in order.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// A group's rails.
    #[must_use]
    pub fn rails_of(&self, group: usize) -> &[RailId] {
        &self.sets[self.groups[group].set as usize]
    }

    /// A group's first step; its preparations and then its tasks follow it.
    #[must_use]
    pub fn first_of(&self, group: usize) -> StepId {
        StepId(self.firsts[group])
    }

    /// How many steps a group has.
    #[must_use]
    pub fn len_of(&self, group: usize) -> u32 {
        let end = self.firsts.get(group + 1).map_or(self.group_of.len() as u64, |&next| next.into());
        // `push` refused what does not fit.
        u32::try_from(end - u64::from(self.firsts[group])).unwrap_or(u32::MAX)
    }

    /// The group a step belongs to, and its place within.
    ///
    /// # Panics
    /// For a step that is not one of these.
    #[must_use]
    pub fn locate(&self, step: StepId) -> (usize, u32) {
        let group = self.group_of[step.index()] as usize;
        (group, step.0 - self.firsts[group])
    }

    /// What a step is.
    ///
    /// # Panics
    /// For a step that is not one of these.
    #[must_use]
    pub fn what(&self, step: StepId) -> StepWhat {
        let (group, at) = self.locate(step);
        let Group { chunk, prepares, .. } = self.groups[group];
        match at.checked_sub(prepares) {
            None => StepWhat::Prepare { chunk, slice: at },
            Some(nth) => StepWhat::Task { chunk, rail: self.rails_of(group)[nth as usize], nth },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    fn steps(groups: &[(u32, u32)]) -> Steps {
        let sets: Arc<[Box<[RailId]>]> = Arc::new([Box::new([RailId(0), RailId(2)]), Box::new([RailId(1)])]);
        let mut steps = Steps::new(Kind::Register, false, vec![ONE; 3], sets).unwrap();
        for (chunk, &(set, prepares)) in (0..).zip(groups) {
            steps.push(Group { chunk: ChunkId(chunk), set, prepares, bytes: 1 }).unwrap();
        }
        steps
    }

    #[test]
    fn a_group_is_its_preparations_then_its_rails() {
        let steps = steps(&[(0, 2), (1, 0)]);
        let seen: Vec<StepWhat> = (0..5).map(|s| steps.what(StepId(s))).collect();
        let (a, b) = (ChunkId(0), ChunkId(1));
        assert_eq!(
            seen,
            [
                StepWhat::Prepare { chunk: a, slice: 0 },
                StepWhat::Prepare { chunk: a, slice: 1 },
                StepWhat::Task { chunk: a, rail: RailId(0), nth: 0 },
                StepWhat::Task { chunk: a, rail: RailId(2), nth: 1 },
                StepWhat::Task { chunk: b, rail: RailId(1), nth: 0 },
            ]
        );
        assert_eq!(steps.first_of(1), StepId(4));
    }

    #[test]
    fn what_cannot_run_is_refused_and_changes_nothing() {
        let mut steps = steps(&[(0, 0)]);
        let group = Group { chunk: ChunkId(9), set: 7, prepares: 0, bytes: 1 };
        assert_eq!(steps.push(group), Err(StepsError::NoSuchSet { set: 7 }));
        let many = Group { set: 0, prepares: u32::MAX, ..group };
        assert_eq!(steps.push(many), Err(StepsError::TooMany { max: u32::MAX }));
        assert_eq!(steps.len(), 2);
        let sets: Arc<[Box<[RailId]>]> = Arc::new([Box::new([RailId(3)])]);
        assert!(matches!(Steps::new(Kind::Register, false, vec![ONE; 3], sets), Err(StepsError::NoSuchRail { .. })));
    }

    #[test]
    fn the_least_of_two_limits_is_taken_one_by_one() {
        let four = NonZeroU32::new(4).unwrap();
        let limits = Limits::total(four).least(Limits { register: ONE, ..Limits::NONE });
        assert_eq!((limits.total, limits.of(Kind::Register), limits.of(Kind::Prepare)), (four, ONE, NonZeroU32::MAX));
    }
}

//! Faults that a test can plant in the code itself, to see that they are found. They are planted for one thread, and in a
//! build without tests and without the feature `testing` the places where they would be are not there.

use std::cell::Cell;

/// A fault, by what it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A start does not wake the next worker.
    LostWakeUp,
    /// A step that was handed out is put back into its lane.
    DoubleStart,
    /// A rail has one call more than it takes.
    LimitOffByOne,
    /// The first registration of a run is not undone with the others.
    RollbackSkipped,
    /// Tasks do not wait for the last slice.
    DependencyDropped,
    /// A rail does not get back the place that a call took.
    TokenLeaked,
    /// Every chunk is registered on the first rail.
    WrongRail,
    /// Equal chunks are turned round. A fault of a policy, so a checker plants it as one.
    OrderNotStable,
    /// Registrations are listed from the last to the first.
    ResultOrder,
    /// A look-up still sees what was released.
    StaleKey,
}

impl Canary {
    /// All of them.
    pub const ALL: [Canary; 10] = [
        Canary::LostWakeUp,
        Canary::DoubleStart,
        Canary::LimitOffByOne,
        Canary::RollbackSkipped,
        Canary::DependencyDropped,
        Canary::TokenLeaked,
        Canary::WrongRail,
        Canary::OrderNotStable,
        Canary::ResultOrder,
        Canary::StaleKey,
    ];

    /// Plants this fault, or none, for this thread.
    pub fn plant(canary: Option<Canary>) {
        PLANTED.set(canary);
    }

    /// Whether this one is planted.
    #[must_use]
    pub fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }
}

thread_local! {
    static PLANTED: Cell<Option<Canary>> = const { Cell::new(None) };
}

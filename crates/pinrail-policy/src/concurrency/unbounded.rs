use pinrail_core::Limits;

use crate::{Concurrency, Control, RunShape};

/// Every ready step at once: `unbounded`. What a rail takes in parallel still bounds its lane.
///
/// With `rails-in-series` it is what engines do that start a thread a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unbounded;

impl Concurrency for Unbounded {
    fn begin(&self, _: &RunShape) -> Control {
        Control::Fixed(Limits::NONE)
    }

    fn spec(&self) -> String {
        "unbounded".to_owned()
    }
}

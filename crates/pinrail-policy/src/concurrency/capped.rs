use std::num::NonZeroU32;

use pinrail_core::Limits;

use crate::{Concurrency, Control, RunShape};

/// At most so many steps of any kind in flight in the process: `capped=N`.
///
/// Published engines that start everything at once spend their time contending: 274 s against 59 s with a cap of 16 on
/// host memory. The best cap reported is about the cores of the node divided by its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capped(pub NonZeroU32);

impl Concurrency for Capped {
    fn begin(&self, _: &RunShape) -> Control {
        Control::Fixed(Limits::total(self.0))
    }

    fn spec(&self) -> String {
        format!("capped={}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinrail_core::Kind;

    #[test]
    fn the_cap_counts_steps_of_every_kind_together() {
        let run = RunShape { tasks_do: Kind::Deregister, tasks: 100, prepares: 10, bytes: 1, task_bytes: 4, rails: 4 };
        let cap = NonZeroU32::new(3).unwrap();
        assert!(matches!(Capped(cap).begin(&run), Control::Fixed(limits) if limits == Limits::total(cap)));
    }
}

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The position as an index into the list it belongs to.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A rail's position in the machine's and the registrar's list of rails (one list, one order).
    RailId(u16), "rail "
);
id!(
    /// A buffer's position in the caller's batch.
    BufferId(u32), "buffer "
);
id!(
    /// A chunk's position in the plan, counted in the caller's order of buffers.
    ChunkId(u32), "chunk "
);
id!(
    /// A step's position in the plan's order: chunks as ordered, then a chunk's preparation, then its rails.
    StepId(u32), "step "
);
id!(
    /// A worker of one run; the engine numbers its threads from 0 and the caller's thread is 0.
    WorkerId(u32), "worker "
);
id!(
    /// A NUMA node as the operating system numbers it.
    NodeId(u32), "node "
);

/// What becomes of a batch that its rails cannot hold in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coverage {
    /// Every chunk on every chosen rail, or an error before any call.
    #[default]
    Full,
    /// Where that does not fit, every chunk on one of its rails, shared out so that no rail holds more than it can. A
    /// transfer then has one rail for each chunk: more memory is reachable at the price of bandwidth.
    Disjoint,
}

impl Coverage {
    /// The term in a spec.
    #[must_use]
    pub fn spec(self) -> &'static str {
        match self {
            Coverage::Full => "coverage=full",
            Coverage::Disjoint => "coverage=disjoint",
        }
    }
}

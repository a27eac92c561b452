pub(crate) mod all_rails;
pub(crate) mod device_local;
pub(crate) mod local;
pub(crate) mod named_rails;
pub(crate) mod rail_local;

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;

use pinrail_core::{Buffer, Machine, PathClass, RailId};

use crate::{PolicyError, Share};

/// Which rails a buffer is registered on.
pub trait SelectRails: Send + Sync {
    /// The rails for one buffer, each once, and why. Depends on nothing but its arguments.
    ///
    /// # Errors
    /// [`PolicyError::UnknownRail`] where the policy names rails, [`PolicyError::NoRail`] where none can be chosen.
    fn select(&self, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError>;

    /// The term in a spec, with the terms of its sharing where it has them.
    fn spec(&self) -> String;

    /// True if the answer depends on nothing of a buffer but its [`Place`](pinrail_core::Place): then it is asked once for
    /// all buffers of one place, which is what makes large batches cheap to plan.
    fn is_by_place(&self) -> bool {
        false
    }

    /// The same policy with the given parts of its sharing replaced; `None` where it does not choose by nearness.
    fn with_local(&self, _share: Option<Share>, _max: Option<NonZeroU32>) -> Option<Arc<dyn SelectRails>> {
        None
    }
}

/// A choice of rails, with its reason: a fallback is part of the answer and never silent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    /// The rails, in the order in which they are registered when that is one after another.
    pub rails: Vec<RailId>,
    /// How near they are, where nearness decided.
    pub path: Option<PathClass>,
    /// Why these.
    pub why: Cow<'static, str>,
    /// What was wanted and could not be had, when these are a fallback.
    pub fallback: Option<String>,
}

impl Selection {
    /// All usable rails.
    ///
    /// # Errors
    /// [`PolicyError::NoRail`] when every port is down or there is no rail at all.
    pub fn all_usable(policy: &dyn SelectRails, buffer: &Buffer, machine: &Machine) -> Result<Selection, PolicyError> {
        let rails: Vec<RailId> = machine.usable().collect();
        if rails.is_empty() {
            let why = match machine.rails.len() {
                0 => "the machine has no rail".to_owned(),
                n => format!("the ports of all {n} rails are down"),
            };
            return Err(PolicyError::NoRail { policy: policy.spec(), buffer: buffer.name.to_string(), why });
        }
        Ok(Selection { rails, path: None, why: Cow::Borrowed("all usable rails"), fallback: None })
    }

    /// The same, because of something that could not be had.
    #[must_use]
    pub fn because(self, fallback: impl Into<String>) -> Selection {
        Selection { fallback: Some(fallback.into()), ..self }
    }
}

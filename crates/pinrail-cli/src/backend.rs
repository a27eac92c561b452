//! `--backend`: who registers, opened on the rails that were asked for.

#[cfg(feature = "topology")]
mod host;
#[cfg(feature = "libfabric")]
mod libfabric;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use pinrail_core::{Machine, Registrar};
use pinrail_uring::Uring;

use crate::error::Error;
use crate::machine::Wanted;

/// A backend by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// `uring`
    Uring,
    /// `libfabric` and `libfabric:PROVIDER`
    Libfabric(Option<String>),
    /// `verbs`
    Verbs,
}

/// A registrar, and the machine whose rails are its rails: same order, same names, the limits that hold.
pub(crate) struct Opened {
    pub(crate) registrar: Arc<dyn Registrar>,
    pub(crate) machine: Machine,
    /// What a reader of times should know of the provider.
    pub(crate) notes: Vec<String>,
    /// True where the provider may answer registrations from a cache of its own.
    pub(crate) cached: bool,
}

impl Backend {
    /// Opens the rails, under the names they have on the machine where one was described.
    pub(crate) fn open(&self, wanted: Wanted) -> Result<Opened, Error> {
        #[cfg_attr(not(any(feature = "libfabric", feature = "topology")), expect(unused_mut, reason = "nothing to note"))]
        let mut notes = Vec::new();
        #[cfg_attr(not(feature = "libfabric"), expect(unused_mut, reason = "only libfabric has a cache"))]
        let mut cached = false;
        let registrar: Arc<dyn Registrar> = match self {
            Backend::Uring => match &wanted {
                Wanted::Count(rails) => Arc::new(Uring::open(&Machine::of_rails(*rails).rails)?),
                Wanted::Machine(machine) => Arc::new(Uring::open(&machine.rails)?),
            },
            #[cfg(feature = "libfabric")]
            Backend::Libfabric(provider) => {
                let fabric = libfabric::open(provider.as_deref(), &wanted)?;
                (notes, cached) = (fabric.notes(), libfabric::is_cached(&fabric));
                Arc::new(fabric)
            }
            #[cfg(not(feature = "libfabric"))]
            Backend::Libfabric(_) => return Err(Error::feature_off("backend libfabric", "libfabric")),
            #[cfg(feature = "verbs")]
            Backend::Verbs => match &wanted {
                Wanted::Count(rails) => Arc::new(pinrail_verbs::Verbs::open_first(*rails)?),
                Wanted::Machine(machine) => Arc::new(pinrail_verbs::Verbs::open(&machine.rails)?),
            },
            #[cfg(not(feature = "verbs"))]
            Backend::Verbs => return Err(Error::feature_off("backend verbs", "verbs")),
        };
        let machine = match wanted {
            // The rails of io_uring are nowhere; those of a fabric are devices of this host.
            #[cfg(feature = "topology")]
            Wanted::Count(_) if *self != Backend::Uring => host::described(registrar.rails(), &mut notes),
            Wanted::Count(_) => Machine { rails: registrar.rails().to_vec(), ..Machine::default() },
            Wanted::Machine(mut machine) => {
                machine.rails.iter_mut().zip(registrar.rails()).for_each(|(rail, provider)| rail.tighten(provider));
                machine
            }
        };
        Ok(Opened { registrar, machine, notes, cached })
    }
}

/// A text that names no backend.
#[derive(Debug)]
pub(crate) struct UnknownBackend;

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there are uring, libfabric, libfabric:PROVIDER (as in libfabric:tcp) and verbs")
    }
}

impl std::error::Error for UnknownBackend {}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Uring => f.write_str("uring"),
            Backend::Libfabric(None) => f.write_str("libfabric"),
            Backend::Libfabric(Some(provider)) => write!(f, "libfabric:{provider}"),
            Backend::Verbs => f.write_str("verbs"),
        }
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Backend, UnknownBackend> {
        match text.split_once(':') {
            None if text == "uring" => Ok(Backend::Uring),
            None if text == "libfabric" => Ok(Backend::Libfabric(None)),
            None if text == "verbs" => Ok(Backend::Verbs),
            Some(("libfabric", provider)) if !provider.is_empty() => Ok(Backend::Libfabric(Some(provider.to_owned()))),
            _ => Err(UnknownBackend),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_may_have_any_name_and_must_have_one() {
        let provider = |name: &str| Backend::Libfabric(Some(name.to_owned()));
        assert_eq!("libfabric:tcp;ofi_rxm".parse::<Backend>().unwrap(), provider("tcp;ofi_rxm"));
        assert_eq!("libfabric".parse::<Backend>().unwrap(), Backend::Libfabric(None));
        for text in ["", "libfabric:", "uring:x", "verbs:mlx5_0", "Uring", "tcp"] {
            assert!(text.parse::<Backend>().is_err(), "{text}");
        }
    }
}

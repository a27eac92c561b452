//! `--backend`: who registers, opened on the rails that were asked for.

#[cfg(feature = "libfabric")]
mod libfabric;
#[cfg(feature = "verbs")]
mod verbs;

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
}

impl Backend {
    /// Opens the rails.
    pub(crate) fn open(&self, wanted: Wanted) -> Result<Opened, Error> {
        match self {
            Backend::Uring => {
                let mut machine = wanted.machine();
                // Rings take whatever name and place a rail has.
                let uring = Uring::open(&machine.rails)?;
                tighten(&mut machine, &uring);
                Ok(Opened { registrar: Arc::new(uring), machine })
            }
            #[cfg(feature = "libfabric")]
            Backend::Libfabric(provider) => libfabric::open(provider.as_deref(), wanted),
            #[cfg(not(feature = "libfabric"))]
            Backend::Libfabric(_) => Err(Error::feature_off("backend libfabric", "libfabric")),
            #[cfg(feature = "verbs")]
            Backend::Verbs => verbs::open(wanted),
            #[cfg(not(feature = "verbs"))]
            Backend::Verbs => Err(Error::feature_off("backend verbs", "verbs")),
        }
    }
}

/// Takes over what the registrar says of the machine's rails, which are its own in the same order.
fn tighten(machine: &mut Machine, registrar: &dyn Registrar) {
    for (rail, provider) in machine.rails.iter_mut().zip(registrar.rails()) {
        rail.tighten(provider);
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

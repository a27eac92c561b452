//! `--backend`: who registers, opened on the rails that were asked for.

#[cfg(feature = "topology")]
mod host;
#[cfg(feature = "libfabric")]
mod libfabric;
mod uring;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use pinrail_core::batch::BatchSpec;
use pinrail_core::{Machine, Prepare, Registrar};
use pinrail_memory::Populate;
use pinrail_policy::Policy;
use pinrail_sim::{Profile, Simulated};
use pinrail_uring::Uring;

use crate::clock::RealTime;
use crate::error::Error;
use crate::machine::Wanted;
use crate::policy;

/// A backend by its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Backend {
    /// `uring`
    Uring,
    /// `libfabric` and `libfabric:PROVIDER`
    Libfabric(Option<String>),
    /// `verbs`
    Verbs,
    /// `sim:PROFILE`, and `sim:PROFILE@N` for N times as fast
    Sim {
        /// By name.
        profile: String,
        /// Times as fast as the profile says.
        speed: f64,
    },
}

/// A registrar, and the machine whose rails are its rails: same order, same names, the limits that hold.
pub(crate) struct Opened {
    pub(crate) registrar: Arc<dyn Registrar>,
    /// What makes memory ready for it.
    pub(crate) prepare: Arc<dyn Prepare>,
    pub(crate) machine: Machine,
    /// What a reader of times should know of the provider.
    pub(crate) notes: Vec<String>,
    /// True where the provider may answer registrations from a cache of its own.
    pub(crate) cached: bool,
}

/// What will be registered.
pub(crate) struct Workload<'w> {
    pub(crate) batch: &'w BatchSpec,
    /// Each by itself; what others do registers every buffer alone.
    pub(crate) policies: &'w [Policy],
    /// So many batches at once.
    pub(crate) batches: u64,
    /// The state of the memory, for the simulator: it looks at none.
    pub(crate) resident: bool,
}

impl Backend {
    /// Opens the rails, under the names they have on the machine where one was described, with room for what will be
    /// registered.
    pub(crate) fn open(&self, wanted: Wanted, workload: &Workload<'_>) -> Result<Opened, Error> {
        let mut prepare: Arc<dyn Prepare> = Arc::new(Populate::new());
        #[cfg_attr(not(any(feature = "libfabric", feature = "topology")), expect(unused_mut, reason = "nothing to note"))]
        let mut notes = Vec::new();
        #[cfg_attr(not(feature = "libfabric"), expect(unused_mut, reason = "only libfabric has a cache"))]
        let mut cached = false;
        let registrar: Arc<dyn Registrar> = match self {
            Backend::Uring => {
                let mut machine = wanted.clone().machine();
                uring::size_tables(&mut machine, workload);
                Arc::new(Uring::open(&machine.rails)?)
            }
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
            Backend::Sim { profile: name, speed } => {
                let (profile, rails) = (Profile::named(name)?, wanted.clone().machine().rails);
                let (cores, clock) = (policy::usable_cores().get(), Box::new(RealTime::start()));
                let provider = if *speed == 1.0 { name.clone() } else { format!("{name}@{speed}") };
                let simulated = Arc::new(Simulated::new(&provider, profile, rails, cores, *speed, workload.resident, clock));
                prepare = Arc::clone(&simulated) as Arc<dyn Prepare>;
                simulated
            }
        };
        let machine = match wanted {
            // The rails of io_uring are nowhere; those of a fabric are devices of this host.
            #[cfg(feature = "topology")]
            Wanted::Count(_) if !matches!(self, Backend::Uring | Backend::Sim { .. }) => {
                host::described(registrar.rails(), &mut notes)
            }
            Wanted::Count(_) => Machine { rails: registrar.rails().to_vec(), ..Machine::default() },
            Wanted::Machine(mut machine) => {
                machine.rails.iter_mut().zip(registrar.rails()).for_each(|(rail, provider)| rail.tighten(provider));
                machine
            }
        };
        Ok(Opened { registrar, prepare, machine, notes, cached })
    }
}

impl Backend {
    /// True for the simulator, for which memory is imagined.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Backend::Sim { .. })
    }
}

/// A text that names no backend.
#[derive(Debug)]
pub(crate) struct UnknownBackend;

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "there are uring, libfabric, libfabric:PROVIDER (as in libfabric:tcp), verbs and sim:PROFILE (as in \
             sim:efa-p5/joint, or sim:efa-p5/joint@100 for a hundred times as fast; `pinrail sim --list` has the profiles)",
        )
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
            Backend::Sim { profile, speed: 1.0 } => write!(f, "sim:{profile}"),
            Backend::Sim { profile, speed } => write!(f, "sim:{profile}@{speed}"),
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
            Some(("sim", profile)) if !profile.is_empty() => {
                let (profile, speed) = match profile.rsplit_once('@') {
                    None => (profile, 1.0),
                    Some((profile, speed)) => (profile, speed.parse().map_err(|_| UnknownBackend)?),
                };
                if !(0.001..=1e6).contains(&speed) {
                    return Err(UnknownBackend);
                }
                Ok(Backend::Sim { profile: profile.to_owned(), speed })
            }
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
        let simulated = |speed| Backend::Sim { profile: "efa-p5/joint".to_owned(), speed };
        assert_eq!("sim:efa-p5/joint".parse::<Backend>().unwrap(), simulated(1.0));
        assert_eq!("sim:efa-p5/joint@100".parse::<Backend>().unwrap(), simulated(100.0));
        assert_eq!(simulated(100.0).to_string(), "sim:efa-p5/joint@100");
        for text in [
            "sim",
            "sim:",
            "sim:x@",
            "sim:x@0",
            "sim:x@-1",
            "sim:x@nan",
            "sim:x@inf",
            "",
            "libfabric:",
            "uring:x",
            "verbs:mlx5_0",
            "Uring",
            "tcp",
        ] {
            assert!(text.parse::<Backend>().is_err(), "{text}");
        }
    }
}

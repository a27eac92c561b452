//! The registration caches of providers, which make a second registration of the same memory look free and keep memory
//! pinned that its owner has deregistered.

use std::ffi::{c_char, c_int};

use libfabric_sys::bindgen as fi;

use crate::ffi::string;
use crate::info::Facts;

/// Whether a rail's registrations may go through a cache of the provider.
///
/// libfabric has no call to turn the cache off; it reads its environment when it starts, before this crate can say a
/// word. So the state is reported, and who starts the process decides: `FI_MR_CACHE_MONITOR=disabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MrCache {
    /// Every registration and deregistration is the provider's own.
    Off,
    /// A registration may be answered from the cache, and what was deregistered may stay pinned.
    On,
    /// This crate does not know the provider.
    Unknown,
}

impl MrCache {
    pub(crate) fn of(facts: &Facts) -> MrCache {
        MrCache::by_settings(facts, parameter)
    }

    fn by_settings(facts: &Facts, setting: impl Fn(&str) -> Option<String>) -> MrCache {
        // Every provider's cache needs a memory monitor and room for an entry (fi_mr(3), "Memory registration cache").
        let disabled = setting("FI_MR_CACHE_MONITOR").is_some_and(|monitor| monitor == "disabled")
            || setting("FI_MR_CACHE_MAX_COUNT").is_some_and(|count| count == "0");
        match facts.provider.split(';').next().unwrap_or_default() {
            _ if disabled => MrCache::Off,
            // Nothing to keep: a registration is an entry in a table.
            "tcp" | "net" | "sockets" | "udp" | "shm" => MrCache::Off,
            // Its cache is for callers that do not register what they send from.
            "efa" if facts.mr_mode & fi::FI_MR_LOCAL != 0 => MrCache::Off,
            "efa" | "verbs" | "cxi" => MrCache::On,
            _ => MrCache::Unknown,
        }
    }
}

/// What the environment sets a libfabric parameter to; `None` where it is left at its default or does not exist.
fn parameter(name: &str) -> Option<String> {
    let mut list = std::ptr::null_mut();
    let mut count: c_int = 0;
    // SAFETY: both results are stored through valid pointers.
    let returned = unsafe { fi::fi_getparams(&raw mut list, &raw mut count) };
    if returned != 0 || list.is_null() {
        return None;
    }
    // SAFETY: the library returned `count` initialised entries, ours until fi_freeparams.
    let entries = unsafe { std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0)) };
    // SAFETY: null or a string that lives as long as the list.
    let text = |text: *const c_char| unsafe { string(text) };
    let value = entries.iter().find(|entry| text(entry.name).as_deref() == Some(name)).and_then(|entry| text(entry.value));
    // SAFETY: the list fi_getparams returned, freed once; `value` is a copy.
    unsafe { fi::fi_freeparams(list) };
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info;

    #[test]
    fn only_a_monitor_and_room_make_a_cache() {
        let shm = info::discover("shm", false).unwrap().remove(0).facts();
        let of = |provider: &str, mr_mode, settings: &[(&str, &str)]| {
            let facts = Facts { provider: provider.to_owned(), mr_mode, ..shm.clone() };
            let find = |name: &str| settings.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            MrCache::by_settings(&facts, find)
        };
        assert_eq!(of("verbs;ofi_rxm", 0, &[]), MrCache::On);
        assert_eq!(of("verbs;ofi_rxm", 0, &[("FI_MR_CACHE_MONITOR", "memhooks")]), MrCache::On);
        assert_eq!(of("verbs;ofi_rxm", 0, &[("FI_MR_CACHE_MONITOR", "disabled")]), MrCache::Off);
        assert_eq!(of("verbs", 0, &[("FI_MR_CACHE_MAX_COUNT", "0")]), MrCache::Off);
        assert_eq!(of("efa", fi::FI_MR_LOCAL, &[]), MrCache::Off);
        assert_eq!(of("efa", 0, &[]), MrCache::On);
        assert_eq!(of("opx", 0, &[]), MrCache::Unknown);
    }

    #[test]
    fn a_parameter_that_nobody_set_has_no_value() {
        assert_eq!(parameter("FI_NO_SUCH_PARAMETER"), None);
    }
}

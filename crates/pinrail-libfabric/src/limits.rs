//! How large one registration may be. libfabric itself has no word for it.

use pinrail_core::Access;

use crate::info::{Facts, Nic};
use crate::{ibverbs, rails};

/// Bytes of one registration, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MaxMrSize {
    /// For every access; `None` is no known limit.
    any: Option<u64>,
    /// For registrations that allow remote writes.
    remote_write: Option<u64>,
    /// Where the figures come from.
    pub(crate) source: &'static str,
}

impl MaxMrSize {
    /// The device's own figure where libibverbs knows the device, else the table's, else none.
    pub(crate) fn of(facts: &Facts) -> MaxMrSize {
        let asked = |nic: &Nic| ibverbs::max_mr_size(|device| rails::is_same_device(nic, device));
        match facts.nic.as_ref().and_then(asked) {
            Some(bytes) => MaxMrSize::by_device(bytes),
            None => MaxMrSize::by_provider(&facts.provider),
        }
    }

    /// All ones is how a device says that it has no limit.
    fn by_device(bytes: u64) -> MaxMrSize {
        let limit = Some(bytes).filter(|&bytes| bytes < u64::MAX);
        MaxMrSize { any: limit, remote_write: limit, source: "ibv_query_device" }
    }

    /// | provider | access | bytes | source |
    /// |---|---|---|---|
    /// | efa | with remote write | 4 GiB | 2^20 pages in one such registration, of 4 KiB where nothing else is known (ofiwg/libfabric#10402) |
    /// | others | any | no known limit | |
    pub(crate) fn by_provider(provider: &str) -> MaxMrSize {
        match provider.split(';').next() {
            Some("efa") => MaxMrSize { any: None, remote_write: Some(4 << 30), source: "table of providers" },
            _ => MaxMrSize { any: None, remote_write: None, source: "no limit known" },
        }
    }

    /// The limit for this access.
    pub(crate) fn of_access(&self, access: Access) -> Option<u64> {
        if access.contains(Access::REMOTE_WRITE) { self.remote_write } else { self.any }
    }

    /// The limit whatever the access: what a plan has to observe.
    pub(crate) fn least(&self) -> Option<u64> {
        self.any.into_iter().chain(self.remote_write).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efa_limits_only_what_peers_may_write() {
        let efa = MaxMrSize::by_provider("efa");
        assert_eq!(efa.of_access(Access::FULL), Some(4 << 30));
        assert_eq!(efa.of_access(Access::REMOTE_READ | Access::LOCAL_WRITE), None);
        assert_eq!(efa.least(), Some(4 << 30));
        assert_eq!(MaxMrSize::by_provider("verbs;ofi_rxm").least(), None);
    }

    #[test]
    fn a_devices_figure_holds_for_every_access_and_all_ones_is_none() {
        let device = MaxMrSize::by_device(192 << 30);
        assert_eq!([device.of_access(Access::FULL), device.of_access(Access::REMOTE_READ)], [Some(192 << 30); 2]);
        assert_eq!(MaxMrSize::by_device(u64::MAX).least(), None);
    }
}

use pinrail_core::{Diagnosis, ErrorKind, PciAddress, errno_name};

/// Why no registrar could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel has no verbs.
    #[error("this kernel offers no verbs: ibv_get_device_list says {} (errno {errno})", errno_name(*.errno))]
    NoVerbs {
        /// Its errno.
        errno: i32,
    },
    /// No device has the rail's PCI address or, if it has none, its name.
    #[error("rail {rail:?}: there is no RDMA device {}{}", wanted_text(*.pci, .rail), have_text(.have))]
    NoDevice {
        /// The rail.
        rail: String,
        /// Where it should be.
        pci: Option<PciAddress>,
        /// The devices there are.
        have: Vec<String>,
    },
    /// Several devices are at the rail's PCI address and none has its name.
    #[error("rail {rail:?}: several RDMA devices are at {pci}: {}", .devices.join(", "))]
    SeveralDevices {
        /// The rail.
        rail: String,
        /// Its address.
        pci: PciAddress,
        /// The devices.
        devices: Vec<String>,
    },
    /// Two rails are one device.
    #[error("rails {first:?} and {second:?} are both the RDMA device {device}")]
    OneDevice {
        /// A rail.
        first: String,
        /// Another one.
        second: String,
        /// Their device.
        device: String,
    },
    /// Fewer devices than rails.
    #[error("there are {devices} RDMA devices and {rails} rails were asked for")]
    TooFewDevices {
        /// Devices.
        devices: usize,
        /// Rails asked for.
        rails: usize,
    },
    /// More rails than can be numbered.
    #[error("{rails} rails are more than the {max} a registrar may have")]
    TooManyRails {
        /// Rails asked for.
        rails: usize,
        /// The limit.
        max: usize,
    },
    /// `ibv_fork_init` came too late.
    #[error(
        "ibv_fork_init fails (EINVAL, errno {}): this process has registered memory or made a queue already, and what was before cannot be made safe any more",
        libc::EINVAL
    )]
    ForkInitTooLate,
    /// A call failed.
    #[error("{api} failed{} ({}, errno {errno})", on_text(.device), errno_name(*.errno))]
    Call {
        /// The function.
        api: &'static str,
        /// On which device; empty where it was on none.
        device: String,
        /// Its errno.
        errno: i32,
    },
}

fn wanted_text(pci: Option<PciAddress>, rail: &str) -> String {
    pci.map_or_else(|| format!("of that name ({rail})"), |pci| format!("at {pci}"))
}

fn have_text(have: &[String]) -> String {
    if have.is_empty() { "; this machine has none".to_owned() } else { format!("; there are {}", have.join(", ")) }
}

fn on_text(device: &str) -> String {
    if device.is_empty() { String::new() } else { format!(" on {device}") }
}

impl OpenError {
    /// The failure as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let kind = match self {
            OpenError::NoVerbs { .. } => ErrorKind::NotSupported,
            OpenError::NoDevice { .. } | OpenError::SeveralDevices { .. } => ErrorKind::UnknownDevice,
            OpenError::OneDevice { .. } | OpenError::TooFewDevices { .. } | OpenError::TooManyRails { .. } => {
                ErrorKind::UnknownRail
            }
            OpenError::Call { errno: libc::ENOMEM | libc::EMFILE | libc::ENFILE, .. } => ErrorKind::Exhausted,
            OpenError::ForkInitTooLate | OpenError::Call { .. } => ErrorKind::Backend,
        };
        let diagnosis = Diagnosis::new(kind, self.to_string());
        match self {
            OpenError::NoVerbs { errno } => Diagnosis {
                api: Some("ibv_get_device_list".to_owned()),
                errno: Some(*errno),
                ..diagnosis
            }
            .hint(
                "load the kernel module ib_uverbs and the device's driver; in a container, pass /dev/infiniband and /sys through",
            ),
            OpenError::NoDevice { rail, .. } | OpenError::SeveralDevices { rail, .. } => diagnosis
                .rail(rail.as_str())
                .hint("name the rail as `rdma link` names the device, or give the PCI address of its function"),
            OpenError::OneDevice { second, .. } => diagnosis.rail(second.as_str()).hint("give each device to one rail"),
            OpenError::TooFewDevices { devices, rails } => Diagnosis {
                limit: u64::try_from(*devices).ok(),
                need: u64::try_from(*rails).ok(),
                ..diagnosis.hint("ask for at most as many rails as there are devices; `rdma link` lists them")
            },
            OpenError::ForkInitTooLate => {
                Diagnosis { api: Some("ibv_fork_init".to_owned()), errno: Some(libc::EINVAL), ..diagnosis }
                    .hint("call it first of all verbs calls in the process, before any library that uses RDMA is started")
            }
            OpenError::Call { api, errno, .. } => Diagnosis { api: Some((*api).to_owned()), errno: Some(*errno), ..diagnosis },
            OpenError::TooManyRails { .. } => diagnosis,
        }
    }
}

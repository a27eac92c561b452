use std::collections::BTreeSet;
use std::fs;

use pinrail_memory::Memlock;
use serde::{Deserialize, Serialize};

/// Where a run was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The kernel's release.
    pub kernel: String,
    /// The processor as it calls itself; its architecture where it does not.
    pub cpu: String,
    /// Processors of the machine.
    pub cpus: u32,
    /// Of these, how many this process may use.
    pub cores_usable: u32,
    /// NUMA nodes.
    pub numa_nodes: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes that were free or could be made free when the run began.
    pub memory_available_bytes: u64,
    /// The setting of transparent huge pages.
    pub transparent_huge_pages: String,
    /// Bytes this process may lock; null without limit.
    pub memlock_bytes: Option<u64>,
    /// True if the limit does not apply to it.
    pub memlock_exempt: bool,
    /// The library or kernel that registered, with its version.
    pub library: String,
    /// The commit of Pinrail that ran, where it was built in a clone.
    pub commit: Option<String>,
}

impl Environment {
    /// Reads what this host is. What cannot be read stays empty: it is for the record.
    #[must_use]
    pub fn read(cores_usable: u32, library: &str) -> Environment {
        let memlock = Memlock::read().ok();
        Environment {
            kernel: text("/proc/sys/kernel/osrelease"),
            cpu: cpu(),
            cpus: count_list(&text("/sys/devices/system/cpu/online")),
            cores_usable,
            numa_nodes: count_list(&text("/sys/devices/system/node/online")),
            memory_bytes: meminfo_bytes("MemTotal"),
            memory_available_bytes: meminfo_bytes("MemAvailable"),
            transparent_huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled"),
            memlock_bytes: memlock.and_then(|memlock| memlock.soft_bytes),
            memlock_exempt: memlock.is_some_and(|memlock| memlock.exempt),
            library: library.to_owned(),
            commit: option_env!("PINRAIL_COMMIT").map(str::to_owned),
        }
    }

    /// What differs between two machines so that their times cannot be compared.
    pub(crate) fn differs(&self, other: &Environment) -> Option<String> {
        let facts = |of: &Environment| {
            [
                ("processor", of.cpu.clone()),
                ("number of processors", of.cpus.to_string()),
                ("number of usable cores", of.cores_usable.to_string()),
                ("number of NUMA nodes", of.numa_nodes.to_string()),
                ("memory in bytes", of.memory_bytes.to_string()),
                ("transparent huge pages", of.transparent_huge_pages.clone()),
            ]
        };
        let differ = facts(self).into_iter().zip(facts(other)).find(|(a, b)| a != b);
        differ.map(|((what, a), (_, b))| format!("{what}: {a:?} and {b:?}"))
    }
}

/// Bytes that are free or can be made free.
pub(crate) fn available_bytes() -> u64 {
    meminfo_bytes("MemAvailable")
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn cpu() -> String {
    let info = text("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

fn meminfo_bytes(field: &str) -> u64 {
    let info = text("/proc/meminfo");
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().strip_suffix(" kB"));
    value.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// How many numbers a kernel's list names: `0-3,8` names five.
fn count_list(list: &str) -> u32 {
    let mut named = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            named.extend(first..=last);
        }
    }
    u32::try_from(named.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_counted() {
        assert_eq!((count_list("0"), count_list("0-3,8"), count_list("")), (1, 5, 0));
    }

    #[test]
    fn this_host_has_a_kernel_memory_and_a_processor() {
        let here = Environment::read(1, "none");
        assert!(!here.kernel.is_empty() && here.memory_bytes > 0 && here.cpus > 0 && here.numa_nodes > 0, "{here:?}");
        assert_eq!(here.differs(&here.clone()), None);
        let other = Environment { cpus: here.cpus + 1, ..here.clone() };
        assert!(here.differs(&other).unwrap().starts_with("number of processors"));
    }
}

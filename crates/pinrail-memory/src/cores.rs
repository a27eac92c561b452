use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;

use crate::cgroup;

/// How many cores a process may use, and what decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Logical CPUs of the machine that are on line.
    pub online: NonZeroU32,
    /// Those of them that the calling thread may run on (`sched_setaffinity`, `taskset`, a cpuset).
    pub allowed: NonZeroU32,
    /// Cores that those belong to: fewer where cores run two threads (SMT).
    pub physical: NonZeroU32,
    /// The least CPU time that a control group of ours or one above it allows, in thousandths of a CPU; `None` without
    /// such a limit.
    pub quota_milli: Option<u64>,
}

impl Cores {
    /// Reads affinity, CPUs on line, their siblings and the limits of control groups of both versions.
    ///
    /// # Errors
    /// What reading `/proc/thread-self/status` reported; `InvalidData` if it names no CPU.
    pub fn read() -> io::Result<Cores> {
        Cores::read_at(Path::new("/"))
    }

    /// The cores to plan with: logical CPUs, and no more than the quota lets run all the time.
    ///
    /// A quota is rounded down, but to no less than one: a group that is over it stands still, all threads together, for
    /// the rest of a period. Siblings count as cores: pinning waits for memory much of its time, and the rule of the
    /// published tables (cores divided by processes) counts them.
    #[must_use]
    pub fn usable(&self) -> NonZeroU32 {
        let whole = self.quota_milli.map_or(u32::MAX, |milli| u32::try_from(milli / 1000).unwrap_or(u32::MAX));
        NonZeroU32::new(whole).unwrap_or(NonZeroU32::MIN).min(self.allowed)
    }

    fn read_at(root: &Path) -> io::Result<Cores> {
        let read = |path: &str| fs::read_to_string(root.join(path));
        let status = read("proc/thread-self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let listed =
            list.and_then(cpus).ok_or_else(|| invalid("/proc/thread-self/status has no Cpus_allowed_list as expected"))?;
        // The mask names CPUs that are off line too.
        let online = read("sys/devices/system/cpu/online").ok().and_then(|list| cpus(&list)).unwrap_or_else(|| listed.clone());
        let allowed: BTreeSet<u32> = listed.intersection(&online).copied().collect();
        let siblings = |cpu: u32| {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            // The older name until Linux 5.3.
            let list = read(&format!("{topology}/core_cpus_list")).or_else(|_| read(&format!("{topology}/thread_siblings_list")));
            list.ok().and_then(|list| cpus(&list)).unwrap_or_else(|| BTreeSet::from([cpu]))
        };
        let cores: BTreeSet<BTreeSet<u32>> = allowed.iter().map(|&cpu| siblings(cpu)).collect();
        let groups = read("proc/self/cgroup").unwrap_or_default();
        let mounts = read("proc/self/mountinfo").unwrap_or_default();
        Ok(Cores {
            online: count(online.len())?,
            allowed: count(allowed.len())?,
            physical: count(cores.len())?,
            quota_milli: quota_milli(root, &groups, &mounts),
        })
    }
}

/// The least quota of our groups and those above them.
fn quota_milli(root: &Path, groups: &str, mountinfo: &str) -> Option<u64> {
    let mut least = None;
    for hierarchy in cgroup::hierarchies(groups, mountinfo, "cpu") {
        for folder in hierarchy.folders {
            let folder = root.join(folder.strip_prefix("/").unwrap_or(&folder));
            let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
            let text = if hierarchy.is_v2 {
                read("cpu.max")
            } else {
                // Minus one is no limit, as "max" is.
                read("cpu.cfs_quota_us").zip(read("cpu.cfs_period_us")).map(|(quota, period)| format!("{quota} {period}"))
            };
            let figures: Option<Vec<u64>> = text.and_then(|text| text.split_whitespace().map(|word| word.parse().ok()).collect());
            if let Some([quota, period]) = figures.as_deref() {
                let Some(milli) = quota.saturating_mul(1000).checked_div(*period) else { continue };
                least = Some(least.map_or(milli, |least: u64| least.min(milli)));
            }
        }
    }
    least
}

/// Linux is built for at most so many.
const CPUS_MAX: u32 = 8192;

/// A list as the kernel writes it: `0-3,8`.
fn cpus(list: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok().filter(|&last| last < CPUS_MAX)?);
        cpus.extend(first..=last);
    }
    Some(cpus)
}

fn count(cpus: usize) -> io::Result<NonZeroU32> {
    let count = u32::try_from(cpus).ok().and_then(NonZeroU32::new);
    count.ok_or_else(|| invalid("no CPU that this thread may run on is on line"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    const STATUS: (&str, &str) = ("proc/thread-self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n");

    fn cores(files: &[(&str, &str)]) -> io::Result<(u32, u32, u32, Option<u64>, u32)> {
        let tree = Tree::new(files);
        let cores = Cores::read_at(tree.root())?;
        Ok((cores.online.get(), cores.allowed.get(), cores.physical.get(), cores.quota_milli, cores.usable().get()))
    }

    #[test]
    fn what_is_off_line_or_not_ours_does_not_count() {
        let online = |list| ("sys/devices/system/cpu/online", list);
        assert_eq!(cores(&[STATUS]).unwrap(), (8, 8, 8, None, 8));
        assert_eq!(cores(&[STATUS, online("0-15\n")]).unwrap(), (16, 8, 8, None, 8));
        assert_eq!(cores(&[STATUS, online("0,2-3,9\n")]).unwrap(), (4, 3, 3, None, 3));
        assert!(cores(&[STATUS, online("8-15\n")]).is_err());
    }

    #[test]
    fn siblings_are_one_core_and_count_all_the_same() {
        let mut files = vec![STATUS, ("sys/devices/system/cpu/online", "0-6\n")];
        let names: Vec<String> = (0..7).map(|cpu| format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list")).collect();
        files.extend(
            names.iter().zip(["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6"]).map(|(name, list)| (name.as_str(), list)),
        );
        assert_eq!(cores(&files).unwrap(), (7, 7, 4, None, 7));
        let old = ["0", "1"].map(|cpu| format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        let files = [STATUS, ("sys/devices/system/cpu/online", "0-2"), (&old[0], "0-1\n"), (&old[1], "0-1\n")];
        assert_eq!(cores(&files).unwrap(), (3, 3, 2, None, 3));
    }

    #[test]
    fn the_least_quota_of_nested_groups_holds() {
        let v2 = [
            STATUS,
            ("proc/self/cgroup", "0::/pod/container\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ];
        let max = |pod, container| {
            let quota = [("sys/fs/cgroup/pod/cpu.max", pod), ("sys/fs/cgroup/pod/container/cpu.max", container)];
            let (.., milli, usable) = cores(&[&v2[..], &quota].concat()).unwrap();
            (milli, usable)
        };
        assert_eq!(max("250000 100000\n", "max 100000\n"), (Some(2500), 2));
        assert_eq!(max("max 100000\n", "600000 100000\n"), (Some(6000), 6));
        assert_eq!(max("300000 100000\n", "50000 100000\n"), (Some(500), 1));
        assert_eq!(max("9000000 100000\n", "max 100000\n"), (Some(90_000), 8));
        assert_eq!(max("nonsense\n", "1 0\n"), (None, 8));
    }

    #[test]
    fn the_first_version_counts_and_so_do_both_together() {
        let mounts = "32 31 0:29 /docker/a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let quota = |us| {
            [
                STATUS,
                ("proc/self/cgroup", "1:cpu,cpuacct:/docker/a/b\n0::/\n"),
                ("proc/self/mountinfo", mounts),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", us),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/unified/cpu.max", "500000 100000\n"),
            ]
        };
        assert_eq!(cores(&quota("-1\n")).unwrap().4, 5);
        assert_eq!(cores(&quota("400000\n")).unwrap().4, 4);
    }

    #[test]
    fn a_status_without_cpus_is_an_error() {
        assert!(cores(&[("proc/thread-self/status", "Name:\tx\n")]).is_err());
        assert!(cores(&[("proc/thread-self/status", "Cpus_allowed_list:\t0-99999999\n")]).is_err());
        assert!(cores(&[]).is_err());
    }

    #[test]
    fn the_standard_library_sees_no_more_here() {
        let cores = Cores::read().unwrap();
        let theirs = std::thread::available_parallelism().unwrap().get();
        assert!(cores.usable().get() as usize <= theirs && cores.physical <= cores.allowed && cores.allowed <= cores.online);
    }
}

//! Fits `kimi-k3/N` to the machine: into its free memory, and so that the measuring ends in time.

use std::path::Path;
use std::time::Duration;

use crate::{Result, clock, command::Line};

/// `kimi-k3`, by the shape's own list.
const BATCH_BYTES: u64 = 16 * 409_993_216 + 96 * 90_072_678 + 50 * 2_925_527 + 20 * 2_500;

/// A finer batch than this has little to do with the one it stands for.
const DIVISOR_MAX: u64 = 256;

/// Half of the five minutes that the measuring may take: contention can make a pass twice as slow as the timed one.
const MEASURING_MAX: Duration = Duration::from_secs(150);

/// What is registered to find out how fast the machine is: large enough that start-up does not count, done in seconds.
const TIMED_DIVISOR: u64 = 16;

/// The largest batch that fits, after timing one pass of a small one; `pass` gives the command for a batch.
pub(crate) fn batch(passes: u32, pass: impl Fn(&str) -> Line) -> Result<String> {
    let available = available_bytes()?;
    let by_memory = divisor_for_memory(available).ok_or_else(|| {
        format!("{} MiB of free memory are too little for kimi-k3/{DIVISOR_MAX}; name a smaller --batch", available >> 20)
    })?;
    let timed = by_memory.max(TIMED_DIVISOR);
    let line = pass(&format!("kimi-k3/{timed}"));
    eprintln!("$ {line}");
    let started = clock::now();
    line.output()?;
    let took = started.elapsed();
    let divisor = divisor_for_time(took, timed, passes, by_memory)
        .ok_or_else(|| format!("one pass of kimi-k3/{timed} takes {}; name a smaller --batch", clock::shown(took)))?;
    eprintln!(
        "{} MiB are free and one pass of kimi-k3/{timed} takes {}: {passes} passes of kimi-k3/{divisor}",
        available >> 20,
        clock::shown(took)
    );
    Ok(format!("kimi-k3/{divisor}"))
}

fn divisors() -> impl Iterator<Item = u64> {
    (0..).map(|power| 1 << power).take_while(|divisor| *divisor <= DIVISOR_MAX)
}

/// Half of what is free at most: page tables, the kernel's lists of pinned pages and everybody else need some too.
fn divisor_for_memory(available_bytes: u64) -> Option<u64> {
    divisors().find(|divisor| BATCH_BYTES / divisor <= available_bytes / 2)
}

fn divisor_for_time(took: Duration, timed_divisor: u64, passes: u32, least: u64) -> Option<u64> {
    let whole_s = took.as_secs_f64() * timed_divisor as f64 * f64::from(passes);
    divisors().filter(|divisor| *divisor >= least).find(|divisor| whole_s / *divisor as f64 <= MEASURING_MAX.as_secs_f64())
}

/// The memory that this process may still take: what the machine has, or less where a control group says so.
fn available_bytes() -> Result<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").map_err(|why| format!("cannot read /proc/meminfo: {why}"))?;
    let machine = mem_available_bytes(&meminfo).ok_or("/proc/meminfo has no MemAvailable")?;
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = groups_above(&own).filter_map(|group| group_available_bytes(&Path::new("/sys/fs/cgroup").join(group)));
    Ok(groups.fold(machine, u64::min))
}

fn mem_available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The control groups (version 2) that a process is in, from its own to the root; `own` is its /proc/self/cgroup.
fn groups_above(own: &str) -> impl Iterator<Item = &Path> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    own.into_iter().flat_map(|own| Path::new(own).ancestors())
}

/// What a group's limit leaves, its page cache counted as free; `None` without a limit.
fn group_available_bytes(group: &Path) -> Option<u64> {
    let read = |file: &str| std::fs::read_to_string(group.join(file)).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let cache = read("memory.stat")?.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cache)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_batch_takes_at_most_half_of_the_free_memory() {
        assert_eq!(BATCH_BYTES, 15_353_194_894);
        assert_eq!(divisor_for_memory(64 * GIB), Some(1));
        assert_eq!(divisor_for_memory(2 * BATCH_BYTES), Some(1));
        assert_eq!(divisor_for_memory(2 * BATCH_BYTES - 1), Some(2));
        assert_eq!(divisor_for_memory(GIB), Some(32));
        assert_eq!(divisor_for_memory(GIB / 64), None);
    }

    #[test]
    fn the_passes_take_at_most_half_of_the_time() {
        // 0.5 s for a sixteenth is 8 s for the whole, so 1280 s for 160 passes: a sixteenth of it fits in 150 s.
        assert_eq!(divisor_for_time(Duration::from_millis(500), 16, 160, 1), Some(16));
        assert_eq!(divisor_for_time(Duration::from_millis(500), 16, 160, 32), Some(32));
        assert_eq!(divisor_for_time(Duration::from_millis(5), 16, 160, 1), Some(1));
        assert_eq!(divisor_for_time(Duration::from_secs(30), 16, 160, 1), None);
    }

    #[test]
    fn free_memory_is_what_the_kernel_calls_available() {
        assert_eq!(mem_available_bytes("MemTotal: 10 kB\nMemAvailable:   8 kB\n"), Some(8192));
        assert_eq!(mem_available_bytes("MemFree: 10 kB\n"), None);
    }

    #[test]
    fn a_group_and_those_above_it_are_asked() {
        let groups: Vec<_> = groups_above("1:name=systemd:/x\n0::/a/b\n").collect();
        assert_eq!(groups, [Path::new("a/b"), Path::new("a"), Path::new("")]);
        assert_eq!(groups_above("4:memory:/x\n").count(), 0);
    }

    #[test]
    fn a_group_with_a_limit_leaves_what_is_not_used_but_for_cache() {
        let group = std::env::temp_dir().join(format!("pinrail-fit-{}", std::process::id()));
        std::fs::create_dir_all(&group).unwrap();
        let write = |file: &str, text: &str| std::fs::write(group.join(file), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 400\ninactive_file 300\n");
        assert_eq!(group_available_bytes(&group), None);
        write("memory.max", "1000\n");
        assert_eq!(group_available_bytes(&group), Some(600));
        std::fs::remove_dir_all(group).unwrap();
    }
}

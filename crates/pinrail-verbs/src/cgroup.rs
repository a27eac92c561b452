//! The rdma control group: the kernel answers `EAGAIN` where its limit is met, and that does not pass by itself.

use std::fs;
use std::path::{Path, PathBuf};

/// The limit on objects of `device` that is met, as the words of an error: its file and value. An MR is one object, and
/// so is a PD, a queue and a queue pair.
pub(crate) fn exhausted(device: &str) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    met(&groups, &mounts, device)
}

fn met(groups: &str, mounts: &str, device: &str) -> Option<String> {
    // The controller is with the others in the one hierarchy, or it has its own (version 1), or both are mounted.
    groups.lines().filter_map(|line| hierarchy(line, mounts)).find_map(|(mount, ours)| {
        // The group itself and every one above it count.
        ours.ancestors().find_map(|group| {
            let folder = mount.join(group.strip_prefix("/").unwrap_or(group));
            let limit = folder.join("rdma.max");
            let (most, used) = (objects(&limit, device)?, objects(&folder.join("rdma.current"), device)?);
            let what = || format!("objects of {device} (an MR is one): {} says {most}, {used} are in use", limit.display());
            (used >= most).then(what)
        })
    })
}

/// Where a line of `/proc/self/cgroup` leads: mount point and group.
fn hierarchy(line: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    let (kind, option) = match (id, controllers) {
        ("0", "") => ("cgroup2", None),
        (_, controllers) if controllers.split(',').any(|name| name == "rdma") => ("cgroup", Some("rdma")),
        _ => return None,
    };
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, found, options) = (fields.next()?, fields.next()?, fields.next()?);
        let has = |option| options.split(',').any(|known| known == option);
        (found == kind && option.is_none_or(has)).then(|| (PathBuf::from(point), PathBuf::from(group)))
    })
}

/// The number in a file like `rxe0 hca_handle=2 hca_object=6`; `None` for `max` and where the device is not named.
fn objects(file: &Path, device: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' '))?;
    line.split(' ').find_map(|field| field.strip_prefix("hca_object="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_any_group_above_is_named_once_it_is_met() {
        let root = std::env::temp_dir().join(format!("pinrail-verbs-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("two/a/rdma.max", "rxe0 hca_handle=2 hca_object=6\nrxe00 hca_handle=max hca_object=max\n");
        write("two/a/rdma.current", "rxe0 hca_handle=1 hca_object=5\nrxe00 hca_handle=1 hca_object=9\n");
        write("two/a/b/rdma.max", "rxe0 hca_handle=max hca_object=max\n");
        write("two/a/b/rdma.current", "rxe0 hca_handle=1 hca_object=5\n");
        write("one/c/rdma.max", "mlx5_0 hca_handle=max hca_object=3\n");
        write("one/c/rdma.current", "mlx5_0 hca_handle=1 hca_object=3\n");
        let dir = root.display();
        let mounts = format!("cgroup2 {dir}/two cgroup2 rw 0 0\ncgroup {dir}/one cgroup rw,rdma 0 0\ntmpfs /tmp tmpfs rw 0 0\n");
        let groups = "7:memory:/x\n3:rdma:/c\n0::/a/b\n";

        assert_eq!(met(groups, &mounts, "rxe0"), None, "one is left");
        write("two/a/rdma.current", "rxe0 hca_handle=1 hca_object=6\n");
        let what = met(groups, &mounts, "rxe0").unwrap();
        assert_eq!(what, format!("objects of rxe0 (an MR is one): {dir}/two/a/rdma.max says 6, 6 are in use"));
        assert_eq!(met(groups, &mounts, "rxe00"), None, "no limit, and not its neighbour's");
        assert!(met(groups, &mounts, "mlx5_0").unwrap().contains("/one/c/rdma.max says 3"));
        assert_eq!(met("", &mounts, "rxe0"), None);
        fs::remove_dir_all(root).unwrap();
    }
}

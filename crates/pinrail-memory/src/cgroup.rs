//! Where the limits of our control groups lie.

use std::path::{Component, Path, PathBuf};

/// The folders of one hierarchy whose limits hold for us: our group's, and those of every group above it that we can see.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// The unified hierarchy, whose files have other names.
    pub(crate) is_v2: bool,
    pub(crate) folders: Vec<PathBuf>,
}

/// The hierarchies in which a controller may limit us, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
pub(crate) fn hierarchies(groups: &str, mountinfo: &str, controller: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let is_v2 = id == "0" && controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == controller) {
            continue;
        }
        let wanted = |mount: &Mount<'_>| match mount.kind {
            "cgroup2" => is_v2,
            "cgroup" => !is_v2 && mount.options.split(',').any(|option| option == controller),
            _ => false,
        };
        if let Some(mount) = mountinfo.lines().filter_map(Mount::parse).find(wanted) {
            found.push(Hierarchy { is_v2, folders: mount.folders(group) });
        }
    }
    found
}

struct Mount<'l> {
    /// What of the hierarchy is mounted: in a container often its own group only.
    root: &'l str,
    point: &'l str,
    kind: &'l str,
    options: &'l str,
}

impl<'l> Mount<'l> {
    fn parse(line: &'l str) -> Option<Mount<'l>> {
        let (place, what) = line.split_once(" - ")?;
        let (mut place, mut what) = (place.split(' ').skip(3), what.split(' '));
        let (root, point) = (place.next()?, place.next()?);
        let (kind, _, options) = (what.next()?, what.next()?, what.next()?);
        Some(Mount { root, point, kind, options })
    }

    /// The group's folder and those above it, as far up as is mounted. Of a group that is not below the mount (seen from
    /// another namespace), the mount's own.
    fn folders(&self, group: &str) -> Vec<PathBuf> {
        let below = Path::new(group).strip_prefix(self.root).unwrap_or(Path::new(""));
        let is_below = !below.components().any(|part| part == Component::ParentDir);
        let below = if is_below { below } else { Path::new("") };
        below.ancestors().map(|group| Path::new(self.point).join(group)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 /docker/a /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    fn folders(groups: &str, controller: &str) -> Vec<(bool, Vec<PathBuf>)> {
        hierarchies(groups, MOUNTS, controller).into_iter().map(|found| (found.is_v2, found.folders)).collect()
    }

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn every_group_above_is_named_in_both_versions() {
        let found = folders("4:cpu,cpuacct:/a/b\n3:memory:/m\n0::/c\n", "cpu");
        let cpu = "/sys/fs/cgroup/cpu,cpuacct/";
        let v1 = paths(&[&format!("{cpu}a/b"), &format!("{cpu}a"), cpu]);
        assert_eq!(found, [(false, v1), (true, paths(&["/sys/fs/cgroup/unified/c", "/sys/fs/cgroup/unified/"]))]);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount() {
        let own = |group: &str| folders(&format!("7:hugetlb:{group}\n"), "hugetlb").remove(0).1;
        let mount = "/sys/fs/cgroup/hugetlb/";
        assert_eq!(own("/docker/a"), paths(&[mount]));
        assert_eq!(own("/docker/a/b"), paths(&[&format!("{mount}b"), mount]));
        assert_eq!(own("/elsewhere"), paths(&[mount]));
        assert_eq!(own("/docker/a/../b"), paths(&[mount]));
    }

    #[test]
    fn what_cannot_be_read_limits_nothing() {
        assert_eq!(hierarchies("nonsense\n0::\n", "nonsense\n1 2 - cgroup2\n", "cpu"), []);
        assert_eq!(folders("3:memory:/m\n", "cpu"), []);
    }
}

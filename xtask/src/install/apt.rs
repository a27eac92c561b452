//! Debian packages. An install is simulated first and refused if it would take anything away from the machine.

use crate::{Result, command::Line};

/// Whether a package is installed; no on a machine without dpkg.
pub(crate) fn has(package: &str) -> bool {
    let status = Line::new("dpkg-query --show --showformat=${Status}").word(package).output();
    status.is_ok_and(|status| status.starts_with("install ok installed"))
}

/// Installs packages, or says what to type where that is not for us to do.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    install_from(&[], packages)
}

/// The same from other sources than the machine's own, which these options of apt-get name.
pub(crate) fn install_from(source: &[String], packages: &[&str]) -> Result<()> {
    if !Line::new("apt-get --version").succeeds() {
        let names = packages.join(" ");
        return Err(format!("there is no apt-get here; install what Debian calls {names} by this machine's own means"));
    }
    // A second lock on the same door: with --yes apt-get refuses to downgrade, with --no-remove to remove.
    let install = apt_get("install --yes --no-remove --no-install-recommends").words(source).words(packages.iter().copied());
    let update = apt_get("update").words(source);
    if Line::new("id -u").output()?.trim() != "0" {
        return Err(format!("only root may install packages; as root type\n  {update} && {install}\nthen try again"));
    }
    let mut why = String::new();
    for update_first in [false, true] {
        // Lists can be absent, then the simulation fails, or outdated, then the download does.
        if update_first {
            println!("$ {update}");
            if !update.show()?.success() {
                return Err(format!("`{update}` failed"));
            }
        }
        match simulate(source, packages) {
            Ok(changes) => {
                changes.take_nothing_away()?;
                println!("$ {install}");
                if install.show()?.success() {
                    return Ok(());
                }
                why = format!("`{install}` failed");
            }
            Err(said) => why = said,
        }
    }
    Err(why)
}

/// An apt-get that asks nothing, speaks the language parsed below, and waits for another one to finish.
fn apt_get(words: &str) -> Line {
    let line = Line::new("apt-get -o DPkg::Lock::Timeout=180").words(words.split_whitespace());
    line.variable("LC_ALL", "C").variable("DEBIAN_FRONTEND", "noninteractive")
}

fn simulate(source: &[String], packages: &[&str]) -> Result<Changes> {
    let line = apt_get("install --simulate --no-install-recommends").words(source).words(packages.iter().copied());
    let output = line.command().output().map_err(|why| line.not_started(&why))?;
    let said = String::from_utf8_lossy(&output.stdout);
    Changes::parse(&said)
        .ok_or_else(|| format!("`{line}` does not say what it would do: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// What an install would take away, by apt-get's own closing count, with the names it gave above.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    removed: u32,
    downgraded: u32,
    names: Vec<String>,
}

impl Changes {
    /// Reads a simulation; `None` when its count is missing or counts something unknown, as then nothing is known.
    fn parse(said: &str) -> Option<Changes> {
        let mut changes = Changes::default();
        let count = said.lines().find(|line| line.contains(" upgraded, ") && line.ends_with(" not upgraded."))?;
        for part in count.trim_end_matches('.').replace(" and ", ", ").split(", ") {
            let (number, what) = part.split_once(' ')?;
            let number: u32 = number.parse().ok()?;
            match what {
                "to remove" => changes.removed = number,
                "downgraded" => changes.downgraded = number,
                "upgraded" | "newly installed" | "reinstalled" | "not upgraded" => {}
                _ => return None,
            }
        }
        let mut taken_away = false;
        for line in said.lines() {
            match line.strip_prefix("  ") {
                Some(names) if taken_away => changes.names.extend(names.split_whitespace().map(str::to_owned)),
                Some(_) => {}
                None => taken_away = line.ends_with("will be REMOVED:") || line.ends_with("will be DOWNGRADED:"),
            }
        }
        Some(changes)
    }

    fn take_nothing_away(&self) -> Result<()> {
        if self.removed == 0 && self.downgraded == 0 && self.names.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the install would remove {} and downgrade {} packages ({}), so nothing was installed; settle that by hand",
            self.removed,
            self.downgraded,
            self.names.join(" ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Taken from apt 2.6 on Debian 12; the long lists are cut.
    const ADDS: &str = "\
Reading package lists...
Building dependency tree...
Reading state information...
The following NEW packages will be installed:
  tree
0 upgraded, 1 newly installed, 0 to remove and 129 not upgraded.
Inst tree (2.1.0-1 Debian:12.15/oldstable [amd64])
Conf tree (2.1.0-1 Debian:12.15/oldstable [amd64])
";
    const REMOVES: &str = "\
The following packages will be REMOVED:
  qemu-utils
The following NEW packages will be installed:
  ipxe-qemu ovmf qemu-system-common
  qemu-system-x86 seabios
The following packages will be upgraded:
  libgbm1
7 upgraded, 160 newly installed, 1 to remove and 122 not upgraded.
Remv qemu-utils [1:10.0.2+ds-2+deb13u1~bpo12+1]
";
    const DOWNGRADES: &str = "\
Recommended packages:
  qemu-block-extra
The following packages will be DOWNGRADED:
  qemu-utils
0 upgraded, 0 newly installed, 1 downgraded, 0 to remove and 129 not upgraded.
E: Packages were downgraded and -y was used without --allow-downgrades.
";

    #[test]
    fn an_install_that_only_adds_is_harmless() {
        let changes = Changes::parse(ADDS).unwrap();
        assert_eq!(changes, Changes::default());
        changes.take_nothing_away().unwrap();
    }

    #[test]
    fn a_removal_is_refused_by_name() {
        let changes = Changes::parse(REMOVES).unwrap();
        assert_eq!(changes, Changes { removed: 1, downgraded: 0, names: vec!["qemu-utils".to_owned()] });
        assert!(changes.take_nothing_away().unwrap_err().contains("qemu-utils"));
    }

    #[test]
    fn a_downgrade_is_refused_by_name() {
        let changes = Changes::parse(DOWNGRADES).unwrap();
        assert_eq!(changes, Changes { removed: 0, downgraded: 1, names: vec!["qemu-utils".to_owned()] });
        assert!(changes.take_nothing_away().unwrap_err().contains("qemu-utils"));
    }

    #[test]
    fn a_count_without_names_is_refused_too() {
        let changes = Changes::parse("0 upgraded, 0 newly installed, 2 to remove and 0 not upgraded.\n").unwrap();
        changes.take_nothing_away().unwrap_err();
    }

    #[test]
    fn what_cannot_be_read_is_not_harmless() {
        assert_eq!(Changes::parse("E: Unable to locate package nosuch\n"), None);
        assert_eq!(Changes::parse("0 upgraded, 1 newly installed, 1 to overwrite and 3 not upgraded.\n"), None);
    }

    #[test]
    fn the_command_shown_is_the_command_run() {
        let shown = apt_get("install --yes").word("tree").to_string();
        assert_eq!(shown, "LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=180 install --yes tree");
    }
}

//! The programs that the virtual machine is made with.

use std::path::Path;

use crate::install::apt;
use crate::{Result, command::Line};

/// What is needed besides QEMU: here to make the guest, and in the guest, whose root is the host's.
const OTHERS: [&str; 5] = ["busybox-static", "ibverbs-providers", "iproute2", "kmod", "xz-utils"];

/// Finds them, or installs what is missing and says what.
///
/// # Errors
/// Why they cannot be had here: then there is no virtual machine.
pub(super) fn get(folder: &Path, install: bool) -> Result<()> {
    let machine = Line::new("uname --machine").output()?;
    if machine.trim() != "x86_64" {
        return Err(format!("the guest is x86_64 and this machine is {}", machine.trim()));
    }
    let missing: Vec<&str> = OTHERS.into_iter().filter(|package| !apt::has(package)).collect();
    let no_qemu = !Line::new("qemu-system-x86_64 --version").succeeds();
    if !install && (no_qemu || !missing.is_empty()) {
        let missing: Vec<&str> = no_qemu.then_some(QEMU).into_iter().chain(missing).collect();
        return Err(format!("missing: {}", missing.join(" ")));
    }
    if !missing.is_empty() {
        println!("missing: {}, for the virtual machine", missing.join(" "));
        apt::install(&missing)?;
    }
    if no_qemu {
        println!("missing: {QEMU}, for the virtual machine");
        if let Err(why) = apt::install(&[QEMU]) {
            // QEMU's tools may be installed from Debian's backports already. Those of another version would have to go.
            println!("{why}\ntrying the backports of this Debian");
            apt::install_from(&backports(folder)?, &[QEMU])?;
        }
    }
    Ok(())
}

const QEMU: &str = "qemu-system-x86";

/// apt-get's options for the backports of the installed Debian, from where its other packages come. The machine's own
/// list of sources is not changed.
fn backports(folder: &Path) -> Result<Vec<String>> {
    let release = std::fs::read_to_string("/etc/os-release").map_err(|why| format!("/etc/os-release: {why}"))?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.ok_or("/etc/os-release names no version of Debian")?;
    let targets = Line::new("apt-get indextargets --format").word("$(CODENAME) $(REPO_URI)").output()?;
    let place = targets.lines().find_map(|line| line.strip_prefix(codename)?.strip_prefix(' '));
    let place = place.ok_or_else(|| format!("no source of apt-get's is Debian {codename}"))?;
    let ours = std::fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let list = folder.join("backports.list");
    let suite = format!("{codename}-backports");
    std::fs::write(&list, format!("{ours}\ndeb [signed-by={key}] {place} {suite} main\n"))
        .map_err(|why| format!("{}: {why}", list.display()))?;
    Ok(vec!["-o".to_owned(), format!("Dir::Etc::sourcelist={}", list.display()), "--target-release".to_owned(), suite])
}

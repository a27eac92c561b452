//! Debian's kernel and the modules that the guest needs, taken out of its package and installed nowhere.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::initrd::Archive;
use crate::{Result, command::Line};

/// The generic one: Debian's kernel for clouds has neither soft-RoCE nor 9p.
const PACKAGE: &str = "linux-image-amd64";

/// What is loaded at the start, each after the modules it needs: the disk that is the host's folder, its overlay, the
/// network cards, soft-RoCE, and the checksum that soft-RoCE would ask for by name later.
const MODULES: [&str; 8] = ["virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "crc32_generic", "rdma_rxe", "rdma_ucm"];

const INIT: &str = include_str!("../../vm/init");

/// A kernel, ready to be booted.
pub(super) struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    /// The kernel in `folder`, or the one that the package registry has now.
    pub(super) fn get(folder: &Path) -> Result<Kernel> {
        let kernel = Kernel { folder: folder.join("kernel") };
        if !kernel.folder.is_dir() {
            let unfinished = folder.join("kernel.unfinished");
            make(&unfinished)?;
            fs::rename(&unfinished, &kernel.folder).map_err(|why| failed(&kernel.folder, &why))?;
        }
        Ok(kernel)
    }

    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// What it starts from, made anew: the scripts in it change more often than the kernel.
    pub(super) fn initrd(&self, path: &Path) -> Result<()> {
        let mut archive = Archive::default();
        for folder in ["bin", "dev", "proc", "sys", "new", "host", "top", "modules"] {
            archive.folder(folder);
        }
        archive.file("init", INIT.as_bytes());
        archive.file("bin/busybox", &read(Path::new("/bin/busybox"))?);
        let modules = self.folder.join("modules");
        let order = read(&modules.join("order"))?;
        for module in String::from_utf8_lossy(&order).lines() {
            archive.file(&format!("modules/{module}"), &read(&modules.join(module))?);
        }
        archive.file("modules/order", &order);
        fs::write(path, archive.finish()).map_err(|why| failed(path, &why))
    }
}

fn make(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|why| failed(folder, &why))?;
    }
    let (tree, modules) = (folder.join("package"), folder.join("modules"));
    for folder in [&tree, &modules] {
        fs::create_dir_all(folder).map_err(|why| failed(folder, &why))?;
    }
    let release = download(folder)?;
    println!("unpacking the kernel {release} into {}", folder.display());
    let package = format!("linux-image-{release}");
    let is_package = |name: &str| name.starts_with(&package) && name.ends_with(".deb");
    let archive = names(folder)?.into_iter().find(|name| is_package(name)).ok_or("the kernel's package was not downloaded")?;
    run(&Line::new("dpkg-deb --extract").word(text(&folder.join(&archive))).word(text(&tree)))?;

    run(&Line::new("/sbin/depmod --basedir").words([text(&tree), release.clone()]))?;
    let mut order: Vec<String> = Vec::new();
    for module in MODULES {
        let line =
            Line::new("/sbin/modprobe --dirname").word(text(&tree)).words(["--set-version", &release, "--show-depends", module]);
        for path in line.output()?.lines().filter_map(|line| line.strip_prefix("insmod ")) {
            let path = Path::new(path.trim());
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if !order.contains(&name) {
                fs::copy(path, modules.join(&name)).map_err(|why| failed(path, &why))?;
                order.push(name);
            }
        }
    }
    let list = modules.join("order");
    fs::write(&list, order.join("\n") + "\n").map_err(|why| failed(&list, &why))?;
    unpack(&tree.join("boot").join(format!("vmlinuz-{release}")), &folder.join("image"))?;
    for left in [tree, folder.join(archive)] {
        let removed = if left.is_dir() { fs::remove_dir_all(&left) } else { fs::remove_file(&left) };
        removed.map_err(|why| failed(&left, &why))?;
    }
    Ok(())
}

/// Downloads the package into the folder and returns the kernel's release.
fn download(folder: &Path) -> Result<String> {
    // Before the first update there are no lists, and in old ones is what cannot be downloaded any more.
    newest(folder).or_else(|_| run(&Line::new("apt-get --quiet --quiet update")).and_then(|()| newest(folder)))
}

fn newest(folder: &Path) -> Result<String> {
    let depends = Line::new("apt-cache depends").word(PACKAGE).output()?;
    let name = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    let release = name.ok_or_else(|| format!("no package is called {PACKAGE}"))?.to_owned();
    let line = Line::new("env --chdir").word(text(folder)).words(["apt-get", "--quiet", "--quiet"]);
    // root's downloads are done by another user, who may not write here.
    run(&line.words(["-o", "APT::Sandbox::User=root", "download"]).word(format!("linux-image-{release}")))?;
    Ok(release)
}

/// Unpacks a kernel image beforehand where it is packed with xz: under emulation it would take itself ten seconds.
fn unpack(packed: &Path, image: &Path) -> Result<()> {
    const XZ: &[u8] = b"\xfd7zXZ\0";
    let Some(at) = read(packed)?.windows(XZ.len()).position(|bytes| bytes == XZ) else {
        return fs::copy(packed, image).map(drop).map_err(|why| failed(packed, &why));
    };
    let mut file = File::open(packed).map_err(|why| failed(packed, &why))?;
    file.seek(SeekFrom::Start(at as u64)).map_err(|why| failed(packed, &why))?;
    let unpacked = File::create(image).map_err(|why| failed(image, &why))?;
    // What follows the image in the file is no xz.
    let line = Line::new("xz --decompress --stdout --single-stream");
    let status = line.command().stdin(file).stdout(unpacked).status().map_err(|why| line.not_started(&why))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` cannot unpack {} from byte {at}", packed.display())) }
}

fn run(line: &Line) -> Result<()> {
    println!("$ {line}");
    if line.show()?.success() { Ok(()) } else { Err(format!("`{line}` failed")) }
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).map_err(|why| failed(folder, &why))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|why| failed(path, &why))
}

fn failed(path: &Path, why: &std::io::Error) -> String {
    format!("{}: {why}", path.display())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

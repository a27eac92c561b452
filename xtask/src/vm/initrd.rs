//! The archive that the kernel unpacks as its first root: "newc" cpio, as in the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst.

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive that grows entry by entry.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: usize,
}

impl Archive {
    pub(super) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, &[]);
    }

    /// A file that everybody may read and run.
    pub(super) fn file(&mut self, name: &str, contents: &[u8]) {
        self.entry(name, PROGRAM, contents);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let (inode, size, name_size) = (self.entries, contents.len(), name.len() + 1);
        // After the magic number: inode, mode, uid, gid, links, mtime, size, device and rdevice (two each), name, check.
        let fields = [inode, mode as usize, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_lie_where_the_format_puts_them() {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.file("init", b"#!/x\n");
        let bytes = archive.finish();
        let text = |range: std::ops::Range<usize>| std::str::from_utf8(&bytes[range]).unwrap().to_owned();
        // A header has 110 bytes; name and contents are padded to four.
        assert_eq!(text(0..22), "0707010000000100004_1ed".replace('_', ""));
        assert_eq!(text(110..116), "dev\0\0\0".get(..6).unwrap());
        assert_eq!(text(116..122), "070701");
        assert_eq!(text(116 + 54..116 + 62), "00000005", "size");
        assert_eq!(text(116 + 94..116 + 102), "00000005", "size of the name");
        assert_eq!(&bytes[116 + 110..116 + 110 + 14], b"init\0\0#!/x\n\0\0\0");
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0") && bytes.len() % 4 == 0);
    }
}

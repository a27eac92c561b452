//! Reading a file that a user named.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use pinrail_core::size::Bytes;
use pinrail_core::{Diagnosis, ErrorKind};

use crate::error::Error;

/// Reads a file of at most `max` bytes; a longer one is refused before it is read. `what` names it in errors.
pub(crate) fn read(path: &Path, max: u64, what: &str) -> Result<Vec<u8>, Error> {
    let failed = |error: std::io::Error| {
        let message = format!("{what} {}: {error}", path.display());
        Error::from(Diagnosis { errno: error.raw_os_error(), ..Diagnosis::new(ErrorKind::Usage, message) })
    };
    let too_long = |len: u64| {
        let has = if len == max + 1 { "does not end within".to_owned() } else { format!("has {}, more than", Bytes(len)) };
        let message = format!("{what} {} {has} the {} that are read", path.display(), Bytes(max));
        Error::from(Diagnosis::new(ErrorKind::Usage, message).limit(max, len))
    };
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    if len > max {
        return Err(too_long(len));
    }
    // A pipe or a device has no length: one byte more than is allowed is enough to know.
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > max {
        return Err(too_long(max + 1));
    }
    Ok(bytes)
}

//! `--batch`: a shape, or a file.

use std::path::Path;

use pinrail_core::batch::{BatchError, BatchSpec};
use pinrail_core::{Diagnosis, ErrorKind, Place};
use pinrail_memory::Pages;

use crate::args::BatchArgs;
use crate::error::Error;
use crate::file;

/// Most bytes of a batch file.
const FILE_BYTES_MAX: u64 = 64 << 20;

impl BatchArgs {
    /// The batch, with at least one buffer.
    ///
    /// What reads as a shape is one, whatever files there are: `./8x1MiB` is the file of that name.
    pub(crate) fn read(&self) -> Result<BatchSpec, Error> {
        let path = Path::new(&self.batch);
        let batch = match self.batch.to_str().map(BatchSpec::shape) {
            Some(Ok(shape)) => shape,
            Some(Err(error @ BatchError::TooMany { .. })) => return Err(error.into()),
            Some(Err(no_shape)) if !path.exists() && !looks_like_a_file(path) => {
                let diagnosis = no_shape.diagnosis();
                let message = format!("{}; and there is no file of that name", diagnosis.message);
                return Err(Diagnosis { message, ..diagnosis }.into());
            }
            Some(Err(_)) | None => from_file(path)?,
        };
        if batch.buffers.is_empty() {
            return Err(Diagnosis::new(ErrorKind::EmptyBatch, "the batch has no buffer, so there is nothing to do").into());
        }
        Ok(batch)
    }
}

/// The batch as memory of these pages holds it: of the pages that are named in a file, only those of devices remain.
pub(crate) fn on_pages(mut batch: BatchSpec, pages: Pages) -> BatchSpec {
    for buffer in batch.buffers.iter_mut().filter(|buffer| !matches!(buffer.place, Place::Gpu(_))) {
        buffer.page_size = pages.page_size();
    }
    batch
}

fn looks_like_a_file(path: &Path) -> bool {
    path.is_absolute() || path.starts_with(".") || path.starts_with("..") || path.extension().is_some_and(|end| end == "json")
}

fn from_file(path: &Path) -> Result<BatchSpec, Error> {
    let bytes = file::read(path, FILE_BYTES_MAX, "batch file")?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let message = format!("batch file {} is no text: byte {} is no UTF-8", path.display(), error.valid_up_to());
        Diagnosis::new(ErrorKind::Batch, message).hint("save it as UTF-8")
    })?;
    Ok(BatchSpec::from_json(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(batch: &str) -> ErrorKind {
        BatchArgs { batch: batch.into() }.read().unwrap_err().diagnosis.kind
    }

    #[test]
    fn a_text_is_a_shape_or_a_file_or_an_error_of_the_likelier() {
        assert_eq!(BatchArgs { batch: "kimi-k3/8".into() }.read().unwrap().buffers.len(), 182);
        for no_shape in ["kimi-k3/0", "3x1.5GiB", "nonsense", ""] {
            assert_eq!(kind(no_shape), ErrorKind::Batch, "{no_shape}");
        }
        for no_file in ["/nonexistent", "./8x1MiB", "nonexistent.json", "."] {
            assert_eq!(kind(no_file), ErrorKind::Usage, "{no_file}");
        }
        assert_eq!(kind("0x4096"), ErrorKind::EmptyBatch);
    }
}

//! Files that a task reads from their beginning, plain or compressed, and the documents of `mongodump`'s.
//!
//! Always true: a file that ends within a document is an error that names the place; what follows the last whole
//! document is never taken for the end.

use anyhow::{Context, Result, anyhow, ensure};
use bson::RawDocumentBuf;
use flate2::bufread::MultiGzDecoder;
use os::{File, OpenOptions, Os};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest document that a server gives out, with what it adds itself.
const MAX_DOCUMENT_BYTES: usize = (16 << 20) + (16 << 10);
const BUFFER_BYTES: usize = 1 << 20;

/// A file from its beginning; what is read of it, before it is unpacked, is added to `read`.
pub(crate) fn open(
    os: &Os,
    path: &Path,
    is_compressed: bool,
    read: Arc<AtomicU64>,
) -> Result<Box<dyn BufRead + Send>> {
    let file = os.vfs.open(path, OpenOptions::read_only());
    let file = file.map_err(|error| anyhow!("{}: {error}", path.display()))?;
    Ok(buffered(AtOffset { file, offset: 0 }, is_compressed, read))
}

/// Input of any kind behind a buffer, unpacked.
pub(crate) fn buffered(
    input: impl Read + Send + 'static,
    is_compressed: bool,
    read: Arc<AtomicU64>,
) -> Box<dyn BufRead + Send> {
    let plain = BufReader::with_capacity(BUFFER_BYTES, Counted { input, read });
    if is_compressed {
        return Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(plain)));
    }
    Box::new(plain)
}

/// Whether a file is compressed, by its name.
pub(crate) fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// The next document of a file of `mongodump`'s, if there is one.
pub(crate) fn next_document(
    reader: &mut (impl Read + ?Sized),
    offset: u64,
) -> Result<Option<RawDocumentBuf>> {
    // No error of the file's is one that passes, so none goes on as one of input and output.
    let torn = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            anyhow!("the file ends within the document at byte {offset}: the dump was cut off")
        }
        _ => anyhow!("it cannot be read behind byte {offset}: {error}"),
    };
    let mut length = [0; 4];
    let first = loop {
        match reader.read(&mut length[..1]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result.map_err(torn)?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..]).map_err(torn)?;
    let bytes = usize::try_from(i32::from_le_bytes(length)).unwrap_or(0);
    ensure!((5..=MAX_DOCUMENT_BYTES).contains(&bytes), "there is no document at byte {offset}");
    let mut document = vec![0; bytes];
    document[..4].copy_from_slice(&length);
    reader.read_exact(&mut document[4..]).map_err(torn)?;
    let document = RawDocumentBuf::from_bytes(document);
    Ok(Some(document.with_context(|| format!("there is no document at byte {offset}"))?))
}

struct AtOffset {
    file: Arc<dyn File>,
    offset: u64,
}

impl Read for AtOffset {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

struct Counted<R> {
    input: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::is_passing;
    use bson::rawdoc;

    #[test]
    fn a_file_that_is_cut_off_is_an_error_and_not_an_end() {
        let documents = [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }];
        let bytes: Vec<u8> = documents.iter().flat_map(|one| one.as_bytes()).copied().collect();
        let middle = documents[0].as_bytes().len();
        for length in 0..=bytes.len() {
            let mut reader = &bytes[..length];
            let mut found = 0;
            let end = loop {
                match next_document(&mut reader, 0) {
                    Ok(Some(_)) => found += 1,
                    end => break end.is_ok(),
                }
            };
            assert_eq!(found, usize::from(length >= middle) + usize::from(length == bytes.len()));
            assert_eq!(end, length % middle == 0, "{length}");
        }
        assert!(next_document(&mut &[0xff; 40][..], 0).is_err());
    }

    #[test]
    fn a_damaged_compressed_file_is_an_error_that_does_not_pass() {
        let mut plain = MultiGzDecoder::new(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][..]);
        let error = next_document(&mut plain, 0).unwrap_err();
        assert!(!is_passing(&error), "{error:#}");
    }
}

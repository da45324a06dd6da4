//! A find's sort on disk: written once from front to back, then read in parts.

use catalog::Catalog;
use errors::{Code, Error, Result};
use pipeline::SpillStorage;
use pipeline::spill::{EncryptedSpill, FileSpill};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes gathered before they are written, and read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Makes temporary files.
#[derive(Clone)]
pub(crate) struct TempFiles {
    catalog: Arc<Catalog>,
}

impl TempFiles {
    pub(crate) fn of(catalog: &Arc<Catalog>) -> Self {
        Self { catalog: Arc::clone(catalog) }
    }

    pub(crate) fn create(&self) -> Result<SpillFile> {
        Ok(SpillFile { file: temporary_file(&self.catalog)?, written: 0, buffer: Vec::new() })
    }
}

/// A fresh temporary file, encrypted where the data is.
pub(crate) fn temporary_file(catalog: &Catalog) -> Result<Box<dyn SpillStorage>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let os = catalog.os();
    let directory = catalog.temporary_directory();
    os.vfs
        .create_dir_all(directory)
        .map_err(|error| Error::new(Code::INTERNAL_ERROR, format!("temporary file: {error}")))?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("spill-{:016x}-{number}", os.entropy.next_u64());
    let file = FileSpill::create(Arc::clone(&os.vfs), directory.join(name))?;
    Ok(if catalog.engine().encryption().is_some() {
        Box::new(EncryptedSpill::new(Box::new(file), &*os.entropy))
    } else {
        Box::new(file)
    })
}

/// A temporary file.
pub(crate) struct SpillFile {
    file: Box<dyn SpillStorage>,
    written: u64,
    buffer: Vec<u8>,
}

impl SpillFile {
    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Appends bytes led by their length.
    pub(crate) fn write_framed(&mut self, bytes: &[u8]) -> Result<()> {
        let length = u32::try_from(bytes.len()).map_err(|_| damaged())?;
        self.write(&length.to_le_bytes())?;
        self.write(bytes)
    }

    /// Where the next byte goes.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn flush(&mut self) -> Result<()> {
        self.file.append(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends writing.
    pub(crate) fn finish(mut self) -> Result<Arc<dyn SpillStorage>> {
        self.flush()?;
        Ok(Arc::from(self.file))
    }
}

/// Reads a part of a temporary file.
pub(crate) struct SpillReader {
    file: Arc<dyn SpillStorage>,
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    at: usize,
}

impl SpillReader {
    /// Reads what was written from `start` to `end`.
    pub(crate) fn new(file: &Arc<dyn SpillStorage>, start: u64, end: u64) -> Self {
        Self { file: Arc::clone(file), next: start, end, buffer: Vec::new(), at: 0 }
    }

    /// Reads bytes that [`SpillFile::write_framed`] wrote; `None` at the end.
    pub(crate) fn read_framed(&mut self) -> Result<Option<Vec<u8>>> {
        if self.at == self.buffer.len() && self.next == self.end {
            return Ok(None);
        }
        let mut length = [0; 4];
        self.read(&mut length)?;
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        self.read(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Reads eight bytes as a number; `None` at the end.
    pub(crate) fn read_u64(&mut self) -> Result<Option<u64>> {
        if self.at == self.buffer.len() && self.next == self.end {
            return Ok(None);
        }
        let mut bytes = [0; 8];
        self.read(&mut bytes)?;
        Ok(Some(u64::from_le_bytes(bytes)))
    }

    fn read(&mut self, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            if self.at == self.buffer.len() {
                let length = (self.end - self.next).min(BUFFER_BYTES as u64) as usize;
                if length == 0 {
                    return Err(damaged());
                }
                self.buffer.resize(length, 0);
                if self.file.read_at(self.next, &mut self.buffer)? < length {
                    return Err(damaged());
                }
                self.next += length as u64;
                self.at = 0;
            }
            let take = out.len().min(self.buffer.len() - self.at);
            out[..take].copy_from_slice(&self.buffer[self.at..self.at + take]);
            self.at += take;
            out = &mut out[take..];
        }
        Ok(())
    }
}

fn damaged() -> Error {
    Error::new(Code::INTERNAL_ERROR, "temporary file: unexpected end")
}

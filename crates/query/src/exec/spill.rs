//! Temporary files: written once from front to back, then read from front to back.
//!
//! Always true: a file's name is removed as soon as it is open, so a crash leaves nothing behind.

use catalog::Catalog;
use errors::{Code, Error, Result};
use os::{File, OpenOptions};
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
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let vfs = &self.catalog.os().vfs;
        let directory = self.catalog.temporary_directory();
        vfs.create_dir_all(directory).map_err(|e| failed(&e))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("spill-{:016x}-{number}", self.catalog.os().entropy.next_u64());
        let path = directory.join(name);
        let file = vfs.open(&path, OpenOptions::create_new()).map_err(|e| failed(&e))?;
        vfs.remove_file(&path).map_err(|e| failed(&e))?;
        Ok(SpillFile { file, written: 0, buffer: Vec::new() })
    }
}

/// A temporary file.
pub(crate) struct SpillFile {
    file: Arc<dyn File>,
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
        self.file.write_all_at(&self.buffer, self.written).map_err(|e| failed(&e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Reads what was written from `start` to `end`.
    pub(crate) fn reader(&mut self, start: u64, end: u64) -> Result<SpillReader> {
        self.flush()?;
        Ok(SpillReader {
            file: Arc::clone(&self.file),
            next: start,
            end,
            buffer: Vec::new(),
            at: 0,
        })
    }
}

/// Reads a part of a temporary file.
pub(crate) struct SpillReader {
    file: Arc<dyn File>,
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    at: usize,
}

impl SpillReader {
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
                self.file.read_exact_at(&mut self.buffer, self.next).map_err(|e| failed(&e))?;
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

fn failed(error: &std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull => Code::OUT_OF_DISK_SPACE,
        _ => Code::INTERNAL_ERROR,
    };
    Error::new(code, format!("temporary file: {error}"))
}

fn damaged() -> Error {
    Error::new(Code::INTERNAL_ERROR, "temporary file: unexpected end")
}

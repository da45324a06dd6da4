//! Temporary bytes: runs of sorted records, merged back in order, and spools read many times.
//!
//! A record is `key length (u32 LE), value length (u32 LE), key, value`. A run is a stretch of
//! records ascending by key. Runs live one after the other in one spill; nothing of it survives
//! the stage that made it.

use crate::env::Env;
use crate::memory::StageMemory;
use errors::{Code, Error, Result};
use os::{File, OpenOptions, Vfs};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::sync::Arc;

/// A temporary file: appended to, read anywhere.
pub trait SpillStorage: Send + Sync {
    /// Appends bytes; they stand at the returned offset.
    fn append(&mut self, bytes: &[u8]) -> Result<u64>;

    /// Fills `buf` from `offset`; fewer bytes only at the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
}

/// A spill in the temporary directory, removed when dropped.
pub struct FileSpill {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    file: Arc<dyn File>,
    len: u64,
}

impl FileSpill {
    /// Makes the file; `path` must be new.
    pub fn create(vfs: Arc<dyn Vfs>, path: PathBuf) -> Result<Self> {
        let file = vfs.open(&path, OpenOptions::create_new()).map_err(io_error)?;
        Ok(Self { vfs, path, file, len: 0 })
    }
}

impl SpillStorage for FileSpill {
    fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.len;
        self.file.write_all_at(bytes, at).map_err(io_error)?;
        self.len += bytes.len() as u64;
        Ok(at)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            let read =
                self.file.read_at(&mut buf[filled..], offset + filled as u64).map_err(io_error)?;
            if read == 0 {
                break;
            }
            filled += read;
        }
        Ok(filled)
    }
}

impl Drop for FileSpill {
    fn drop(&mut self) {
        // A file that cannot be removed now is swept with the directory at the next start.
        drop(self.vfs.remove_file(&self.path));
    }
}

mod encrypted;

pub use encrypted::EncryptedSpill;

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn io_error(error: std::io::Error) -> Error {
    let code = if error.kind() == std::io::ErrorKind::StorageFull {
        Code::OUT_OF_DISK_SPACE
    } else {
        Code::INTERNAL_ERROR
    };
    Error::new(code, format!("temporary file: {error}"))
}

/// Bytes gathered before they are appended.
const WRITE_BYTES: usize = 256 << 10;

/// Bytes read ahead per run.
const READ_BYTES: usize = 64 << 10;

/// Runs merged at once; more are first merged to fewer.
const FAN_IN: usize = 64;

/// Sorted runs in a spill.
pub(crate) struct Runs {
    spill: Box<dyn SpillStorage>,
    /// Where each run begins and ends.
    extents: Vec<(u64, u64)>,
    end: u64,
}

impl Runs {
    pub(crate) fn create(env: &dyn Env) -> Result<Self> {
        Ok(Self { spill: env.create_spill()?, extents: Vec::new(), end: 0 })
    }

    /// Writes records, which must ascend by key, as one run.
    pub(crate) fn write<B: AsRef<[u8]>, C: AsRef<[u8]>>(
        &mut self,
        records: impl Iterator<Item = Result<(B, C)>>,
    ) -> Result<()> {
        let mut writer = RunWriter::new(self.end);
        for record in records {
            let (key, value) = record?;
            poll_record(key.as_ref().len() + value.as_ref().len())?;
            writer.add(&mut *self.spill, key.as_ref(), value.as_ref())?;
        }
        self.close(writer)
    }

    fn close(&mut self, mut writer: RunWriter) -> Result<()> {
        writer.flush(&mut *self.spill)?;
        self.extents.push((writer.start, writer.end));
        self.end = writer.end;
        Ok(())
    }

    /// All records in order; equal keys in the order of their runs.
    pub(crate) fn merge(mut self, env: &dyn Env) -> Result<Merged> {
        // Each round merges neighbours, so that equal keys stay in the order of their runs.
        while self.extents.len() > FAN_IN {
            let runs = std::mem::take(&mut self.extents);
            for some in runs.chunks(FAN_IN) {
                env.check_interrupt()?;
                let mut heads = Heads::open(&*self.spill, some)?;
                let mut writer = RunWriter::new(self.end);
                while let Some((key, value)) = heads.next(&*self.spill)? {
                    writer.add(&mut *self.spill, &key, &value)?;
                }
                self.close(writer)?;
            }
        }
        let heads = Heads::open(&*self.spill, &self.extents)?;
        Ok(Merged { spill: self.spill, heads })
    }
}

/// Writing or reading a record is as much work as it is long.
fn poll_record(bytes: usize) -> Result<()> {
    limits::poll_work(1 + bytes / limits::BYTES_PER_UNIT)
}

struct RunWriter {
    start: u64,
    end: u64,
    buffer: Vec<u8>,
}

impl RunWriter {
    fn new(start: u64) -> Self {
        Self { start, end: start, buffer: Vec::new() }
    }

    fn add(&mut self, spill: &mut dyn SpillStorage, key: &[u8], value: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(key);
        if value.len() < WRITE_BYTES {
            self.buffer.extend_from_slice(value);
            return if self.buffer.len() >= WRITE_BYTES { self.flush(spill) } else { Ok(()) };
        }
        // Written from where it is: it would be there twice.
        self.flush(spill)?;
        spill.append(value)?;
        self.end += value.len() as u64;
        Ok(())
    }

    fn flush(&mut self, spill: &mut dyn SpillStorage) -> Result<()> {
        if !self.buffer.is_empty() {
            spill.append(&self.buffer)?;
            self.end += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }
}

/// The merged stream of several runs.
pub(crate) struct Merged {
    spill: Box<dyn SpillStorage>,
    heads: Heads,
}

impl Merged {
    /// How long the value of the next record is; 0 at the end.
    pub(crate) fn next_len(&self) -> usize {
        self.heads.heap.peek().map_or(0, |head| self.heads.readers[head.run].value_len)
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> Result<Option<Record>> {
        self.heads.next(&*self.spill)
    }
}

/// Key and value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

struct Heads {
    heap: BinaryHeap<Head>,
    readers: Vec<Reader>,
}

/// A run's next key. Its value stays on disk until it is wanted: the heads of 64 runs of large documents
/// would not fit.
struct Head {
    key: Vec<u8>,
    run: usize,
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    /// Reversed: the heap's greatest is the least key of the oldest run.
    fn cmp(&self, other: &Self) -> Ordering {
        (&other.key, other.run).cmp(&(&self.key, self.run))
    }
}

impl Heads {
    fn open(spill: &dyn SpillStorage, runs: &[(u64, u64)]) -> Result<Self> {
        let mut heads = Self { heap: BinaryHeap::new(), readers: Vec::new() };
        for (run, (start, end)) in runs.iter().enumerate() {
            heads.readers.push(Reader::new(*start, *end));
            heads.refill(spill, run)?;
        }
        Ok(heads)
    }

    fn refill(&mut self, spill: &dyn SpillStorage, run: usize) -> Result<()> {
        if let Some(key) = self.readers[run].next_key(spill)? {
            self.heap.push(Head { key, run });
        }
        Ok(())
    }

    fn next(&mut self, spill: &dyn SpillStorage) -> Result<Option<Record>> {
        let Some(Head { key, run }) = self.heap.pop() else { return Ok(None) };
        let value = self.readers[run].value(spill)?;
        poll_record(key.len() + value.len())?;
        self.refill(spill, run)?;
        Ok(Some((key, value)))
    }
}

/// Reads records one after the other.
pub(crate) struct Reader {
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    used: usize,
    /// How long the value is whose key was read.
    value_len: usize,
}

impl Reader {
    pub(crate) fn new(start: u64, end: u64) -> Self {
        Self { at: start, end, buffer: Vec::new(), used: 0, value_len: 0 }
    }

    /// Makes sure `wanted` bytes stand in the buffer.
    fn fill(&mut self, spill: &dyn SpillStorage, wanted: usize) -> Result<()> {
        let have = self.buffer.len() - self.used;
        if have >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.used);
        self.used = 0;
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let more = READ_BYTES.max(wanted - have).min(left);
        self.buffer.resize(have + more, 0);
        let read = spill.read_at(self.at, &mut self.buffer[have..])?;
        self.buffer.truncate(have + read);
        self.at += read as u64;
        if self.buffer.len() < wanted { Err(ended_early()) } else { Ok(()) }
    }

    fn take(&mut self, spill: &dyn SpillStorage, len: usize) -> Result<&[u8]> {
        self.fill(spill, len)?;
        let from = self.used;
        self.used += len;
        Ok(&self.buffer[from..from + len])
    }

    fn length(&mut self, spill: &dyn SpillStorage) -> Result<usize> {
        let mut word = [0; 4];
        word.copy_from_slice(self.take(spill, 4)?);
        Ok(u32::from_le_bytes(word) as usize)
    }

    /// The key of the next record; its [`Self::value`] must be taken before the next one's.
    fn next_key(&mut self, spill: &dyn SpillStorage) -> Result<Option<Vec<u8>>> {
        if self.used == self.buffer.len() && self.at == self.end {
            return Ok(None);
        }
        let (key_len, value_len) = (self.length(spill)?, self.length(spill)?);
        self.value_len = value_len;
        self.take(spill, key_len).map(|key| Some(key.to_vec()))
    }

    /// The value of the record whose key was read last.
    fn value(&mut self, spill: &dyn SpillStorage) -> Result<Vec<u8>> {
        let len = std::mem::take(&mut self.value_len);
        if len <= READ_BYTES {
            return self.take(spill, len).map(<[u8]>::to_vec);
        }
        // Past the buffer: it would stay as large as the largest value.
        let have = self.buffer.len() - self.used;
        if len > have && (len - have) as u64 > self.end - self.at {
            return Err(ended_early());
        }
        let mut value = vec![0; len];
        let buffered = have.min(len);
        value[..buffered].copy_from_slice(&self.buffer[self.used..self.used + buffered]);
        self.used += buffered;
        if buffered < len {
            if spill.read_at(self.at, &mut value[buffered..])? < len - buffered {
                return Err(ended_early());
            }
            self.at += (len - buffered) as u64;
        }
        Ok(value)
    }

    /// The next record.
    pub(crate) fn next(&mut self, spill: &dyn SpillStorage) -> Result<Option<Record>> {
        let Some(key) = self.next_key(spill)? else { return Ok(None) };
        let value = self.value(spill)?;
        poll_record(key.len() + value.len())?;
        Ok(Some((key, value)))
    }
}

fn ended_early() -> Error {
    Error::new(Code::INTERNAL_ERROR, "a temporary file ended too early")
}

/// Documents written once and read many times: in memory as far as it may be, then on disk.
pub(crate) struct Spool {
    /// The stage that writes them.
    stage: &'static str,
    memory: Vec<bson::raw::RawDocumentBuf>,
    bytes: usize,
    held: StageMemory,
    overflow: Option<(Box<dyn SpillStorage>, RunWriter)>,
}

impl Spool {
    pub(crate) fn new(stage: &'static str, env: &dyn Env) -> Self {
        let held = StageMemory::within(env.options().memory_limit_bytes);
        Self { stage, memory: Vec::new(), bytes: 0, held, overflow: None }
    }

    pub(crate) fn add(&mut self, document: bson::raw::RawDocumentBuf, env: &dyn Env) -> Result<()> {
        let options = env.options();
        let size = document.as_bytes().len() + 64;
        if self.overflow.is_none() && self.held.fits(self.bytes + size, 0)? {
            self.bytes += size;
            self.memory.push(document);
            return Ok(());
        }
        if self.overflow.is_none() {
            if !options.allow_disk_use {
                return Err(crate::env::no_disk_use(self.stage, options.memory_limit_bytes));
            }
            self.overflow = Some((env.create_spill()?, RunWriter::new(0)));
        }
        let Some((spill, writer)) = &mut self.overflow else { return Ok(()) };
        writer.add(&mut **spill, &[], document.as_bytes())
    }

    /// No more documents come.
    pub(crate) fn seal(mut self) -> Result<Arc<SealedSpool>> {
        let mut overflow = None;
        if let Some((mut spill, mut writer)) = self.overflow.take() {
            writer.flush(&mut *spill)?;
            overflow = Some((spill, writer.end));
        }
        Ok(Arc::new(SealedSpool { memory: self.memory, _held: self.held, overflow }))
    }
}

/// A spool that is complete.
pub(crate) struct SealedSpool {
    memory: Vec<bson::raw::RawDocumentBuf>,
    _held: StageMemory,
    overflow: Option<(Box<dyn SpillStorage>, u64)>,
}

/// One reading of a spool.
pub(crate) struct SpoolSource {
    spool: Arc<SealedSpool>,
    at: usize,
    reader: Reader,
}

impl SpoolSource {
    pub(crate) fn new(spool: Arc<SealedSpool>) -> Self {
        let end = spool.overflow.as_ref().map_or(0, |(_, end)| *end);
        Self { spool, at: 0, reader: Reader::new(0, end) }
    }
}

impl crate::DocumentSource for SpoolSource {
    fn next(&mut self) -> Result<Option<bson::raw::RawDocumentBuf>> {
        if let Some(document) = self.spool.memory.get(self.at) {
            self.at += 1;
            return Ok(Some(document.clone()));
        }
        let Some((spill, _)) = &self.spool.overflow else { return Ok(None) };
        match self.reader.next(&**spill)? {
            Some((_, bytes)) => Ok(Some(document_from(bytes)?)),
            None => Ok(None),
        }
    }
}

/// A document read back.
pub(crate) fn document_from(bytes: Vec<u8>) -> Result<bson::raw::RawDocumentBuf> {
    bson::raw::RawDocumentBuf::from_bytes(bytes).map_err(|error| {
        Error::new(
            Code::INTERNAL_ERROR,
            format!("temporary file holds a damaged document: {error}"),
        )
    })
}

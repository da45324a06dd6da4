//! A file of one hour: names of columns and blocks of rows, one after the other.
//!
//! Always true: `end` is behind the last whole frame; an unfinished block may lie there, and the
//! next write covers it.

use crate::Error;
use crate::block::{self, Column, Row};
use crate::frame::{self, FILE_HEADER, HEADER, Header, Kind};
use os::{File, OpenOptions, Os};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &str = "history-";
const SUFFIX: &str = ".fern";

/// No file of ours is larger by far; one that is was not written by us.
const MAX_FILE_BYTES: u64 = 256 << 20;

pub(crate) struct HourFile {
    path: PathBuf,
    file: Arc<dyn File>,
    first_ms: i64,
    end: u64,
    columns: Arc<[Column]>,
    blocks: Vec<BlockPosition>,
}

/// Where a block lies, and its names.
#[derive(Clone)]
struct BlockPosition {
    offset: u64,
    header: Header,
    columns: Arc<[Column]>,
}

/// A block that can be read without any lock.
pub(crate) struct Block {
    pub(crate) columns: Arc<[Column]>,
    path: PathBuf,
    file: Arc<dyn File>,
    position: BlockPosition,
}

/// Whether a path has the name of one of our files.
pub(crate) fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
}

impl HourFile {
    /// Begins a file at this time.
    pub(crate) fn create(os: &Os, folder: &Path, first_ms: i64) -> io::Result<Self> {
        // Sorted by name is sorted by time.
        let path = folder.join(format!("{PREFIX}{first_ms:015}{SUFFIX}"));
        let options = OpenOptions { truncate: true, ..OpenOptions::create() };
        let file = os.vfs.open(&path, options)?;
        file.write_all_at(&frame::file_header(), 0)?;
        os.vfs.sync_dir(folder)?;
        let (end, columns) = (FILE_HEADER as u64, Arc::default());
        Ok(Self { path, file, first_ms, end, columns, blocks: Vec::new() })
    }

    /// Opens a file and finds its blocks; `None` where it holds none.
    ///
    /// # Errors
    /// What the disk says; `InvalidData` for another version.
    pub(crate) fn open(os: &Os, path: PathBuf) -> io::Result<Option<Self>> {
        let file = os.vfs.open(&path, OpenOptions::default())?;
        let length = file.len()?.min(MAX_FILE_BYTES);
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let Some(head) = bytes.get(..FILE_HEADER).filter(|head| head[..8] == frame::MAGIC[..])
        else {
            return Ok(None);
        };
        let version = head[8..].first_chunk().copied().map_or(0, u32::from_le_bytes);
        if version != frame::VERSION {
            let ours = frame::VERSION;
            let text = format!("{} has version {version}, not {ours}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut found = Self {
            path,
            file,
            first_ms: 0,
            end: FILE_HEADER as u64,
            columns: Arc::default(),
            blocks: Vec::new(),
        };
        found.scan(&bytes);
        let Some(first) = found.blocks.first() else { return Ok(None) };
        found.first_ms = first.header.first_ms;
        // Names are rewritten before the first block of this start.
        found.columns = Arc::default();
        Ok(Some(found))
    }

    fn scan(&mut self, bytes: &[u8]) {
        while let Some((header, payload)) = frame::decode(&bytes[self.end as usize..]) {
            match header.kind {
                Kind::Names => {
                    let names = frame::unpack(&header, payload);
                    let Some(columns) = names.and_then(|raw| frame::decode_names(&raw)) else {
                        return;
                    };
                    self.columns = columns.into();
                }
                Kind::Rows => self.remember(header),
            }
            self.end += (HEADER + header.length) as u64;
        }
    }

    fn remember(&mut self, header: Header) {
        let columns = Arc::clone(&self.columns);
        self.blocks.push(BlockPosition { offset: self.end, header, columns });
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn first_ms(&self) -> i64 {
        self.first_ms
    }

    /// The newest time of its blocks.
    pub(crate) fn last_ms(&self) -> Option<i64> {
        self.blocks.iter().map(|position| position.header.last_ms).max()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.end
    }

    /// Names the columns of the blocks that follow.
    pub(crate) fn set_columns(&mut self, columns: &Arc<[Column]>) -> io::Result<()> {
        if self.columns == *columns {
            return Ok(());
        }
        let raw = frame::encode_names(columns);
        let bytes = frame::encode(Kind::Names, 0, 0, 0, &raw)?;
        self.file.write_all_at(&bytes, self.end)?;
        self.end += bytes.len() as u64;
        self.columns = Arc::clone(columns);
        Ok(())
    }

    /// Writes a block that will be written again.
    pub(crate) fn write_unfinished(&mut self, rows: &[Row]) -> io::Result<()> {
        let Some(bytes) = encode(rows)? else { return Ok(()) };
        self.file.write_all_at(&bytes, self.end)
    }

    /// Writes a block for good, durably.
    pub(crate) fn write_block(&mut self, rows: &[Row]) -> io::Result<()> {
        let Some(bytes) = encode(rows)? else { return Ok(()) };
        self.file.write_all_at(&bytes, self.end)?;
        // The unfinished block that was here may have been longer.
        self.file.set_len(self.end + bytes.len() as u64)?;
        self.file.sync_data()?;
        if let Some((header, _)) = frame::decode(&bytes) {
            self.remember(header);
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// The blocks that have something of this stretch.
    pub(crate) fn blocks_of(&self, from_ms: i64, to_ms: i64) -> Vec<Block> {
        let wanted = self.blocks.iter().filter(|position| {
            position.header.first_ms <= to_ms && position.header.last_ms >= from_ms
        });
        let block = |position: &BlockPosition| Block {
            columns: Arc::clone(&position.columns),
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            position: position.clone(),
        };
        wanted.map(block).collect()
    }
}

fn encode(rows: &[Row]) -> io::Result<Option<Vec<u8>>> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(None) };
    let raw = block::encode(rows);
    frame::encode(Kind::Rows, rows.len(), first.at_ms, last.at_ms, &raw).map(Some)
}

impl Block {
    /// Reads its rows. Waits for the disk.
    pub(crate) fn read(&self) -> Result<Vec<Row>, Error> {
        let header = &self.position.header;
        let mut bytes = vec![0; HEADER + header.length];
        self.file.read_exact_at(&mut bytes, self.position.offset)?;
        let damaged = || Error::Damaged(self.path.clone());
        let (found, payload) = frame::decode(&bytes).ok_or_else(damaged)?;
        if found != *header {
            return Err(damaged());
        }
        let raw = frame::unpack(&found, payload).ok_or_else(damaged)?;
        block::decode(&raw, found.rows, self.columns.len()).ok_or_else(damaged)
    }
}

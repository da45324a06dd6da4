//! What of a data file has to be copied, byte for byte, so that the copy opens as the checkpoint that a [`Pin`]
//! holds, or a later one.
//!
//! Always true: the superblocks are read before it is asked what is taken. All that the newest of them names is
//! taken then, and is not overwritten while the pin lives.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use os::sync::{Mutex, RwLock};
use os::{OpenOptions, Os};
use telemetry::Registry;

use crate::UNIT;
use crate::allocator::Extent;
use crate::create::newest_superblock_in;
use crate::error::Result;
use crate::file::{BlockFile, Options};
use crate::inner::{Inner, io_error};
use crate::metrics::Metrics;
use crate::pins::Pin;
use crate::reserve::Reserve;
use crate::state::State;
use crate::superblock::{RESERVED_UNITS, Superblock};
use crate::table::Table;
use crate::translation::{Entry, SegmentId, fold_tables};

const SUPERBLOCKS_BYTES: usize = (RESERVED_UNITS * UNIT) as usize;

/// What one checkpoint of a data file is made of, beside what its segments hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointParts {
    /// Both superblocks, which stand at the beginning: the file's own may be newer by now.
    pub superblocks: Vec<u8>,
    /// The newest of them.
    pub superblock: Superblock,
    /// Where its segments are.
    pub segments: BTreeMap<SegmentId, Entry>,
    /// Where its translation table and its root are.
    pub blobs: Vec<Extent>,
    /// Bytes that a file with all of that has at least.
    pub file_bytes: u64,
}

/// Reads the newest checkpoint of a data file that nobody has open. Changes nothing.
///
/// # Errors
/// Its superblocks or its table are damaged, and what the disk says.
pub fn read_checkpoint(os: &Os, path: &Path) -> Result<CheckpointParts> {
    let failed = |what| move |e| io_error(path, what, 0, e);
    let file = os.vfs.open(path, OpenOptions::read_only()).map_err(failed("open"))?;
    let file_units = file.len().map_err(failed("size of"))? / UNIT;
    let mut superblocks = vec![0; SUPERBLOCKS_BYTES];
    file.read_exact_at(&mut superblocks, 0).map_err(failed("read"))?;
    let superblock = newest_superblock_in(&superblocks, path)?;
    let inner = Inner {
        os: os.clone(),
        file,
        path: path.to_path_buf(),
        file_id: superblock.file_id,
        options: Options::default(),
        metrics: Metrics::new(&Registry::new()),
        checkpointing: Mutex::new(()),
        state: Mutex::new(State::new(&superblock, file_units, Reserve::new(0, 1))),
        table: RwLock::new(Table::default()),
        moves: AtomicU64::new(0),
        keep_free: AtomicU64::new(0),
        stopped: OnceLock::new(),
    };
    inner.checkpoint_parts(superblocks)
}

/// The parts of a data file, as of a moment. They can be read from the file while the pin lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileParts {
    /// The superblocks, which stand at the beginning: the file's own may be newer by now.
    pub superblocks: Vec<u8>,
    /// Where everything else lies that may be needed, in bytes, ascending; none of them touch.
    pub taken: Vec<Range<u64>>,
    /// Bytes that the copy has to be long.
    pub file_bytes: u64,
}

impl BlockFile {
    /// What has to be copied now. `_pin` was taken before the checkpoint that the copy has to show was begun.
    pub fn parts(&self, _pin: &Pin) -> Result<FileParts> {
        let mut superblocks = vec![0; SUPERBLOCKS_BYTES];
        self.0.read_at(0, &mut superblocks)?;
        let state = self.0.state.lock();
        let in_bytes = |unit: u64| unit * UNIT;
        let taken = state.space.taken().into_iter().filter_map(|extent| {
            let (from, to) = (extent.unit.max(RESERVED_UNITS), extent.unit + extent.units);
            (from < to).then(|| in_bytes(from)..in_bytes(to))
        });
        Ok(FileParts {
            superblocks,
            taken: taken.collect(),
            file_bytes: in_bytes(state.file_units.max(state.space.end())),
        })
    }

    /// What the newest checkpoint is made of. `_pin` was taken before it was begun. Waits for a checkpoint that is
    /// being written; touches the disk.
    pub fn checkpoint_parts(&self, _pin: &Pin) -> Result<CheckpointParts> {
        let mut superblocks = vec![0; SUPERBLOCKS_BYTES];
        {
            let _none_is_written = self.0.checkpointing.lock();
            self.0.read_at(0, &mut superblocks)?;
        }
        self.0.checkpoint_parts(superblocks)
    }

    /// Fills memory with bytes of the file as they are stored, for who copies it. Touches the disk.
    pub fn read_stored(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, into)
    }
}

impl Inner {
    fn checkpoint_parts(&self, superblocks: Vec<u8>) -> Result<CheckpointParts> {
        let superblock = newest_superblock_in(&superblocks, &self.path)?;
        let Superblock { table, root, generation, .. } = superblock;
        let (tables, parts) = self.read_chain(table, generation, None)?;
        let segments = fold_tables(&parts).map_err(|what| self.corruption(table.unit, what))?;
        let (roots, _) = self.read_chain(root, generation, None)?;
        let blobs = [tables.extents(), roots.extents()].concat();
        let extents = segments.values().map(Entry::extent).chain(blobs.iter().copied());
        let mut ends = extents.map(|extent| extent.end().filter(|end| *end < 1 << 40));
        let end = ends.try_fold(RESERVED_UNITS, |last, end| end.map(|end| last.max(end)));
        let end =
            end.ok_or_else(|| self.corruption(table.unit, "an extent lies outside of any file"))?;
        assert!(end >= RESERVED_UNITS, "the superblocks are part of every file");
        Ok(CheckpointParts { superblocks, superblock, segments, blobs, file_bytes: end * UNIT })
    }
}

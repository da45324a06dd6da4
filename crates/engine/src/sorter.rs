//! Sorting what does not fit in memory: rows before dictionaries are filled with them in order.
//!
//! Always true: rows come back ascending by key, each as often as it was put in. Memory is bounded
//! (`loaderMaxMemory`, and a quarter of the cache for all sorters together) and counted; what exceeds it lies
//! in the data file, named by no checkpoint, and goes with the sorter and its last reader, or at the next
//! start. Nothing of it is in the log.
//!
//! Half of the memory takes rows while a thread sorts and writes the other half.

use crate::handle::EngineHandle;
use crate::helper::{Helper, Work};
use crate::{Compression, DictionaryOptions, Engine, Result};
use ftree::{RowBatch, RowBounds, RowRuns, RowSorter, RowWalk, SortedRows};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound below this sorts nothing.
const LEAST_BYTES: u64 = 4 << 10;
/// All sorters together take one part in so many of the cache.
const SHARE: u64 = 4;
/// Room on the disk is asked for in pieces of so many bytes.
const PIECE_BYTES: u64 = 1 << 20;
/// A walk reads so many bytes of a run at once, where nobody says otherwise.
pub(crate) const WINDOW: u64 = 256 << 10;

/// How many sorters there are.
#[derive(Default)]
pub(crate) struct Sorters(AtomicUsize);

/// One of them.
struct Counted(Arc<EngineHandle>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sorters.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counted {
    /// Bytes a sorter may keep in memory now: of what all sorters may, each has the same.
    fn budget(&self) -> u64 {
        let handle = &self.0;
        let sorters = handle.sorters.0.load(Ordering::Relaxed).max(1) as u64;
        let share = handle.cache.capacity() / SHARE / sorters;
        handle.adjustable.loader_max_memory().min(share).max(LEAST_BYTES)
    }
}

/// Writes what memory has no place for.
struct RunWriter {
    handle: Arc<EngineHandle>,
    runs: RowRuns,
}

impl Work for RunWriter {
    type Job = RowBatch;

    fn work(&mut self, batch: RowBatch) -> Result<()> {
        self.runs.append(self.handle.check(batch.write())?);
        Ok(())
    }
}

/// Takes rows in any order. A *space* keeps those of one purpose apart.
pub struct Sorter {
    rows: RowSorter,
    writer: Helper<RunWriter>,
    counted: Counted,
    unasked: u64,
    count: u64,
}

impl Engine {
    /// An empty sorter.
    pub fn sorter(&self) -> Sorter {
        let handle = Arc::clone(self.handle());
        handle.sorters.0.fetch_add(1, Ordering::Relaxed);
        // What is written twice is most of what is written: lz4 would write a third more.
        let compresses = handle.adjustable.loader_compresses();
        let compression = if compresses { Compression::Zstd(1) } else { Compression::None };
        let shape =
            handle.directory.shape(&DictionaryOptions { compression, ..Default::default() });
        let id = 1 << 63 | handle.live.new_id();
        let rows = RowSorter::create(&handle.trees, id, shape, 0);
        let writer = RunWriter { handle: Arc::clone(&handle), runs: RowRuns::default() };
        let writer = Helper::new("fern-sort", 1, writer);
        Sorter { rows, writer, counted: Counted(handle), unasked: 0, count: 0 }
    }
}

impl Sorter {
    /// Puts a row in. May write to the disk, or wait for what is written.
    ///
    /// # Errors
    /// Those of the disk, a full one among them; then the sorter is of no more use.
    pub fn put(&mut self, space: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let handle = &self.counted.0;
        self.count += 1;
        self.unasked += (key.len() + value.len()) as u64;
        if self.unasked >= PIECE_BYTES {
            let budget = self.gathered_at_once();
            self.rows.set_budget(budget);
            if self.rows.row_bytes() > budget {
                // It will be on disk, or is there.
                handle.take_room(std::mem::take(&mut self.unasked))?;
            }
        }
        if self.rows.row_bytes() == 0 {
            self.rows.set_budget(self.gathered_at_once());
        }
        if self.rows.put(space, key, value) {
            let batch = self.rows.take_batch();
            self.writer.submit(&handle.helpers, batch)?;
        }
        Ok(())
    }

    /// Bytes of rows that it takes before they are sorted. Where a thread writes, as many are written
    /// meanwhile.
    fn gathered_at_once(&self) -> u64 {
        let budget = self.counted.budget();
        if self.counted.0.helpers.are_allowed() { budget / 2 } else { budget }
    }

    /// Bytes of the keys and values that were put in.
    pub fn row_bytes(&self) -> u64 {
        self.rows.row_bytes()
    }

    /// No more rows come.
    ///
    /// # Errors
    /// As [`Sorter::put`].
    pub fn finish(self) -> Result<Sorted> {
        let Self { mut rows, writer, counted, count, .. } = self;
        rows.add(writer.finish()?.runs);
        Ok(Sorted { rows: rows.finish(), counted, count })
    }
}

impl std::fmt::Debug for Sorter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sorter({:?})", self.rows)
    }
}

/// Rows that are sorted.
pub struct Sorted {
    rows: SortedRows,
    counted: Counted,
    count: u64,
}

impl Sorted {
    /// Bytes of the keys and values.
    pub fn row_bytes(&self) -> u64 {
        self.rows.row_bytes()
    }

    /// How many rows there are.
    pub fn row_count(&self) -> u64 {
        self.count
    }

    /// Bytes of the keys and values of a space.
    pub fn bytes_of(&self, space: u32) -> u64 {
        self.rows.bytes_of(space)
    }

    /// Bytes that may be in memory beside the rows that are there.
    pub(crate) fn memory_left(&self) -> u64 {
        self.counted.budget().saturating_sub(self.rows.memory_bytes())
    }

    /// The rows themselves.
    pub(crate) fn rows(&self) -> &SortedRows {
        &self.rows
    }

    /// The rows of a space, as often as they are wanted. Reads the disk where they are many.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn walk(&self, space: u32) -> Result<SortedWalk> {
        self.walk_part(space, &(None, None), WINDOW)
    }

    /// Those within bounds, the disk read in pieces of about `window` bytes.
    pub(crate) fn walk_part(
        &self,
        space: u32,
        bounds: &RowBounds,
        window: u64,
    ) -> Result<SortedWalk> {
        let handle = Arc::clone(&self.counted.0);
        let walk = handle.check(self.rows.walk(space, bounds, window))?;
        Ok(SortedWalk { handle, walk })
    }
}

impl std::fmt::Debug for Sorted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sorted({:?})", self.rows)
    }
}

/// Rows of a space in ascending order.
pub struct SortedWalk {
    handle: Arc<EngineHandle>,
    walk: RowWalk,
}

impl SortedWalk {
    /// The next row: key and value. Rows with one key come one behind the other. May read the disk.
    ///
    /// # Errors
    /// Those of the disk, damage of the sorter's own pages among them.
    #[allow(clippy::should_implement_trait, reason = "what it hands out borrows from it")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let found = self.walk.next();
        self.handle.check(found)
    }
}

impl std::fmt::Debug for SortedWalk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SortedWalk({:?})", self.walk)
    }
}

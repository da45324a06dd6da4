//! Sorting more rows than memory holds, before a tree is filled with them in order.
//!
//! Rows of several *spaces* (the dictionaries they are for) are gathered in memory up to a bound and
//! sorted there. What exceeds it is written as runs, one for each space: segments that no tree and no
//! checkpoint names, which go with the last that reads them, and after a crash at the next start. What
//! was gathered last stays in memory. Reading a space merges its runs with that.
//!
//! Always true: rows of a space come back ascending by key, each as often as it was put in. Which of
//! several rows with one key comes first is not said: who cannot have two of them meets both.

use crate::error::Result;
use crate::merge::{Merge, MergeSource};
use crate::message::{Direction, Entry, Message};
use crate::options::TreeOptions;
use crate::rows::{LEAST_PIECE, MOST_PIECE, Rows, RowsIter};
use crate::segment::{Bounds, Reading, Role, Segment, SegmentBuilder, SegmentIter};
use crate::tree::Context;
use crate::tree_shared::TreeShared;
use cachetable::{Access, Frame, MemoryKind, Reservation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Takes rows in any order. One thread puts them in.
pub struct RowSorter {
    shared: Arc<TreeShared>,
    options: TreeOptions,
    budget: u64,
    rows: Rows,
    runs: BTreeMap<u32, Vec<Arc<Segment>>>,
    /// Bytes of keys and values, of all rows.
    row_bytes: u64,
    memory: Reservation,
}

impl RowSorter {
    /// An empty sorter that keeps about `budget` bytes in memory. `id` is part of every page's checksum,
    /// and no tree's; runs are compressed as `options` say.
    pub fn create(context: &Arc<Context>, id: u64, options: TreeOptions, budget: u64) -> Self {
        let shared = TreeShared::new(id, context.blocks.clone(), Arc::clone(&context.cache));
        shared.keep_segments(false);
        Self {
            memory: shared.cache.reserve(MemoryKind::Buffers, 0),
            shared,
            options: options.sound(),
            budget,
            rows: Rows::default(),
            runs: BTreeMap::new(),
            row_bytes: 0,
        }
    }

    /// Puts a row in. May write to the disk; after an error the sorter is of no more use.
    pub fn put(&mut self, space: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.row_bytes += (key.len() + value.len()) as u64;
        let piece_bytes = (self.budget / 8).clamp(LEAST_PIECE, MOST_PIECE);
        if self.rows.push(space, (key, value), piece_bytes) {
            self.shared.cache.resize(&mut self.memory, self.rows.memory() as u64);
            if self.rows.memory() as u64 > self.budget || self.rows.is_full() {
                return self.write_runs();
            }
        }
        Ok(())
    }

    /// Changes how much it keeps in memory from now on.
    pub fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
    }

    /// Bytes of the keys and values that were put in.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Memory it takes now, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.rows.memory() as u64
    }

    /// No more rows come.
    pub fn finish(mut self) -> SortedRows {
        self.rows.sort();
        SortedRows {
            rows: Arc::new(self.rows),
            runs: self.runs,
            row_bytes: self.row_bytes,
            _memory: self.memory,
        }
    }

    fn write_runs(&mut self) -> Result<()> {
        self.rows.sort();
        let mut builder: Option<(u32, SegmentBuilder)> = None;
        let mut same = 0;
        for (number, row) in self.rows.places.iter().enumerate() {
            if builder.as_ref().is_some_and(|(space, _)| *space != row.space) {
                finish_run(&mut builder, &mut self.runs)?;
            }
            // Rows of one key are told apart as versions of it would be.
            same = if same == 0 { self.rows.same_keys(number) } else { same };
            let (key, value) = self.rows.row(row);
            let open = || {
                let builder = SegmentBuilder::new(&self.shared, &self.options, Role::Run);
                (row.space, builder.without_filter())
            };
            let (_, run) = builder.get_or_insert_with(open);
            run.add(Entry { key, ts: same, message: Message::Put(value) })?;
            same -= 1;
        }
        finish_run(&mut builder, &mut self.runs)?;
        self.rows.clear();
        self.shared.cache.resize(&mut self.memory, self.rows.memory() as u64);
        Ok(())
    }
}

fn finish_run(
    builder: &mut Option<(u32, SegmentBuilder)>,
    runs: &mut BTreeMap<u32, Vec<Arc<Segment>>>,
) -> Result<()> {
    if let Some((space, builder)) = builder.take() {
        runs.entry(space).or_default().push(builder.finish()?);
    }
    Ok(())
}

impl std::fmt::Debug for RowSorter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowSorter({} bytes)", self.row_bytes)
    }
}

/// Rows that are sorted. May be walked as often as wanted.
pub struct SortedRows {
    rows: Arc<Rows>,
    runs: BTreeMap<u32, Vec<Arc<Segment>>>,
    row_bytes: u64,
    _memory: Reservation,
}

impl SortedRows {
    /// Bytes of the keys and values.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// The rows of a space. Reads the first page of each run.
    pub fn walk(&self, space: u32) -> Result<RowWalk> {
        let mut sources = Vec::new();
        for run in self.runs.get(&space).into_iter().flatten() {
            let iter = SegmentIter::new(
                Arc::clone(run),
                Bounds::default(),
                None,
                Direction::Forward,
                Reading::Streaming,
            )?;
            sources.push(MergeSource::Segment(Box::new(iter)));
        }
        sources.push(MergeSource::Rows(RowsIter::new(&self.rows, space)));
        let shared = self.runs.get(&space).and_then(|runs| runs.first()).map(|run| run.of_tree());
        let merge = Merge::new(sources, Direction::Forward);
        Ok(RowWalk { merge, shared, started: false, value: None })
    }
}

impl std::fmt::Debug for SortedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SortedRows({} bytes)", self.row_bytes)
    }
}

/// A walk over the rows of one space, ascending.
pub struct RowWalk {
    merge: Merge,
    /// Of the runs.
    shared: Option<Arc<TreeShared>>,
    started: bool,
    /// A value that lies by itself.
    value: Option<Frame>,
}

impl RowWalk {
    /// The next row: key and value. May read the disk.
    #[allow(clippy::should_implement_trait, reason = "what it hands out borrows from it")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if std::mem::replace(&mut self.started, true) {
            self.merge.advance()?;
        }
        self.value = None;
        let Some(entry) = self.merge.top() else { return Ok(None) };
        match entry.message {
            Message::Put(value) => Ok(Some((entry.key, value))),
            message => {
                if let Some(shared) = &self.shared {
                    self.value = Some(shared.load_large(message.payload(), Access::Scan)?);
                }
                Ok(Some((entry.key, self.value.as_deref().unwrap_or_default())))
            }
        }
    }
}

impl std::fmt::Debug for RowWalk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RowWalk")
    }
}

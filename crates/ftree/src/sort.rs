//! Sorting more rows than memory holds, before a tree is filled with them in order.
//!
//! Rows of several *spaces* (the dictionaries they are for) are gathered in memory up to a bound. What
//! exceeds it is a batch: it is sorted and written as runs, one for each space, by whoever and whenever,
//! while others are gathered. Runs ([`crate::sort_run`]) are segments that no tree and no checkpoint names, which go
//! with the last that reads them, and after a crash at the next start. What was gathered last stays in
//! memory. Reading a space merges its runs with that; several threads may each read a part of it.
//!
//! Always true: rows of a space come back ascending by key, each as often as it was put in. Which of
//! several rows with one key comes first is not said: who cannot have two of them meets both.

use crate::error::Result;
use crate::merge::{Merge, MergeSource};
use crate::message::{Direction, Message};
use crate::options::TreeOptions;
use crate::rows::{FETCHED_AT_ONCE, LEAST_PIECE, MOST_PIECE, Rows, RowsIter};
use crate::segment::Bounds;
use crate::sort_run::{Run, RunIter, RunWriter};
use crate::tree::Context;
use crate::tree_shared::TreeShared;
use cachetable::{Access, Frame, MemoryKind, Reservation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many keys, about, tell how the rows of a space are spread.
const SAMPLES: usize = 2048;

/// Takes rows in any order. One thread puts them in.
pub struct RowSorter {
    shared: Arc<TreeShared>,
    options: TreeOptions,
    budget: u64,
    rows: Rows,
    runs: RowRuns,
    /// How often a batch was taken out.
    batches: u64,
    /// Bytes of keys and values of each space…
    row_bytes: BTreeMap<u32, u64>,
    /// …and of all.
    all_bytes: u64,
    memory: Reservation,
}

impl RowSorter {
    /// An empty sorter that gathers about `budget` bytes. `id` is part of every page's checksum, and no
    /// tree's; runs are compressed as `options` say.
    pub fn create(context: &Arc<Context>, id: u64, options: TreeOptions, budget: u64) -> Self {
        let shared = TreeShared::new(id, context.blocks.clone(), Arc::clone(&context.cache));
        shared.keep_segments(false);
        Self {
            memory: shared.cache.reserve(MemoryKind::Buffers, 0),
            shared,
            options: options.sound(),
            budget,
            rows: Rows::default(),
            runs: RowRuns::default(),
            batches: 0,
            row_bytes: BTreeMap::new(),
            all_bytes: 0,
        }
    }

    /// Puts a row in. True where what was gathered fills the budget: then it is to be taken out.
    pub fn put(&mut self, space: u32, key: &[u8], value: &[u8]) -> bool {
        let bytes = (key.len() + value.len()) as u64;
        *self.row_bytes.entry(space).or_default() += bytes;
        self.all_bytes += bytes;
        let piece_bytes = (self.budget / 8).clamp(LEAST_PIECE, MOST_PIECE);
        if !self.rows.push(space, (key, value), piece_bytes) {
            return false;
        }
        self.shared.cache.resize(&mut self.memory, self.rows.memory() as u64);
        self.rows.memory() as u64 > self.budget || self.rows.is_full()
    }

    /// Takes out what was gathered. Its runs are to be handed to [`RowSorter::add`].
    pub fn take_batch(&mut self) -> RowBatch {
        let empty = self.shared.cache.reserve(MemoryKind::Buffers, 0);
        self.batches += 1;
        RowBatch {
            shared: Arc::clone(&self.shared),
            options: self.options,
            budget: self.budget,
            number: self.batches,
            rows: std::mem::take(&mut self.rows),
            _memory: std::mem::replace(&mut self.memory, empty),
        }
    }

    /// Takes what a batch was written as.
    pub fn add(&mut self, runs: RowRuns) {
        self.runs.append(runs);
    }

    /// Changes how much it gathers from now on.
    pub fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
    }

    /// Bytes of the keys and values that were put in.
    pub fn row_bytes(&self) -> u64 {
        self.all_bytes
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
}

impl std::fmt::Debug for RowSorter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowSorter({} bytes)", self.row_bytes())
    }
}

/// Rows that fill the memory for sorting, in the order in which they came.
pub struct RowBatch {
    shared: Arc<TreeShared>,
    options: TreeOptions,
    budget: u64,
    number: u64,
    rows: Rows,
    /// Of the rows.
    _memory: Reservation,
}

impl RowBatch {
    /// Sorts the rows, and writes them: a run for each space.
    pub fn write(mut self) -> Result<RowRuns> {
        self.rows.sort();
        let mut runs = RowRuns::default();
        let mut open: Option<(u32, RunWriter)> = None;
        for rows in self.rows.places.chunks(FETCHED_AT_ONCE) {
            self.rows.fetch(rows);
            for row in rows {
                if open.as_ref().is_some_and(|(space, _)| *space != row.space) {
                    runs.finish(&mut open)?;
                }
                let start = || {
                    let options = &self.options;
                    let (compression, large_above) =
                        (options.fast_compression(), options.large_above());
                    let size = (self.budget, self.number);
                    (row.space, RunWriter::new(&self.shared, compression, large_above, size))
                };
                let (_, run) = open.get_or_insert_with(start);
                let (key, value) = self.rows.row(row);
                run.add(key, value)?;
            }
        }
        runs.finish(&mut open)?;
        Ok(runs)
    }
}

impl std::fmt::Debug for RowBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowBatch({} rows)", self.rows.places.len())
    }
}

/// What batches were written as, by the space.
#[derive(Default)]
pub struct RowRuns(BTreeMap<u32, Vec<Arc<Run>>>);

impl RowRuns {
    /// Takes others over.
    pub fn append(&mut self, others: Self) {
        for (space, runs) in others.0 {
            self.0.entry(space).or_default().extend(runs);
        }
    }

    fn finish(&mut self, open: &mut Option<(u32, RunWriter)>) -> Result<()> {
        if let Some((space, run)) = open.take() {
            self.0.entry(space).or_default().push(run.finish()?);
        }
        Ok(())
    }

    fn of(&self, space: u32) -> &[Arc<Run>] {
        self.0.get(&space).map_or(&[], |runs| &runs[..])
    }
}

impl std::fmt::Debug for RowRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowRuns({})", self.0.values().map(Vec::len).sum::<usize>())
    }
}

/// The keys of a walk: above the first, up to and with the second; open where `None`.
pub type RowBounds = (Option<Arc<[u8]>>, Option<Arc<[u8]>>);

/// Rows that are sorted. May be walked as often as wanted.
pub struct SortedRows {
    rows: Arc<Rows>,
    runs: RowRuns,
    row_bytes: BTreeMap<u32, u64>,
    _memory: Reservation,
}

impl SortedRows {
    /// Bytes of the keys and values.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes.values().sum()
    }

    /// Bytes of the keys and values of a space.
    pub fn bytes_of(&self, space: u32) -> u64 {
        self.row_bytes.get(&space).copied().unwrap_or_default()
    }

    /// Memory that rows take, of all spaces.
    pub fn memory_bytes(&self) -> u64 {
        self.rows.memory() as u64
    }

    /// Runs that a walk over a space reads at once.
    pub fn runs_of(&self, space: u32) -> usize {
        self.runs.of(space).len()
    }

    /// Memory that a walk over a space takes, beside the window of each run.
    pub fn walk_bytes(&self, space: u32) -> u64 {
        self.runs.of(space).iter().map(|run| run.walk_bytes()).sum()
    }

    /// The rows of a space within bounds, each run read in pieces of about `window` bytes. Reads the first
    /// piece of each.
    pub fn walk(&self, space: u32, bounds: &RowBounds, window: u64) -> Result<RowWalk> {
        let bounds = Bounds { lower: bounds.0.clone(), upper: bounds.1.clone() };
        let mut sources = Vec::new();
        for run in self.runs.of(space) {
            sources.push(MergeSource::Run(Box::new(RunIter::new(run, &bounds, window)?)));
        }
        sources.push(MergeSource::Rows(RowsIter::new(&self.rows, space, &bounds)));
        let shared = self.runs.of(space).first().map(|run| Arc::clone(run.shared()));
        let merge = Merge::new(sources, Direction::Forward);
        Ok(RowWalk { merge, shared, started: false, value: None })
    }

    /// Keys, ascending, between which about equally many rows of the space lie: fewer than `parts`. Reads
    /// the indexes of its runs.
    pub fn split(&self, space: u32, parts: usize) -> Result<Vec<Arc<[u8]>>> {
        let runs = self.runs.of(space);
        let blocks: usize = runs.iter().map(|run| run.blocks() as usize).sum();
        let step = (blocks / SAMPLES).max(1);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut entries = 0;
        for run in runs {
            run.sample_keys(step, &mut keys)?;
            entries += run.rows() as usize;
        }
        // A key of the rows in memory stands for as many as one of a run does.
        let (from, to) = self.rows.places_of(space, &Bounds::default());
        let rows_of_key = match keys.len() {
            0 => (to - from) / SAMPLES,
            sampled => entries / sampled,
        };
        for place in self.rows.places[from..to].iter().step_by(rows_of_key.max(1)) {
            keys.push(self.rows.row(place).0.to_vec());
        }
        keys.sort_unstable();
        let at = |part: usize| keys[keys.len() * part / parts].clone().into();
        let mut found: Vec<Arc<[u8]>> =
            if keys.is_empty() { Vec::new() } else { (1..parts).map(at).collect() };
        found.dedup();
        Ok(found)
    }
}

impl std::fmt::Debug for SortedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SortedRows({} bytes)", self.row_bytes())
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

//! Sorting more rows than memory holds, before a tree is filled with them in order.
//!
//! Rows of several *spaces* (the dictionaries they are for) are gathered in memory up to a bound and
//! sorted there. What exceeds it is written as runs, one for each space: segments that no tree and no
//! checkpoint names, which go with the last that reads them, and after a crash at the next start. What
//! was gathered last stays in memory. Reading a space merges its runs with that.
//!
//! Always true: rows of a space come back ascending by key, each as often as it was put in. Which of
//! several rows with one key comes first is not said: who cannot have two of them meets both.

use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::merge::{Merge, MergeSource};
use crate::message::{Direction, Entry, Message, head};
use crate::options::TreeOptions;
use crate::segment::{Bounds, Reading, Role, Segment, SegmentBuilder, SegmentIter};
use crate::tree::Context;
use crate::tree_shared::TreeShared;
use cachetable::{Access, Frame, MemoryKind, Reservation};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;

/// Rows lie one behind the other in pieces of memory: of an eighth of the bound each, but no less than
/// this…
const LEAST_PIECE: u64 = 4 << 10;
/// …and no more, unless one row is longer.
const MOST_PIECE: u64 = 1 << 20;
/// Before its key and value a row has the length of each, in so many bytes at most.
const MOST_LENGTHS: usize = 10;
/// A row's place has so many bits for where it begins in its piece, which is below [`MOST_PIECE`]…
const PLACE_BITS: u32 = 20;
/// …and the rest for the piece: there are no more of them.
const MOST_PIECES: usize = 1 << (32 - PLACE_BITS);

/// Where a row lies, and as much of its key as mostly tells it from others.
#[derive(Clone, Copy)]
struct Row {
    head: u64,
    space: u32,
    place: u32,
}

/// Rows in memory.
#[derive(Default)]
struct Rows {
    places: Vec<Row>,
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

impl Rows {
    /// Adds a row; says whether more memory was taken for it.
    fn push(&mut self, space: u32, (key, value): (&[u8], &[u8]), piece_bytes: u64) -> bool {
        let len = MOST_LENGTHS + key.len() + value.len();
        let has_room = |piece: &Vec<u8>| piece.capacity() - piece.len() >= len;
        let grows = self.places.len() == self.places.capacity()
            || !self.pieces.last().is_some_and(has_room);
        if !self.pieces.last().is_some_and(has_room) {
            let piece: Vec<u8> = Vec::with_capacity(len.max(piece_bytes as usize));
            self.bytes += piece.capacity();
            self.pieces.push(piece);
        }
        let piece = self.pieces.len() - 1;
        if let Some(bytes) = self.pieces.last_mut() {
            assert!(bytes.len() < 1 << PLACE_BITS, "a row begins where its place can say");
            let place = (piece as u32) << PLACE_BITS | bytes.len() as u32;
            put_varint(bytes, key.len() as u64);
            put_varint(bytes, value.len() as u64);
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
            self.places.push(Row { head: head(key), space, place });
        }
        grows
    }

    /// Memory taken.
    fn memory(&self) -> usize {
        self.bytes + self.places.capacity() * size_of::<Row>()
    }

    fn row(&self, row: &Row) -> (&[u8], &[u8]) {
        let (piece, at) = (row.place >> PLACE_BITS, row.place & ((1 << PLACE_BITS) - 1));
        let mut reader = Reader::new(&self.pieces[piece as usize][at as usize..]);
        let mut length = || reader.varint().expect("a row begins with its lengths") as usize;
        let (key, value) = (length(), length());
        let bytes = reader.rest();
        (&bytes[..key], &bytes[key..key + value])
    }

    /// There is no place for another piece.
    fn is_full(&self) -> bool {
        self.pieces.len() >= MOST_PIECES
    }

    fn order(&self, left: &Row, right: &Row) -> Ordering {
        let by_head = left.space.cmp(&right.space).then(left.head.cmp(&right.head));
        by_head.then_with(|| self.row(left).0.cmp(self.row(right).0))
    }

    fn sort(&mut self) {
        let mut rows = std::mem::take(&mut self.places);
        rows.sort_unstable_by(|left, right| self.order(left, right));
        self.places = rows;
    }

    /// How many rows from this one on have its key, once they are sorted.
    fn same_keys(&self, from: usize) -> u64 {
        let first = &self.places[from];
        let others = self.places[from..].iter();
        others.take_while(|row| self.order(first, row) == Ordering::Equal).count() as u64
    }

    fn clear(&mut self) {
        self.places.clear();
        // One piece is enough to go on with.
        self.pieces.truncate(1);
        self.pieces.iter_mut().for_each(Vec::clear);
        self.bytes = self.pieces.iter().map(Vec::capacity).sum();
    }
}

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

/// Rows of one space in memory, ascending.
pub(crate) struct RowsIter {
    rows: Arc<Rows>,
    at: usize,
    end: usize,
    /// Rows of the key under it that are still to come, with this one.
    same: u64,
}

impl RowsIter {
    fn new(rows: &Arc<Rows>, space: u32) -> Self {
        let at = rows.places.partition_point(|row| row.space < space);
        let end = rows.places.partition_point(|row| row.space <= space);
        let same = if at < end { rows.same_keys(at) } else { 0 };
        Self { rows: Arc::clone(rows), at, end, same }
    }

    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let row = self.rows.places[..self.end].get(self.at)?;
        let (key, value) = self.rows.row(row);
        Some(Entry { key, ts: self.same, message: Message::Put(value) })
    }

    pub(crate) fn advance(&mut self) {
        self.at += 1;
        self.same -= 1;
        if self.same == 0 && self.at < self.end {
            self.same = self.rows.same_keys(self.at);
        }
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

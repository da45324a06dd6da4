//! Rows in memory that are to be sorted: one behind the other in pieces, and where each lies.
//!
//! Always true: a row begins in its piece where a place of 32 bits can say.

use crate::bytes::{Reader, put_varint};
use crate::message::{Entry, Message, head};
use crate::segment::Bounds;
use std::cmp::Ordering;
use std::mem::size_of;
use std::sync::Arc;

/// Rows lie one behind the other in pieces of memory: of an eighth of the bound each, but no less than
/// this…
pub(crate) const LEAST_PIECE: u64 = 4 << 10;
/// …and no more, unless one row is longer.
pub(crate) const MOST_PIECE: u64 = 1 << 20;
/// Sorted rows lie anywhere in memory. So many are fetched into the processor's cache at once, because one
/// after the other they take as many times as long.
pub(crate) const FETCHED_AT_ONCE: usize = 32;
/// Before its key and value a row has the length of each, in so many bytes at most.
const MOST_LENGTHS: usize = 10;
/// A row's place has so many bits for where it begins in its piece, which is below [`MOST_PIECE`]…
const PLACE_BITS: u32 = 20;
/// …and the rest for the piece: there are no more of them.
const MOST_PIECES: usize = 1 << (32 - PLACE_BITS);

/// Where a row lies, and as much of its key as mostly tells it from others.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    head: u64,
    pub(crate) space: u32,
    place: u32,
}

/// Rows in memory.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) places: Vec<Row>,
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

impl Rows {
    /// Adds a row; says whether more memory was taken for it.
    pub(crate) fn push(
        &mut self,
        space: u32,
        (key, value): (&[u8], &[u8]),
        piece_bytes: u64,
    ) -> bool {
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
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.places.capacity() * size_of::<Row>()
    }

    pub(crate) fn row(&self, row: &Row) -> (&[u8], &[u8]) {
        let (piece, at) = (row.place >> PLACE_BITS, row.place & ((1 << PLACE_BITS) - 1));
        let mut reader = Reader::new(&self.pieces[piece as usize][at as usize..]);
        let mut length = || reader.varint().expect("a row begins with its lengths") as usize;
        let (key, value) = (length(), length());
        let bytes = reader.rest();
        (&bytes[..key], &bytes[key..key + value])
    }

    /// Has rows in the processor's cache.
    pub(crate) fn fetch(&self, rows: &[Row]) {
        let first = |row: &Row| {
            let (piece, at) = (row.place >> PLACE_BITS, row.place & ((1 << PLACE_BITS) - 1));
            self.pieces[piece as usize][at as usize]
        };
        // Loads that do not depend on each other go side by side.
        std::hint::black_box(rows.iter().fold(0, |bits, row| bits ^ first(row)));
    }

    /// There is no place for another piece.
    pub(crate) fn is_full(&self) -> bool {
        self.pieces.len() >= MOST_PIECES
    }

    fn order(&self, left: &Row, right: &Row) -> Ordering {
        let by_head = left.space.cmp(&right.space).then(left.head.cmp(&right.head));
        by_head.then_with(|| self.row(left).0.cmp(self.row(right).0))
    }

    pub(crate) fn sort(&mut self) {
        let mut rows = std::mem::take(&mut self.places);
        rows.sort_unstable_by(|left, right| self.order(left, right));
        self.places = rows;
    }

    /// Where the rows of a space within bounds begin and end, once they are sorted.
    pub(crate) fn places_of(&self, space: u32, bounds: &Bounds) -> (usize, usize) {
        let is_before = |row: &Row| {
            let below = |lower: &Arc<[u8]>| self.row(row).0 <= &lower[..];
            row.space < space || row.space == space && bounds.lower.as_ref().is_some_and(below)
        };
        let is_within =
            |row: &Row| row.space < space || row.space == space && bounds.reaches(self.row(row).0);
        let from = self.places.partition_point(is_before);
        (from, self.places.partition_point(is_within).max(from))
    }
}

/// Rows of one space in memory within bounds, ascending.
pub(crate) struct RowsIter {
    rows: Arc<Rows>,
    at: usize,
    end: usize,
}

impl RowsIter {
    pub(crate) fn new(rows: &Arc<Rows>, space: u32, bounds: &Bounds) -> Self {
        let (at, end) = rows.places_of(space, bounds);
        let iter = Self { rows: Arc::clone(rows), at, end };
        iter.fetch();
        iter
    }

    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let row = self.rows.places[..self.end].get(self.at)?;
        let (key, value) = self.rows.row(row);
        Some(Entry { key, ts: 0, message: Message::Put(value) })
    }

    fn fetch(&self) {
        let end = self.end.min(self.at + FETCHED_AT_ONCE);
        self.rows.fetch(&self.rows.places[self.at..end]);
    }

    pub(crate) fn advance(&mut self) {
        self.at += 1;
        if self.at < self.end && self.at.is_multiple_of(FETCHED_AT_ONCE) {
            self.fetch();
        }
    }
}

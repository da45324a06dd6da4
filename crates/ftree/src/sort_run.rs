//! Runs: sorted rows of one space on the disk, in blocks that are read one after the other.
//!
//! ```text
//!  segment   │ block │ block │ … │ index │      each a page: checked, encrypted where the file is
//! ```
//!
//! Nobody looks for a key in a run, so its blocks go past the cache. The index names the least key of each
//! block, for walks over a range of keys, and how long it is.
//!
//! Always true: no checkpoint names a run; its segment goes with whoever has it last.

mod columns;

use crate::bytes::{Reader, common_prefix, put_bytes, put_varint};
use crate::error::{Error, Result};
use crate::message::Entry;
use crate::segment::{Bounds, Role};
use crate::tree_shared::{Large, TreeShared, count};
use blockfile::{
    Compression, MAX_PAGE_BYTES, PAGE_HEADER_BYTES, PageRef, SegmentId, SegmentWriter,
};
use cachetable::{MemoryKind, Reservation};
use columns::{RowBlock, Scratch, decode, encode};
use std::sync::Arc;

/// Bytes of rows in a block, where memory is not scarce…
const MOST_BLOCK: u64 = 64 << 10;
/// …and where it is.
const LEAST_BLOCK: u64 = 4 << 10;
/// Of what is gathered at once, the blocks of as many runs as there are take one part in so many, about.
const SHARE: u64 = 8;
/// A walk has a block as it is stored, uncompressed, and its rows.
const TIMES_HELD: u64 = 3;

/// Sorted rows on the disk.
pub(crate) struct Run {
    shared: Arc<TreeShared>,
    segment: SegmentId,
    index: PageRef,
    blocks: u32,
    /// Bytes of rows in the largest of them.
    largest: u64,
    rows: u64,
    /// Values that lie by themselves: they stay as long as the run.
    _large: Vec<Arc<Large>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.shared.release(self.segment.0, 0);
    }
}

impl Run {
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Memory that a walk takes, beside what it reads at once.
    pub(crate) fn walk_bytes(&self) -> u64 {
        self.largest * TIMES_HELD
    }

    pub(crate) fn shared(&self) -> &Arc<TreeShared> {
        &self.shared
    }

    /// Adds a key of every `step`th block. Reads the index.
    pub(crate) fn sample_keys(&self, step: usize, keys: &mut Vec<Vec<u8>>) -> Result<()> {
        let mut number = 0;
        self.read_index(|key, _| {
            if number % step == 0 {
                keys.push(key.to_vec());
            }
            number += 1;
        })
    }

    /// Calls with what the keys of each block are not below, and no key before it above, and its place.
    fn read_index(&self, mut each: impl FnMut(&[u8], PageRef)) -> Result<()> {
        let mut bytes = Vec::new();
        self.shared.blocks.read_page(self.shared.tree, self.segment, self.index, &mut bytes)?;
        let mut reader = Reader::new(&bytes);
        let mut offset = 0;
        for page in 0..self.blocks {
            let entry = reader.bytes().zip(reader.varint());
            let most = (MAX_PAGE_BYTES + PAGE_HEADER_BYTES) as u64;
            let damaged = || self.corruption(self.index.page, "the index of a run is damaged");
            let (key, len) = entry.filter(|(_, len)| *len <= most).ok_or_else(damaged)?;
            let len = len as u32;
            each(key, PageRef { page, len, offset });
            offset += u64::from(len);
        }
        Ok(())
    }

    fn corruption(&self, page: u32, what: &'static str) -> Error {
        Error::Corruption { tree: self.shared.tree, segment: self.segment.0, page, what }
    }
}

/// Writes a run, rows ascending. Dropped unfinished it leaves nothing.
pub(crate) struct RunWriter {
    shared: Arc<TreeShared>,
    compression: Compression,
    /// Values longer than this lie by themselves.
    large_above: usize,
    block_bytes: usize,
    writer: SegmentWriter,
    block: RowBlock,
    /// The last key of the block before.
    last_key: Vec<u8>,
    index: Vec<u8>,
    blocks: u32,
    largest: u64,
    rows: u64,
    large: Vec<Arc<Large>>,
    encoded: Vec<u8>,
    scratch: Scratch,
    memory: Reservation,
}

impl RunWriter {
    /// The `number`th of its space, of rows of which `budget` bytes are gathered at once.
    pub(crate) fn new(
        shared: &Arc<TreeShared>,
        compression: Compression,
        large_above: usize,
        (budget, number): (u64, u64),
    ) -> Self {
        let block_bytes = (budget / SHARE / number.max(1)).clamp(LEAST_BLOCK, MOST_BLOCK);
        Self {
            shared: Arc::clone(shared),
            compression,
            large_above,
            block_bytes: block_bytes as usize,
            writer: shared.blocks.start_segment(Role::Run.number()),
            block: RowBlock::default(),
            last_key: Vec::new(),
            index: Vec::new(),
            blocks: 0,
            largest: 0,
            rows: 0,
            large: Vec::new(),
            encoded: Vec::new(),
            scratch: Scratch::default(),
            memory: shared.cache.reserve(MemoryKind::Buffers, 0),
        }
    }

    /// Adds the next row. May write to the disk.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let is_large = value.len() > self.large_above;
        let mut reference = Vec::new();
        if is_large {
            let (at, kept) = self.shared.write_large(self.compression, value)?;
            at.encode(&mut reference);
            self.large.push(kept);
        }
        let value = if is_large { &reference } else { value };
        if self.block.len() > 0 && self.block.size() + key.len() + value.len() > self.block_bytes {
            self.finish_block()?;
        }
        self.block.push(key, value, is_large);
        self.rows += 1;
        Ok(())
    }

    fn finish_block(&mut self) -> Result<()> {
        let first = self.block.key(0);
        let shared = common_prefix(&self.last_key, first);
        // As much of it as tells it from the key before.
        let told = if self.blocks == 0 { first.len() } else { first.len().min(shared + 1) };
        put_bytes(&mut self.index, &first[..told]);
        self.block.key(self.block.len() - 1).clone_into(&mut self.last_key);
        self.encoded.clear();
        encode(&self.block, self.compression, &mut self.scratch, &mut self.encoded);
        let page = self.append()?;
        put_varint(&mut self.index, u64::from(page.len));
        self.blocks += 1;
        self.largest = self.largest.max(self.block.size() as u64);
        let bytes = self.block.memory()
            + self.scratch.memory()
            + self.encoded.capacity()
            + self.index.capacity()
            + self.writer.buffered_bytes();
        self.shared.cache.resize(&mut self.memory, bytes as u64);
        self.block.clear();
        Ok(())
    }

    fn append(&mut self) -> Result<PageRef> {
        // Compressed already, what can be.
        Ok(self.writer.append_page(self.shared.tree, Compression::None, &self.encoded)?)
    }

    /// Writes what is left. There is at least one row.
    pub(crate) fn finish(mut self) -> Result<Arc<Run>> {
        assert!(self.rows > 0, "a run has at least one row");
        self.finish_block()?;
        self.encoded.clear();
        self.encoded.extend_from_slice(&self.index);
        let index = self.append()?;
        let stored = self.writer.len();
        let segment = self.writer.finish()?;
        let Self { shared, blocks, largest, rows, large, .. } = self;
        count(&shared.counters.written_bytes, stored);
        count(&shared.counters.runs_written, 1);
        Ok(Arc::new(Run { shared, segment, index, blocks, largest, rows, _large: large }))
    }
}

/// A walk over the rows of a run that lie within bounds.
pub(crate) struct RunIter {
    run: Arc<Run>,
    bounds: Bounds,
    /// The blocks that are still to come, the next one last.
    coming: Vec<PageRef>,
    /// Bytes of the run that are read at once, and those that were, from `stored_from` on.
    window: u64,
    stored: Vec<u8>,
    stored_from: u64,
    encoded: Vec<u8>,
    scratch: Scratch,
    block: RowBlock,
    row: usize,
    memory: Reservation,
}

impl RunIter {
    /// Stands on the first row. Reads about `window` bytes at once, but a block at least.
    pub(crate) fn new(run: &Arc<Run>, bounds: &Bounds, window: u64) -> Result<Self> {
        let mut coming: Vec<PageRef> = Vec::new();
        run.read_index(|key, place| {
            if bounds.lower.as_ref().is_some_and(|lower| key <= &lower[..]) {
                // All before this block is no greater.
                coming.clear();
            }
            if bounds.reaches(key) {
                coming.push(place);
            }
        })?;
        coming.reverse();
        let mut iter = Self {
            run: Arc::clone(run),
            bounds: bounds.clone(),
            coming,
            window,
            stored: Vec::new(),
            stored_from: 0,
            encoded: Vec::new(),
            scratch: Scratch::default(),
            block: RowBlock::default(),
            row: 0,
            memory: run.shared.cache.reserve(MemoryKind::Buffers, 0),
        };
        iter.advance_while(|iter, key| !iter.bounds.contains(key) && iter.bounds.reaches(key))?;
        Ok(iter)
    }

    /// The row it stands on.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        self.block.entry(self.row).filter(|entry| self.bounds.reaches(entry.key))
    }

    /// May read the disk.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.row += 1;
        self.advance_while(|_, _| false)
    }

    /// Goes on to the first row, from this one on, of which `skips` does not hold.
    fn advance_while(&mut self, skips: impl Fn(&Self, &[u8]) -> bool) -> Result<()> {
        loop {
            while self.row < self.block.len() {
                if !skips(self, self.block.key(self.row)) {
                    return Ok(());
                }
                self.row += 1;
            }
            let Some(place) = self.coming.pop() else { return Ok(()) };
            self.read(place)?;
        }
    }

    fn read(&mut self, place: PageRef) -> Result<()> {
        let Run { shared, segment, .. } = &*self.run;
        let end = place.offset + u64::from(place.len);
        if end > self.stored_from + self.stored.len() as u64 {
            // The blocks lie one behind the other; the last that is wanted is the first in the list.
            let last = self.coming.first().unwrap_or(&place);
            let most = last.offset + u64::from(last.len);
            let until = most.min(place.offset + self.window).max(end);
            self.stored.resize((until - place.offset) as usize, 0);
            self.stored_from = place.offset;
            shared.blocks.read(*segment, place.offset, &mut self.stored)?;
        }
        let from = (place.offset - self.stored_from) as usize;
        let stored = &self.stored[from..from + place.len as usize];
        shared.blocks.decode(shared.tree, *segment, place, None, stored, &mut self.encoded)?;
        let decoded = decode(&self.encoded, &mut self.scratch, &mut self.block);
        decoded.map_err(|what| self.run.corruption(place.page, what))?;
        self.row = 0;
        let bytes = self.stored.capacity()
            + self.encoded.capacity()
            + self.scratch.memory()
            + self.block.memory();
        shared.cache.resize(&mut self.memory, bytes as u64);
        Ok(())
    }
}

//! Stored bytes of consecutive pages, read in one go before they are needed.
//!
//! Always true: what is read ahead lies within the walk's bounds, and is taken from the cache's
//! bound while it is there.

use super::{BlockHandle, Bounds, Segment};
use crate::error::Result;
use crate::message::{Direction, Place};
use cachetable::{CacheTable, Frame, MemoryKind, Reservation};
use std::sync::Arc;

/// Merges read this much at once: one seek pays for many pages.
pub(super) const STREAM: u64 = 256 << 10;
/// A cursor reads ahead once this many pages in a row were not in memory…
const STREAK: u32 = 2;
/// More are not counted: a walk that comes to pages in memory soon stops reading ahead.
const MOST_MISSES: u32 = 8;
/// …this much at first…
const FIRST: u64 = 64 << 10;
/// …and at most this much.
const LARGEST: u64 = 1 << 20;
/// Of a small cache no more than one part in so many.
const SHARE: u64 = 16;

/// How sequential a walk has proved, and how far it reads ahead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Pace {
    /// Pages that were not in memory, less those that were.
    misses: u32,
    /// Bytes the next read takes.
    window: u64,
}

impl Pace {
    /// A page was in memory. One among many that are not changes nothing.
    pub(super) fn hit(&mut self) {
        self.misses = self.misses.saturating_sub(1);
        if self.misses == 0 {
            self.window = 0;
        }
    }

    pub(super) fn missed(&mut self) {
        self.misses = (self.misses + 1).min(MOST_MISSES);
    }

    /// It pays to read ahead.
    pub(crate) fn is_sequential(&self) -> bool {
        self.misses > STREAK
    }

    /// Bytes to read now; twice as many the next time.
    pub(super) fn window(&mut self, cache: &CacheTable) -> u64 {
        self.window = (self.window * 2).clamp(FIRST, LARGEST);
        self.window.min(cache.capacity() / SHARE)
    }
}

/// Stored bytes of one segment from `start` on.
#[derive(Default)]
pub(crate) struct Ahead {
    start: u64,
    bytes: Vec<u8>,
    memory: Option<Reservation>,
    /// It was read for a walk that had not come here yet.
    early: Option<Early>,
}

/// Counts whether what was read early was used.
struct Early {
    cache: Arc<CacheTable>,
    used: bool,
}

impl Drop for Early {
    fn drop(&mut self) {
        self.cache.count_prefetch(self.used);
    }
}

impl Ahead {
    /// The bytes of a page, if they were read.
    pub(super) fn stored(&mut self, block: BlockHandle) -> Option<&[u8]> {
        let from = usize::try_from(block.page.offset.checked_sub(self.start)?).ok()?;
        let stored = self.bytes.get(from..from.checked_add(block.page.len as usize)?)?;
        if let Some(mut early) = self.early.take() {
            early.used = true;
        }
        Some(stored)
    }

    /// Reads about `window` bytes of pages that lie within bounds, from `block` on in the walk's
    /// direction; that page at least.
    pub(super) fn fill(
        &mut self,
        segment: &Segment,
        index: &Frame,
        bounds: &Bounds,
        block: BlockHandle,
        direction: Direction,
        window: u64,
    ) -> Result<()> {
        let own = (block.page.offset, end_of(block));
        let (from, until) = match direction {
            Direction::Forward => {
                let last = match &bounds.upper {
                    Some(upper) => segment.page_of(index, Place::behind(upper))?,
                    None => segment.pages() - 1,
                };
                let last = segment.block(index, last.max(block.page.page))?;
                (own.0, end_of(last).min(own.0.saturating_add(window)).max(own.1))
            }
            Direction::Backward => {
                let first = match &bounds.lower {
                    Some(lower) => segment.page_of(index, Place::behind(lower))?,
                    None => 0,
                };
                let mut from = own.0;
                for page in (first..block.page.page).rev() {
                    let before = segment.block(index, page)?.page.offset;
                    if before > from || own.1 - before > window {
                        break;
                    }
                    from = before;
                }
                (from, own.1)
            }
        };
        // A damaged index could ask for anything: no more than the segment has.
        let length = until.saturating_sub(from).min(segment.content().stored_bytes);
        let memory = segment.shared().cache.reserve(MemoryKind::Buffers, length);
        self.memory = Some(memory);
        self.early = None;
        self.start = from;
        self.bytes.resize(length as usize, 0);
        segment.read_stored(from, &mut self.bytes)
    }
}

fn end_of(block: BlockHandle) -> u64 {
    block.page.offset.saturating_add(u64::from(block.page.len))
}

impl Segment {
    /// Reads what a walk that comes to these bounds will need first; nothing where it is in memory.
    pub(crate) fn read_ahead(&self, bounds: &Bounds, direction: Direction) -> Result<Ahead> {
        let index = self.index()?;
        let edge = match direction {
            Direction::Forward => &bounds.lower,
            Direction::Backward => &bounds.upper,
        };
        let page = match (edge, direction) {
            (Some(edge), _) => self.page_of(&index, Place::behind(edge))?,
            (None, Direction::Forward) => 0,
            (None, Direction::Backward) => self.pages() - 1,
        };
        let mut ahead = Ahead::default();
        if !self.is_cached(page) {
            let block = self.block(&index, page)?;
            let cache = &self.shared().cache;
            let window = LARGEST.min(cache.capacity() / SHARE);
            ahead.fill(self, &index, bounds, block, direction, window)?;
            ahead.early = Some(Early { cache: Arc::clone(cache), used: false });
        }
        Ok(ahead)
    }
}

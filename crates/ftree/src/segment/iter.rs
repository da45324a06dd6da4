//! Walking a segment within bounds, either way: through the cache, or streaming for merges.

use super::{Block, Segment};
use crate::error::Result;
use crate::message::{Entry, Kind, Message, Place};
use crate::page::{PageEntry, PageView};
use cachetable::{Entry as Enters, Frame, Part, Reservation};
use std::ops::Deref;
use std::sync::Arc;

/// Merges read this much at once: one seek pays for many pages.
const READ_AHEAD: u64 = 256 << 10;
/// A cursor reads ahead once this many pages in a row were not in memory.
const STREAK: u32 = 2;

/// The keys a walk may meet: `lower < key <= upper`, open where `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) lower: Option<Arc<[u8]>>,
    pub(crate) upper: Option<Arc<[u8]>>,
}

impl Bounds {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.lower.as_ref().is_none_or(|lower| key > &lower[..]) && self.reaches(key)
    }

    /// `key` is not above the upper bound.
    pub(crate) fn reaches(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_none_or(|upper| key <= &upper[..])
    }

    /// Some key lies in both.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let below = |one: &Self, two: &Self| match (&one.upper, &two.lower) {
            (Some(upper), Some(lower)) => upper <= lower,
            _ => false,
        };
        !below(self, other) && !below(other, self)
    }

    /// Every key of `other` lies in here too.
    pub(crate) fn encloses(&self, other: &Self) -> bool {
        let from = self.lower.as_ref().is_none_or(|lower| other.lower.as_ref() >= Some(lower));
        let to = match (&self.upper, &other.upper) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(upper), Some(theirs)) => theirs <= upper,
        };
        from && to
    }

    /// A segment from `min` to `max` may have keys inside.
    pub(crate) fn overlaps(&self, min: &[u8], max: &[u8]) -> bool {
        self.reaches(min) && self.lower.as_ref().is_none_or(|lower| max > &lower[..])
    }
}

/// How pages are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// Page by page through the cache: cursors.
    Cached,
    /// Ahead and past the cache: merges see every page once.
    Streaming,
}

enum PageBytes {
    None,
    Frame(Frame),
    Own(Vec<u8>),
}

impl Deref for PageBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            PageBytes::None => &[],
            PageBytes::Frame(frame) => frame,
            PageBytes::Own(bytes) => bytes,
        }
    }
}

/// Stored bytes of consecutive pages; taken from the cache's bound.
#[derive(Default)]
struct Ahead {
    start: u64,
    bytes: Vec<u8>,
    memory: Option<Reservation>,
}

impl Ahead {
    /// The bytes of a page that `fill_ahead` made sure of.
    fn stored(&self, block: Block) -> &[u8] {
        let from = (block.page.offset - self.start) as usize;
        &self.bytes[from..from + block.page.len as usize]
    }
}

/// A walk over the entries of a segment that lie within bounds.
pub(crate) struct SegmentIter {
    segment: Arc<Segment>,
    index: Frame,
    bounds: Bounds,
    reading: Reading,
    forward: bool,
    page: u32,
    bytes: PageBytes,
    /// Slots of the page that are still to come, `low..high`.
    low: usize,
    high: usize,
    /// The page has entries beyond the bounds: it is the last one.
    last: bool,
    ahead: Ahead,
    /// Pages in a row that were not in the cache.
    misses: u32,
    key: Vec<u8>,
    ts: u64,
    kind: Kind,
    payload: (usize, usize),
    valid: bool,
}

impl SegmentIter {
    /// Ascending from `from`, or from the lower bound. Reads the first page.
    pub(crate) fn forward(
        segment: Arc<Segment>,
        bounds: Bounds,
        from: Option<Place<'_>>,
        reading: Reading,
    ) -> Result<Self> {
        let mut iter = Self::new(segment, bounds, reading, true)?;
        let lower = iter.bounds.lower.clone();
        let floor = lower.as_ref().map(|lower| Place::behind(lower));
        // The later of the two starts.
        let start = match (floor, from) {
            (Some(floor), Some(from)) => Some(floor.max(from)),
            (floor, from) => floor.or(from),
        };
        match start {
            Some(start) => {
                let page = iter.segment.page_of(&iter.index, start)?;
                iter.load(page)?;
                iter.low = iter.view()?.lower_bound(start);
            }
            None => iter.load(0)?,
        }
        iter.settle_forward()?;
        Ok(iter)
    }

    /// Descending from what is strictly before `before`, or from the upper bound.
    pub(crate) fn backward(
        segment: Arc<Segment>,
        bounds: Bounds,
        before: Option<Place<'_>>,
        reading: Reading,
    ) -> Result<Self> {
        let mut iter = Self::new(segment, bounds, reading, false)?;
        let upper = iter.bounds.upper.clone();
        let ceiling = upper.as_ref().map(|upper| Place::behind(upper));
        let start = match (ceiling, before) {
            (Some(ceiling), Some(before)) => Some(ceiling.min(before)),
            (ceiling, before) => ceiling.or(before),
        };
        let page = match start {
            Some(start) => iter.segment.page_before(&iter.index, start)?,
            None => iter.segment.pages().checked_sub(1),
        };
        let Some(page) = page else { return Ok(iter) };
        iter.load(page)?;
        if let Some(start) = start {
            iter.high = iter.high.min(iter.view()?.lower_bound(start));
        }
        iter.settle_backward()?;
        Ok(iter)
    }

    fn new(segment: Arc<Segment>, bounds: Bounds, reading: Reading, forward: bool) -> Result<Self> {
        let index = segment.index()?;
        Ok(Self {
            segment,
            index,
            bounds,
            reading,
            forward,
            page: 0,
            bytes: PageBytes::None,
            low: 0,
            high: 0,
            last: true,
            ahead: Ahead::default(),
            misses: 0,
            key: Vec::new(),
            ts: 0,
            kind: Kind::Put,
            payload: (0, 0),
            valid: false,
        })
    }

    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        self.valid.then(|| Entry {
            key: &self.key,
            ts: self.ts,
            message: Message::of(self.kind, &self.bytes[self.payload.0..self.payload.1]),
        })
    }

    /// May read the disk.
    pub(crate) fn advance(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        if self.forward {
            self.low += 1;
            self.settle_forward()
        } else {
            self.high -= 1;
            self.settle_backward()
        }
    }

    fn settle_forward(&mut self) -> Result<()> {
        while self.low >= self.high {
            if self.last || self.page + 1 >= self.segment.pages() {
                self.valid = false;
                return Ok(());
            }
            self.load(self.page + 1)?;
        }
        self.take(self.low)
    }

    fn settle_backward(&mut self) -> Result<()> {
        while self.low >= self.high {
            if self.last || self.page == 0 {
                self.valid = false;
                return Ok(());
            }
            self.load(self.page - 1)?;
        }
        self.take(self.high - 1)
    }

    fn take(&mut self, slot: usize) -> Result<()> {
        let view = self.segment.view(&self.bytes, self.page)?;
        let entry: PageEntry<'_> = view.entry(slot);
        view.key(&entry, &mut self.key);
        (self.ts, self.kind, self.payload) = (entry.ts, entry.kind, entry.payload);
        self.valid = true;
        Ok(())
    }

    fn view(&self) -> Result<PageView<'_>> {
        self.segment.view(&self.bytes, self.page)
    }

    /// Loads a page and cuts its slots to the bounds.
    fn load(&mut self, page: u32) -> Result<()> {
        self.page = page;
        match self.reading {
            Reading::Cached => self.load_cached(page)?,
            Reading::Streaming => self.stream(page)?,
        }
        let view = self.segment.view(&self.bytes, page)?;
        let count = view.count();
        let behind = |bound: &Option<Arc<[u8]>>| {
            bound.as_ref().map(|key| view.lower_bound(Place::behind(key)))
        };
        let low = behind(&self.bounds.lower).unwrap_or(0);
        let high = behind(&self.bounds.upper).unwrap_or(count);
        self.last = if self.forward { high < count } else { low > 0 };
        (self.low, self.high) = (low, high);
        Ok(())
    }

    /// Through the cache. A walk that keeps missing reads ahead, and what it decodes from there
    /// enters the cache all the same.
    fn load_cached(&mut self, page: u32) -> Result<()> {
        let frame = if let Some(frame) = self.segment.cached_page(page) {
            self.misses = 0;
            frame
        } else {
            self.misses += 1;
            let block = self.segment.block(&self.index, page)?;
            if self.forward && self.misses > STREAK {
                self.fill_ahead(block)?;
                let stored = self.ahead.stored(block);
                self.segment.load_stored(block, stored)?
            } else {
                self.segment.load_page(block, Enters::Wanted)?
            }
        };
        self.bytes = PageBytes::Frame(frame);
        Ok(())
    }

    fn stream(&mut self, page: u32) -> Result<()> {
        let block = self.segment.block(&self.index, page)?;
        self.fill_ahead(block)?;
        let mut bytes = match std::mem::replace(&mut self.bytes, PageBytes::None) {
            PageBytes::Own(bytes) => bytes,
            _ => Vec::new(),
        };
        self.segment.decode(block, self.ahead.stored(block), &mut bytes)?;
        self.bytes = PageBytes::Own(bytes);
        Ok(())
    }

    /// Makes the stored bytes of a page, and of some behind it, be in `ahead`.
    fn fill_ahead(&mut self, block: Block) -> Result<()> {
        let end = block.page.offset.saturating_add(u64::from(block.page.len));
        let have = self.ahead.start + self.ahead.bytes.len() as u64;
        if block.page.offset < self.ahead.start || end > have {
            let until = self.read_until(block)?;
            let length = until - block.page.offset;
            self.ahead.memory = Some(self.segment.home().cache.reserve(Part::Buffers, length));
            self.ahead.start = block.page.offset;
            self.ahead.bytes.resize(length as usize, 0);
            self.segment.read_stored(block.page.offset, &mut self.ahead.bytes)?;
        }
        Ok(())
    }

    /// The end of a read that starts at `block`: pages ahead, as far as the bounds may need.
    fn read_until(&self, block: Block) -> Result<u64> {
        let own = block.page.offset.saturating_add(u64::from(block.page.len));
        if !self.forward {
            return Ok(own);
        }
        let last = match &self.bounds.upper {
            Some(upper) => self.segment.page_of(&self.index, Place::behind(upper))?,
            None => self.segment.pages() - 1,
        };
        let last = self.segment.block(&self.index, last.max(self.page))?;
        let all = last.page.offset.saturating_add(u64::from(last.page.len));
        Ok(all.min(block.page.offset.saturating_add(READ_AHEAD)).max(own))
    }
}

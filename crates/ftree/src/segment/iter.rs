//! Walking a segment within bounds, either way: through the cache, or streaming for merges.

use super::ahead::{Ahead, Pace, STREAM};
use super::{BlockHandle, Segment};
use crate::error::Result;
use crate::message::{Direction, Entry, Kind, Message, Place};
use crate::page::{PageEntry, PageParts, PageView};
use cachetable::{Access as Enters, Frame};
use std::ops::Deref;
use std::sync::Arc;

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
    /// Ahead, and what is not in the cache past it: merges see every page once.
    Streaming,
}

/// A merge asks for entries so far ahead: pages in memory are scattered, and so are its sources.
const ENTRIES_AHEAD: usize = 4;

enum PageBytes {
    None,
    Frame(Frame),
    Own(Vec<u8>),
}

impl Deref for PageBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            PageBytes::None => &[],
            PageBytes::Frame(frame) => frame,
            PageBytes::Own(bytes) => bytes,
        }
    }
}

/// A walk over the entries of a segment that lie within bounds.
pub(crate) struct SegmentIter {
    segment: Arc<Segment>,
    index: Frame,
    bounds: Bounds,
    reading: Reading,
    direction: Direction,
    page: u32,
    bytes: PageBytes,
    /// Of these bytes.
    parts: PageParts,
    /// Slots of the page that are still to come, `low..high`.
    low: usize,
    high: usize,
    /// The page has entries beyond the bounds: it is the last one.
    last: bool,
    ahead: Ahead,
    pace: Pace,
    /// The first page, where it was found in memory or read already.
    held: Option<Frame>,
    key: Vec<u8>,
    ts: u64,
    kind: Kind,
    payload: (usize, usize),
    valid: bool,
}

impl SegmentIter {
    /// From `place`, or from the bounds' edge; going backward, from what is strictly before it.
    /// Reads the first page.
    pub(crate) fn new(
        segment: Arc<Segment>,
        bounds: Bounds,
        place: Option<Place<'_>>,
        direction: Direction,
        reading: Reading,
    ) -> Result<Self> {
        let mut iter = Self::unopened(segment, bounds, direction, reading)?;
        iter.begin(place)?;
        Ok(iter)
    }

    /// Stands nowhere until [`SegmentIter::begin`]. May read the block index.
    pub(crate) fn unopened(
        segment: Arc<Segment>,
        bounds: Bounds,
        direction: Direction,
        reading: Reading,
    ) -> Result<Self> {
        let index = segment.index()?;
        Ok(Self {
            segment,
            index,
            bounds,
            reading,
            direction,
            page: 0,
            bytes: PageBytes::None,
            parts: PageParts::default(),
            low: 0,
            high: 0,
            last: true,
            ahead: Ahead::default(),
            pace: Pace::default(),
            held: None,
            key: Vec::new(),
            ts: 0,
            kind: Kind::Put,
            payload: (0, 0),
            valid: false,
        })
    }

    /// Goes on at the pace of the walk it is a part of, with what was read ahead for it.
    pub(crate) fn expedite(&mut self, pace: Pace, ahead: Option<Ahead>) {
        self.pace = pace;
        self.ahead = ahead.unwrap_or_default();
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// Where it is to start: the later of `place` and the edge, going backward the earlier.
    fn start<'a>(
        edge: Option<&'a Arc<[u8]>>,
        place: Option<Place<'a>>,
        forward: bool,
    ) -> Option<Place<'a>> {
        match (edge.map(|edge| Place::behind(edge)), place) {
            (Some(edge), Some(place)) if forward => Some(edge.max(place)),
            (Some(edge), Some(place)) => Some(edge.min(place)),
            (edge, place) => edge.or(place),
        }
    }

    fn is_forward(&self) -> bool {
        self.direction == Direction::Forward
    }

    /// The first page and the place in it; `None` where nothing can come.
    fn first_page<'a>(
        &self,
        edge: Option<&'a Arc<[u8]>>,
        place: Option<Place<'a>>,
    ) -> Result<Option<(u32, Option<Place<'a>>)>> {
        let start = Self::start(edge, place, self.is_forward());
        let page = match (start, self.direction) {
            (Some(start), Direction::Forward) => Some(self.segment.page_of(&self.index, start)?),
            (None, Direction::Forward) => Some(0),
            (Some(start), Direction::Backward) => self.segment.page_before(&self.index, start)?,
            (None, Direction::Backward) => self.segment.pages().checked_sub(1),
        };
        Ok(page.map(|page| (page, start)))
    }

    fn edge(&self) -> Option<Arc<[u8]>> {
        match self.direction {
            Direction::Forward => self.bounds.lower.clone(),
            Direction::Backward => self.bounds.upper.clone(),
        }
    }

    /// Finds the first page; says where it lies if it should be read on its own.
    pub(crate) fn find(
        &mut self,
        place: Option<Place<'_>>,
    ) -> Result<Option<(Arc<Segment>, BlockHandle)>> {
        let edge = self.edge();
        let Some((page, _)) = self.first_page(edge.as_ref(), place)? else { return Ok(None) };
        if let Some(frame) = self.segment.passed_page(page) {
            self.pace.hit();
            self.held = Some(frame);
            return Ok(None);
        }
        if self.pace.is_sequential() {
            return Ok(None);
        }
        Ok(Some((Arc::clone(&self.segment), self.segment.block(&self.index, page)?)))
    }

    /// The page that was not in memory was read meanwhile.
    pub(crate) fn hold(&mut self, frame: Frame) {
        self.pace.missed();
        self.held = Some(frame);
    }

    /// Reads the first page and stands on the first entry.
    pub(crate) fn begin(&mut self, place: Option<Place<'_>>) -> Result<()> {
        let edge = self.edge();
        let Some((page, start)) = self.first_page(edge.as_ref(), place)? else { return Ok(()) };
        self.load(page)?;
        if let Some(start) = start {
            let slot = self.view().lower_bound(start);
            match self.direction {
                Direction::Forward => self.low = slot,
                Direction::Backward => self.high = self.high.min(slot),
            }
        }
        match self.direction {
            Direction::Forward => self.settle_forward(),
            Direction::Backward => self.settle_backward(),
        }
    }

    /// Whether it stands on an entry.
    #[inline]
    pub(crate) fn has_entry(&self) -> bool {
        self.valid
    }

    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        self.valid.then(|| Entry {
            key: &self.key,
            ts: self.ts,
            message: Message::of(self.kind, &self.bytes[self.payload.0..self.payload.1]),
        })
    }

    /// What the entry says; nothing where it stands on none.
    #[inline]
    pub(crate) fn payload(&self) -> Option<&[u8]> {
        self.valid.then(|| &self.bytes[self.payload.0..self.payload.1])
    }

    /// May read the disk.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        if self.is_forward() {
            self.low += 1;
            self.settle_forward()
        } else {
            self.high -= 1;
            self.settle_backward()
        }
    }

    #[inline]
    fn settle_forward(&mut self) -> Result<()> {
        while self.low >= self.high {
            if self.last || self.page + 1 >= self.segment.pages() {
                self.valid = false;
                return Ok(());
            }
            self.load(self.page + 1)?;
        }
        self.take(self.low);
        Ok(())
    }

    fn settle_backward(&mut self) -> Result<()> {
        while self.low >= self.high {
            if self.last || self.page == 0 {
                self.valid = false;
                return Ok(());
            }
            self.load(self.page - 1)?;
        }
        self.take(self.high - 1);
        Ok(())
    }

    fn take(&mut self, slot: usize) {
        let view = PageView::again(&self.bytes, self.parts);
        if self.reading == Reading::Streaming {
            view.fetch(slot + ENTRIES_AHEAD);
        }
        let entry: PageEntry<'_> = view.entry(slot);
        view.end_key(&entry, &mut self.key);
        (self.ts, self.kind, self.payload) = (entry.ts, entry.kind, entry.payload);
        self.valid = true;
    }

    fn view(&self) -> PageView<'_> {
        PageView::again(&self.bytes, self.parts)
    }

    /// Loads a page and cuts its slots to the bounds. Stands nowhere until one of them is taken.
    fn load(&mut self, page: u32) -> Result<()> {
        (self.page, self.valid) = (page, false);
        match self.reading {
            Reading::Cached => self.load_cached(page)?,
            Reading::Streaming => self.stream(page)?,
        }
        let view = self.segment.view(&self.bytes, page)?;
        self.parts = view.parts();
        self.key.clear();
        view.begin_key(&mut self.key);
        let count = view.count();
        let behind = |bound: &Option<Arc<[u8]>>| {
            bound.as_ref().map(|key| view.lower_bound(Place::behind(key)))
        };
        let low = behind(&self.bounds.lower).unwrap_or(0);
        let high = behind(&self.bounds.upper).unwrap_or(count);
        self.last = if self.is_forward() { high < count } else { low > 0 };
        (self.low, self.high) = (low, high);
        Ok(())
    }

    /// Through the cache. A walk that keeps missing reads ahead, and what it decodes from there
    /// enters the cache as what a scan leaves behind.
    fn load_cached(&mut self, page: u32) -> Result<()> {
        if let Some(frame) = self.held.take() {
            self.bytes = PageBytes::Frame(frame);
            return Ok(());
        }
        if let Some(frame) = self.segment.passed_page(page) {
            self.pace.hit();
            self.bytes = PageBytes::Frame(frame);
            return Ok(());
        }
        self.pace.missed();
        let block = self.segment.block(&self.index, page)?;
        let frame = if self.pace.is_sequential() {
            self.fill_ahead(block)?;
            let stored = self.ahead.stored(block);
            self.segment.load_stored(block, stored.unwrap_or_default(), Enters::Scan)?
        } else {
            self.segment.load_page(block, Enters::Demand)?
        };
        self.bytes = PageBytes::Frame(frame);
        Ok(())
    }

    fn stream(&mut self, page: u32) -> Result<()> {
        if let Some(frame) = self.segment.passed_page(page) {
            self.bytes = PageBytes::Frame(frame);
            return Ok(());
        }
        let block = self.segment.block(&self.index, page)?;
        self.fill_ahead(block)?;
        let mut bytes = match std::mem::replace(&mut self.bytes, PageBytes::None) {
            PageBytes::Own(bytes) => bytes,
            _ => Vec::new(),
        };
        // A page that reaches past its segment does not decode.
        let stored = self.ahead.stored(block).unwrap_or_default();
        self.segment.decode(block, stored, &mut bytes)?;
        self.bytes = PageBytes::Own(bytes);
        Ok(())
    }

    /// Makes the stored bytes of a page, and of some behind it, be in `ahead`.
    fn fill_ahead(&mut self, block: BlockHandle) -> Result<()> {
        if self.ahead.stored(block).is_some() {
            return Ok(());
        }
        let window = match self.reading {
            Reading::Cached => self.pace.window(&self.segment.shared().cache),
            Reading::Streaming => STREAM,
        };
        let Self { ahead, segment, index, bounds, direction, .. } = self;
        ahead.fill(segment, index, bounds, block, *direction, window)
    }
}

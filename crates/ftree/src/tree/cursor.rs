//! A walk over a range of one tree, either way, as one snapshot sees it.
//!
//! Always true: a cursor owns what it needs and may be parked; parked it pins nothing, and goes on
//! behind the key it returned last. Its snapshot must be kept live as long as it walks: at every
//! child, and where its values are large once in a while within one, it moves over to the tree's
//! newest state, so that a long walk pins no old one.

mod fold;
mod open;

use super::Tree;
use crate::error::Result;
use crate::message::{Direction, KeyRange, Message, Place};
use crate::node::reads;
use crate::updates::PendingUpdates;
use cachetable::{Access, Frame};
use open::Open;
use std::ops::Bound;
use std::sync::Arc;

/// Steps a seek tries before it searches again: index skips are often short.
const NEAR: usize = 8;

/// Bytes that a walk passes before it asks whether the tree has moved on: a memtable may hold hundreds
/// of megabytes for one child, and stays in memory, drained or not, as long as somebody walks over it.
const MOST_IN_ONE_STATE: usize = 1 << 20;

/// Where the cursor goes on when it is opened.
enum Resume {
    /// At the range's edge.
    Edge,
    /// At the first key at or past this one.
    At(Vec<u8>),
    /// Past the key in `Cursor::key`.
    Past,
    /// Nowhere: the range is exhausted.
    End,
}

/// Walks entries of one tree visible at one timestamp.
pub struct Cursor {
    tree: Arc<Tree>,
    range: KeyRange,
    ts: u64,
    direction: Direction,
    resume: Resume,
    /// The key returned last, or stepped over because it is deleted.
    key: Vec<u8>,
    /// Going backward, the newest visible version of `key`; also where updates were applied to get it.
    value: Vec<u8>,
    /// The value is not under the cursor, but in `value`.
    is_folded: bool,
    /// Updates of `key` on the way to their base.
    pending: PendingUpdates,
    open: Option<Open>,
    /// Bytes that it has passed since it last asked for the tree's newest state.
    passed: usize,
    /// The entry `next` will return is already under the cursor.
    peeked: bool,
    /// The value lies by itself: what is under the cursor says where.
    is_large: bool,
    /// That value, once it was asked for.
    large: Option<Frame>,
}

impl Cursor {
    pub(crate) fn new(tree: Arc<Tree>, range: KeyRange, ts: u64, direction: Direction) -> Self {
        Self {
            tree,
            range,
            ts,
            direction,
            resume: Resume::Edge,
            key: Vec::new(),
            value: Vec::new(),
            is_folded: false,
            pending: PendingUpdates::default(),
            open: None,
            passed: 0,
            peeked: false,
            is_large: false,
            large: None,
        }
    }

    /// The next entry; the slices live until the next call. May read the disk.
    #[expect(clippy::should_implement_trait, reason = "lends from itself, so not an Iterator")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if !std::mem::take(&mut self.peeked) && !self.step()? {
            return Ok(None);
        }
        self.load_large()?;
        Ok(self.current())
    }

    /// Skips ahead, in the cursor's direction, to the first entry at or past `key`; never goes
    /// back. May read the disk.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        for _ in 0..NEAR {
            if !self.peeked {
                if !matches!(self.resume, Resume::Past) || self.open.is_none() {
                    break;
                }
                if !self.step()? {
                    return Ok(());
                }
            }
            if !self.is_before(&self.key, key) {
                self.peeked = true;
                return Ok(());
            }
            self.peeked = false;
        }
        let ahead = match &self.resume {
            Resume::Edge => match self.direction {
                Direction::Forward => self.range.above_lower(key),
                Direction::Backward => self.range.below_upper(key),
            },
            Resume::At(at) => self.is_before(at, key),
            Resume::Past => self.is_before(&self.key, key),
            Resume::End => false,
        };
        if ahead {
            self.open = None;
            self.resume = Resume::At(key.to_vec());
        }
        Ok(())
    }

    /// Gives back pinned memory until the next call; the place is kept.
    pub fn park(&mut self) {
        if std::mem::take(&mut self.peeked) {
            self.resume = Resume::At(self.key.clone());
        }
        self.open = None;
        self.value = Vec::new();
        self.large = None;
    }

    /// Loads the value under the cursor where it lies by itself. A value that is stepped over is
    /// not read.
    fn load_large(&mut self) -> Result<()> {
        if self.is_large && self.large.is_none() {
            let frame = match self.current() {
                Some((_, reference)) => self.tree.load_large(reference, Access::Scan)?,
                None => return Ok(()),
            };
            self.large = Some(frame);
        }
        Ok(())
    }

    /// The entry that `next` returned last will be returned again.
    pub(crate) fn step_back(&mut self) {
        self.peeked = true;
    }

    /// The entry that `next` returned last comes before `key`.
    pub(crate) fn is_short_of(&self, key: &[u8]) -> bool {
        self.is_before(&self.key, key)
    }

    fn is_before(&self, left: &[u8], right: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => left < right,
            Direction::Backward => left > right,
        }
    }

    /// The entry that `next` returned last.
    #[inline]
    pub(crate) fn current(&self) -> Option<(&[u8], &[u8])> {
        if let Some(large) = &self.large {
            return Some((&self.key, large));
        }
        match self.direction {
            Direction::Forward if !self.is_folded => {
                Some((&self.key, self.open.as_ref()?.merge.top_payload()?))
            }
            Direction::Forward | Direction::Backward => Some((&self.key, &self.value)),
        }
    }

    /// Moves to the next visible entry; false at the end.
    fn step(&mut self) -> Result<bool> {
        self.large = None;
        (self.is_folded, self.is_large) = (false, false);
        self.leave_old_state();
        let found = match self.direction {
            Direction::Forward => self.step_forward()?,
            Direction::Backward => self.step_backward()?,
        };
        if !found {
            self.resume = Resume::End;
            self.open = None;
        }
        Ok(found)
    }

    /// Lets go of a state that the tree has left, once the walk has passed enough in it: the step
    /// opens the newest one behind the key returned last.
    fn leave_old_state(&mut self) {
        if self.passed < MOST_IN_ONE_STATE || !matches!(self.resume, Resume::Past) {
            return;
        }
        self.passed = 0;
        if let Some(open) = &self.open
            && !Arc::ptr_eq(&open.state, &self.tree.pin())
        {
            self.tree.note_reads(&open.node, reads::skipped(open.skipped));
            self.open = None;
        }
    }

    fn step_forward(&mut self) -> Result<bool> {
        self.ensure_open()?;
        while let Some(open) = &mut self.open {
            if std::mem::take(&mut open.is_passed) {
                open.skipped += u64::from(open.merge.is_of_several());
                open.merge.advance()?;
            }
            let Some(entry) = open.top_of_child() else {
                self.open_next_child()?;
                continue;
            };
            self.passed += entry.message.payload().len();
            let decided = matches!(self.resume, Resume::Past) && is_same(entry.key, &self.key);
            if decided || entry.ts > self.ts {
                open.skipped += 1;
                open.merge.advance()?;
                continue;
            }
            if !self.range.below_upper(entry.key) {
                return Ok(false);
            }
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.resume = Resume::Past;
            let is_hidden = open.hides(entry, self.ts);
            match entry.message {
                Message::Update(_) if !is_hidden => {
                    if self.fold_forward()? {
                        return Ok(true);
                    }
                }
                Message::Put(_) | Message::Large(_) if !is_hidden => {
                    self.is_large = matches!(entry.message, Message::Large(_));
                    open.is_passed = true;
                    return Ok(true);
                }
                _ => {
                    open.skipped += 1;
                    open.is_passed = true;
                }
            }
        }
        Ok(false)
    }

    /// Going backward the oldest version of a key comes first; the last one not newer than the
    /// snapshot counts.
    fn step_backward(&mut self) -> Result<bool> {
        self.ensure_open()?;
        while let Some(open) = &mut self.open {
            let Some(entry) = open.merge.top().filter(|entry| open.bounds.contains(entry.key))
            else {
                self.open_next_child()?;
                continue;
            };
            if !self.range.above_lower(entry.key) {
                return Ok(false);
            }
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.resume = Resume::Past;
            self.passed += self.value.len();
            if self.fold_backward()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn ensure_open(&mut self) -> Result<()> {
        if self.open.is_none() && !matches!(self.resume, Resume::End) {
            let state = self.tree.pin();
            self.open = Some(Open::at(&self.tree, state, self.start(), self.direction)?);
        }
        Ok(())
    }

    /// Goes on with the child behind the one that is exhausted; none where it was the last, or
    /// where the range ends before it.
    fn open_next_child(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        self.tree.note_reads(&open.node, reads::skipped(open.skipped));
        let Some(edge) = self.next_edge(&open) else { return Ok(()) };
        let place = Place::behind(&edge);
        let mut next = if Arc::ptr_eq(&open.state, &self.tree.pin()) {
            open.at_next_child(&self.tree, place)?
        } else {
            // The tree has moved on: so do we, and let go of what it has dropped.
            open.in_state(&self.tree, self.tree.pin(), place)?
        };
        if let Some(edge) = self.next_edge(&next) {
            next.expect(&self.tree, Place::behind(&edge));
        }
        self.open = Some(next);
        Ok(())
    }

    /// Where the next child begins, if the range goes on there.
    fn next_edge(&self, open: &Open) -> Option<Arc<[u8]>> {
        let inside = |edge: &&Arc<[u8]>| match self.direction {
            Direction::Forward => self.range.below_upper(edge),
            Direction::Backward => self.range.above_lower(edge),
        };
        open.edge().filter(inside).cloned()
    }

    /// The first place to look at: the least one going forward, the one behind going backward.
    fn start(&self) -> Option<Place<'_>> {
        match (&self.resume, self.direction) {
            (Resume::At(key), Direction::Forward) => Some(Place::before(key)),
            (Resume::At(key), Direction::Backward) => Some(Place::behind(key)),
            (Resume::Past, Direction::Forward) => Some(Place::behind(&self.key)),
            (Resume::Past, Direction::Backward) => Some(Place::before(&self.key)),
            (_, Direction::Forward) => match &self.range.lower {
                Bound::Included(key) => Some(Place::before(key)),
                Bound::Excluded(key) => Some(Place::behind(key)),
                Bound::Unbounded => None,
            },
            (_, Direction::Backward) => match &self.range.upper {
                Bound::Included(key) => Some(Place::behind(key)),
                Bound::Excluded(key) => Some(Place::before(key)),
                Bound::Unbounded => None,
            },
        }
    }
}

/// Whether two keys that follow each other in order are one: those that are not mostly differ in their last bytes.
#[inline]
fn is_same(left: &[u8], right: &[u8]) -> bool {
    left.last() == right.last() && left == right
}

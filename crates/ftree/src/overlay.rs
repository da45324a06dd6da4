//! A committed spill as part of a tree: a layer between memtables and the root.
//!
//! A transaction too large for memory becomes visible in one step, whatever its size: its private
//! tree is laid over this one, and every entry of it counts as written at the commit. Background
//! work then moves it below the root piece by piece, in key order, as if each piece were a
//! memtable.
//!
//! Always true: one version of each key, at the commit's timestamp; nothing in it changes; what
//! has been moved below is found both here and there until the layer is gone, as one version.

use crate::error::Result;
use crate::memtable::MemTable;
use crate::message::{Direction, Entry, KeyRange, Place};
use crate::spill::{SpillCursor, SpillTree, Written, get_at};
use crate::tree::Tree;
use os::sync::atomic::{AtomicU64, Ordering};
use std::ops::Bound;
use std::sync::Arc;

/// One space of a spill, laid over the tree it was written for.
pub(crate) struct Overlay {
    spill: Arc<Tree>,
    space: u64,
    clock: u64,
    /// The commit.
    ts: u64,
    /// What is left to be moved below the root starts here.
    rest: Bound<Vec<u8>>,
    /// Commits that are drained once this layer is; shared by what is left of it.
    flushed_ts: Arc<AtomicU64>,
}

impl Overlay {
    pub(crate) fn new(spill: &SpillTree, space: u64, ts: u64, flushed_ts: u64) -> Arc<Self> {
        assert!(ts != 0 && ts != u64::MAX, "timestamps 0 and MAX are places, not versions");
        Arc::new(Self {
            spill: Arc::clone(spill.tree()),
            space,
            clock: spill.clock(),
            ts,
            rest: Bound::Unbounded,
            flushed_ts: Arc::new(AtomicU64::new(flushed_ts)),
        })
    }

    /// The commit.
    pub(crate) fn ts(&self) -> u64 {
        self.ts
    }

    pub(crate) fn flushed_ts(&self) -> u64 {
        self.flushed_ts.load(Ordering::Relaxed)
    }

    pub(crate) fn raise_flushed_ts(&self, flushed_ts: u64) {
        self.flushed_ts.fetch_max(flushed_ts, Ordering::Relaxed);
    }

    /// The version of `key` a reader at `ts` sees here. May read the disk.
    pub(crate) fn get(&self, key: &[u8], ts: u64) -> Result<Option<(u64, Written)>> {
        if ts < self.ts || self.is_below(key) {
            return Ok(None);
        }
        let found = get_at(&self.spill, self.space, key, self.clock)?;
        Ok(found.map(|written| (self.ts, written)))
    }

    fn is_below(&self, key: &[u8]) -> bool {
        matches!(&self.rest, Bound::Excluded(moved) if key <= &moved[..])
    }

    /// Copies the next `bytes` or so into `table`; says what is left then, `None` where nothing
    /// is. Reads the disk.
    pub(crate) fn fill(&self, table: &MemTable, bytes: u64) -> Result<Option<Arc<Self>>> {
        let range = KeyRange { lower: self.rest.clone(), upper: Bound::Unbounded };
        let mut walk =
            SpillCursor::new(&self.spill, self.space, &range, Direction::Forward, self.clock);
        while let Some((key, message)) = walk.peek()? {
            table.insert(key, table.hash(key), self.ts, message);
            if table.weight() >= bytes {
                let rest = Self {
                    spill: Arc::clone(&self.spill),
                    rest: Bound::Excluded(key.to_vec()),
                    flushed_ts: Arc::clone(&self.flushed_ts),
                    ..*self
                };
                return Ok(Some(Arc::new(rest)));
            }
            walk.pass();
        }
        Ok(None)
    }
}

/// Walks an overlay in order, either way, as a source of merges.
pub(crate) struct OverlayIter {
    walk: SpillCursor,
    ts: u64,
}

impl OverlayIter {
    /// Entries at or behind `place`, ascending; or strictly before it, descending. All of them
    /// for `None`. Reads the disk.
    pub(crate) fn new(
        overlay: &Overlay,
        place: Option<Place<'_>>,
        direction: Direction,
    ) -> Result<Self> {
        let mut range = KeyRange::all();
        if let Some(place) = place {
            // One version per key: the place is on one side of it.
            let before_it = place.ts >= overlay.ts;
            match direction {
                Direction::Forward if before_it => range.lower = Bound::Included(place.key.into()),
                Direction::Forward => range.lower = Bound::Excluded(place.key.into()),
                Direction::Backward if before_it => range.upper = Bound::Excluded(place.key.into()),
                Direction::Backward => range.upper = Bound::Included(place.key.into()),
            }
        }
        let (spill, space) = (&overlay.spill, overlay.space);
        let mut walk = SpillCursor::new(spill, space, &range, direction, overlay.clock);
        walk.peek()?;
        Ok(Self { walk, ts: overlay.ts })
    }

    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let (key, message) = self.walk.standing()?;
        Some(Entry { key, ts: self.ts, message })
    }

    /// May read the disk.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.walk.pass();
        self.walk.peek()?;
        Ok(())
    }
}

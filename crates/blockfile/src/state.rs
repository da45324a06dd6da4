//! What a data file knows in memory: free space, the epoch, who waits for what.

use std::collections::VecDeque;

use os::sync::RwLock;

use crate::allocator::{Allocator, Extent};
use crate::chain::Chain;
use crate::checkpoint::CheckpointMark;
use crate::pins::Pins;
use crate::reserve::Reserve;
use crate::superblock::{RESERVED_UNITS, Superblock};
use crate::table::Table;
use crate::translation::SegmentId;

/// Ids skipped at each open, so that a segment written after the last checkpoint and lost in a
/// crash never shares its id, and so its pages' checksums, with a later one.
const ID_GAP: u64 = 1 << 24;

/// An extent nobody needs once `epoch` is behind every pin (and checkpoint).
struct Dropped {
    epoch: u64,
    segment: Option<SegmentId>,
    extent: Extent,
}

pub(crate) struct State {
    pub(crate) space: Allocator,
    /// Units the file is long.
    pub(crate) file_units: u64,
    next_id: u64,
    pub(crate) epoch: u64,
    /// Segments freed or moved.
    frees: u64,
    pub(crate) begun: CheckpointMark,
    pub(crate) completed_epoch: u64,
    pub(crate) generation: u64,
    /// The newest checkpoint's tables and roots.
    pub(crate) tables: Chain,
    pub(crate) roots: Chain,
    /// In no checkpoint that is or will be the newest: wait for pins only.
    dropped_new: VecDeque<Dropped>,
    /// In a checkpoint: wait for the next one too.
    dropped_old: VecDeque<Dropped>,
    pub(crate) dropped_units: u64,
    pub(crate) pins: Pins,
    pub(crate) reserve: Reserve,
}

impl State {
    pub(crate) fn new(superblock: &Superblock, file_units: u64, reserve: Reserve) -> Self {
        let next_id = superblock.next_segment.saturating_add(ID_GAP);
        Self {
            space: Allocator::new(RESERVED_UNITS),
            file_units,
            next_id,
            epoch: 0,
            frees: 0,
            begun: CheckpointMark { epoch: 0, next_id, frees: 0 },
            completed_epoch: 0,
            generation: superblock.generation,
            tables: Chain::default(),
            roots: Chain::default(),
            dropped_new: VecDeque::new(),
            dropped_old: VecDeque::new(),
            dropped_units: 0,
            pins: Pins::default(),
            reserve,
        }
    }

    pub(crate) fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(crate) fn begin_checkpoint(&mut self) -> CheckpointMark {
        self.begun = CheckpointMark { epoch: self.epoch, ..self.next_mark() };
        self.begun
    }

    /// What a mark now would be, without its epoch, which frees of other things move too.
    pub(crate) fn next_mark(&self) -> CheckpointMark {
        CheckpointMark { epoch: 0, next_id: self.next_id, frees: self.frees }
    }

    pub(crate) fn pin(&mut self) -> u64 {
        self.pins.add(self.epoch);
        self.epoch
    }

    /// Where the file would end without its holes and what will be holes soon, if they are a
    /// quarter of it.
    pub(crate) fn compact_end(&self) -> Option<u64> {
        let (end, holes) = (self.space.end(), self.space.free_units() + self.dropped_units);
        (holes > end / 4).then(|| end.saturating_sub(holes))
    }

    /// Queues an extent for reuse; `segment` is the table entry that goes with it, `None` for the
    /// old place of a moved segment (which a checkpoint may name).
    pub(crate) fn drop_extent(&mut self, segment: Option<SegmentId>, extent: Extent) {
        self.frees += 1;
        let dropped = self.dropped_now(segment, extent);
        let queues = [&self.dropped_new, &self.dropped_old];
        let newest = queues.iter().filter_map(|queue| queue.back()).map(|last| last.epoch).max();
        assert!(newest.is_none_or(|newest| newest < dropped.epoch), "epochs ascend");
        if segment.is_some_and(|id| id.0 >= self.begun.next_id) {
            self.dropped_new.push_back(dropped);
        } else {
            self.dropped_old.push_back(dropped);
        }
    }

    /// Queues an extent of the table or root that a completed checkpoint has replaced. A backup
    /// that has read the superblock before may still want it: it waits for pins.
    pub(crate) fn drop_blob(&mut self, extent: Extent) {
        let dropped = self.dropped_now(None, extent);
        self.dropped_new.push_back(dropped);
    }

    fn dropped_now(&mut self, segment: Option<SegmentId>, extent: Extent) -> Dropped {
        let dropped = Dropped { epoch: self.epoch, segment, extent };
        self.epoch += 1;
        self.dropped_units += extent.units;
        dropped
    }

    /// Frees the extents that no pin and no checkpoint can see any more. Epochs ascend in both
    /// queues, so only their fronts are looked at.
    pub(crate) fn reclaim(&mut self, table: &RwLock<Table>) {
        let pinned = self.pins.oldest();
        let unneeded = self.completed_epoch.min(pinned);
        let mut gone = Vec::new();
        while let Some(d) = self.dropped_new.pop_front_if(|d| d.epoch < pinned) {
            gone.push(d);
        }
        while let Some(d) = self.dropped_old.pop_front_if(|d| d.epoch < unneeded) {
            gone.push(d);
        }
        if gone.is_empty() {
            return;
        }
        let mut table = table.write();
        for Dropped { segment, extent, .. } in gone {
            if let Some(id) = segment {
                table.remove(id);
            }
            assert!(self.dropped_units >= extent.units, "what waits to be free was counted");
            self.dropped_units -= extent.units;
            self.space.give_back(extent);
        }
    }
}

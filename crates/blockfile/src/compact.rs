//! Giving space back: moving segments from the tail into holes, cutting the tail, punching holes.
//!
//! All of it is idle-time work, in steps the caller bounds.

use std::sync::atomic::Ordering;

use os::AlignedBuf;

use crate::UNIT;
use crate::allocator::Extent;
use crate::error::{Error, Result};
use crate::file::BlockFile;
use crate::inner::io_error;
use crate::table::Slot;
use crate::translation::SegmentId;

const COPY_BYTES: u64 = 1 << 20;
/// So many segments that fit into no hole end a call: smaller holes serve none of the next either.
const MISSES: u32 = 64;

impl BlockFile {
    /// Cuts the free tail off the file and punches free extents of 64 KiB and more, at most
    /// `max_punches`. Says how many bytes the filesystem got back. Touches the disk.
    pub fn shrink(&self, max_punches: usize) -> Result<u64> {
        self.0.check_running()?;
        self.0.lower_reserve();
        let mut returned = self.cut_tail()?;
        for _ in 0..max_punches {
            // while it is punched the extent counts as taken
            let Some(extent) = self.0.state.lock().space.take_unpunched() else {
                break;
            };
            let (offset, len) = (extent.unit * UNIT, extent.units * UNIT);
            let punched = self.0.file.punch_hole(offset, len);
            self.0.state.lock().space.give_back_punched(extent);
            punched.map_err(|e| io_error(&self.0.path, "punch", offset, e))?;
            returned += len;
        }
        Ok(returned)
    }

    fn cut_tail(&self) -> Result<u64> {
        let mut state = self.0.state.lock();
        let end = state.space.end();
        if end >= state.file_units {
            return Ok(0);
        }
        let cut = self.0.file.set_len(end * UNIT);
        cut.map_err(|e| io_error(&self.0.path, "truncate", end * UNIT, e))?;
        let returned = (state.file_units - end) * UNIT;
        state.file_units = end;
        Ok(returned)
    }

    /// Moves the segments nearest to the file's end into holes nearer to its start, at most
    /// `max_bytes`; says how many bytes moved. The old places become free after the next
    /// checkpoint. Touches the disk.
    pub fn compact(&self, max_bytes: u64) -> Result<u64> {
        let mut by_place = self.segments();
        by_place.sort_unstable_by_key(|info| std::cmp::Reverse(info.offset));
        let (mut moved, mut misses) = (0, 0);
        for info in by_place {
            if moved + info.bytes > max_bytes || misses == MISSES {
                break;
            }
            let units = info.bytes.div_ceil(UNIT);
            let from = info.offset / UNIT;
            let target = self.0.state.lock().space.take_free_below(units, from);
            let Some(target) = target else {
                misses += 1;
                continue;
            };
            let target = match self.0.allocate_backing(target, 0) {
                Err(Error::NoSpace { .. }) => break,
                backed => backed?,
            };
            if self.move_segment(info.id, Extent { unit: from, units }, target)? {
                moved += info.bytes;
            }
        }
        Ok(moved)
    }

    fn move_segment(&self, id: SegmentId, from: Extent, to: Extent) -> Result<bool> {
        // the pin keeps the old place unchanged while it is copied, even if the segment is freed
        let pin = self.pin();
        let still_there = |slot: &Slot| slot.is_live() && slot.entry.unit == from.unit;
        if !self.0.table.read().get(id).is_some_and(still_there) {
            self.0.give_back(to);
            return Ok(false);
        }
        if let Err(e) = self.copy_units(from.unit, to.unit, from.units) {
            self.0.give_back(to);
            return Err(e);
        }
        let mut state = self.0.state.lock();
        let mut table = self.0.table.write();
        let moved = table.relocate(id, from.unit, to.unit);
        if moved {
            self.0.moves.fetch_add(1, Ordering::Release);
            state.drop_extent(None, from);
        } else {
            state.space.give_back(to);
        }
        drop(table);
        drop(state);
        drop(pin);
        Ok(moved)
    }

    pub(crate) fn copy_units(&self, from: u64, to: u64, units: u64) -> Result<()> {
        let mut buf = AlignedBuf::new();
        let mut done = 0;
        while done < units {
            let step = (COPY_BYTES / UNIT).min(units - done);
            buf.resize((step * UNIT) as usize, 0);
            self.0.read_at((from + done) * UNIT, &mut buf)?;
            self.0.write_units(to + done, &buf)?;
            done += step;
        }
        Ok(())
    }
}

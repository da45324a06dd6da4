//! Space kept back for checkpoints: on a full disk one more completes, and gives back what it no
//! longer names.
//!
//! What is always true:
//! 1. A reserved extent is taken in the allocator, and the filesystem has space for it: writing
//!    there needs none.
//! 2. Only what a checkpoint writes (tables, roots, nodes) is put there, and only where there is
//!    no other place.
//! 3. It grows with what is written between checkpoints, and who writes finds the disk full before
//!    a checkpoint does.

use crate::allocator::Extent;
use crate::error::{Error, Result};
use crate::inner::Inner;
use std::sync::atomic::Ordering;

/// So much of the reserve may be missing before an ordinary write has to fill it up.
const SLACK_UNITS: u64 = 64;

#[derive(Default)]
pub(crate) struct Reserve {
    extents: Vec<Extent>,
    /// At least so much; 0 is no reserve at all.
    least: u64,
    /// One unit is kept back for so many written since the last checkpoint.
    one_in: u64,
    /// Twice what the last checkpoint took.
    usual: u64,
    /// Taken for checkpoints since the last one was complete, from anywhere.
    taken: u64,
    /// Taken for everything else since then: it changes nodes, which the next one has to store.
    ordinary: u64,
}

impl Reserve {
    pub(crate) fn new(least: u64, one_in: u64) -> Self {
        Self { least, one_in: one_in.max(1), ..Self::default() }
    }

    fn wanted(&self) -> u64 {
        match self.least {
            0 => 0,
            least => least.max(self.usual).max(self.ordinary / self.one_in),
        }
    }

    fn units(&self) -> u64 {
        self.extents.iter().map(|extent| extent.units).sum()
    }

    fn missing(&self) -> u64 {
        self.wanted().saturating_sub(self.units())
    }

    /// From the smallest extent that is large enough.
    fn take(&mut self, units: u64) -> Option<Extent> {
        let fits = self.extents.iter_mut().filter(|extent| extent.units >= units);
        let from = fits.min_by_key(|extent| extent.units)?;
        let taken = Extent { unit: from.unit, units };
        *from = Extent { unit: from.unit + units, units: from.units - units };
        self.extents.retain(|extent| extent.units > 0);
        Some(taken)
    }

    /// A checkpoint is complete; answers what need not be kept any more.
    pub(crate) fn completed(&mut self) -> Vec<Extent> {
        self.usual = self.taken * 2;
        (self.taken, self.ordinary) = (0, 0);
        let (wanted, mut kept) = (self.wanted(), 0);
        let (keep, unwanted) = std::mem::take(&mut self.extents).into_iter().partition(|extent| {
            let keeps = kept < wanted;
            kept += extent.units;
            keeps
        });
        self.extents = keep;
        unwanted
    }
}

impl Inner {
    /// As [`Inner::allocate`], for what a checkpoint writes.
    pub(crate) fn allocate_for_checkpoint(&self, units: u64) -> Result<Extent> {
        let low = {
            let mut state = self.state.lock();
            let end = state.compact_end();
            end.and_then(|end| state.space.take_free_below(units, end))
        };
        let keep_free = self.keep_free.load(Ordering::Relaxed);
        let low = low.and_then(|hole| self.allocate_backing(hole, keep_free).ok());
        let found = match low.map_or_else(|| self.allocate(units), Ok) {
            Err(Error::NoSpace { .. }) => {
                let kept = self.state.lock().reserve.take(units);
                kept.map_or_else(|| self.allocate_leaving_free(units, 0), Ok)?
            }
            other => other?,
        };
        self.state.lock().reserve.taken += units;
        Ok(found)
    }

    /// As [`Inner::allocate`], for everything else: it never leaves a checkpoint without room.
    pub(crate) fn allocate_ordinary(&self, units: u64) -> Result<Extent> {
        if self.state.lock().reserve.missing() > SLACK_UNITS {
            self.fill_reserve();
            if self.state.lock().reserve.missing() > SLACK_UNITS {
                return Err(self.no_space(units));
            }
        }
        let found = self.allocate(units)?;
        self.state.lock().reserve.ordinary += units;
        Ok(found)
    }

    /// Takes what is missing, as far as there is room. May touch the disk.
    pub(crate) fn fill_reserve(&self) {
        loop {
            let missing = self.state.lock().reserve.missing();
            if missing == 0 {
                return;
            }
            let found = self.allocate(missing).ok();
            let keep_free = self.keep_free.load(Ordering::Relaxed);
            let longest = || {
                let hole = self.state.lock().space.take_longest()?;
                self.allocate_backing(hole, keep_free).ok()
            };
            // A failure that is none of space the next write will name.
            let Some(extent) = found.or_else(longest) else { return };
            let kept = Extent { units: extent.units.min(missing), ..extent };
            let rest = Extent { unit: kept.unit + kept.units, units: extent.units - kept.units };
            let mut state = self.state.lock();
            if rest.units > 0 {
                state.space.give_back(rest);
            }
            state.reserve.extents.push(kept);
        }
    }

    /// Moves the reserve to a hole nearer to the file's start, so that it does not keep the file
    /// long. Touches the disk.
    pub(crate) fn lower_reserve(&self) {
        let lower = {
            let mut state = self.state.lock();
            let units = state.reserve.units();
            let last = state.reserve.extents.iter().map(|extent| extent.unit).max();
            let Some(last) = last else { return };
            state.space.take_free_below(units, last)
        };
        // What it takes the old place gives back.
        let Some(Ok(lower)) = lower.map(|hole| self.allocate_backing(hole, 0)) else { return };
        let mut state = self.state.lock();
        // A checkpoint may have taken some meanwhile: then there is a little more than before.
        for old in std::mem::replace(&mut state.reserve.extents, vec![lower]) {
            state.space.give_back(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_extent_that_fits_serves() {
        let mut reserve = Reserve::new(10, 4);
        assert_eq!((reserve.missing(), reserve.take(1)), (10, None));
        reserve.extents = vec![Extent { unit: 100, units: 8 }, Extent { unit: 50, units: 3 }];
        assert_eq!(reserve.take(2), Some(Extent { unit: 50, units: 2 }));
        assert_eq!(reserve.take(4), Some(Extent { unit: 100, units: 4 }));
        assert_eq!(reserve.take(1), Some(Extent { unit: 52, units: 1 }));
        assert_eq!((reserve.units(), reserve.take(5)), (4, None));
        assert_eq!(reserve.missing(), 6);
    }

    #[test]
    fn reserve_grows_with_what_is_written_and_shrinks_after_a_checkpoint() {
        let mut reserve = Reserve::new(10, 4);
        reserve.ordinary = 100;
        assert_eq!(reserve.missing(), 25);
        reserve.extents =
            [(100, 12), (200, 9), (300, 4)].map(|(unit, units)| Extent { unit, units }).to_vec();
        assert_eq!(reserve.missing(), 0);
        reserve.taken = 8;
        assert_eq!(reserve.completed(), [Extent { unit: 300, units: 4 }], "16 are enough");
        assert_eq!((reserve.missing(), reserve.units()), (0, 21));
        assert_eq!(reserve.completed(), [Extent { unit: 200, units: 9 }]);
        let mut none = Reserve::new(0, 4);
        none.ordinary = 100;
        assert_eq!(none.missing(), 0);
    }
}

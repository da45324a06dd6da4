//! Which units of the file are free: best fit by length, lowest offset first.
//!
//! What is always true:
//! 1. Free extents are disjoint and never touch each other (neighbours are merged).
//! 2. Nothing at or past `end` is in the free lists; everything there is free.
//! 3. The sum of free extents is `free_units`; of those that may be punched, `unpunched_units`.

use std::collections::{BTreeMap, BTreeSet};

/// A range of 4 KiB units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// First unit.
    pub unit: u64,
    /// Number of units.
    pub units: u64,
}

impl Extent {
    /// One past the last unit; `None` past the end of numbers.
    pub fn end(&self) -> Option<u64> {
        self.unit.checked_add(self.units)
    }
}

/// Whether a hole has space of the filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// All of it: writing there needs no more.
    Allocated,
    /// None: it was punched.
    Punched,
    /// Parts of it, or nobody knows. Whoever writes there may find the disk full, unless it is
    /// allocated first.
    Unknown,
}

impl Backing {
    fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }
}

#[derive(Clone, Copy)]
struct Free {
    units: u64,
    backing: Backing,
}

/// A hole that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) extent: Extent,
    pub(crate) backing: Backing,
}

/// The free space of one file.
pub(crate) struct Allocator {
    by_offset: BTreeMap<u64, Free>,
    by_size: BTreeSet<(u64, u64)>,
    end: u64,
    free_units: u64,
    unpunched_units: u64,
}

/// Shorter holes are not worth a punch: they will be used again soon.
const MIN_PUNCH_UNITS: u64 = 16;

impl Free {
    fn worth_a_punch(&self) -> u64 {
        let punched = self.backing == Backing::Punched;
        if punched || self.units < MIN_PUNCH_UNITS { 0 } else { self.units }
    }
}

impl Allocator {
    /// A file of which the units below `reserved` are taken.
    pub(crate) fn new(reserved: u64) -> Self {
        let (by_offset, by_size) = (BTreeMap::new(), BTreeSet::new());
        Self { by_offset, by_size, end: reserved, free_units: 0, unpunched_units: 0 }
    }

    /// The allocator of a file in which exactly these extents are taken.
    pub(crate) fn from_used(
        reserved: u64,
        limit: u64,
        mut used: Vec<Extent>,
    ) -> Result<Self, &'static str> {
        used.sort_unstable();
        let mut space = Self::new(reserved);
        for extent in used {
            if extent.unit < space.end {
                return Err("extents overlap");
            }
            let end = extent.end().filter(|end| *end <= limit);
            let end = end.ok_or("extent lies outside the file")?;
            let gap = Extent { unit: space.end, units: extent.unit - space.end };
            space.end = end;
            if gap.units != 0 {
                // The file of a process that was killed may have been punched there.
                space.insert(gap, Backing::Unknown);
            }
        }
        Ok(space)
    }

    /// One past the last taken unit.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn free_units(&self) -> u64 {
        self.free_units
    }

    /// What is taken, reserved units included, in order.
    pub(crate) fn taken(&self) -> Vec<Extent> {
        let mut taken = Vec::with_capacity(self.by_offset.len() + 1);
        let mut unit = 0;
        for (start, free) in &self.by_offset {
            taken.push(Extent { unit, units: start - unit });
            unit = start + free.units;
        }
        taken.push(Extent { unit, units: self.end - unit });
        taken.retain(|extent| extent.units > 0);
        taken
    }

    /// Free extents that still have space on disk and are long enough to give it back.
    pub(crate) fn unpunched_units(&self) -> u64 {
        self.unpunched_units
    }

    /// The longest free extent, where there is any.
    pub(crate) fn take_longest(&mut self) -> Option<Hole> {
        let (units, unit) = *self.by_size.last()?;
        Some(self.take_from(unit, units))
    }

    /// The best extent inside the file, or `None` where only the end of the file can serve.
    pub(crate) fn take_free(&mut self, units: u64) -> Option<Hole> {
        let (_, unit) = *self.by_size.range((units, 0)..).next()?;
        Some(self.take_from(unit, units))
    }

    /// As [`Allocator::take_free`], only below a unit: for moving segments towards the start.
    pub(crate) fn take_free_below(&mut self, units: u64, limit: u64) -> Option<Hole> {
        let fits = |(unit, free): (&u64, &Free)| (free.units >= units).then_some(*unit);
        let unit = self.by_offset.range(..limit).find_map(fits)?;
        Some(self.take_from(unit, units))
    }

    fn take_from(&mut self, unit: u64, units: u64) -> Hole {
        let Free { units: size, backing } = self.remove(unit);
        assert!(size >= units, "a hole is at least as long as what is taken from it");
        if size > units {
            self.insert(Extent { unit: unit + units, units: size - units }, backing);
        }
        Hole { extent: Extent { unit, units }, backing }
    }

    /// Gives a hole back as it was.
    pub(crate) fn give_hole_back(&mut self, hole: Hole) {
        self.give_back_as(hole.extent, hole.backing);
    }

    /// Takes units past the end; the caller has made sure that the file reaches there.
    pub(crate) fn take_end(&mut self, units: u64) -> Extent {
        let extent = Extent { unit: self.end, units };
        self.end += units;
        extent
    }

    /// Gives an extent back.
    pub(crate) fn give_back(&mut self, extent: Extent) {
        self.give_back_as(extent, Backing::Allocated);
    }

    fn give_back_as(&mut self, extent: Extent, mut backing: Backing) {
        let Extent { mut unit, mut units } = extent;
        let end = unit + units;
        assert!(units != 0 && end <= self.end, "an extent given back was taken before");
        if let Some((&left, free)) = self.by_offset.range(..end).next_back() {
            assert!(left + free.units <= unit, "an extent is given back once");
            if left + free.units == unit {
                let free = self.remove(left);
                backing = backing.and(free.backing);
                unit = left;
                units += free.units;
            }
        }
        if self.by_offset.contains_key(&end) {
            let free = self.remove(end);
            backing = backing.and(free.backing);
            units += free.units;
        }
        if unit + units == self.end {
            self.end = unit;
        } else {
            self.insert(Extent { unit, units }, backing);
        }
    }

    /// Takes one free extent that still has space on disk, so that the caller can punch it
    /// without a lock and then call [`Allocator::give_back_punched`].
    pub(crate) fn take_unpunched(&mut self) -> Option<Extent> {
        if self.unpunched_units == 0 {
            return None;
        }
        let wanted = |(_, free): &(&u64, &Free)| free.worth_a_punch() > 0;
        let (&unit, _) = self.by_offset.iter().find(wanted)?;
        let units = self.remove(unit).units;
        Some(Extent { unit, units })
    }

    pub(crate) fn give_back_punched(&mut self, extent: Extent) {
        self.give_back_as(extent, Backing::Punched);
    }

    fn insert(&mut self, extent: Extent, backing: Backing) {
        let inside = extent.units > 0 && extent.end().is_some_and(|end| end <= self.end);
        assert!(inside, "free space lies before the end of what is taken");
        let free = Free { units: extent.units, backing };
        self.unpunched_units += free.worth_a_punch();
        self.by_offset.insert(extent.unit, free);
        self.by_size.insert((extent.units, extent.unit));
        self.free_units += extent.units;
    }

    fn remove(&mut self, unit: u64) -> Free {
        let free = self.by_offset.remove(&unit).expect("both indexes hold the same extents");
        let known = self.by_size.remove(&(free.units, unit));
        assert!(known, "both indexes hold the same extents");
        assert!(self.free_units >= free.units, "free units are the sum of the free extents");
        self.free_units -= free.units;
        self.unpunched_units -= free.worth_a_punch();
        free
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take(space: &mut Allocator, units: u64) -> Extent {
        space.take_free(units).map_or_else(|| space.take_end(units), |hole| hole.extent)
    }

    #[test]
    fn smallest_hole_that_fits_is_taken() {
        let mut space = Allocator::new(0);
        let taken: Vec<_> = [5, 1, 3, 1, 4, 1].map(|n| take(&mut space, n)).to_vec();
        for i in [0, 2, 4] {
            space.give_back(taken[i]);
        }
        assert_eq!(space.free_units(), 12);
        assert_eq!(take(&mut space, 3), taken[2]);
        assert_eq!(take(&mut space, 4), taken[4]);
        assert_eq!(take(&mut space, 2), Extent { unit: 0, units: 2 });
        assert_eq!(take(&mut space, 4).unit, 15);
    }

    #[test]
    fn neighbours_merge_and_the_tail_is_cut() {
        let mut space = Allocator::new(2);
        let taken: Vec<_> = (0..4).map(|_| take(&mut space, 2)).collect();
        space.give_back(taken[0]);
        space.give_back(taken[2]);
        space.give_back(taken[1]);
        assert_eq!(take(&mut space, 6), Extent { unit: 2, units: 6 });
        space.give_back(Extent { unit: 2, units: 6 });
        space.give_back(taken[3]);
        assert_eq!((space.end(), space.free_units()), (2, 0));
    }

    #[test]
    fn punched_extents_are_not_punched_again_until_used() {
        let mut space = Allocator::new(0);
        let first = take(&mut space, 18);
        let _guard = take(&mut space, 1);
        space.give_back(first);
        assert_eq!(space.unpunched_units(), 18);
        let punch = space.take_unpunched().unwrap();
        space.give_back_punched(punch);
        assert_eq!((space.take_unpunched(), space.unpunched_units()), (None, 0));
        let again = space.take_free(3).unwrap();
        assert_eq!((again.extent.unit, again.backing), (0, Backing::Punched));
        space.give_back(again.extent);
        let whole = space.take_free(18).unwrap();
        assert_eq!(whole.backing, Backing::Unknown, "the first three have space");
        space.give_hole_back(whole);
        assert_eq!(space.take_unpunched(), Some(Extent { unit: 0, units: 18 }));
    }

    #[test]
    fn overlapping_or_outside_extents_are_refused() {
        let at = |unit, units| Extent { unit, units };
        assert!(Allocator::from_used(2, 100, vec![at(2, 3), at(4, 1)]).is_err());
        assert!(Allocator::from_used(2, 100, vec![at(1, 1)]).is_err());
        assert!(Allocator::from_used(2, 100, vec![at(99, 2)]).is_err());
        assert!(Allocator::from_used(2, 100, vec![at(u64::MAX, 2)]).is_err());
        let space = Allocator::from_used(2, 100, vec![at(9, 1), at(3, 2)]).unwrap();
        assert_eq!((space.end(), space.free_units()), (10, 5));
    }

    proptest! {
        #[test]
        fn nothing_is_handed_out_twice(steps in prop::collection::vec((any::<bool>(), 1_u64..9), 1..200)) {
            let mut space = Allocator::new(2);
            let mut held: Vec<Extent> = Vec::new();
            for (give, n) in steps {
                if give && !held.is_empty() {
                    let extent = held.swap_remove(n as usize % held.len());
                    space.give_back(extent);
                } else {
                    held.push(take(&mut space, n));
                }
                let mut sorted = held.clone();
                sorted.sort_unstable();
                for pair in sorted.windows(2) {
                    prop_assert!(pair[0].unit + pair[0].units <= pair[1].unit);
                }
                let used: u64 = held.iter().map(|e| e.units).sum();
                prop_assert_eq!(2 + used + space.free_units(), space.end());
                let told: u64 = space.taken().iter().map(|extent| extent.units).sum();
                prop_assert_eq!(2 + used, told);
                let rebuilt = Allocator::from_used(2, space.end(), held.clone()).unwrap();
                prop_assert_eq!(&rebuilt.by_size, &space.by_size);
            }
        }
    }
}

//! The parts of the log that are void: their records count for nothing, for recovery as for readers.
//!
//! Always true: ranges do not meet, and ascend; there are as many as tails were overwritten while the log
//! that is kept was written.

/// Ranges of positions.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Voids(Vec<(u64, u64)>);

impl Voids {
    pub(crate) fn of(ranges: Vec<(u64, u64)>) -> Self {
        Self(ranges)
    }

    /// A cut at the end of `to` makes void what stands from `from` on.
    pub(crate) fn add(&mut self, mut from: u64, to: u64) {
        while let Some((before, behind)) = self.0.last().copied()
            && behind > from
        {
            from = from.min(before);
            self.0.pop();
        }
        if from < to {
            self.0.push((from, to));
        }
    }

    /// Whether the record at a position counts for nothing.
    pub(crate) fn has(&self, position: u64) -> bool {
        let behind = self.0.partition_point(|(from, _)| *from <= position);
        let range = behind.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|(_, to)| position < *to)
    }

    /// The log begins at `position` now.
    pub(crate) fn trim(&mut self, position: u64) {
        self.0.retain(|(_, to)| *to > position);
    }

    pub(crate) fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_swallow_those_before_them() {
        let mut voids = Voids::default();
        voids.add(10, 20);
        voids.add(30, 40);
        voids.add(50, 50);
        assert_eq!(voids.ranges(), [(10, 20), (30, 40)]);
        let of = |voids: &Voids| [9, 10, 19, 20, 29, 30, 40].map(|at| voids.has(at));
        assert_eq!(of(&voids), [false, true, true, false, false, true, false]);
        // What came behind the first cut is overwritten from further back.
        voids.add(25, 60);
        assert_eq!(voids.ranges(), [(10, 20), (25, 60)]);
        voids.add(5, 70);
        assert_eq!(voids.ranges(), [(5, 70)]);
        voids.trim(70);
        assert_eq!(voids, Voids::default());
    }
}

//! Where in the log commits of a time are: sparse points in memory.
//!
//! Always true: times and positions ascend together; every commit with a time above a point's is at or
//! behind its position. There are at most [`MOST_POINTS`]: where more come, every second one goes, and
//! they stand further apart from then on. What is before the first point is looked up in the log.

use std::collections::{BTreeMap, VecDeque};

/// Bytes of log between two points at first.
const SPACING: u64 = 64 << 10;
/// 2 MiB of memory.
const MOST_POINTS: usize = 1 << 17;
/// The memory of one point.
const POINT_BYTES: usize = size_of::<Point>();
/// About the memory of one large commit.
const LARGE_BYTES: usize = 32;

/// Commits later than `time` are at or behind `position`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) time: u64,
    pub(crate) position: u64,
}

/// The points of one log.
pub(crate) struct Points {
    list: VecDeque<Point>,
    most: usize,
    spacing: u64,
    /// Commits with chunks: position of the record → position of the first chunk.
    large: BTreeMap<u64, u64>,
}

impl Default for Points {
    fn default() -> Self {
        Self::with(MOST_POINTS, SPACING)
    }
}

impl Points {
    fn with(most: usize, spacing: u64) -> Self {
        Self { list: VecDeque::new(), most, spacing, large: BTreeMap::new() }
    }

    /// The commit whose first time is `first` is at `position`. Says from which position on it wants to
    /// know of the next one.
    pub(crate) fn commit(&mut self, first: u64, position: u64) -> u64 {
        let last = self.list.back().map(|last| last.position);
        if last.is_some_and(|last| position.saturating_sub(last) < self.spacing) {
            return last.unwrap_or(0).saturating_add(self.spacing);
        }
        let point = Point { time: first.saturating_sub(1), position };
        let ascends = |last: &Point| last.time < point.time && last.position < point.position;
        debug_assert!(self.list.back().is_none_or(ascends), "commits come in their order");
        self.list.push_back(point);
        if self.list.len() > self.most {
            let mut at = 0;
            self.list.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.spacing = self.spacing.saturating_mul(2);
        }
        position.saturating_add(self.spacing)
    }

    /// The commit at `position` has chunks, from `first_chunk` on.
    pub(crate) fn large(&mut self, position: u64, first_chunk: u64) {
        self.large.insert(position, first_chunk);
    }

    /// The last point whose later commits include all that are later than `time`.
    pub(crate) fn before(&self, time: u64) -> Option<Point> {
        let later = self.list.partition_point(|point| point.time <= time);
        later.checked_sub(1).and_then(|at| self.list.get(at)).copied()
    }

    /// The first point, behind which nothing has to be looked up.
    pub(crate) fn first(&self) -> Option<Point> {
        self.list.front().copied()
    }

    /// The last point before `position`: the commit at it has at least its time.
    pub(crate) fn last_before(&self, position: u64) -> Option<Point> {
        let behind = self.list.partition_point(|point| point.position < position);
        behind.checked_sub(1).and_then(|at| self.list.get(at)).copied()
    }

    /// Where the last commit is that loses chunks where the log begins at `position`; `position` where none does. It
    /// is the history's beginning then: nothing up to it can be read as a whole.
    pub(crate) fn lost_until(&self, position: u64) -> u64 {
        let behind = self.large.range(position..).rev();
        let mut cut = behind.filter(|(_, first_chunk)| **first_chunk < position);
        cut.next().map_or(position, |(commit, _)| *commit)
    }

    /// Commits from this position on are void.
    pub(crate) fn forget_from(&mut self, position: u64) {
        let stay = self.list.partition_point(|point| point.position < position);
        self.list.truncate(stay);
        drop(self.large.split_off(&position));
    }

    /// The log begins at `position` now.
    pub(crate) fn forget(&mut self, position: u64) {
        let gone = self.list.partition_point(|point| point.position < position);
        self.list.drain(..gone);
        self.large = self.large.split_off(&position);
        let first = self.list.front().map_or(position, |first| first.position);
        debug_assert!(position <= first, "no point is where the log is not");
    }

    /// Bytes of memory, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.list.capacity() * POINT_BYTES + self.large.len() * LARGE_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_found_at_or_before_its_commit() {
        let mut points = Points::with(100, 10);
        for n in 1..=20_u64 {
            points.commit(n * 100, n * 4);
        }
        for asked in [99, 100, 150, 777, 2000] {
            let point = points.before(asked).unwrap();
            let next = (1..=20).find(|n| n * 100 > asked).map_or(u64::MAX, |n| n * 4);
            assert!(point.time <= asked && point.position <= next, "{asked}: {point:?}");
        }
        assert_eq!(points.before(98), None);
        assert_eq!(points.last_before(4), None);
        assert_eq!(points.last_before(5), Some(Point { time: 99, position: 4 }));
    }

    #[test]
    fn memory_is_bounded_and_points_stand_apart() {
        let mut points = Points::with(8, 1);
        let mut wanted = 0;
        for n in 1..=1000_u64 {
            if n >= wanted {
                wanted = points.commit(n * 10, n);
            }
        }
        assert!(points.list.len() <= 8 && points.list.len() >= 4, "{:?}", points.list);
        assert!(points.list.iter().is_sorted_by_key(|point| (point.time, point.position)));
        assert_eq!(points.first(), Some(Point { time: 9, position: 1 }), "the first one stays");
    }

    #[test]
    fn history_begins_behind_the_last_commit_that_is_cut() {
        let mut points = Points::default();
        points.large(100, 40);
        points.large(60, 20);
        for (position, lost) in
            [(10, 10), (20, 20), (21, 60), (40, 60), (41, 100), (61, 100), (101, 101)]
        {
            assert_eq!(points.lost_until(position), lost, "{position}");
        }
        points.forget(61);
        assert_eq!(points.lost_until(21), 21);
    }
}

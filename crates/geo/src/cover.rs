//! Covering a region with few quadrants of quadrants.
//!
//! Always true: the cells that come out hold the whole region, and none of them holds another.

use std::collections::VecDeque;

/// A square that falls into four.
pub(crate) trait Quadrant: Copy {
    /// How often a root was parted to get to it.
    fn level(self) -> u32;
    /// Its four parts.
    fn parts(self) -> [Self; 4];
}

/// What a region has to do with a cell.
pub(crate) enum Cut<P> {
    Outside,
    /// The whole cell belongs to the region.
    Inside,
    /// Some of it may; this is all of the region that matters to the cell.
    Border(P),
}

/// Something to be covered.
pub(crate) trait Coverable {
    type Cell: Quadrant;
    /// What of the region matters to a cell.
    type Part;

    /// Looks at a cell, given what matters to the one around it. May err on the side of `Border`.
    fn cut(&self, cell: Self::Cell, around: &Self::Part) -> Cut<Self::Part>;
}

/// At most about `max_cells` cells, none smaller than those of `max_level`.
pub(crate) fn cover<R: Coverable>(
    region: &R,
    roots: &[R::Cell],
    whole: &R::Part,
    max_cells: usize,
    max_level: u32,
) -> Vec<R::Cell> {
    let mut done = Vec::new();
    let mut open = VecDeque::new();
    for root in roots {
        match region.cut(*root, whole) {
            Cut::Outside => {}
            Cut::Inside => done.push(*root),
            Cut::Border(part) => open.push_back((*root, part)),
        }
    }
    // First come, first parted: the largest cells are parted first.
    while let Some((cell, part)) = open.pop_front() {
        if cell.level() >= max_level {
            done.push(cell);
            continue;
        }
        let (mut inside, mut border) = (Vec::new(), Vec::new());
        for quarter in cell.parts() {
            match region.cut(quarter, &part) {
                Cut::Outside => {}
                Cut::Inside => inside.push(quarter),
                Cut::Border(part) => border.push((quarter, part)),
            }
        }
        let parts = inside.len() + border.len();
        if parts > 1 && done.len() + open.len() + parts > max_cells {
            done.push(cell);
            continue;
        }
        done.append(&mut inside);
        open.extend(border);
    }
    done
}

/// Closed ranges in order, those that meet or follow each other joined.
pub(crate) fn joined(mut ranges: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    ranges.sort_unstable();
    let mut out: Vec<(i64, i64)> = Vec::with_capacity(ranges.len());
    for (low, high) in ranges {
        match out.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => out.push((low, high)),
        }
    }
    out
}

/// Two numbers bit by bit, the first one's the more significant.
pub(crate) fn interleaved(first: u32, second: u32) -> u64 {
    fn spread(value: u32) -> u64 {
        let mut bits = u64::from(value);
        bits = (bits | bits << 16) & 0x0000_FFFF_0000_FFFF;
        bits = (bits | bits << 8) & 0x00FF_00FF_00FF_00FF;
        bits = (bits | bits << 4) & 0x0F0F_0F0F_0F0F_0F0F;
        bits = (bits | bits << 2) & 0x3333_3333_3333_3333;
        (bits | bits << 1) & 0x5555_5555_5555_5555
    }
    spread(first) << 1 | spread(second)
}

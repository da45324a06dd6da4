//! Ranges of keys in one dictionary, for serializable operations and for escalation.

use std::ops::{Bound, RangeBounds};

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it starts in key order.
    pub lower: Bound<Vec<u8>>,
    /// Where it ends in key order.
    pub upper: Bound<Vec<u8>>,
}

impl Range {
    /// The whole dictionary.
    pub fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Whether `key` lies inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        let bounds = (slice(&self.lower), slice(&self.upper));
        RangeBounds::<[u8]>::contains(&bounds, key)
    }

    /// Whether every key of `other` lies inside. Misses where two bounds of different kinds mean the
    /// same keys, which costs a lock and nothing else.
    pub fn covers(&self, other: &Self) -> bool {
        let below = match (&self.lower, &other.lower) {
            (Bound::Unbounded, _) => true,
            (_, Bound::Unbounded) => false,
            (Bound::Included(own), Bound::Included(low) | Bound::Excluded(low))
            | (Bound::Excluded(own), Bound::Excluded(low)) => own <= low,
            (Bound::Excluded(own), Bound::Included(low)) => own < low,
        };
        let above = match (&self.upper, &other.upper) {
            (Bound::Unbounded, _) => true,
            (_, Bound::Unbounded) => false,
            (Bound::Included(own), Bound::Included(high) | Bound::Excluded(high))
            | (Bound::Excluded(own), Bound::Excluded(high)) => own >= high,
            (Bound::Excluded(own), Bound::Included(high)) => own > high,
        };
        below && above
    }

    /// Whether some key could lie in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        reaches(&self.lower, &other.upper) && reaches(&other.lower, &self.upper)
    }
}

/// Where a search begins and where it ends.
type Ends<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

impl Range {
    /// Whether a key is not before it.
    pub(crate) fn starts_by(&self, key: &[u8]) -> bool {
        RangeBounds::<[u8]>::contains(&(slice(&self.lower), Bound::Unbounded), key)
    }

    /// Its ends, for a search in order; `None` where no key lies between them.
    pub(crate) fn bounds(&self) -> Option<Ends<'_>> {
        reaches(&self.lower, &self.upper).then(|| (slice(&self.lower), slice(&self.upper)))
    }

    /// Bytes of its ends.
    pub(crate) fn bytes(&self) -> usize {
        let end = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        end(&self.lower) + end(&self.upper)
    }
}

fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// Whether a range that starts at `lower` can have a key in common with one that ends at `upper`.
fn reaches(lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Included(low), Bound::Included(high)) => low <= high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low < high,
    }
}

//! Which partitions a scan reads.
//!
//! The records of a partitioned collection are read partition by partition, which is their order; an index
//! is merged over the partitions that can hold documents of the query.
//!
//! Always true: what is left out holds nothing that the scan's bounds let through. Without partitions the
//! one place is 0.

use super::ixscan::ranges;
use super::ranges::Ranges;
use crate::plan::{IndexScan, KeyLimits};
use catalog::Collection;
use engine::KeyRange;
use errors::Result;
use keystring::Direction;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::Range;

/// Ranges that are looked at: where there are more, every partition is taken to be met.
const MAX_RANGES: usize = 4096;

/// Whether a scan reads the records themselves.
fn reads_records(scan: &IndexScan) -> bool {
    scan.index.as_ref().is_none_or(|index| index.is_primary())
}

/// The places to be read one after another for one range of a scan: one, where an index is merged.
pub(super) fn stores_of(
    collection: &Collection,
    scan: &IndexScan,
    range: &KeyRange,
) -> Range<usize> {
    if reads_records(scan) { collection.stores_in(range) } else { 0..1 }
}

/// The places over which an index is merged.
pub(super) fn merged(collection: &Collection, scan: &IndexScan) -> Result<SmallVec<[usize; 1]>> {
    if !collection.is_partitioned() || reads_records(scan) {
        return Ok(SmallVec::from_slice(&[0]));
    }
    Ok(scanned(collection, scan)?.into_iter().collect())
}

/// The places that a scan reads.
pub(super) fn scanned(collection: &Collection, scan: &IndexScan) -> Result<Vec<usize>> {
    let all = || (0..collection.partitions().len().max(1)).collect();
    if !collection.is_partitioned() {
        return Ok(all());
    }
    let mut met = if reads_records(scan) {
        ranges(collection, scan)?
    } else if scan.record_bounds.is_empty() {
        return Ok(all());
    } else {
        let ascending = [Direction::Ascending];
        let primary = collection.primary_index();
        let directions = primary.map_or(&ascending[..], |index| index.keys().directions());
        let none: KeyLimits = (None, None);
        Ranges::new(&scan.record_bounds, directions, false, none, collection.collation())?
    };
    let mut places = BTreeSet::new();
    for _ in 0..MAX_RANGES {
        let Some(range) = met.next() else { return Ok(places.into_iter().collect()) };
        places.extend(collection.stores_in(&range));
        if places.len() == collection.partitions().len() {
            break;
        }
    }
    Ok(all())
}

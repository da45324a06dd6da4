//! What the server does to partitions by itself: it ends them by time or size, and drops the old ones.
//!
//! Always true: a partition is dropped for its age only where its end is a date, so long ago that every date
//! up to it is too old.

use crate::catalog::Catalog;
use crate::data::metadata_lock::Check;
use crate::ddl::partitions::PartitionSelector;
use crate::failure::from_engine;
use crate::metadata::collection::Collection;
use crate::metadata::options::PartitionEvery;
use crate::metadata::partitions::start_of;
use bson::raw::{RawBsonRef, RawDocument};
use engine::{Direction, KeyRange};
use errors::{Code, Error, Result};
use std::sync::Arc;

/// The end of the period of a date, in milliseconds since 1970: the next multiple of the period behind it.
fn end_of_period(date_ms: i64, seconds: i64) -> i64 {
    let period = seconds.saturating_mul(1000).max(1);
    date_ms.div_euclid(period).saturating_add(1).saturating_mul(period)
}

/// Which of the partitions with these ends have nothing younger than so many seconds.
fn expired(ends_ms: &[Option<i64>], now_ms: i64, seconds: i64) -> Vec<bool> {
    let limit = now_ms.saturating_sub(seconds.saturating_mul(1000));
    ends_ms.iter().map(|end| end.is_some_and(|end| end <= limit)).collect()
}

/// The date that a key begins with.
fn first_date(key: &RawDocument) -> Option<i64> {
    match key.iter().next() {
        Some(Ok((_, RawBsonRef::DateTime(date)))) => Some(date.timestamp_millis()),
        _ => None,
    }
}

impl Catalog {
    /// Ends the last partition of a collection where that is due, and drops those that are too old; says how
    /// many documents went with them. May read the disk.
    pub fn tend_partitions(&self, collection: &Arc<Collection>, check: Check<'_>) -> Result<u64> {
        if !collection.is_partitioned() {
            return Ok(0);
        }
        if let Some(every) = collection.options.partition_every {
            self.end_where_due(collection, every, check)?;
        }
        match collection.options.expire_after_seconds {
            Some(seconds) => self.drop_expired(collection, seconds, check),
            None => Ok(0),
        }
    }

    fn end_where_due(
        &self,
        collection: &Arc<Collection>,
        every: PartitionEvery,
        check: Check<'_>,
    ) -> Result<()> {
        let namespace = &collection.namespace;
        let Some(last) = collection.stores().last() else { return Ok(()) };
        let added = match every {
            PartitionEvery::Bytes(bytes) if last.data_size() < bytes || last.count() == 0 => {
                return Ok(());
            }
            PartitionEvery::Bytes(_) => self.add_partition(namespace, None, check),
            PartitionEvery::Seconds(seconds) => {
                let Some(date) = self.last_date(last)? else { return Ok(()) };
                let end = bson::DateTime::from_millis(end_of_period(date, seconds));
                let new_max = start_of(&collection.options, RawBsonRef::DateTime(end))?;
                self.add_partition(namespace, Some(&new_max), check)
            }
        };
        match added {
            // Somebody else was faster: with an end, or with a document behind this one.
            Err(error) if matches!(error.code().0, 17248..=17250) => Ok(()),
            Err(error) if error.code() == Code::NAMESPACE_NOT_FOUND => Ok(()),
            added => added,
        }
    }

    /// The date of the last document of a partition, where its key begins with one.
    fn last_date(&self, store: &Collection) -> Result<Option<i64>> {
        let snapshot = self.snapshot();
        if !snapshot.has_dictionary(store.primary) {
            return Ok(None);
        }
        let cursor = snapshot.cursor(store.primary, KeyRange::all(), Direction::Backward);
        let mut cursor = cursor.map_err(from_engine)?;
        let Some((_, document)) = cursor.next().map_err(from_engine)? else { return Ok(None) };
        let document = RawDocument::from_bytes(document)?;
        let key = crate::metadata::partitions::key_of_document(&store.options, document)?;
        Ok(first_date(&key))
    }

    fn drop_expired(
        &self,
        collection: &Arc<Collection>,
        seconds: i64,
        check: Check<'_>,
    ) -> Result<u64> {
        let ends: Vec<Option<i64>> = collection
            .partitions()
            .iter()
            .map(|partition| partition.max.as_deref().and_then(first_date))
            .collect();
        let is_expired = expired(&ends, self.os().clock.wall_ms(), seconds);
        let mut gone = 0;
        for (partition, _) in collection.partitions().iter().zip(is_expired).filter(|one| one.1) {
            let documents = partition.shared.counts.documents();
            let selector = PartitionSelector::Id(partition.id);
            match self.drop_partitions(&collection.namespace, selector, check) {
                Ok(dropped) => gone += documents * dropped as u64,
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }
}

/// Whether somebody else has dropped it.
fn is_gone(error: &Error) -> bool {
    matches!(error.code(), Code::NAMESPACE_NOT_FOUND | Code::BAD_VALUE | Code::ILLEGAL_OPERATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_end_at_multiples_since_1970() {
        for (date, seconds, end) in [
            (0, 1, 1000),
            (999, 1, 1000),
            (1000, 1, 2000),
            (-1, 1, 0),
            (86_399_999, 86_400, 86_400_000),
            (86_400_000, 86_400, 2 * 86_400_000),
            (i64::MAX, 1 << 50, i64::MAX),
        ] {
            assert_eq!(end_of_period(date, seconds), end, "{date} {seconds}");
        }
    }

    #[test]
    fn what_ends_with_a_date_that_is_long_ago_has_expired() {
        let ends = [Some(1000), None, Some(5000), Some(5001), None];
        assert_eq!(expired(&ends, 15_000, 10), [true, false, true, false, false]);
        assert_eq!(expired(&ends, 15_000, 0), [true, false, true, true, false]);
        assert_eq!(expired(&ends, 0, i64::MAX), [false; 5]);
    }
}

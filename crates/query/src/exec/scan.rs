//! Scans of the collection itself: all of it, one document, or nothing.

use super::budget::COST_BYTES;
use super::stats::Report;
use super::{Counters, ExecContext, PlanStage, Row, copied_bytes, passes};
use crate::examined::Tally;
use bson::raw::RawBson;
use catalog::Collection;
use engine::{Cursor, Direction, KeyRange};
use errors::Result;
use matcher::Filter;
use std::ops::Range;
use std::sync::Arc;

/// Every document in the order of the primary key.
pub(super) struct CollectionStage {
    collection: Arc<Collection>,
    backward: bool,
    filter: Option<Filter>,
    cursor: Option<Cursor>,
    /// The places of the stores that are still to be read.
    left: Range<usize>,
    row: Row,
    counters: Tally,
}

impl CollectionStage {
    pub(super) fn new(
        collection: &Arc<Collection>,
        backward: bool,
        filter: Option<Filter>,
    ) -> Self {
        Self {
            collection: Arc::clone(collection),
            backward,
            filter,
            cursor: None,
            left: 0..collection.stores().len(),
            row: Row::default(),
            counters: Tally::of_scan(),
        }
    }
}

impl CollectionStage {
    /// Opens the next store; false where there is none.
    fn open(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        let place = if self.backward { self.left.next_back() } else { self.left.next() };
        let Some(place) = place else { return Ok(false) };
        let direction = if self.backward { Direction::Backward } else { Direction::Forward };
        let primary = self.collection.primary_at(place);
        self.cursor = Some(exec.cursor(primary, KeyRange::all(), direction)?);
        Ok(true)
    }
}

impl Drop for CollectionStage {
    fn drop(&mut self) {
        if self.counters.works > 0 {
            self.collection.note_scanned(self.counters.documents);
        }
    }
}

impl PlanStage for CollectionStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if self.counters.finished {
            return Ok(false);
        }
        while self.cursor.is_some() || self.open(exec)? {
            let Some(cursor) = &mut self.cursor else { break };
            while let Some((key, value)) = cursor.next().map_err(catalog::from_engine)? {
                self.counters.works += 1;
                self.counters.documents += 1;
                exec.tick(self.counters.works)?;
                exec.spend(value.len() as u64 / COST_BYTES)?;
                if !passes(self.filter.as_ref(), value)? {
                    continue;
                }
                let needed = copied_bytes(value.len());
                if limits::must_wait_for(needed) {
                    let key = key.to_vec();
                    cursor.park();
                    limits::admit(needed)?;
                    let Some(value) = exec.get_record(&self.collection, &key)? else { continue };
                    self.row.set(&key, &value);
                } else {
                    self.row.set(key, value);
                }
                self.counters.advanced += 1;
                return Ok(true);
            }
            self.cursor = None;
        }
        self.counters.finished = true;
        Ok(false)
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn park(&mut self) {
        self.counters.tell();
        if let Some(cursor) = &mut self.cursor {
            cursor.park();
        }
    }

    fn release_row(&mut self) {
        self.row.release();
    }

    fn report(&self) -> Report {
        Report::collection_scan(*self.counters, self.filter.as_ref(), self.backward)
            .in_partitions(&self.collection, 0..self.collection.stores().len())
    }
}

/// One document by its `_id`.
pub(super) struct IdStage {
    collection: Arc<Collection>,
    id: RawBson,
    filter: Option<Filter>,
    row: Row,
    counters: Tally,
}

impl IdStage {
    pub(super) fn new(collection: &Arc<Collection>, id: RawBson, filter: Option<Filter>) -> Self {
        Self {
            collection: Arc::clone(collection),
            id,
            filter,
            row: Row::default(),
            counters: Tally::default(),
        }
    }
}

impl Drop for IdStage {
    fn drop(&mut self) {
        if self.counters.works > 0 {
            self.collection.note_id_lookup(self.counters.documents > 0);
        }
    }
}

impl PlanStage for IdStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if std::mem::replace(&mut self.counters.finished, true) {
            return Ok(false);
        }
        self.counters.works += 1;
        let id = self.id.as_raw_bson_ref();
        let record_key =
            self.collection.find_record_key(id, |index, id_key| exec.get(index, id_key))?;
        let Some(record_key) = record_key else { return Ok(false) };
        let Some(document) = exec.get_to_copy(&self.collection, &record_key)? else {
            return Ok(false);
        };
        self.counters.keys += 1;
        self.counters.documents += 1;
        if !passes(self.filter.as_ref(), &document)? {
            return Ok(false);
        }
        self.row.set(&record_key, &document);
        self.counters.advanced += 1;
        Ok(true)
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn park(&mut self) {
        self.counters.tell();
    }

    fn take_row(&mut self) -> Row {
        std::mem::take(&mut self.row)
    }

    fn release_row(&mut self) {
        self.row.release();
    }

    fn report(&self) -> Report {
        if self.collection.options().clustered.is_some() {
            let counters = Counters { keys: 0, ..*self.counters };
            let ends = (&self.id, &self.id);
            return Report::clustered_scan(counters, self.filter.as_ref(), false, ends);
        }
        let id_key = self.collection.id_key(self.id.as_raw_bson_ref());
        let place = id_key.ok().map(|key| self.collection.store_at(&key));
        Report::new("IDHACK", *self.counters)
            .in_partitions(&self.collection, place)
            .filtering(self.filter.as_ref())
            .counting("keysExamined", self.counters.keys)
            .counting("docsExamined", self.counters.documents)
    }
}

/// Nothing: the filter cannot match, or the collection does not exist.
#[derive(Default)]
pub(crate) struct EmptyStage {
    row: Row,
    counters: Counters,
}

impl PlanStage for EmptyStage {
    fn advance(&mut self, _: &ExecContext<'_>) -> Result<bool> {
        self.counters.finished = true;
        Ok(false)
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn release_row(&mut self) {}

    fn park(&mut self) {}

    fn report(&self) -> Report {
        Report::new("EOF", self.counters)
    }
}

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
use std::sync::Arc;

/// Every document in the order of `_id`.
pub(super) struct CollectionStage {
    collection: Arc<Collection>,
    backward: bool,
    filter: Option<Filter>,
    cursor: Option<Cursor>,
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
            row: Row::default(),
            counters: Tally::of_scan(),
        }
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
        if self.cursor.is_none() {
            let direction = if self.backward { Direction::Backward } else { Direction::Forward };
            self.cursor =
                Some(exec.cursor(self.collection.primary(), KeyRange::all(), direction)?);
        }
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        if self.counters.finished {
            return Ok(false);
        }
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
                let Some(value) = exec.get(self.collection.primary(), &key)? else { continue };
                self.row.set(&key, &value);
            } else {
                self.row.set(key, value);
            }
            self.counters.advanced += 1;
            return Ok(true);
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
    }
}

/// One document by its id key.
pub(super) struct IdStage {
    collection: Arc<Collection>,
    id: RawBson,
    id_key: Vec<u8>,
    filter: Option<Filter>,
    row: Row,
    counters: Tally,
}

impl IdStage {
    pub(super) fn new(
        collection: &Arc<Collection>,
        id: RawBson,
        filter: Option<Filter>,
    ) -> Result<Self> {
        Ok(Self {
            collection: Arc::clone(collection),
            id_key: collection.id_key(id.as_raw_bson_ref())?,
            id,
            filter,
            row: Row::default(),
            counters: Tally::default(),
        })
    }
}

impl Drop for IdStage {
    fn drop(&mut self) {
        if self.counters.works > 0 {
            self.collection.note_scanned(self.counters.documents);
        }
    }
}

impl PlanStage for IdStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if std::mem::replace(&mut self.counters.finished, true) {
            return Ok(false);
        }
        self.counters.works += 1;
        let Some(document) = exec.get_to_copy(self.collection.primary(), &self.id_key)? else {
            return Ok(false);
        };
        self.counters.keys += 1;
        self.counters.documents += 1;
        if !passes(self.filter.as_ref(), &document)? {
            return Ok(false);
        }
        self.row.set(&self.id_key, &document);
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
        Report::new("IDHACK", *self.counters)
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

//! The documents of a capped collection in the order of their arrival.
//!
//! Where it tails, the end is only the end of a snapshot: the next call, on a later one, goes on
//! after the last document looked at.
//!
//! Always true: `last` is the arrival it looked at last; going on where that document is gone
//! would leave documents out, so it is an error.

use super::stats::Report;
use super::{ExecContext, PlanStage, Row, passes};
use crate::examined::Tally;
use catalog::{Collection, arrival_key, arrival_of, arrivals_from};
use engine::{Cursor, DictionaryId, Direction};
use errors::{Code, Error, Result};
use matcher::Filter;
use std::sync::Arc;

pub(crate) struct ArrivalStage {
    collection: Arc<Collection>,
    order: DictionaryId,
    backward: bool,
    tails: bool,
    filter: Option<Filter>,
    cursor: Option<Cursor>,
    last: Option<u64>,
    row: Row,
    counters: Tally,
}

impl ArrivalStage {
    pub(crate) fn new(
        collection: &Arc<Collection>,
        order: DictionaryId,
        backward: bool,
        filter: Option<Filter>,
    ) -> Self {
        Self {
            collection: Arc::clone(collection),
            order,
            backward,
            tails: false,
            filter,
            cursor: None,
            last: None,
            row: Row::default(),
            counters: Tally::default(),
        }
    }

    /// Goes on after the end when it is asked again, on a later snapshot.
    pub(crate) fn tailing(mut self) -> Self {
        self.tails = true;
        self
    }

    fn open(&self, exec: &ExecContext<'_>) -> Result<Cursor> {
        let direction = if self.backward { Direction::Backward } else { Direction::Forward };
        if let Some(last) = self.last
            && exec.get(self.order, &arrival_key(last))?.is_none()
        {
            return Err(Error::new(
                Code::CAPPED_POSITION_LOST,
                format!(
                    "CollectionScan died due to position in capped collection being deleted. Last \
                     seen record id: RecordId({})",
                    last + 1
                ),
            ));
        }
        exec.cursor(self.order, arrivals_from(self.last.map_or(0, |last| last + 1)), direction)
    }
}

impl Drop for ArrivalStage {
    fn drop(&mut self) {
        if self.counters.works > 0 {
            self.collection.note_scanned(self.counters.documents);
        }
    }
}

impl PlanStage for ArrivalStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        if self.counters.finished && !self.tails {
            return Ok(false);
        }
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => self.open(exec)?,
        };
        while let Some((key, record_key)) = cursor.next().map_err(catalog::from_engine)? {
            self.last = arrival_of(key).or(self.last);
            self.counters.works += 1;
            self.counters.documents += 1;
            exec.tick(self.counters.works)?;
            let Some(document) = exec.get_record(&self.collection, record_key)? else { continue };
            if !passes(self.filter.as_ref(), &document)? {
                continue;
            }
            self.row.set(record_key, &document);
            self.counters.advanced += 1;
            self.cursor = Some(cursor);
            return Ok(true);
        }
        self.counters.finished = true;
        Ok(false)
    }

    fn row(&self) -> &Row {
        &self.row
    }

    fn release_row(&mut self) {
        self.row.release();
    }

    fn park(&mut self) {
        self.counters.tell();
        if self.tails {
            // The next call reads a later snapshot, in which the position may be gone.
            self.cursor = None;
        } else if let Some(cursor) = &mut self.cursor {
            cursor.park();
        }
    }

    fn report(&self) -> Report {
        Report::collection_scan(*self.counters, self.filter.as_ref(), self.backward)
    }
}

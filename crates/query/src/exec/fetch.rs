//! From record keys to documents, and the filter that needs them.

use super::budget::{COST_BYTES, FETCH_COST};
use super::look_ahead::LookAhead;
use super::stats::Report;
use super::{ExecContext, PlanStage, Row, passes};
use crate::examined::Tally;
use catalog::Collection;
use errors::Result;
use matcher::Filter;
use std::sync::Arc;

pub(super) struct FetchStage {
    collection: Arc<Collection>,
    input: Box<dyn PlanStage>,
    ahead: LookAhead,
    filter: Option<Filter>,
    row: Row,
    counters: Tally,
}

impl FetchStage {
    pub(super) fn new(
        collection: &Arc<Collection>,
        input: Box<dyn PlanStage>,
        filter: Option<Filter>,
    ) -> Self {
        Self {
            collection: Arc::clone(collection),
            input,
            ahead: LookAhead::default(),
            filter,
            row: Row::default(),
            counters: Tally::default(),
        }
    }
}

/// The document of a row that may have it already; `None` where it is gone.
pub(super) fn document_of(
    exec: &ExecContext<'_>,
    collection: &Collection,
    row: &Row,
) -> Result<Option<Vec<u8>>> {
    if !row.document.is_empty() {
        return Ok(Some(row.document.clone()));
    }
    Ok(exec.get_to_copy(collection, &row.record_key)?.map(|document| document.to_vec()))
}

impl PlanStage for FetchStage {
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool> {
        while self.ahead.advance(exec, &self.collection, &mut *self.input)? {
            self.counters.works += 1;
            let input = self.ahead.row(&*self.input);
            if input.document.is_empty() {
                let reads = engine::thread_page_reads();
                let found = exec.get_to_copy(&self.collection, &input.record_key)?;
                let was_read = engine::thread_page_reads() > reads;
                if let Some(document) = &found {
                    self.row.set(&input.record_key, document);
                }
                if was_read {
                    self.ahead.missed();
                }
                let Some(document) = found else { continue };
                exec.spend(FETCH_COST + document.len() as u64 / COST_BYTES)?;
            } else {
                self.row.set(&input.record_key, &input.document);
            }
            self.counters.documents += 1;
            if !passes(self.filter.as_ref(), &self.row.document)? {
                continue;
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
        self.input.park();
    }

    fn release_row(&mut self) {
        self.row.release();
        self.ahead.release_row();
        self.input.release_row();
    }

    fn report(&self) -> Report {
        Report::new("FETCH", *self.counters)
            .filtering(self.filter.as_ref())
            .counting("docsExamined", self.counters.documents)
            .counting("alreadyHasObj", 0)
            .over(self.input.report())
    }
}

//! What is looked at before it is needed, so that pages of documents are read several at a time and not one after
//! the other: hits of an index, and values of `_id` that are asked for.
//!
//! Always true: rows come in the stage's order, each once. Nothing is looked at early while documents are found in
//! memory, by a plan on trial, or for who locks what it looks at.

use super::{ExecContext, PlanStage, Row};
use catalog::Collection;
use errors::Result;
use pipeline::{MOST_BYTES_AHEAD, ReadAheadWindow};

/// The rows that were taken.
#[derive(Default)]
pub(super) struct LookAhead {
    rows: Vec<Row>,
    /// The one of them that is shown.
    at: usize,
    window: ReadAheadWindow,
}

impl LookAhead {
    /// Goes to the next row; false where the stage has no more.
    pub(super) fn advance(
        &mut self,
        exec: &ExecContext<'_>,
        collection: &Collection,
        stage: &mut dyn PlanStage,
    ) -> Result<bool> {
        self.at += 1;
        if self.at < self.rows.len() {
            return Ok(true);
        }
        self.at = 0;
        self.rows.clear();
        let window = if exec.may_look_ahead() { self.window.size() } else { 0 };
        if window == 0 {
            return stage.advance(exec);
        }
        let (mut bytes, mut lacks_document) = (0, true);
        while lacks_document
            && self.rows.len() < window
            && bytes < MOST_BYTES_AHEAD
            && stage.advance(exec)?
        {
            let row = stage.row();
            bytes += row.record_key.len();
            // Documents are not gathered: they may be large.
            lacks_document = row.document.is_empty();
            self.rows.push(row.clone());
        }
        let rows = self.rows.iter();
        let waited = exec.prefetch(collection, rows.map(|row| &row.record_key[..]))?;
        self.window.read(if lacks_document { waited } else { 0 });
        Ok(!self.rows.is_empty())
    }

    /// The row it stands on, of its own or the stage's.
    pub(super) fn row<'r>(&'r self, stage: &'r dyn PlanStage) -> &'r Row {
        self.rows.get(self.at).unwrap_or_else(|| stage.row())
    }

    /// Gives back the memory of large documents.
    pub(super) fn release_row(&mut self) {
        if let Some(row) = self.rows.get_mut(self.at) {
            row.release();
        }
    }

    /// The document of the row was not in memory.
    pub(super) fn missed(&mut self) {
        self.window.missed();
    }
}

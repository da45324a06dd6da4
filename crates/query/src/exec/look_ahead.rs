//! What is looked at before it is needed, so that pages of documents are read several at a time and not one after
//! the other: hits of an index, and values of `_id` that are asked for.
//!
//! Always true: rows come in the stage's order, each once. Nothing is looked at early while documents are found in
//! memory, by a plan on trial, or for who locks what it looks at.

use super::{ExecContext, PlanStage, Row};
use catalog::Collection;
use errors::Result;

/// Rows taken at a time after the first document that was not in memory, and at most; each time four times as many.
const FIRST: usize = 8;
const MOST: usize = 128;

/// How many are looked at ahead at a time; 0 while documents are in memory.
#[derive(Default)]
pub(super) struct Window(usize);

impl Window {
    /// For this plan.
    pub(super) fn size(&self, exec: &ExecContext<'_>) -> usize {
        if exec.may_look_ahead() { self.0 } else { 0 }
    }

    /// A document was not in memory.
    pub(super) fn missed(&mut self) {
        self.0 = self.0.max(FIRST);
    }

    /// For as many as it is so many pages were read.
    pub(super) fn read(&mut self, pages: usize) {
        self.0 = if pages > 0 { (4 * self.0).min(MOST) } else { 0 };
    }
}

/// The rows that were taken.
#[derive(Default)]
pub(super) struct LookAhead {
    /// The first `taken` of them; the others are room for later ones.
    rows: Vec<Row>,
    taken: usize,
    /// The one of them that is shown.
    at: usize,
    window: Window,
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
        if self.at < self.taken {
            return Ok(true);
        }
        (self.at, self.taken) = (0, 0);
        let window = self.window.size(exec);
        if window == 0 {
            return stage.advance(exec);
        }
        let mut lacks_document = true;
        while lacks_document && self.taken < window && stage.advance(exec)? {
            let row = stage.row();
            // Documents are not gathered: they may be large.
            lacks_document = row.document.is_empty();
            if self.taken == self.rows.len() {
                self.rows.push(Row::default());
            }
            self.rows[self.taken].set(&row.record_key, &row.document);
            self.taken += 1;
        }
        let rows = self.rows[..self.taken].iter();
        let pages = exec.prefetch(collection, rows.map(|row| &row.record_key[..]))?;
        self.window.read(if lacks_document { pages } else { 0 });
        Ok(self.taken > 0)
    }

    /// The row it stands on, of its own or the stage's.
    pub(super) fn row<'r>(&'r self, stage: &'r dyn PlanStage) -> &'r Row {
        if self.taken > 0 { &self.rows[self.at] } else { stage.row() }
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

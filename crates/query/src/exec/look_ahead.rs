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
/// Record keys that are kept for that take about so many bytes at most: an `_id` may be large.
pub(super) const MOST_KEY_BYTES: usize = 64 << 10;

/// Documents that had to be read, one after the other, until it is tried again, where the system had those of a
/// batch in memory: its file cache may hold all of them.
const UNTIL_TRIED_AGAIN: usize = 64;

/// How many are looked at ahead at a time; 0 while that gains nothing.
#[derive(Default)]
pub(super) struct Window {
    size: usize,
    /// Misses that do not count yet.
    ignored: usize,
}

impl Window {
    /// For this plan.
    pub(super) fn size(&self, exec: &ExecContext<'_>) -> usize {
        if exec.may_look_ahead() { self.size } else { 0 }
    }

    /// A document was not in memory.
    pub(super) fn missed(&mut self) {
        match self.ignored.checked_sub(1) {
            Some(left) => self.ignored = left,
            None => self.size = self.size.max(FIRST),
        }
    }

    /// For as many as it is so many pages were waited for.
    pub(super) fn read(&mut self, waited: usize) {
        (self.size, self.ignored) =
            if waited > 0 { ((4 * self.size).min(MOST), 0) } else { (0, UNTIL_TRIED_AGAIN) };
    }
}

/// The rows that were taken.
#[derive(Default)]
pub(super) struct LookAhead {
    rows: Vec<Row>,
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
        if self.at < self.rows.len() {
            return Ok(true);
        }
        self.at = 0;
        self.rows.clear();
        let window = self.window.size(exec);
        if window == 0 {
            return stage.advance(exec);
        }
        let (mut bytes, mut lacks_document) = (0, true);
        while lacks_document
            && self.rows.len() < window
            && bytes < MOST_KEY_BYTES
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_while_the_disk_is_waited_for_and_rests_where_it_is_not() {
        let mut window = Window::default();
        window.missed();
        let mut sizes = vec![window.size];
        for waited in [3, 1, 128, 0] {
            window.read(waited);
            sizes.push(window.size);
        }
        assert_eq!(sizes, [8, 32, 128, 128, 0]);
        let tried_again = (1..1000).find(|_| {
            window.missed();
            window.size > 0
        });
        assert_eq!(tried_again, Some(UNTIL_TRIED_AGAIN + 1));
    }
}

//! Outer documents that are taken before their turn, so that the documents that they are joined with by `_id` are read
//! together.
//!
//! Always true: outer documents come in their order, each once, and an error comes where it stands among them. None is
//! taken early while what they are joined with is in memory.

use super::{Lookup, local_values};
use crate::read_ahead::{MOST_BYTES_AHEAD, ReadAheadWindow};
use crate::stage::StageInput;
use bson::raw::RawDocumentBuf;
use errors::Result;
use std::collections::VecDeque;

/// Those that were taken.
#[derive(Default)]
pub(super) struct OuterDocuments {
    taken: VecDeque<Result<RawDocumentBuf>>,
    window: ReadAheadWindow,
    /// Pages this thread had read when the last one was handed out. On another thread that says nothing: a window is then
    /// opened in vain, or later.
    reads: Option<u64>,
}

impl OuterDocuments {
    /// The next one. `asks_for_each` says that the other collection is asked for the matches of each.
    pub(super) fn next(
        &mut self,
        run: &mut StageInput,
        lookup: &Lookup,
        asks_for_each: bool,
    ) -> Result<Option<RawDocumentBuf>> {
        if let Some(taken) = self.taken.pop_front() {
            return taken.map(Some);
        }
        // What the matches of the last one, and whoever was handed them, had to read.
        if self.reads.is_some_and(|reads| run.env.page_reads() > reads) {
            self.window.missed();
        }
        let next = if asks_for_each { self.take(run, lookup) } else { run.input.next() };
        self.reads = Some(run.env.page_reads());
        next
    }

    /// Takes as many as the window says, and hands out the first of them.
    fn take(&mut self, run: &mut StageInput, lookup: &Lookup) -> Result<Option<RawDocumentBuf>> {
        let (Some(from), Some((local, foreign))) = (&lookup.from, &lookup.equality) else {
            return run.input.next();
        };
        let Some(window) = Some(self.window.size()).filter(|size| *size > 0 && foreign == "_id")
        else {
            return run.input.next();
        };
        let (mut bytes, mut values) = (0, Vec::new());
        while self.taken.len() < window && bytes < MOST_BYTES_AHEAD {
            match run.input.next().transpose() {
                None => break,
                Some(Ok(document)) => {
                    bytes += document.as_bytes().len();
                    // A value that cannot be read is told of in its turn.
                    values.extend(local_values(&document, local).unwrap_or_default());
                    self.taken.push_back(Ok(document));
                }
                Some(error) => {
                    self.taken.push_back(error);
                    break;
                }
            }
        }
        let waited = run.env.prefetch_by_id(from, &values, run.variables.collation());
        self.window.read(waited);
        self.taken.pop_front().transpose()
    }
}

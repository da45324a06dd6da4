//! A cursor between two batches: where its documents come from, and what is kept of its command.

use auth::Privilege;
use bson::RawDocumentBuf;
use errors::Result;
use limits::{Charge, LARGE_BYTES, Part};
use query::{Plans, QueryCursor};
use std::time::Duration;

/// Where the documents of a cursor come from.
pub enum Documents {
    /// A query over stored documents.
    Query(QueryCursor),
    /// A list that was made at once (`listCollections`).
    List(std::vec::IntoIter<RawDocumentBuf>),
}

impl Documents {
    /// The documents of a list.
    pub fn list(documents: Vec<RawDocumentBuf>) -> Self {
        Self::List(documents.into_iter())
    }
}

/// A cursor between two batches.
pub struct Parked {
    /// What is left of its documents.
    pub documents: Documents,
    /// Documents the client's limit still allows.
    pub remaining: Option<u64>,
    /// Documents in the batches so far; old clients are told.
    pub returned: u64,
    /// Bytes of the batch before: the next one is likely to have as many.
    pub batch_bytes: usize,
    /// At its end a batch waits for more.
    pub await_data: bool,
    /// What is left of the `maxTimeMS` of the command that made it.
    pub time_left: Option<Duration>,
    /// How its documents are found: for the log and the profiler.
    pub plans: Plans,
    /// The command that made it: for the same.
    pub command: Option<RawDocumentBuf>,
    /// What whoever reads on must be allowed still.
    pub required: Vec<Privilege>,
    /// For a large document that did not fit into the batch before.
    pub memory: Option<Charge>,
}

impl Parked {
    /// Counts what it keeps until the next batch. Where that is a large document for which there is no room it
    /// fails with 146.
    pub fn charge(&mut self) -> Result<()> {
        let bytes = match &self.documents {
            Documents::Query(cursor) => cursor.held_bytes(),
            Documents::List(_) => 0,
        };
        let large = bytes > LARGE_BYTES;
        self.memory = large.then(|| limits::charge(Part::Cursors, bytes)).transpose()?;
        Ok(())
    }

    /// Whether its end is only the end of what is there by now.
    pub fn is_tailable(&self) -> bool {
        matches!(&self.documents, Documents::Query(cursor) if cursor.is_tailable())
    }
}

//! The upcalls: what stages ask from the floors above.

use crate::stage::merge::MergeSpec;
use crate::stage::metadata::Metadata;
use crate::stage::out::Out;
use crate::{DocumentSource, MEMORY_LIMIT_BYTES, Pipeline, SpillStorage};
use bson::raw::{RawBson, RawDocumentBuf};
use errors::{Code, Error, Result};
use expr::agg::Variables;
use keystring::Collation;
use std::fmt;
use std::sync::Arc;

/// A database and a collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionName {
    /// The database.
    pub database: String,
    /// The collection.
    pub collection: String,
}

impl CollectionName {
    /// Puts the two together.
    pub fn new(database: impl Into<String>, collection: impl Into<String>) -> Self {
        Self { database: database.into(), collection: collection.into() }
    }
}

impl fmt::Display for CollectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.collection)
    }
}

/// What a command says about how stages may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecOptions {
    /// The most one stage may hold.
    pub memory_limit_bytes: usize,
    /// Whether a stage past the limit may spill.
    pub allow_disk_use: bool,
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self { memory_limit_bytes: MEMORY_LIMIT_BYTES, allow_disk_use: true }
    }
}

/// How a `$lookup` by equality should find its matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupHint {
    /// An index starts with the foreign field: ask once per document.
    Index,
    /// No index: read the foreign collection once into a hash table, as far as memory allows.
    Hash,
}

/// Receives the documents of `$out` or `$merge`. Dropped without [`OutWriter::finish`], a `$out`
/// leaves no trace.
pub trait OutWriter: Send {
    /// Takes one document.
    fn write(&mut self, document: RawDocumentBuf) -> Result<()>;

    /// Makes everything visible.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// The world as stages see it.
pub trait Env: Send + Sync {
    /// Fails when the operation was killed or its time is over. Asked often; must be cheap.
    fn check_interrupt(&self) -> Result<()>;

    /// Limits of this command.
    fn options(&self) -> ExecOptions;

    /// Runs a pipeline over a collection. Leading stages may be answered from indexes.
    /// A collection that does not exist is empty.
    fn aggregate(
        &self,
        from: &CollectionName,
        pipeline: &Pipeline,
        variables: &Arc<Variables>,
    ) -> Result<Box<dyn DocumentSource>>;

    /// How `$lookup` should find documents whose `field` equals something in a collation.
    fn lookup_hint(
        &self,
        from: &CollectionName,
        field: &str,
        under: Option<&Collation>,
    ) -> LookupHint {
        let _ = (from, field, under);
        LookupHint::Hash
    }

    /// Brings the documents of a collection with these `_id`s, under a collation, into memory, several pages at a time;
    /// says how many had to be waited for. A hint: documents that are not there, and views, are passed over, and errors left
    /// to who asks for the documents.
    fn prefetch_by_id(
        &self,
        from: &CollectionName,
        ids: &[RawBson],
        under: Option<&Collation>,
    ) -> usize {
        let _ = (from, ids, under);
        0
    }

    /// Pages that this thread has read from the disk.
    fn page_reads(&self) -> u64 {
        0
    }

    /// A fresh temporary file.
    fn create_spill(&self) -> Result<Box<dyn SpillStorage>>;

    /// Begins replacing a collection's content.
    fn out(&self, out: &Out) -> Result<Box<dyn OutWriter>>;

    /// Begins merging into a collection. See [`MergeSpec::resolve`] for what to do per document.
    fn merge(&self, spec: &MergeSpec, variables: &Arc<Variables>) -> Result<Box<dyn OutWriter>>;

    /// The documents of a stage that tells about the server or a collection.
    fn metadata(&self, request: &Metadata) -> Result<Box<dyn DocumentSource>>;
}

/// The error of a stage that may not spill.
pub(crate) fn no_disk_use(what: &str, limit: usize) -> Error {
    Error::new(
        Code::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
        format!(
            "{what} exceeded memory limit of {limit} bytes, but did not opt in to external \
             sorting. Aborting operation. Pass allowDiskUse:true to opt in."
        ),
    )
}

//! The typed requests. They borrow from the command's bytes: nothing is copied to ask.
//!
//! Always true: `None` and zero mean "not given"; what a command defaults is defaulted here.

use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::Error;

/// `find`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FindRequest<'a> {
    /// `filter`; none matches everything.
    pub filter: Option<&'a RawDocument>,
    /// `projection`.
    pub projection: Option<&'a RawDocument>,
    /// `sort`.
    pub sort: Option<&'a RawDocument>,
    /// `hint`: an index name, a key pattern or `{$natural: ±1}`.
    pub hint: Option<RawBsonRef<'a>>,
    /// `skip`.
    pub skip: u64,
    /// `limit`; 0 is none.
    pub limit: u64,
    /// `let`.
    pub let_variables: Option<&'a RawDocument>,
    /// `collation`.
    pub collation: Option<&'a RawDocument>,
    /// `min`: inclusive lower bound over the hinted index.
    pub min: Option<&'a RawDocument>,
    /// `max`: exclusive upper bound over the hinted index.
    pub max: Option<&'a RawDocument>,
    /// `returnKey`.
    pub return_key: bool,
    /// `showRecordId`.
    pub show_record_id: bool,
    /// `allowDiskUse`; none is yes.
    pub allow_disk_use: Option<bool>,
}

/// `count`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountRequest<'a> {
    /// `query`.
    pub filter: Option<&'a RawDocument>,
    /// `skip`.
    pub skip: u64,
    /// `limit`; 0 is none. The sign a client may give does not matter.
    pub limit: u64,
    /// `hint`.
    pub hint: Option<RawBsonRef<'a>>,
    /// `collation`.
    pub collation: Option<&'a RawDocument>,
}

/// `distinct`.
#[derive(Clone, Copy, Debug)]
pub struct DistinctRequest<'a> {
    /// `key`: a dotted path.
    pub key: &'a str,
    /// `query`.
    pub filter: Option<&'a RawDocument>,
    /// `hint`.
    pub hint: Option<RawBsonRef<'a>>,
    /// `collation`.
    pub collation: Option<&'a RawDocument>,
}

/// What an `aggregate` starts from.
#[derive(Clone, Debug)]
pub enum AggregateTarget {
    /// A collection or view.
    Collection(catalog::Namespace),
    /// `aggregate: 1` on a database: the first stage makes its own documents.
    Database(String),
}

/// `aggregate`.
#[derive(Clone, Copy, Debug)]
pub struct AggregateRequest<'a> {
    /// `pipeline`.
    pub pipeline: &'a RawArray,
    /// `let`.
    pub let_variables: Option<&'a RawDocument>,
    /// `hint`.
    pub hint: Option<RawBsonRef<'a>>,
    /// `collation`.
    pub collation: Option<&'a RawDocument>,
    /// `allowDiskUse`; none is yes.
    pub allow_disk_use: Option<bool>,
}

/// `insert`.
#[derive(Clone, Copy, Debug)]
pub struct InsertRequest<'a> {
    /// `documents`.
    pub documents: &'a [&'a RawDocument],
    /// `ordered`: stop at the first error.
    pub ordered: bool,
}

/// One element of `update.updates`.
#[derive(Clone, Copy, Debug)]
pub struct UpdateStatement<'a> {
    /// `q`.
    pub filter: &'a RawDocument,
    /// `u`: operators, a replacement, or a pipeline.
    pub update: RawBsonRef<'a>,
    /// `multi`.
    pub multi: bool,
    /// `upsert`.
    pub upsert: bool,
    /// `arrayFilters`.
    pub array_filters: Option<&'a RawArray>,
    /// `hint`.
    pub hint: Option<RawBsonRef<'a>>,
    /// `collation`.
    pub collation: Option<&'a RawDocument>,
    /// `c`: constants for a pipeline.
    pub constants: Option<&'a RawDocument>,
    /// `sort`, for an update of one document.
    pub sort: Option<&'a RawDocument>,
    /// `u` is the `diff` of an oplog entry.
    pub is_delta: bool,
}

/// `update`.
#[derive(Clone, Copy, Debug)]
pub struct UpdateRequest<'a> {
    /// `updates`.
    pub updates: &'a [UpdateStatement<'a>],
    /// `ordered`.
    pub ordered: bool,
    /// `let`.
    pub let_variables: Option<&'a RawDocument>,
}

/// One element of `delete.deletes`.
#[derive(Clone, Copy, Debug)]
pub struct DeleteStatement<'a> {
    /// `q`.
    pub filter: &'a RawDocument,
    /// `limit: 1`.
    pub only_one: bool,
    /// `hint`.
    pub hint: Option<RawBsonRef<'a>>,
    /// `collation`.
    pub collation: Option<&'a RawDocument>,
}

/// `delete`.
#[derive(Clone, Copy, Debug)]
pub struct DeleteRequest<'a> {
    /// `deletes`.
    pub deletes: &'a [DeleteStatement<'a>],
    /// `ordered`.
    pub ordered: bool,
    /// `let`.
    pub let_variables: Option<&'a RawDocument>,
}

/// `findAndModify`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FindAndModifyRequest<'a> {
    /// `query`.
    pub filter: Option<&'a RawDocument>,
    /// `sort`.
    pub sort: Option<&'a RawDocument>,
    /// `remove`.
    pub remove: bool,
    /// `update`.
    pub update: Option<RawBsonRef<'a>>,
    /// `new`.
    pub return_new: bool,
    /// `fields`.
    pub projection: Option<&'a RawDocument>,
    /// `upsert`.
    pub upsert: bool,
    /// `arrayFilters`.
    pub array_filters: Option<&'a RawArray>,
    /// `hint`.
    pub hint: Option<RawBsonRef<'a>>,
    /// `collation`.
    pub collation: Option<&'a RawDocument>,
    /// `let`.
    pub let_variables: Option<&'a RawDocument>,
}

/// One element of `writeErrors`.
#[derive(Clone, Debug)]
pub struct WriteError {
    /// Which document or statement of the batch.
    pub index: usize,
    /// Code, text, and in `extra` the `keyPattern` and `keyValue` of a duplicate key.
    pub error: Error,
}

/// What `insert` did.
#[derive(Clone, Debug, Default)]
pub struct InsertResult {
    /// Documents inserted.
    pub n: u64,
    /// What failed.
    pub errors: Vec<WriteError>,
}

/// What `update` did.
#[derive(Clone, Debug, Default)]
pub struct UpdateResult {
    /// Documents matched, and upserted.
    pub n: u64,
    /// Documents that changed.
    pub n_modified: u64,
    /// Which statements upserted, and the new `_id`.
    pub upserted: Vec<(usize, RawBson)>,
    /// What failed.
    pub errors: Vec<WriteError>,
}

/// What `delete` did.
#[derive(Clone, Debug, Default)]
pub struct DeleteResult {
    /// Documents deleted.
    pub n: u64,
    /// What failed.
    pub errors: Vec<WriteError>,
}

/// What `findAndModify` did.
#[derive(Clone, Debug, Default)]
pub struct FindAndModifyResult {
    /// The document before or after, projected.
    pub value: Option<RawDocumentBuf>,
    /// `lastErrorObject.n`.
    pub n: u64,
    /// `lastErrorObject.updatedExisting`; none for `remove`.
    pub updated_existing: Option<bool>,
    /// `lastErrorObject.upserted`.
    pub upserted: Option<RawBson>,
}

/// How much `explain` tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verbosity {
    /// The plan; nothing runs.
    QueryPlanner,
    /// The plan, and what running it counted.
    ExecutionStats,
    /// The same with the plans that lost.
    #[default]
    AllPlansExecution,
}

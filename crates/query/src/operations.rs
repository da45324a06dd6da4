//! The operations, as `commands` calls them.

use crate::context::OpContext;
use crate::cursor::QueryCursor;
use crate::request::{
    AggregateRequest, AggregateTarget, CountRequest, DeleteRequest, DeleteResult, DistinctRequest,
    FindAndModifyRequest, FindAndModifyResult, FindRequest, InsertRequest, InsertResult,
    UpdateRequest, UpdateResult, Verbosity,
};
use bson::raw::{RawArrayBuf, RawDocumentBuf};
use catalog::Namespace;
use errors::{Code, Error, Result};

fn later<T>() -> Result<T> {
    Err(Error::new(Code::NOT_IMPLEMENTED, "not built yet"))
}

macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $($(#[$doc])* pub fn $name(ctx: &mut OpContext<'_>, $($arg: $type),*) -> Result<$result> {
            let _ = (ctx, $($arg),*);
            later()
        })*
    };
}

operations! {
    /// Runs a find. A collection that does not exist is empty.
    fn find(ns: &Namespace, request: &FindRequest<'_>) -> QueryCursor;
    /// Counts documents; without a filter it looks at no data.
    fn count(ns: &Namespace, request: &CountRequest<'_>) -> i64;
    /// The distinct values of a path.
    fn distinct(ns: &Namespace, request: &DistinctRequest<'_>) -> RawArrayBuf;
    /// Runs a pipeline.
    fn aggregate(target: &AggregateTarget, request: &AggregateRequest<'_>) -> QueryCursor;
    /// Inserts documents, creating the collection where it does not exist.
    fn insert(ns: &Namespace, request: &InsertRequest<'_>) -> InsertResult;
    /// Runs update statements.
    fn update(ns: &Namespace, request: &UpdateRequest<'_>) -> UpdateResult;
    /// Runs delete statements.
    fn delete(ns: &Namespace, request: &DeleteRequest<'_>) -> DeleteResult;
    /// Changes or removes one document and gives it back.
    fn find_and_modify(ns: &Namespace, request: &FindAndModifyRequest<'_>) -> FindAndModifyResult;
    /// Explains a find: the fields `explainVersion`, `queryPlanner`, `executionStats`.
    fn explain_find(ns: &Namespace, request: &FindRequest<'_>, verbosity: Verbosity) -> RawDocumentBuf;
    /// Explains a count.
    fn explain_count(ns: &Namespace, request: &CountRequest<'_>, verbosity: Verbosity) -> RawDocumentBuf;
    /// Explains a distinct.
    fn explain_distinct(ns: &Namespace, request: &DistinctRequest<'_>, verbosity: Verbosity) -> RawDocumentBuf;
    /// Explains a pipeline.
    fn explain_aggregate(target: &AggregateTarget, request: &AggregateRequest<'_>, verbosity: Verbosity) -> RawDocumentBuf;
    /// Explains an update of one statement; nothing is changed.
    fn explain_update(ns: &Namespace, request: &UpdateRequest<'_>, verbosity: Verbosity) -> RawDocumentBuf;
    /// Explains a delete of one statement; nothing is changed.
    fn explain_delete(ns: &Namespace, request: &DeleteRequest<'_>, verbosity: Verbosity) -> RawDocumentBuf;
    /// Explains a findAndModify; nothing is changed.
    fn explain_find_and_modify(ns: &Namespace, request: &FindAndModifyRequest<'_>, verbosity: Verbosity) -> RawDocumentBuf;
}

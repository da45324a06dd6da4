//! The operations, as `commands` calls them.

use crate::context::OpContext;
use crate::cursor::QueryCursor;
use crate::request::{
    AggregateRequest, AggregateTarget, FindAndModifyRequest, FindAndModifyResult, UpdateRequest,
    UpdateResult, Verbosity,
};
use bson::raw::RawDocumentBuf;
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
    /// Runs a pipeline.
    fn aggregate(target: &AggregateTarget, request: &AggregateRequest<'_>) -> QueryCursor;
    /// Runs update statements.
    fn update(ns: &Namespace, request: &UpdateRequest<'_>) -> UpdateResult;
    /// Changes or removes one document and gives it back.
    fn find_and_modify(ns: &Namespace, request: &FindAndModifyRequest<'_>) -> FindAndModifyResult;
    /// Explains a pipeline.
    fn explain_aggregate(target: &AggregateTarget, request: &AggregateRequest<'_>, verbosity: Verbosity) -> RawDocumentBuf;
}

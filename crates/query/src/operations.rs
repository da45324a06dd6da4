//! The operations, as `commands` calls them.

use crate::context::OpContext;
use crate::cursor::QueryCursor;
use crate::request::{AggregateRequest, AggregateTarget, Verbosity};
use bson::raw::RawDocumentBuf;
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
    /// Explains a pipeline.
    fn explain_aggregate(target: &AggregateTarget, request: &AggregateRequest<'_>, verbosity: Verbosity) -> RawDocumentBuf;
}

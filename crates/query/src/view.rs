//! Views: a find, count or distinct over one becomes a pipeline.

use crate::context::OpContext;
use crate::cursor::QueryCursor;
use crate::request::{CountRequest, FindRequest};
use bson::raw::RawDocument;
use catalog::Collection;
use errors::{Code, Error, Result};

fn later<T>() -> Result<T> {
    Err(Error::new(Code::COMMAND_NOT_SUPPORTED_ON_VIEW, "views need the aggregation pipeline"))
}

pub(crate) fn find(
    _: &mut OpContext<'_>,
    _: &Collection,
    _: &FindRequest<'_>,
) -> Result<QueryCursor> {
    later()
}

pub(crate) fn count(_: &mut OpContext<'_>, _: &Collection, _: &CountRequest<'_>) -> Result<i64> {
    later()
}

pub(crate) fn each(
    _: &mut OpContext<'_>,
    _: &Collection,
    _: Option<&RawDocument>,
    _: impl FnMut(&RawDocument) -> Result<()>,
) -> Result<()> {
    later()
}

pub(crate) fn explain_find(
    _: &mut OpContext<'_>,
    _: &Collection,
    _: &FindRequest<'_>,
    _: crate::Verbosity,
) -> Result<bson::RawDocumentBuf> {
    later()
}

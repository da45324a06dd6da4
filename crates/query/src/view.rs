//! Views: a find, count or distinct over one becomes a pipeline.

use crate::aggregate::{aggregate, explain_aggregate};
use crate::context::OpContext;
use crate::cursor::QueryCursor;
use crate::request::{
    AggregateRequest, AggregateTarget, CountRequest, DistinctRequest, FindRequest, Verbosity,
};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use catalog::Collection;
use errors::{Code, Error, Result};

pub(crate) fn find(
    ctx: &mut OpContext<'_>,
    view: &Collection,
    request: &FindRequest<'_>,
) -> Result<QueryCursor> {
    let pipeline = of_find(request)?;
    aggregate(ctx, &target(view), &of_pipeline(&pipeline, request))
}

pub(crate) fn explain_find(
    ctx: &mut OpContext<'_>,
    view: &Collection,
    request: &FindRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let pipeline = of_find(request)?;
    let request = of_pipeline(&pipeline, request);
    explain_aggregate(ctx, &target(view), &request, verbosity)
}

pub(crate) fn count(
    ctx: &mut OpContext<'_>,
    view: &Collection,
    request: &CountRequest<'_>,
) -> Result<i64> {
    let find = FindRequest {
        filter: request.filter,
        skip: request.skip,
        limit: request.limit,
        collation: request.collation,
        ..FindRequest::default()
    };
    let mut cursor = self::find(ctx, view, &find)?;
    let mut n = 0;
    while cursor.next()?.is_some() {
        n += 1;
    }
    Ok(n)
}

/// Hands every document of the view that matches to `take`.
pub(crate) fn each(
    ctx: &mut OpContext<'_>,
    view: &Collection,
    request: &DistinctRequest<'_>,
    mut take: impl FnMut(&RawDocument) -> Result<()>,
) -> Result<()> {
    let DistinctRequest { filter, collation, .. } = *request;
    let mut cursor = find(ctx, view, &FindRequest { filter, collation, ..FindRequest::default() })?;
    while let Some(document) = cursor.next()? {
        take(document)?;
    }
    Ok(())
}

fn target(view: &Collection) -> AggregateTarget {
    AggregateTarget::Collection(view.namespace().clone())
}

fn of_pipeline<'a>(pipeline: &'a RawArrayBuf, request: &FindRequest<'a>) -> AggregateRequest<'a> {
    let FindRequest { let_variables, collation, .. } = *request;
    AggregateRequest { pipeline, let_variables, hint: None, collation, allow_disk_use: None }
}

fn of_find(request: &FindRequest<'_>) -> Result<RawArrayBuf> {
    if request.min.is_some() || request.max.is_some() || request.return_key {
        return Err(Error::new(
            Code::INVALID_PIPELINE_OPERATOR,
            "Option not supported on a view: min, max, returnKey",
        ));
    }
    let mut stages = RawArrayBuf::new();
    let mut add = |name: &bson::raw::CStr, value: RawBsonRef<'_>| {
        let mut stage = RawDocumentBuf::new();
        stage.append(name, value);
        stages.push(stage);
    };
    let given = |part: Option<&RawDocument>| part.is_some_and(|part| !part.is_empty());
    if let Some(filter) = request.filter.filter(|_| given(request.filter)) {
        add(cstr!("$match"), RawBsonRef::Document(filter));
    }
    if let Some(sort) = request.sort.filter(|_| given(request.sort)) {
        add(cstr!("$sort"), RawBsonRef::Document(sort));
    }
    if request.skip > 0 {
        add(cstr!("$skip"), RawBsonRef::Int64(request.skip as i64));
    }
    if request.limit > 0 {
        add(cstr!("$limit"), RawBsonRef::Int64(request.limit as i64));
    }
    if let Some(projection) = request.projection.filter(|_| given(request.projection)) {
        add(cstr!("$project"), RawBsonRef::Document(projection));
    }
    Ok(stages)
}

//! The commands of MongoDB's plan cache: what is remembered of queries of one shape is forgotten,
//! and an operator says which indexes may serve a shape. Both live in memory: a restart ends them.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use catalog::Namespace;
use dispatch::fields::{Field, missing};
use errors::{Code, Error, Result};
use query::FindRequest;

pub(crate) const PLAN_CACHE_CLEAR: Command = Command::new(
    "planCacheClear",
    "Forgets the plans remembered for a collection.",
    Needs::Collection(&[Action::PlanCacheWrite]),
    clear,
);
pub(crate) const PLAN_CACHE_CLEAR_FILTERS: Command = Command::new(
    "planCacheClearFilters",
    "Removes index filters.",
    Needs::Collection(&[Action::PlanCacheIndexFilter]),
    clear_filters,
);
pub(crate) const PLAN_CACHE_LIST_FILTERS: Command = Command::new(
    "planCacheListFilters",
    "Lists index filters.",
    Needs::Collection(&[Action::PlanCacheIndexFilter]),
    list_filters,
);
pub(crate) const PLAN_CACHE_SET_FILTER: Command = Command::new(
    "planCacheSetFilter",
    "Says which indexes may serve queries of a shape.",
    Needs::Collection(&[Action::PlanCacheIndexFilter]),
    set_filter,
);

/// What the commands have in common.
struct Request<'a> {
    namespace: Namespace,
    find: FindRequest<'a>,
    indexes: Option<Vec<RawBsonRef<'a>>>,
}

fn parse<'a>(context: &mut Context<'_>, fields: &[Field<'a>]) -> Result<Request<'a>> {
    let namespace = context.namespace(&fields[0])?;
    context.at_collection(&namespace);
    let mut find = FindRequest::default();
    let mut indexes = None;
    for field in &fields[1..] {
        match field.name {
            "query" => find.filter = Some(field.document()?),
            "sort" => find.sort = Some(field.document()?),
            "projection" => find.projection = Some(field.document()?),
            "collation" => find.collation = Some(field.document()?),
            "indexes" if fields[0].name == PLAN_CACHE_SET_FILTER.name => {
                let given = field.array()?.into_iter();
                indexes = Some(given.collect::<std::result::Result<Vec<_>, _>>()?);
            }
            _ => return Err(field.unknown()),
        }
    }
    let beside = find.sort.is_some() || find.projection.is_some() || find.collation.is_some();
    if find.filter.is_none() && beside {
        return Err(Error::bad_value("sort or projection provided without query"));
    }
    Ok(Request { namespace, find, indexes })
}

fn clear(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let request = parse(context, fields)?;
    let op = context.op();
    if request.find.filter.is_some() {
        return query::clear_plan_of(&op, &request.namespace, &request.find);
    }
    if let Some(collection) = op.catalog.collection(&request.namespace) {
        query::clear_plan_cache(&collection);
    }
    Ok(())
}

fn clear_filters(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let Request { namespace, find, .. } = parse(context, fields)?;
    let one = find.filter.is_some().then_some(&find);
    query::clear_filters(&context.op(), &namespace, one)
}

fn list_filters(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let request = parse(context, fields)?;
    let collection = context.op().catalog.collection(&request.namespace);
    let filters = collection.map(|collection| query::list_filters(&collection)).unwrap_or_default();
    let open = context.reply.begin_array("filters");
    for (at, filter) in filters.iter().enumerate() {
        let filter = RawDocumentBuf::try_from(filter)?;
        context.reply.value(&at.to_string(), RawBsonRef::Document(&filter));
    }
    context.reply.end(open);
    Ok(())
}

fn set_filter(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let Request { namespace, find, indexes } = parse(context, fields)?;
    if find.filter.is_none() {
        return Err(missing("planCacheSetFilter", "query"));
    }
    let indexes = indexes.ok_or_else(|| missing("planCacheSetFilter", "indexes"))?;
    if indexes.is_empty() {
        return Err(Error::new(
            Code::BAD_VALUE,
            "required field indexes must contain at least one index",
        ));
    }
    query::set_filter(&context.op(), &namespace, &find, &indexes)
}

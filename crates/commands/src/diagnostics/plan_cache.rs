//! The commands of MongoDB's plan cache. Plans are made anew for each query here: there is nothing
//! to clear, no filter is ever set, and one that is asked for is refused.

use crate::context::Context;
use crate::fields::Field;
use crate::registry::Command;
use errors::{Code, Error, Result};

pub(crate) const PLAN_CACHE_CLEAR: Command =
    Command::new("planCacheClear", "Forgets cached plans, of which there are none.", clear);
pub(crate) const PLAN_CACHE_CLEAR_FILTERS: Command =
    Command::new("planCacheClearFilters", "Removes index filters, of which there are none.", clear);
pub(crate) const PLAN_CACHE_LIST_FILTERS: Command =
    Command::new("planCacheListFilters", "Lists index filters: none.", list);
pub(crate) const PLAN_CACHE_SET_FILTER: Command =
    Command::new("planCacheSetFilter", "Refused: use hints.", set);

/// Reads what the commands have in common.
fn parse(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let namespace = context.namespace(&fields[0])?;
    for field in &fields[1..] {
        match field.name {
            "query" | "sort" | "projection" | "collation" => {
                field.document()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    context.at_collection(&namespace);
    Ok(())
}

fn clear(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    parse(context, fields)
}

fn list(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    parse(context, fields)?;
    let none = context.reply.begin_array("filters");
    context.reply.end(none);
    Ok(())
}

fn set(_: &mut Context<'_>, _: &[Field<'_>]) -> Result<()> {
    Err(Error::new(
        Code::NOT_IMPLEMENTED,
        "index filters are not supported; a hint says which index a query uses",
    ))
}

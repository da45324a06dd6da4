//! `distinct`.

use super::explain::{verbosity_of, write_explain};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use catalog::Namespace;
use dispatch::fields::{Field, missing};
use dispatch::rules::Counter;
use errors::{Error, Result};
use query::DistinctRequest;

pub(crate) const DISTINCT: Command = Command::new(
    "distinct",
    "The distinct values of a field.",
    Needs::CollectionOrUuid(&[Action::Find]),
    run,
)
.reads(Counter::Command)
.explains(explain);

/// A reply's limit.
const MAX_BYTES: usize = 16 * 1024 * 1024;

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (namespace, request) = parse(context, fields)?;
    context.at_collection(&namespace);
    context.check_uuid(&namespace)?;
    let mut op = context.op();
    let values = query::distinct(&mut op, &namespace, &request)?;
    if values.as_bytes().len() > MAX_BYTES {
        return Err(Error::location(17217, "distinct too big, 16mb cap"));
    }
    context.reply.array("values", &values);
    if let Some((time, _)) = context.read_state {
        context.reply.timestamp("atClusterTime", time);
    }
    Ok(())
}

fn explain(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let (namespace, request) = parse(context, fields)?;
    context.at_collection(&namespace);
    context.check_uuid(&namespace)?;
    let verbosity = verbosity_of(context);
    let mut op = context.op();
    let plan = query::explain_distinct(&mut op, &namespace, &request, verbosity)?;
    write_explain(context, &plan);
    Ok(())
}

fn parse<'a>(
    context: &mut Context<'_>,
    fields: &[Field<'a>],
) -> Result<(Namespace, DistinctRequest<'a>)> {
    let namespace = context.namespace_or_uuid(&fields[0], Action::Find)?;
    let mut request = DistinctRequest { key: "", filter: None, hint: None, collation: None };
    let mut key = None;
    for field in &fields[1..] {
        match field.name {
            "key" => key = Some(field.str()?),
            "query" if field.is_null() => {}
            "query" => request.filter = Some(field.document()?),
            "hint" => request.hint = Some(field.hint()?),
            "collation" => request.collation = Some(field.document()?),
            _ => return Err(field.unknown()),
        }
    }
    request.key = key.ok_or_else(|| missing("distinct", "key"))?;
    if request.key.contains('\0') {
        return Err(Error::location(31032, "Key field cannot contain an embedded null byte"));
    }
    Ok((namespace, request))
}

//! `getLog`: the newest log lines.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawBsonRef;
use dispatch::fields::{Field, type_name};
use errors::{Code, Error, Result};

const NAMES: [&str; 2] = ["global", "startupWarnings"];

pub(crate) const GET_LOG: Command =
    Command::new("getLog", "The newest log lines.", Needs::Cluster(&[Action::GetLog]), run)
        .admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let name = match fields[0].value {
        RawBsonRef::String(name) => name,
        other => {
            return Err(Error::type_mismatch(format!(
                "Argument to getLog must be of type String; found {} of type {}",
                bson::Bson::try_from(other).map(|v| v.to_string()).unwrap_or_default(),
                type_name(other)
            )));
        }
    };
    let reply = &mut context.reply;
    if name == "*" {
        let names = reply.begin_array("names");
        for (at, name) in NAMES.into_iter().enumerate() {
            reply.element_str(at, name);
        }
        reply.end(names);
        return Ok(());
    }
    let (lines, total) = context
        .service
        .host
        .recent_log(name)
        .ok_or_else(|| Error::new(Code::OPERATION_FAILED, format!("No log named '{name}'")))?;
    reply.number("totalLinesWritten", total);
    let log = reply.begin_array("log");
    for (at, line) in lines.iter().enumerate() {
        reply.element_str(at, line);
    }
    reply.end(log);
    Ok(())
}

//! `listPlugins`, `loadPlugin` and `unloadPlugin` (TokuMX): none is loaded, for what came as plugins is part of the server.
//!
//! Always true: the server loads no code of others.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::RawBsonRef;
use dispatch::fields::Field;
use errors::{Code, Error, Result};

pub(crate) const LIST_PLUGINS: Command = Command::new(
    "listPlugins",
    "The plugins that are loaded: none (TokuMX).",
    Needs::Cluster(&[Action::GetParameter]),
    list,
)
.admin_only();

pub(crate) const LOAD_PLUGIN: Command = Command::new(
    "loadPlugin",
    "Refused: what came as plugins is part of the server (TokuMX).",
    Needs::Cluster(&[Action::SetParameter]),
    refuse,
)
.admin_only();

pub(crate) const UNLOAD_PLUGIN: Command = Command::new(
    "unloadPlugin",
    "Refused: what came as plugins is part of the server (TokuMX).",
    Needs::Cluster(&[Action::SetParameter]),
    refuse,
)
.admin_only();

fn list(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let plugins = context.reply.begin_array("plugins");
    context.reply.end(plugins);
    Ok(())
}

fn refuse(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let RawBsonRef::String(name) = fields[0].value else {
        return Err(fields[0].wrong_type("string"));
    };
    for field in &fields[1..] {
        match field.name {
            "checksum" => drop(field.str()?),
            _ => return Err(field.unknown()),
        }
    }
    Err(Error::new(
        Code::NOT_IMPLEMENTED,
        format!(
            "{} '{name}' is not supported by this version of FernDB: backups and the audit log are part of the \
             server, which loads no code of others",
            context.command.name
        ),
    ))
}

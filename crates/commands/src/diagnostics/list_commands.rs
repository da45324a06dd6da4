//! `listCommands`: the registry, to the client.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use dispatch::fields::Field;
use dispatch::rules::Class;
use errors::Result;

pub(crate) const LIST_COMMANDS: Command =
    Command::new("listCommands", "Every command of this server.", Needs::NoLogin, run);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let mut sorted: Vec<_> = context.registry.all().to_vec();
    sorted.sort_unstable_by_key(|command| command.name);
    let reply = &mut context.reply;
    let all = reply.begin_document("commands");
    for command in sorted {
        let one = reply.begin_document(command.name);
        reply.str("help", command.about);
        reply.bool("requiresAuth", !matches!(command.needs, Needs::NoLogin));
        reply.bool("secondaryOk", command.class != Class::Write);
        reply.bool("adminOnly", command.admin_only);
        let versions = reply.begin_array("apiVersions");
        if command.api_v1 {
            reply.element_str(0, "1");
        }
        reply.end(versions);
        let deprecated = reply.begin_array("deprecatedApiVersions");
        reply.end(deprecated);
        reply.end(one);
    }
    reply.end(all);
    Ok(())
}

//! `getCmdLineOpts`: how the server was started.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use bson::Bson;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const GET_CMD_LINE_OPTS: Command = Command::new(
    "getCmdLineOpts",
    "How the server was started.",
    Needs::Cluster(&[Action::GetCmdLineOpts]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let info = &context.service.info;
    let reply = &mut context.reply;
    let argv = reply.begin_array("argv");
    for (at, argument) in info.argv.iter().enumerate() {
        reply.element_str(at, argument);
    }
    reply.end(argv);
    reply.bson("parsed", &Bson::Document(info.parsed_options.clone()));
    Ok(())
}

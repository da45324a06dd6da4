//! `getDiagnosticData`: the newest sample in the shape of MongoDB's, for exporters.
//!
//! Always true: the sample is taken when it is asked for; what was before is `serverHistory`'s.

use super::server_status::{self, Shape};
use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const GET_DIAGNOSTIC_DATA: Command = Command::new(
    "getDiagnosticData",
    "The server's figures now, for exporters.",
    Needs::Cluster(&[Action::ServerStatus]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let (service, reply) = (context.service, &mut context.reply);
    let now = || service.os.clock.wall_ms();
    let data = reply.begin_document("data");
    reply.date("start", now());
    let status = reply.begin_document("serverStatus");
    reply.date("start", now());
    server_status::write(service, reply, |_| None, Shape::default(), 1);
    reply.date("end", now());
    reply.end(status);
    reply.date("end", now());
    reply.end(data);
    Ok(())
}

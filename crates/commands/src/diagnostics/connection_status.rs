//! `connectionStatus`: who the client is to us.

use crate::command::Command;
use crate::context::Context;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const CONNECTION_STATUS: Command =
    Command::new("connectionStatus", "Users and roles of this connection.", run);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut privileges = false;
    for field in &fields[1..] {
        match field.name {
            "showPrivileges" => privileges = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    let reply = &mut context.reply;
    let open = reply.begin_document("authInfo");
    let lists = ["authenticatedUsers", "authenticatedUserRoles", "authenticatedUserPrivileges"];
    for name in &lists[..if privileges { 3 } else { 2 }] {
        let list = reply.begin_array(name);
        reply.end(list);
    }
    reply.end(open);
    Ok(())
}

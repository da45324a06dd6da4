//! `connectionStatus`: who the client is to us.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::{RoleName, UserName};
use bson::{Bson, Uuid, doc};
use dispatch::fields::Field;
use errors::Result;

pub(crate) const CONNECTION_STATUS: Command =
    Command::new("connectionStatus", "Users and roles of this connection.", Needs::NoLogin, run);

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    let mut privileges = false;
    for field in &fields[1..] {
        match field.name {
            "showPrivileges" => privileges = field.bool()?,
            _ => return Err(field.unknown()),
        }
    }
    let identity = context.service.identity(context.connection)?;
    let identity = identity.as_deref();
    let named = |name: &UserName| Bson::Document(doc! { "user": &name.user, "db": &name.db });
    let users: Vec<Bson> = identity.map(|id| named(&id.name)).into_iter().collect();
    let role = |role: &RoleName| Bson::Document(role.to_document());
    let roles =
        identity.map_or(Vec::new(), |id| id.rights.resolved.roles.iter().map(role).collect());
    let mut info = doc! { "authenticatedUsers": users, "authenticatedUserRoles": roles };
    if privileges {
        let held = identity.map_or(&[][..], |id| &id.rights.resolved.privileges);
        let held: Vec<Bson> = held.iter().map(|one| Bson::Document(one.to_document())).collect();
        info.insert("authenticatedUserPrivileges", held);
    }
    context.reply.bson("authInfo", &Bson::Document(info));
    // By which the audit log knows the connection.
    let uuid = Uuid::from_bytes(context.connection.audit_id(&context.service.os));
    context.reply.bson("uuid", &Bson::from(uuid));
    Ok(())
}

//! `invalidateUserCache`: everybody is looked up again.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use errors::Result;

pub(crate) const INVALIDATE_USER_CACHE: Command = Command::new(
    "invalidateUserCache",
    "Looks users and roles up again.",
    Needs::Cluster(&[Action::InvalidateUserCache]),
    run,
)
.admin_only();

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    context.service.security.changed();
    Ok(())
}

//! The gate: whether a request may be run at all.
//!
//! Always true: it is asked before the request is registered, counted, shown or touches a session or the clock; it
//! changes nothing but that it forgets a user who was dropped. What it cannot read it refuses.

use crate::command::{Command, Registry};
use crate::needs::{Asked, Needs, Required, is_unique};
use auth::{Grants, Privilege, Resource};
use bson::{RawBsonRef, RawDocument};
use dispatch::Request;
use errors::{Code, Error, Result};
use serverstate::security::Identity;
use serverstate::{Connection, Origin, ServerState};
use session::UserDigest;
use std::sync::Arc;

/// Who sends a request, as the gate has found.
#[derive(Clone, Default)]
pub(crate) struct Admitted {
    /// Who is logged in; nobody where nobody is asked.
    pub(crate) identity: Option<Arc<Identity>>,
    /// What the request was judged by.
    pub(crate) required: Vec<Privilege>,
    /// Nobody is logged in, and there is nobody who could: it is about the first user.
    pub(crate) by_exception: bool,
    /// Users are asked for.
    pub(crate) enforced: bool,
}

impl Admitted {
    /// Whose cursors, sessions and operations the request may touch.
    pub(crate) fn digest(&self) -> UserDigest {
        self.identity.as_ref().map_or(UserDigest::NOBODY, |identity| identity.digest)
    }

    /// Whether these privileges are held, or nobody is asked.
    pub(crate) fn may(&self, privilege: &Privilege) -> bool {
        !self.enforced || self.identity.as_ref().is_some_and(|id| id.grants.covers(privilege))
    }

    /// Whether an action on the server is allowed, or nobody is asked.
    pub(crate) fn may_cluster(&self, action: auth::Action) -> bool {
        let actions = auth::ActionSet::of(&[action]);
        self.may(&Privilege { resource: Resource::Cluster, actions })
    }
}

/// Lets a request through, or says why not.
pub(crate) fn admit(
    state: &ServerState,
    registry: &Registry,
    connection: &Connection,
    request: &Request<'_>,
    command: &'static Command,
    body: &RawDocument,
) -> Result<Admitted> {
    if connection.origin == Origin::Startup {
        return Ok(Admitted::default());
    }
    let identity = state.identity(connection)?;
    let mut admitted = Admitted { identity, enforced: true, ..Admitted::default() };
    if matches!(command.needs, Needs::Nobody) {
        return Ok(admitted);
    }
    let exception = match &admitted.identity {
        Some(_) => None,
        None => state.localhost_exception(connection)?,
    };
    let grants: &Grants = match (&admitted.identity, &exception) {
        (Some(identity), _) => &identity.grants,
        (None, Some(exception)) => exception,
        (None, None) => {
            return Err(Error::new(
                Code::UNAUTHORIZED,
                format!("Command {} requires authentication", command.name),
            ));
        }
    };
    let mut required = Required::default();
    let needs_of = |name: &str| registry.find(name).map(|(_, command)| &command.needs);
    let asked = Asked {
        database: request.database,
        body,
        sequences: request.sequences,
        user: admitted.identity.as_ref().map(|identity| &identity.name),
        grants,
        needs_of: &needs_of,
        depth: 0,
    };
    // What stands there twice could be judged by the one and done by the other.
    let is_plain = !matches!(command.needs, Needs::Computed(_))
        || is_unique(body)
            && request.sequences.iter().enumerate().all(|(at, (name, _))| {
                body.get(*name).is_ok_and(|value| value.is_none())
                    && request.sequences[..at].iter().all(|(other, _)| other != name)
            });
    command.needs.of(&asked, &mut required);
    // Nothing but the first user is made without a login.
    let nothing_asked = exception.is_some() && required.privileges().is_empty();
    let allowed = required.privileges().iter().all(|privilege| grants.covers(privilege));
    if !is_plain || nothing_asked || !allowed {
        return Err(refusal(request.database, command, body));
    }
    admitted.by_exception = exception.is_some();
    admitted.required = required.into_privileges();
    Ok(admitted)
}

/// Whether a command may be run within the one that was let through: what came to be of a part of it only now.
pub(crate) fn may_within(
    admitted: &Admitted,
    registry: &Registry,
    database: &str,
    body: &RawDocument,
) -> bool {
    if !admitted.enforced {
        return true;
    }
    let Some(identity) = &admitted.identity else { return false };
    let name = body.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str());
    let Some((_, command)) = registry.find(name) else { return false };
    let needs_of = |name: &str| registry.find(name).map(|(_, command)| &command.needs);
    let mut required = Required::default();
    let asked = Asked {
        database,
        body,
        sequences: &[],
        user: Some(&identity.name),
        grants: &identity.grants,
        needs_of: &needs_of,
        depth: 0,
    };
    command.needs.of(&asked, &mut required);
    required.privileges().iter().all(|privilege| identity.grants.covers(privilege))
}

/// The refusal: it names the command and its collection, and shows no other field.
pub(crate) fn refusal(database: &str, command: &Command, body: &RawDocument) -> Error {
    let value = match body.iter().next() {
        Some(Ok((_, RawBsonRef::String(name)))) => format!("{name:?}"),
        Some(Ok((_, RawBsonRef::Int32(number)))) => number.to_string(),
        Some(Ok((_, RawBsonRef::Int64(number)))) => number.to_string(),
        Some(Ok((_, RawBsonRef::Double(number)))) => format!("{number:?}"),
        _ => "...".to_owned(),
    };
    Error::new(
        Code::UNAUTHORIZED,
        format!("not authorized on {database} to execute command {{ {}: {value} }}", command.name),
    )
}

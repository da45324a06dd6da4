//! The gate: whether a request may be run at all.
//!
//! Always true: it is asked before the request is registered, counted, shown or touches a session or the clock; it
//! changes nothing but that it forgets a user who was dropped. What it cannot read it refuses.

use crate::command::{Command, Registry};
use crate::judged::Judged;
use crate::needs::{Asked, Needs, Required, first_of, is_unique, repeats_its_name, text_of};
use crate::registry::COMMANDS;
use auth::{Action, ActionSet, Grants, Privilege, Target};
use bson::raw::RawArrayBuf;
use bson::{RawBsonRef, RawDocument};
use bsonval::raw;
use dispatch::Request;
use errors::{Code, Error, Result};
use serverstate::security::Identity;
use serverstate::{Connection, Origin, ServerState};
use session::UserDigest;
use std::sync::Arc;

/// Who sends a request, as the gate has found.
#[derive(Clone, Default)]
pub(crate) struct Admitted {
    /// The user who is logged in; `None` where access control is off or the localhost exception applies.
    pub(crate) identity: Option<Arc<Identity>>,
    /// Admitted without a login, to create the first user.
    pub(crate) by_localhost_exception: bool,
    /// Access control is on.
    pub(crate) is_access_control_on: bool,
}

impl Admitted {
    /// Whose cursors, sessions and operations the request may touch.
    pub(crate) fn digest(&self) -> UserDigest {
        self.identity.as_ref().map_or(UserDigest::NOBODY, |identity| identity.digest)
    }

    /// The user's roles, its own and those that they inherit, as `$$USER_ROLES` tells them.
    pub(crate) fn shown_roles(&self) -> Arc<RawArrayBuf> {
        // One for each thread: a count of references that all threads change would go from processor to processor.
        thread_local! { static NONE: Arc<RawArrayBuf> = Arc::default(); }
        match &self.identity {
            Some(identity) => Arc::clone(&identity.rights.shown_roles),
            None => NONE.with(Arc::clone),
        }
    }

    /// Whether the user has these privileges, or access control is off.
    pub(crate) fn may(&self, privilege: &Privilege) -> bool {
        !self.is_access_control_on
            || self.identity.as_ref().is_some_and(|id| id.rights.grants.covers(privilege))
    }

    /// Whether the user may do an action, or access control is off.
    pub(crate) fn may_do(&self, target: Target<'_>, action: Action) -> bool {
        let actions = ActionSet::of(&[action]);
        !self.is_access_control_on
            || self.identity.as_ref().is_some_and(|id| id.rights.grants.allow(target, actions))
    }

    /// Whether the time limit for reads that name none is not the user's. Without access control it is everybody's.
    pub(crate) fn bypasses_default_limit(&self) -> bool {
        let action = ActionSet::of(&[Action::BypassDefaultMaxTimeMS]);
        let identity = self.identity.as_ref();
        identity.is_some_and(|id| id.rights.grants.allow(Target::Cluster, action))
    }

    /// The same for an action on the server.
    pub(crate) fn may_cluster(&self, action: Action) -> bool {
        self.may_do(Target::Cluster, action)
    }
}

/// Lets a request through, and tells what it was judged by where anybody is asked for; or says why not.
pub(crate) fn admit<'a>(
    state: &ServerState,
    registry: &Registry,
    connection: &Connection,
    request: &'a Request<'_>,
    command: &'static Command,
    body: &'a RawDocument,
) -> Result<(Admitted, Option<Judged<'a>>)> {
    if connection.origin == Origin::Startup {
        return Ok((Admitted::default(), None));
    }
    let identity = state.identity(connection)?;
    let mut admitted = Admitted { identity, is_access_control_on: true, ..Admitted::default() };
    if matches!(command.needs, Needs::NoLogin) {
        return Ok((admitted, Some(Judged::default())));
    }
    let exception = match &admitted.identity {
        Some(_) => None,
        None => state.localhost_exception(connection)?,
    };
    let grants: &Grants = match (&admitted.identity, &exception) {
        (Some(identity), _) => &identity.rights.grants,
        (None, Some(exception)) => exception,
        (None, None) => {
            return Err(Error::new(
                Code::UNAUTHORIZED,
                format!("Command {} requires authentication", command.name),
            ));
        }
    };
    let needs_of = |name: &str| registry.find(name).map(|(_, command)| &command.needs);
    let user = admitted.identity.as_ref().map(|identity| &identity.name);
    let first = first_of(body);
    let asked =
        Asked::new(request.database, (body, first, request.sequences), user, grants, &needs_of);
    // A field that is given twice could be authorized by one value and executed with the other.
    let is_plain = !matches!(command.needs, Needs::Computed(_))
        || (is_unique(body) || command.name == "create" && repeats_its_name(body))
            && request.sequences.iter().enumerate().all(|(at, (name, _))| {
                raw::field_by_bytes(body, name).is_ok_and(|value| value.is_none())
                    && request.sequences[..at].iter().all(|(other, _)| other != name)
            });
    let mut judged = Judged::of(request.database, text_of(first));
    let verdict = judge(&command.needs, &asked, &mut judged);
    // The localhost exception allows nothing but to create the first user.
    let needs_nothing = exception.is_some() && verdict.is_empty;
    if !is_plain || needs_nothing || !verdict.is_allowed {
        return Err(refusal(request.database, command, body));
    }
    admitted.by_localhost_exception = exception.is_some();
    Ok((admitted, Some(judged)))
}

/// Judges `body`, which the admitted command is going to run: it may have changed what the gate has seen, as `applyOps`
/// does, which puts the collection that an entry's UUID stands for in the place of the one that the entry names.
pub(crate) fn judge_within<'a>(
    admitted: &Admitted,
    registry: &Registry,
    (database, body): (&'a str, &'a RawDocument),
    refusal: impl FnOnce() -> Error,
) -> Result<Option<Judged<'a>>> {
    if !admitted.is_access_control_on {
        return Ok(None);
    }
    let name = body.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str());
    let (Some(identity), Some((_, command))) = (&admitted.identity, registry.find(name)) else {
        return Err(refusal());
    };
    let needs_of = |name: &str| registry.find(name).map(|(_, command)| &command.needs);
    let first = first_of(body);
    let asked = Asked::new(
        database,
        (body, first, &[]),
        Some(&identity.name),
        &identity.rights.grants,
        &needs_of,
    );
    let mut judged = Judged::of(database, text_of(first));
    let verdict = judge(&command.needs, &asked, &mut judged);
    if verdict.is_allowed { Ok(Some(judged)) } else { Err(refusal()) }
}

/// What a request was judged by: a cursor keeps it, for its next batch is judged by the same.
pub(crate) fn privileges(
    admitted: &Admitted,
    registry: &Registry,
    request: &Request<'_>,
    command: &Command,
    body: &RawDocument,
) -> Vec<Privilege> {
    let Some(identity) = &admitted.identity else { return Vec::new() };
    let (user, grants) = (Some(&identity.name), &identity.rights.grants);
    let needs_of = |name: &str| registry.find(name).map(|(_, command)| &command.needs);
    let first = first_of(body);
    let asked =
        Asked::new(request.database, (body, first, request.sequences), user, grants, &needs_of);
    let mut privileges = Vec::new();
    let mut keep = |target: Target<'_>, actions| {
        privileges.push(Privilege { resource: target.to_resource(), actions });
    };
    command.needs.of(&asked, &mut Required::new(&mut keep));
    privileges
}

/// What commands say that they need, for who looks at that without a server.
pub struct DeclaredNeeds(Registry);

impl Default for DeclaredNeeds {
    fn default() -> Self {
        Self(Registry::new(COMMANDS))
    }
}

impl DeclaredNeeds {
    /// Every command's name.
    pub fn commands() -> impl Iterator<Item = &'static str> {
        COMMANDS.iter().map(|command| command.name)
    }

    /// Whether a request may be run before anybody has logged in.
    pub fn is_before_login(&self, body: &RawDocument) -> bool {
        self.find(body).is_some_and(|command| matches!(command.needs, Needs::NoLogin))
    }

    /// What a request needs of somebody with these grants; none where there is no such command, or it is refused
    /// whoever sends it.
    pub fn of(
        &self,
        database: &str,
        body: &RawDocument,
        grants: &Grants,
    ) -> Option<Vec<Privilege>> {
        self.ask(database, body, grants, |needs, asked| {
            let mut privileges = Vec::new();
            let mut keep = |target: Target<'_>, actions| {
                privileges.push(Privilege { resource: target.to_resource(), actions });
            };
            needs.of(asked, &mut Required::new(&mut keep));
            privileges
        })
    }

    /// Whether the gate lets somebody with these grants do this; none as in [`Self::of`].
    pub fn admits(&self, database: &str, body: &RawDocument, grants: &Grants) -> Option<bool> {
        self.ask(database, body, grants, |needs, asked| {
            judge(needs, asked, &mut Judged::default()).is_allowed
        })
    }

    fn ask<T>(
        &self,
        database: &str,
        body: &RawDocument,
        grants: &Grants,
        answer: impl FnOnce(&Needs, &Asked<'_>) -> T,
    ) -> Option<T> {
        let command = self.find(body)?;
        if matches!(command.needs, Needs::Computed(_)) && !is_unique(body) {
            return None;
        }
        let needs_of = |name: &str| self.0.find(name).map(|(_, command)| &command.needs);
        let asked = Asked::new(database, (body, first_of(body), &[]), None, grants, &needs_of);
        Some(answer(&command.needs, &asked))
    }

    fn find(&self, body: &RawDocument) -> Option<&'static Command> {
        let (name, _) = body.iter().next()?.ok()?;
        self.0.find(name.as_str()).map(|(_, command)| command)
    }
}

/// What became of all that a request needs.
struct Verdict {
    is_empty: bool,
    is_allowed: bool,
}

/// Judges a request, and notes what by.
fn judge(needs: &Needs, asked: &Asked<'_>, judged: &mut Judged<'_>) -> Verdict {
    let mut is_allowed = true;
    let mut ask = |target: Target<'_>, actions| {
        is_allowed &= asked.grants.allow(target, actions);
        judged.add(target, actions);
    };
    let mut required = Required::new(&mut ask);
    needs.of(asked, &mut required);
    Verdict { is_empty: required.is_empty(), is_allowed }
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

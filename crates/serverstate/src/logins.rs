//! Who is logged in on a connection, and what it may do: looked up, and looked up again after every change.
//!
//! Always true: nobody is logged in who is not stored, or comes from where the user or one of its roles may not; a
//! request is judged by what was stored when the last change was acknowledged.

mod store;

use crate::connection::Connection;
use crate::replication::Role;
use crate::rights::Rights;
use crate::security::{CERTIFICATE_ID, Identity, Login, MEMBER_ID, Tables};
use crate::state::ServerState;
use auth::scram::{Credentials, Mechanism, prepare};
use auth::{
    Action, ActionSet, Address, Grants, Privilege, Resource, Restrictions, RoleName, Roles,
    UserName, all_met,
};
use dispatch::ConnectionInfo;
use errors::{Code, Error, Result};
use session::UserDigest;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The two ends of a connection as addresses.
fn address_of(info: &ConnectionInfo) -> Address {
    let of = |text: &str| text.parse::<SocketAddr>().ok().map(|at| at.ip());
    Address { client: of(&info.remote), server: of(&info.local) }
}

impl ServerState {
    /// Counts every change of users and roles: by commands here, and by commits of whatever kind, other members' too.
    fn users_generation(&self) -> u64 {
        let told = self.security.generation.load(Ordering::Acquire);
        told + self.catalog.account_changes()
    }

    /// The users and roles that are stored. Reads them where they have changed.
    pub fn user_tables(&self) -> Result<Arc<Tables>> {
        // Before the snapshot: a change after this makes it be read again.
        let generation = self.users_generation();
        let known = self.security.tables.lock().clone();
        if let Some(known) = known.filter(|known| known.generation == generation) {
            return Ok(known);
        }
        let tables = Arc::new(store::load(self, generation)?);
        let mut held = self.security.tables.lock();
        if held.as_ref().is_none_or(|held| held.generation < generation) {
            *held = Some(Arc::clone(&tables));
        }
        Ok(tables)
    }

    /// Who is logged in on a connection, as of now. Somebody who was dropped is nobody from here on.
    pub fn identity(&self, connection: &Connection) -> Result<Option<Arc<Identity>>> {
        let Some(known) = connection.login.lock().identity.clone() else { return Ok(None) };
        if known.generation == self.users_generation() {
            return Ok(Some(known));
        }
        let now = self.look_up(&known.name, Some(known.id), connection)?.map(Arc::new);
        connection.login.lock().identity.clone_from(&now);
        if now.is_none() {
            self.abort_bound(connection);
        }
        Ok(now)
    }

    /// Logs in whoever has proven to be this user. Somebody else who is logged in stays, and it is an error; under
    /// `apiStrict` (`is_strict`) the same user may not log in twice either.
    pub fn log_in(
        &self,
        user: &UserName,
        id: [u8; 16],
        connection: &Connection,
        is_strict: bool,
    ) -> Result<()> {
        let refused = || Error::new(Code::AUTHENTICATION_FAILED, "Authentication failed.");
        let identity = self.may_come(user, id, connection)?.ok_or_else(refused)?;
        self.log_in_as(identity, connection, is_strict)
    }

    /// Logs in who has proven to be this user, and may come ([`Self::may_come`]).
    pub fn log_in_as(
        &self,
        identity: Identity,
        connection: &Connection,
        is_strict: bool,
    ) -> Result<()> {
        let mut login = connection.login.lock();
        if let Some(other) = &login.identity
            && (other.name != identity.name || is_strict)
        {
            let (number, what) = if other.name == identity.name {
                (5626703, "the same user again under apiStrict")
            } else if other.name.db == identity.name.db {
                (5626702, "different users")
            } else {
                (5626701, "users of different databases")
            };
            return Err(Error::location(
                number,
                format!(
                    "Each client connection may only be authenticated once, not as {what}. Previously authenticated as: {}",
                    other.name
                ),
            ));
        }
        login.identity = Some(Arc::new(identity));
        Ok(())
    }

    /// Logs in who says the password itself, which only the status port is told.
    pub fn log_in_by_password(
        &self,
        user: &UserName,
        password: &str,
        connection: &Connection,
    ) -> Result<()> {
        let refused = || Error::new(Code::AUTHENTICATION_FAILED, "Authentication failed.");
        let tables = self.user_tables()?;
        let stored = tables.users.get(user);
        let by = |mechanism| {
            let stored = stored?.credentials.get(&mechanism)?;
            self.security.is_enabled(mechanism).then(|| (mechanism, stored.clone()))
        };
        let found = by(Mechanism::Sha256).or_else(|| by(Mechanism::Sha1));
        // The work of both is done for everybody.
        let mechanism = Mechanism::Sha256;
        let (secret, count) =
            (self.mock_credentials_secret()?, self.security.iterations(mechanism));
        let nobody =
            Credentials::mock_for_unknown_user(mechanism, secret, &user.user, &user.db, count);
        let (mechanism, credentials) = found.unwrap_or((mechanism, nobody));
        let prepared = prepare(mechanism, &user.user, password).map_err(|_| refused())?;
        let fits = credentials.matches_password(mechanism, &prepared);
        match stored {
            Some(stored) if fits => self.log_in(user, stored.id, connection, false),
            _ => Err(refused()),
        }
    }

    /// Who somebody is who has proven to be this user; nobody where that one was dropped meanwhile, or may not come
    /// from where the connection is.
    pub fn may_come(
        &self,
        user: &UserName,
        id: [u8; 16],
        connection: &Connection,
    ) -> Result<Option<Identity>> {
        self.look_up(user, Some(id), connection)
    }

    /// Forgets who is logged in.
    pub fn log_out(&self, connection: &Connection) {
        *connection.login.lock() = Login::default();
        self.abort_bound(connection);
    }

    fn look_up(
        &self,
        name: &UserName,
        id: Option<[u8; 16]>,
        connection: &Connection,
    ) -> Result<Option<Identity>> {
        let tables = self.user_tables()?;
        if name.is_member() {
            let may_come = self.members_may_come_from(address_of(connection.info()).client);
            return Ok(self.member_identity(name, tables.generation).filter(|_| may_come));
        }
        let of_certificate = self.roles_of_certificate(name, connection);
        let none = Restrictions::default();
        let is_of_certificate = of_certificate.is_some();
        let (known_as, roles, restrictions) = match (of_certificate, tables.users.get(name)) {
            // Nobody is a member by what a certificate says of roles.
            (Some(roles), _) if roles.iter().any(RoleName::is_of_members) => return Ok(None),
            (Some(roles), _) => (CERTIFICATE_ID, roles, &none),
            (None, Some(user)) => (user.id, &user.roles[..], &user.restrictions),
            (None, None) => return Ok(None),
        };
        if id.is_some_and(|id| id != known_as) {
            return Ok(None);
        }
        // A certificate may name any roles, and what is kept is for those that are stored.
        let rights = if is_of_certificate {
            Arc::new(Rights::of(roles, &tables.roles))
        } else {
            tables.rights.of(roles, &tables.roles)
        };
        let holders = rights.resolved.restrictions.iter().chain([restrictions]);
        if !all_met(holders, address_of(connection.info())) {
            return Ok(None);
        }
        Ok(Some(Identity {
            name: name.clone(),
            digest: UserDigest(name.digest()),
            id: known_as,
            roles: roles.to_vec(),
            rights,
            generation: tables.generation,
        }))
    }

    /// The roles that the connection's certificate gives its subject, where it has any and they are taken. Such a user
    /// need not be stored, and of one that is these count.
    pub fn roles_of_certificate<'c>(
        &self,
        name: &UserName,
        connection: &'c Connection,
    ) -> Option<&'c [RoleName]> {
        let takes = self.security.takes_certificate_roles.load(Ordering::Relaxed);
        let certificate = connection.certificate.get().filter(|_| takes)?;
        let is_subject = name.db == UserName::EXTERNAL && name.user == certificate.subject;
        (is_subject && !certificate.roles.is_empty()).then_some(&certificate.roles)
    }

    /// Whether members may log in from there. A socket of this machine's files is nowhere.
    fn members_may_come_from(&self, client: Option<IpAddr>) -> bool {
        let from = &self.info.members_from;
        from.is_empty()
            || client.is_some_and(|client| from.iter().any(|network| network.contains(client)))
    }

    /// Another member of the set: it may do everything.
    fn member_identity(&self, name: &UserName, generation: u64) -> Option<Identity> {
        if !self.security.knows_members() {
            return None;
        }
        let roles = vec![RoleName::new("__system", "admin")];
        let rights = Arc::new(Rights::of(&roles, &Roles::new()));
        Some(Identity {
            name: name.clone(),
            digest: UserDigest(name.digest()),
            id: MEMBER_ID,
            roles,
            rights,
            generation,
        })
    }

    /// What somebody on this machine may do while there is nobody who could log in: make the first user.
    pub fn localhost_exception(&self, connection: &Connection) -> Result<Option<Grants>> {
        let security = &self.security;
        let open = security.is_enforced() && security.localhost_bypass.load(Ordering::Relaxed);
        if !open || !connection.info().is_of_this_machine() || !self.user_tables()?.is_empty {
            return Ok(None);
        }
        let privilege =
            |resource, actions: &[Action]| Privilege { resource, actions: ActionSet::of(actions) };
        // Not in `$external`, as MongoDB lets it: nobody of there could log in, and the door would be shut.
        let users = &[Action::CreateUser, Action::GrantRole];
        if self.replication.role(&self.os) == Role::Arbiter {
            // It never has users, and its set has begun: what is left is to look at it.
            let look = &[Action::ReplSetGetStatus];
            return Ok(Some(Grants::new(&[privilege(Resource::Cluster, look)])));
        }
        // A set begins before it has a user.
        let set = &[Action::ReplSetConfigure, Action::ReplSetGetStatus];
        Ok(Some(Grants::new(&[
            privilege(Resource::Database("admin".into()), users),
            privilege(Resource::Cluster, set),
        ])))
    }
}

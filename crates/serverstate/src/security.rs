//! Users, as the server knows them between two requests: which are stored, who is logged in, whether anybody is asked.
//!
//! | from | to | function |
//! |---|---|---|
//! | nobody | conversing | [`Login::begin`] |
//! | conversing | nobody | a refusal, [`Login::forget`] |
//! | conversing | known | [`ServerState::log_in`] |
//! | known | nobody | [`ServerState::log_out`], or the next request after the user was dropped |
//!
//! Always true: what a user may is looked up again by the first request after any change of users and roles
//! ([`Security::changed`]), so that a right that was taken away is not used once more. A stored user or role that is
//! not understood is none, and never keeps the server from running.

mod store;

pub use store::Tables;

use crate::connection::Connection;
use crate::state::ServerState;
use auth::scram::{Mechanism, Server};
use auth::{Action, Address, Grants, Privilege, Resource, Secret, UserName};
use auth::{ActionSet, Resolved, RoleName, all_met, resolve};
use dispatch::ConnectionInfo;
use errors::{Code, Error, Result};
use os::Os;
use os::sync::Mutex;
use session::UserDigest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether clients are asked who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AuthMode {
    /// Who logs in is known, and nothing is enforced.
    #[default]
    Off,
    /// The same, on the way to being enforced.
    Transition,
    /// Nothing but what somebody may do is done.
    On,
}

/// The fewest iterations that may be set.
pub const FEWEST_ITERATIONS: i64 = 5000;

/// What is known of users and of how they log in.
pub struct Security {
    mode: AuthMode,
    /// `enableLocalhostAuthBypass`.
    pub localhost_bypass: AtomicBool,
    /// `authenticationMechanisms`, as far as a password goes with them.
    pub mechanisms: Mutex<Vec<Mechanism>>,
    /// `scramIterationCount`.
    pub sha1_iterations: AtomicU64,
    /// `scramSHA256IterationCount`.
    pub sha256_iterations: AtomicU64,
    /// What made-up credentials are made of.
    pub secret: Secret,
    /// Counts the changes of users and roles.
    generation: AtomicU64,
    /// What is stored, as of a generation.
    tables: Mutex<Option<Arc<Tables>>>,
    /// One at a time changes users and roles.
    pub changing: Mutex<()>,
}

impl Security {
    pub(crate) fn new(mode: AuthMode, os: &Os) -> Self {
        let mut secret = vec![0; 32];
        os.entropy.fill(&mut secret);
        Self {
            mode,
            localhost_bypass: AtomicBool::new(true),
            mechanisms: Mutex::new(Mechanism::ALL.to_vec()),
            sha1_iterations: AtomicU64::new(10_000),
            sha256_iterations: AtomicU64::new(15_000),
            secret: Secret::new(secret),
            generation: AtomicU64::new(1),
            tables: Mutex::default(),
            changing: Mutex::default(),
        }
    }

    /// Whether what clients may do is enforced.
    pub fn is_enforced(&self) -> bool {
        self.mode == AuthMode::On
    }

    /// Whether logins are on the way to being enforced.
    pub fn mode(&self) -> AuthMode {
        self.mode
    }

    /// Users or roles have changed: everybody is looked up again. Called after the commit, before it is acknowledged.
    pub fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// How often the hash is taken for a new password.
    pub fn iterations(&self, mechanism: Mechanism) -> u32 {
        let count = match mechanism {
            Mechanism::Sha1 => &self.sha1_iterations,
            Mechanism::Sha256 => &self.sha256_iterations,
        };
        u32::try_from(count.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Whether a mechanism may be used.
    pub fn is_enabled(&self, mechanism: Mechanism) -> bool {
        self.mechanisms.lock().contains(&mechanism)
    }
}

/// A user who is logged in, and what it may do, as of a generation.
#[derive(Debug)]
pub struct Identity {
    /// Its name.
    pub name: UserName,
    /// What its sessions and cursors are known by.
    pub digest: UserDigest,
    /// Its `userId`: a user of the same name that was made later is another.
    pub id: [u8; 16],
    /// The roles that it holds itself.
    pub roles: Vec<RoleName>,
    /// These, and all that they inherit.
    pub resolved: Resolved,
    /// What it may do.
    pub grants: Grants,
    generation: u64,
}

/// A login that was begun.
#[derive(Debug)]
pub struct Conversation {
    /// Who wants to log in.
    pub user: UserName,
    /// The user's `userId` when it was begun; none where there is no such user.
    pub id: Option<[u8; 16]>,
    /// How.
    pub mechanism: Mechanism,
    /// Where it is.
    pub step: Step,
    /// The last message needs no empty answer.
    pub skips_empty: bool,
}

/// Where a login is.
#[derive(Debug)]
pub enum Step {
    /// The client's proof is waited for.
    Proof(Box<Server>),
    /// The proof was right; an empty message is waited for.
    Empty,
}

/// What a connection knows of who is behind it.
#[derive(Default)]
pub struct Login {
    identity: Option<Arc<Identity>>,
    conversation: Option<Conversation>,
}

impl Login {
    /// Begins a conversation; one before it is forgotten.
    pub fn begin(&mut self, conversation: Conversation) {
        self.conversation = Some(conversation);
    }

    /// Takes the conversation, to go on with it.
    pub fn take(&mut self) -> Option<Conversation> {
        self.conversation.take()
    }

    /// Forgets it.
    pub fn forget(&mut self) {
        self.conversation = None;
    }
}

/// The two ends of a connection as addresses.
fn address_of(info: &ConnectionInfo) -> Address {
    let of = |text: &str| text.parse::<SocketAddr>().ok().map(|at| at.ip());
    Address { client: of(&info.remote), server: of(&info.local) }
}

impl ServerState {
    /// The users and roles that are stored. Reads them where they have changed.
    pub fn user_tables(&self) -> Result<Arc<Tables>> {
        // Before the snapshot: a change after this makes it be read again.
        let generation = self.security.generation.load(Ordering::Acquire);
        let known = self.security.tables.lock().clone();
        if let Some(known) = known.filter(|known| known.generation == generation) {
            return Ok(known);
        }
        let tables = Arc::new(Tables::load(self, generation)?);
        let mut held = self.security.tables.lock();
        if held.as_ref().is_none_or(|held| held.generation < generation) {
            *held = Some(Arc::clone(&tables));
        }
        Ok(tables)
    }

    /// Who is logged in on a connection, as of now. Somebody who was dropped is nobody from here on.
    pub fn identity(&self, connection: &Connection) -> Result<Option<Arc<Identity>>> {
        let Some(known) = connection.login.lock().identity.clone() else { return Ok(None) };
        if known.generation == self.security.generation.load(Ordering::Acquire) {
            return Ok(Some(known));
        }
        let now = self.look_up(&known.name, Some(known.id), connection)?.map(Arc::new);
        connection.login.lock().identity.clone_from(&now);
        if now.is_none() {
            self.abort_bound(connection);
        }
        Ok(now)
    }

    /// Logs in whoever has proven to be this user. Somebody else who is logged in stays, and it is an error.
    pub fn log_in(&self, user: &UserName, id: [u8; 16], connection: &Connection) -> Result<()> {
        let refused = || Error::new(Code::AUTHENTICATION_FAILED, "Authentication failed.");
        let identity = self.look_up(user, Some(id), connection)?.ok_or_else(refused)?;
        let mut login = connection.login.lock();
        if let Some(other) = &login.identity
            && other.name != *user
        {
            let (number, what) = if other.name.db == user.db {
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

    /// Whether a connection may log in as this user from where it is.
    pub fn may_come(&self, user: &UserName, connection: &Connection) -> Result<bool> {
        Ok(self.look_up(user, None, connection)?.is_some())
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
        let Some(user) = tables.users.get(name) else { return Ok(None) };
        if id.is_some_and(|id| id != user.id) {
            return Ok(None);
        }
        let resolved = resolve(&user.roles, &tables.roles);
        let holders = resolved.restrictions.iter().chain([&user.restrictions]);
        if !all_met(holders, address_of(connection.info())) {
            return Ok(None);
        }
        Ok(Some(Identity {
            name: name.clone(),
            digest: UserDigest(name.digest()),
            id: user.id,
            roles: user.roles.clone(),
            grants: Grants::new(&resolved.privileges),
            resolved,
            generation: tables.generation,
        }))
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
        Ok(Some(Grants::new(&[privilege(
            Resource::Database("admin".into()),
            &[Action::CreateUser, Action::GrantRole],
        )])))
    }
}

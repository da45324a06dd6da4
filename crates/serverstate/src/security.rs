//! Users, as the server knows them between two requests: which are stored, who is logged in, whether anybody is asked.
//!
//! | from | to | function |
//! |---|---|---|
//! | nobody | conversing | [`Login::begin`] |
//! | conversing | nobody | a refusal, [`Login::forget`] |
//! | conversing | known | `ServerState::log_in` |
//! | known | nobody | `ServerState::log_out`, or the next request after the user was dropped |
//!
//! Always true: what a user may is looked up again by the first request after any change of users and roles
//! ([`Security::changed`]), so that a right that was taken away is not used once more. A stored user or role that is
//! not understood is none, and never keeps the server from running.

use crate::failed_logins::FailedLogins;
use crate::known_secret::KnownSecret;
use crate::rights::{KnownRights, Rights};
use auth::scram::{Credentials, Mechanism, Server};
use auth::{ClusterAuth, ClusterKey, RoleName, Roles, Secret, UserDocument, UserName};
use limits::BeforeLogin;
use os::Os;
use os::sync::{Mutex, MutexGuard};
use session::UserDigest;
use std::collections::BTreeMap;
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
/// The most: with more a login's own work would be what keeps people out.
pub const MOST_ITERATIONS: i64 = 10_000_000;

/// Users and roles, as of a generation.
pub struct Tables {
    /// The users that were understood.
    pub users: BTreeMap<UserName, UserDocument>,
    /// The names of those that have a password, to take any of.
    pub(crate) names: Vec<UserName>,
    /// The roles that were understood.
    pub roles: Roles,
    /// Nothing at all is stored, not even what was not understood: nobody can log in, and nobody could.
    pub is_empty: bool,
    /// What lists of these roles come to.
    pub(crate) rights: KnownRights,
    pub(crate) generation: u64,
}

impl Tables {
    /// Who logs in by a name and a mechanism, and what its proof is checked by; `nobody` where there is no such user.
    ///
    /// Whoever exists, one name is found and another is not, and one user's credentials are read and copied: what is
    /// not in the processor's caches takes most of the time, and would tell who exists.
    pub fn credentials_of(
        &self,
        name: &UserName,
        mechanism: Mechanism,
        nobody: Credentials,
    ) -> (Option<[u8; 16]>, Credentials) {
        let of = |name: &UserName| {
            let user = self.users.get(name)?;
            Some((user.id, user.credentials.get(&mechanism)?.clone()))
        };
        let own = of(name);
        let another = self.another(nobody.salt(), if own.is_some() { "\0" } else { "" });
        let unused = another.and_then(|another| of(&another));
        drop(unused);
        own.map_or((None, nobody), |(id, credentials)| (Some(id), credentials))
    }

    /// The name of any user that has a password, the same one for the same salt, with something behind it.
    fn another(&self, salt: &[u8], behind: &str) -> Option<UserName> {
        let number = salt.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
        let at = number.checked_rem(self.names.len() as u64)?;
        let name = &self.names[at as usize];
        Some(UserName::new(format!("{}{behind}", name.user), name.db.as_str()))
    }
}

/// What is known of users and of how they log in.
pub struct Security {
    mode: AuthMode,
    /// What members log in with.
    pub cluster_key: Option<Arc<ClusterKey>>,
    /// How they log in.
    pub cluster_auth: ClusterAuth,
    /// What clients may take that have not logged in.
    pub before_login: BeforeLogin,
    /// Whose logins wait.
    pub failed_logins: FailedLogins,
    /// `authFailedDelayMs`: so long the answer to a login that has failed waits.
    pub failed_delay_ms: AtomicU64,
    /// `enforceUserClusterSeparation`: nobody is a user by a certificate that looks like a member's.
    pub separates_members: AtomicBool,
    /// `allowRolesFromX509Certificates`.
    pub takes_certificate_roles: AtomicBool,
    /// `enableLocalhostAuthBypass`.
    pub localhost_bypass: AtomicBool,
    /// `authenticationMechanisms`, as far as a password goes with them.
    pub mechanisms: Mutex<Vec<Mechanism>>,
    /// Whether certificates are among them.
    x509: AtomicBool,
    /// `scramIterationCount`.
    pub sha1_iterations: AtomicU64,
    /// `scramSHA256IterationCount`.
    pub sha256_iterations: AtomicU64,
    /// What made-up credentials are made of while the directory keeps no secret.
    pub(crate) secret: Secret,
    /// The secret that it keeps.
    pub(crate) shared_secret: KnownSecret,
    /// Counts what requests opened that they were not judged by: there must be none.
    pub permit_misses: Arc<AtomicU64>,
    /// Counts the changes of users and roles.
    pub(crate) generation: AtomicU64,
    /// What is stored, as of a generation.
    pub(crate) tables: Mutex<Option<Arc<Tables>>>,
    /// One at a time changes users and roles: [`Security::try_change`].
    changing: Mutex<()>,
}

impl Security {
    pub(crate) fn new(
        mode: AuthMode,
        (cluster_auth, cluster_key): (ClusterAuth, Option<Arc<ClusterKey>>),
        os: &Os,
    ) -> Self {
        // Of the members of a set it is the same, so that they give the same answers for who does not exist.
        let secret = if let Some(key) = &cluster_key {
            key.secret_for(b"credentials of users that do not exist")
        } else {
            let mut secret = vec![0; 32];
            os.entropy.fill(&mut secret);
            Secret::new(secret)
        };
        Self {
            mode,
            cluster_key,
            cluster_auth,
            before_login: BeforeLogin::default(),
            failed_logins: FailedLogins::default(),
            failed_delay_ms: AtomicU64::new(0),
            separates_members: AtomicBool::new(true),
            takes_certificate_roles: AtomicBool::new(true),
            localhost_bypass: AtomicBool::new(true),
            mechanisms: Mutex::new(Mechanism::ALL.to_vec()),
            x509: AtomicBool::new(true),
            sha1_iterations: AtomicU64::new(10_000),
            sha256_iterations: AtomicU64::new(15_000),
            secret,
            shared_secret: KnownSecret::default(),
            permit_misses: Arc::default(),
            generation: AtomicU64::new(1),
            tables: Mutex::default(),
            changing: Mutex::default(),
        }
    }

    /// Whether there is anything that a member could log in by.
    pub(crate) fn knows_members(&self) -> bool {
        self.cluster_key.is_some() || self.cluster_auth.takes_certificates()
    }

    /// Whether what clients may do is enforced.
    pub fn is_enforced(&self) -> bool {
        self.mode == AuthMode::On
    }

    /// Whether logins are on the way to being enforced.
    pub fn mode(&self) -> AuthMode {
        self.mode
    }

    /// The turn to change users and roles, where nobody has it. Who has it may wait for a majority, so whoever wants it
    /// asks again and looks meanwhile whether it is to go on.
    pub fn try_change(&self) -> Option<MutexGuard<'_, ()>> {
        self.changing.try_lock()
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

    /// Whether one may log in by a certificate.
    pub fn is_x509_enabled(&self) -> bool {
        self.x509.load(Ordering::Relaxed)
    }

    /// Lets one log in by a certificate, or not.
    pub fn enable_x509(&self, enabled: bool) {
        self.x509.store(enabled, Ordering::Relaxed);
    }

    /// Whether a mechanism may be used.
    pub fn is_enabled(&self, mechanism: Mechanism) -> bool {
        self.mechanisms.lock().contains(&mechanism)
    }
}

/// What stands in the place of a `userId` for the members of the set.
pub const MEMBER_ID: [u8; 16] = [0xff; 16];

/// And of who has its roles from its certificate, and need not be stored.
pub const CERTIFICATE_ID: [u8; 16] = [0xfe; 16];

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
    /// What it may do by them.
    pub rights: Arc<Rights>,
    pub(crate) generation: u64,
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
    /// It has failed, and the answer that says so waits.
    Failed,
}

/// What a connection knows of who is behind it.
#[derive(Default)]
pub struct Login {
    pub(crate) identity: Option<Arc<Identity>>,
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

    /// Whether somebody is logged in.
    pub fn is_somebody(&self) -> bool {
        self.identity.is_some()
    }

    /// The conversation.
    pub fn conversation(&self) -> Option<&Conversation> {
        self.conversation.as_ref()
    }

    /// Forgets it.
    pub fn forget(&mut self) {
        self.conversation = None;
    }
}

#[cfg(test)]
mod tests {
    use super::{KnownRights, Tables};
    use auth::scram::{Credentials, Mechanism};
    use auth::{Roles, UserDocument, UserName};
    use std::collections::BTreeMap;

    fn user(name: &str, salt: u8) -> UserDocument {
        let prepared = Credentials::derive(Mechanism::Sha256, "p", vec![salt; 28], 5000);
        let credentials = bson::doc! { "SCRAM-SHA-256": prepared.to_document() };
        UserDocument::parse(&bson::doc! {
            "_id": format!("test.{name}"), "user": name, "db": "test", "roles": [],
            "userId": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![salt; 16] },
            "credentials": credentials,
        })
        .expect("a user")
    }

    #[test]
    fn who_does_not_exist_gets_nobodys_credentials() {
        let users: BTreeMap<_, _> = [user("a", 1), user("b", 2)]
            .into_iter()
            .map(|user| (user.name.clone(), user))
            .collect();
        let names = users.keys().cloned().collect();
        let mut tables = Tables {
            users,
            names,
            roles: Roles::new(),
            is_empty: false,
            rights: KnownRights::default(),
            generation: 0,
        };
        let salt_of = |tables: &Tables, name: &str, mechanism| {
            // Whichever other user is looked at.
            let of = |byte: u8| {
                let nobody =
                    Credentials::derive(mechanism, "n", vec![byte; mechanism.salt_bytes()], 5000);
                let (id, found) =
                    tables.credentials_of(&UserName::new(name, "test"), mechanism, nobody);
                (id.map(|id| id[0]), found.salt()[0] == byte)
            };
            assert_eq!(of(10), of(11));
            of(10)
        };
        assert_eq!(salt_of(&tables, "a", Mechanism::Sha256), (Some(1), false));
        assert_eq!(salt_of(&tables, "b", Mechanism::Sha256), (Some(2), false));
        for (name, mechanism) in
            [("none", Mechanism::Sha256), ("a\0", Mechanism::Sha256), ("a", Mechanism::Sha1)]
        {
            assert_eq!(salt_of(&tables, name, mechanism), (None, true), "{name}");
        }
        (tables.users, tables.names) = (BTreeMap::new(), Vec::new());
        assert_eq!(salt_of(&tables, "a", Mechanism::Sha256), (None, true));
    }
}

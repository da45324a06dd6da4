//! The member of a replica set that this server is: the set's configuration, the member's role, and the cluster's
//! time.
//!
//! Drivers switch transactions, retries and causal reads on only towards a replica set, so one
//! node can be one: a *set of one* keeps its configuration in a collection and elects itself. In a *set of several*
//! all of that follows what the member's thread says ([`Replication::follow`], `of_several.rs`).
//!
//! | from | to | function |
//! |---|---|---|
//! | standalone | – | never changes |
//! | uninitiated | primary of one | [`Replication::initiate`] |
//! | primary of one | secondary | [`Replication::step_down`] |
//! | secondary of one | primary | [`Replication::role`], once its time is over |
//! | uninitiated | member of several | [`Replication::join`] |
//! | member of several | primary or secondary | [`Replication::follow`] |
//!
//! What is always true:
//! 1. The configuration and the term are durable before anybody is told of them.
//! 2. The term grows with every start and every election, so no two primaries share one.
//! 3. `topologyVersion.counter` grows with every change that `hello` shows.

pub mod cluster_time;
pub mod config;
mod default_concern;
mod of_several;
pub mod oplog_size;

pub use of_several::Followed;

use bson::Document;
use bson::raw::RawDocumentBuf;
use catalog::{Catalog, Namespace};
use cluster_time::ClusterClock;
use config::Config;
use errors::{Code, Error, Result};
use membership::Membership;
use os::Os;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How the server was told to be a replica set member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaSetOptions {
    /// `--replSet`.
    pub name: String,
    /// Where clients reach this node: `host:port`.
    pub address: String,
    /// Initiate the set at the first start, without being asked.
    pub initiate: bool,
}

/// What this node is to its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Role {
    /// No replica set at all.
    Standalone,
    /// A member that waits for `replSetInitiate`.
    Uninitiated,
    /// It takes writes.
    Primary,
    /// It stepped down and waits for its next election, or follows the primary.
    Secondary,
    /// It lacks what its primary's log has no more: it shows nothing until it has a copy of the data.
    Recovering,
    /// It votes, and has no data.
    Arbiter,
}

const ROLES: [Role; 6] = [
    Role::Standalone,
    Role::Uninitiated,
    Role::Primary,
    Role::Secondary,
    Role::Recovering,
    Role::Arbiter,
];

/// The member that this server is.
pub struct Replication {
    options: Option<ReplicaSetOptions>,
    role: AtomicU8,
    /// How often the operator has begun maintenance and not ended it.
    maintenance: AtomicU32,
    /// The newest term.
    pub term: AtomicI64,
    /// `topologyVersion.counter`.
    pub topology: AtomicU64,
    /// `w` where a client names none: `majority`, as long as nobody changed it.
    pub default_is_majority: AtomicBool,
    /// The cluster's time.
    pub clock: ClusterClock,
    /// The member's engine side, in a set of several.
    membership: OnceLock<Arc<Membership>>,
    /// Guards what changes with the configuration and the role.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    config: Option<Arc<Config>>,
    /// Server time of the next election, while stepped down.
    elects_itself_at: Duration,
    elected_ms: i64,
    /// In a set of several: this member's `_id`, where the configuration has it.
    own: Option<i32>,
    /// In a set of several: the `_id` of who leads, where that is known.
    leader: Option<i32>,
    /// In a set of several: what the member's thread says was followed.
    follows: bool,
}

/// Where the configuration stands, as in MongoDB.
pub fn config_namespace() -> Result<Namespace> {
    Namespace::parse(Namespace::SET_CONFIGURATION)
}

impl Replication {
    /// A member by its options; a standalone server without any.
    pub fn new(options: Option<ReplicaSetOptions>, catalog: &Arc<Catalog>, os: &Os) -> Self {
        let role = if options.is_some() { Role::Uninitiated } else { Role::Standalone };
        Self {
            options,
            role: AtomicU8::new(role as u8),
            maintenance: AtomicU32::new(0),
            term: AtomicI64::new(0),
            topology: AtomicU64::new(0),
            default_is_majority: AtomicBool::new(true),
            clock: ClusterClock::new(catalog, os),
            membership: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Reads the stored configuration and takes the node's role up. Called once, before clients come, by who is
    /// in no set of several.
    pub fn start(&self, catalog: &Arc<Catalog>, os: &Os) -> Result<()> {
        let Some(options) = &self.options else { return Ok(()) };
        self.clock.start()?;
        oplog_size::load(catalog)?;
        self.load_default_concern(catalog)?;
        if let Some(stored) = catalog.system_document(&config_namespace()?)? {
            let config = Config::parse(&options.name, &stored)?;
            self.elect(os)?;
            self.state.lock().config = Some(Arc::new(config));
            self.set_role(Role::Primary);
        }
        Ok(())
    }

    /// Reads the stored write concern that holds where a client names none.
    pub fn load_default_concern(&self, catalog: &Arc<Catalog>) -> Result<()> {
        default_concern::load(self, catalog)
    }

    /// The options, on a member.
    pub fn options(&self) -> Option<&ReplicaSetOptions> {
        self.options.as_ref()
    }

    /// The configuration, once there is one.
    pub fn config(&self) -> Option<Arc<Config>> {
        self.state.lock().config.clone()
    }

    /// When this node became primary, in milliseconds since 1970.
    pub fn elected_ms(&self) -> i64 {
        self.state.lock().elected_ms
    }

    /// The role at server time `now`. A stepped-down node elects itself when its time is over.
    pub fn role(&self, os: &Os) -> Role {
        let role = ROLES[usize::from(self.role.load(Ordering::Acquire)) % ROLES.len()];
        if role == Role::Secondary
            && !self.is_of_several()
            && !self.is_in_maintenance()
            && os.clock.monotonic() >= self.elects_itself_at()
        {
            // A term that cannot be stored is no term: it stays what it is and tries again.
            if self.elect(os).is_ok() {
                self.set_role(Role::Primary);
                return Role::Primary;
            }
        }
        if role == Role::Secondary && self.is_in_maintenance() {
            return Role::Recovering;
        }
        role
    }

    /// Whether the operator keeps this member from showing anything, and from becoming primary.
    pub fn is_in_maintenance(&self) -> bool {
        self.maintenance.load(Ordering::Acquire) > 0
    }

    /// Begins maintenance, or ends what was begun once. Says whether there was any to end. Waits, for a moment at most,
    /// until the member goes by it.
    pub fn set_maintenance(&self, begins: bool) -> bool {
        let changed = self.count_maintenance(begins);
        if changed && let Some(membership) = self.membership() {
            membership.wait_until_told();
        }
        changed
    }

    fn count_maintenance(&self, begins: bool) -> bool {
        // The member is told of each change in the order in which they are counted.
        let _in_order = self.state.lock();
        let change = |count: u32| if begins { count.checked_add(1) } else { count.checked_sub(1) };
        let changed =
            self.maintenance.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok();
        if changed {
            if let Some(membership) = self.membership() {
                membership.set_maintenance(self.is_in_maintenance());
            }
            self.topology.fetch_add(1, Ordering::AcqRel);
        }
        changed
    }

    /// Whether this is a member of a set, initiated or not.
    pub fn is_member(&self) -> bool {
        self.options.is_some()
    }

    /// Whether replies carry times.
    pub fn keeps_time(&self) -> bool {
        let role = self.role.load(Ordering::Relaxed);
        role >= Role::Primary as u8 && role != Role::Arbiter as u8
    }

    /// While stepped down: when it will be primary again.
    pub fn elects_itself_at(&self) -> Duration {
        self.state.lock().elects_itself_at
    }

    /// Stores a first configuration and becomes primary.
    pub fn initiate(&self, config: Config, catalog: &Arc<Catalog>, os: &Os) -> Result<()> {
        let mut state = self.state.lock();
        if state.config.is_some() {
            return Err(Error::new(Code::ALREADY_INITIALIZED, "already initialized"));
        }
        Self::store(&config, catalog)?;
        state.config = Some(Arc::new(config));
        drop(state);
        self.elect(os)?;
        self.set_role(Role::Primary);
        Ok(())
    }

    /// Stores a newer configuration.
    pub fn reconfigure(&self, config: Config, catalog: &Arc<Catalog>) -> Result<()> {
        let mut state = self.state.lock();
        Self::store(&config, catalog)?;
        state.config = Some(Arc::new(config));
        drop(state);
        self.topology.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Becomes secondary until `until`.
    pub fn step_down(&self, until: Duration) {
        self.state.lock().elects_itself_at = until;
        self.set_role(Role::Secondary);
    }

    fn store(config: &Config, catalog: &Arc<Catalog>) -> Result<()> {
        let document = RawDocumentBuf::try_from(&config.document)?;
        catalog.put_system_document(&config_namespace()?, &document)?;
        catalog.sync()
    }

    /// Begins a new term.
    fn elect(&self, os: &Os) -> Result<()> {
        let term = self.clock.next_term()?;
        self.term.store(term, Ordering::Release);
        self.state.lock().elected_ms = os.clock.wall_ms();
        Ok(())
    }

    fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Release);
        self.topology.fetch_add(1, Ordering::AcqRel);
    }

    /// Names the term's election: drivers tell an old primary from a newer one by it.
    pub fn election_id(&self) -> bson::oid::ObjectId {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
        bytes[4..].copy_from_slice(&self.term.load(Ordering::Acquire).to_be_bytes());
        bson::oid::ObjectId::from_bytes(bytes)
    }
}

/// `{ts, t}`: a place in the history, as members name it.
pub fn op_time(replication: &Replication) -> Document {
    let mut document = Document::new();
    document.insert("ts", replication.clock.now());
    document.insert("t", replication.term.load(Ordering::Acquire));
    document
}

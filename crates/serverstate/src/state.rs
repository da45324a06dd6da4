//! The state of a server, in one place.
//!
//! Always true: each part guards itself; no lock of one part is held while another is called,
//! except where a part's own text says so.

use crate::auto_compact::AutoCompact;
use crate::backups::Backups;
use crate::cluster_parameters::ClusterParameters;
use crate::concern_waits::ConcernWaits;
use crate::connection::Connection;
use crate::copies::Copies;
use crate::fail_point::FailPoints;
use crate::feature_version;
use crate::host::Host;
use crate::index_advice::IndexAdvice;
use crate::link_acceptance::LinkAcceptance;
use crate::log_levels::LogSettings;
use crate::metrics::Metrics;
use crate::parked::Parked;
use crate::profiler::Profiler;
use crate::replication::{ReplicaSetOptions, Replication};
use crate::scripting::Scripting;
use crate::security::{AuthMode, Security};
use crate::session_records::SessionRecords;
use crate::session_state::{SessionState, TxnCounters};
use crate::write_gate::WriteGate;
use auth::{ClusterAuth, ClusterKey};
use bson::{Bson, Document};
use catalog::Catalog;
use dispatch::Wake;
use errors::Result;
use limits::Part;
use links::{AddressMap, Dialer};
use os::Os;
use os::sync::{Condvar, Mutex};
use query::{Expiry, FastUpdates, TtlMonitor};
use session::{Checkouts, Cursors, Operations, Sessions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tls::Certificates;

/// What the server says about itself.
#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    /// The command line, for `getCmdLineOpts`.
    pub argv: Vec<String>,
    /// The options as MongoDB's configuration file would spell them.
    pub parsed_options: Document,
    /// FernDB's own version.
    pub version: String,
    /// The source's revision.
    pub git_version: String,
    /// This machine's name.
    pub host: String,
    /// The port it listens on.
    pub port: u16,
    /// The process id.
    pub pid: u32,
    /// The largest number of connections.
    pub max_connections: u64,
    /// The data directory.
    pub data_directory: String,
    /// Backups are written below it, and nowhere where there is none.
    pub backup_root: Option<PathBuf>,
    /// How it was told to be a replica set member, if it was.
    pub replica_set: Option<ReplicaSetOptions>,
    /// Whether clients are asked who they are.
    pub auth: AuthMode,
    /// What the members of its set log in to each other with.
    pub cluster_key: Option<Arc<ClusterKey>>,
    /// How those log in.
    pub cluster_auth: ClusterAuth,
    /// From where those may log in; from anywhere where there is none.
    pub members_from: Vec<auth::Network>,
    /// What this server opens connections to other members by TLS with, where it is to.
    pub members_tls: Option<Arc<Certificates>>,
    /// Where other members are dialled instead of where the configuration says; for tests.
    pub dialled_instead: AddressMap,
    /// Whether its code lies in huge pages.
    pub code_in_huge_pages: bool,
}

/// Parameters that are kept together, and no other part of the server needs often.
#[derive(Default)]
pub struct Settings {
    /// `automationServiceDescriptor`.
    pub automation: String,
    /// `logLevel`, `quiet` and `logComponentVerbosity`.
    pub log: LogSettings,
    /// Parameters that the program went by before it listened, as they were set.
    pub of_program: BTreeMap<&'static str, Bson>,
}

/// What a server knows between two requests.
pub struct ServerState {
    /// Itself, for what goes on beside a request.
    pub(crate) this: Weak<ServerState>,
    /// One at a time makes this server a member of a set.
    pub(crate) beginning: Mutex<()>,
    /// The collections.
    pub catalog: Arc<Catalog>,
    /// What sessions have done, on disk.
    pub session_records: SessionRecords,
    /// Clock, randomness, threads.
    pub os: Os,
    /// What connections to other members are opened with.
    pub dialer: Dialer,
    /// What the server says about itself.
    pub info: ServerInfo,
    /// The program around the commands.
    pub host: Arc<dyn Host>,
    /// The memory that clients use.
    pub memory: Arc<limits::Account>,
    /// Server time at which it was built.
    pub started: Duration,
    /// Names this start of the process in `topologyVersion`.
    pub process_id: bson::oid::ObjectId,
    /// What was done so far, counted.
    pub metrics: Metrics,
    /// The replica set's member that this server is.
    pub replication: Replication,
    /// Who waits until members of the set have something.
    pub(crate) concern_waits: Arc<ConcernWaits>,
    /// The names of commands that write.
    pub(crate) writing_commands: Vec<&'static str>,
    /// See [`ServerState::follows`].
    pub(crate) follows: AtomicBool,
    /// Who lets links of other members in.
    pub links: LinkAcceptance,
    /// The backup that is being written.
    pub backups: Backups,
    /// Copies of its data, and of another member's.
    pub copies: Copies,
    /// Somebody looks for members whose disk was emptied.
    pub(crate) looks_for_emptied: AtomicBool,
    /// What runs now.
    pub operations: Operations,
    /// Logical sessions, by their use.
    pub sessions: Sessions,
    /// Cursors between two batches.
    pub cursors: Cursors<Parked>,
    /// Transactions and retryable writes, by session.
    pub numbered: Checkouts<SessionState>,
    /// How many transactions began, and how they ended.
    pub transactions: TxnCounters,
    /// `transactionLifetimeLimitSeconds`.
    pub transaction_lifetime_secs: AtomicU64,
    /// `maxTransactionLockRequestTimeoutMillis`.
    pub lock_timeout_ms: AtomicU64,
    /// Server time, in seconds, at which old records of sessions are next looked for.
    pub(crate) next_forgetting: AtomicU64,
    /// Server time, in seconds, before which no failed update is logged.
    pub(crate) next_failed_update: AtomicU64,
    /// `cursorTimeoutMillis`.
    pub cursor_timeout_ms: AtomicU64,
    /// Which finished operations are told of.
    pub profiler: Profiler,
    /// Which index is missing, and which of no use.
    pub index_advice: IndexAdvice,
    /// How many connections may come, and how fast.
    pub arrivals: limits::Arrivals,
    /// Users, and who is asked what.
    pub security: Security,
    /// An audit log is kept.
    pub audits: bool,
    /// It lost an event: nothing more is done, where that is fatal.
    pub audit_failed: AtomicBool,
    /// `auditFailureIsFatal`.
    pub audit_failure_is_fatal: AtomicBool,
    /// `auditAuthorizationSuccess`.
    pub audit_successes: AtomicBool,
    /// What clients' code may do.
    pub scripting: Arc<Scripting>,
    /// `enableTestCommands`.
    pub test_commands: AtomicBool,
    /// Clients must declare the version of the API that they use.
    pub require_api_version: AtomicBool,
    /// Closed by `fsync: {lock: true}`.
    pub write_gate: WriteGate,
    /// Compaction in the background.
    pub auto_compact: AutoCompact,
    /// Parameters kept together.
    pub settings: Mutex<Settings>,
    /// Parameters that all members share.
    pub cluster_parameters: Mutex<ClusterParameters>,
    /// `defaultMaxTimeMS.readOperations`; 0: none.
    pub default_max_time_ms: AtomicU64,
    /// The version that data is compatible with, in MongoDB's words.
    pub(crate) feature_version: Mutex<&'static str>,
    /// `refuseOpenBind`.
    pub refuse_open_bind: AtomicBool,
    /// The fail points that are on.
    pub fail_points: FailPoints,
    pub(crate) next_connection: AtomicU64,
    /// Guards the list of open connections.
    pub(crate) connections: Mutex<BTreeMap<u64, Arc<Connection>>>,
    /// `ttlMonitorSleepSecs`; changed by [`ServerState::set_ttl_sleep`].
    pub ttl_sleep_secs: AtomicU64,
    /// Whether documents expire, and how many have.
    pub expiry: Arc<Expiry>,
    /// Whether updates may be written without reading the document.
    pub fast_updates: FastUpdates,
    /// Whether a row of figures is kept each second.
    pub keeps_history: AtomicBool,
    /// Deletes what has expired; `None` once the server ends.
    pub(crate) ttl: Mutex<Option<TtlMonitor>>,
    /// Guards nothing but waits for time to pass; true once the server ends.
    pub(crate) ending: Mutex<bool>,
    /// The server ends.
    pub(crate) woken: Condvar,
    /// Runs requests that wait for a change of the topology.
    pub(crate) wake: OnceLock<Wake>,
}

impl ServerState {
    /// The state, for what goes on beside a request.
    pub fn this(&self) -> Arc<Self> {
        self.this.upgrade().expect("whoever borrows it has it from its owner")
    }

    /// The profiler's level, from 0 to 2, of databases that nobody sets one for.
    pub fn profile_all(&self, level: i32) {
        self.profiler.set_usual_level(level);
    }

    /// What is to be told of missing and unused indexes since this was asked last. Looks at every
    /// collection.
    pub fn index_advice(&self) -> Vec<String> {
        self.index_advice.news(&self.catalog, self.uptime())
    }

    /// Whether [`ServerState::end_waits`] was called.
    pub fn is_stopping(&self) -> bool {
        *self.ending.lock()
    }

    /// Whether whoever keeps the history of figures is to take a row now; off, the page's graphs and
    /// the runtime advice have nothing to go by.
    pub fn keeps_history(&self) -> bool {
        self.keeps_history.load(Ordering::Relaxed)
    }

    /// How long the expiry of documents waits between two passes.
    pub fn set_ttl_sleep(&self, seconds: u64) {
        self.ttl_sleep_secs.store(seconds, Ordering::Relaxed);
        if let Some(monitor) = &*self.ttl.lock() {
            monitor.set_period(Duration::from_secs(seconds));
        }
    }

    /// Changes how much is logged.
    pub fn change_log(&self, change: impl FnOnce(&mut LogSettings)) {
        let mut settings = self.settings.lock();
        change(&mut settings.log);
        self.host.set_log_settings(&settings.log);
    }

    /// The version that data is compatible with.
    pub fn feature_version(&self) -> &'static str {
        *self.feature_version.lock()
    }

    /// Stores another version that data is to stay compatible with, then lets it hold.
    pub fn store_feature_version(&self, version: &'static str) -> Result<()> {
        // Held while it is stored, so that two changes are stored in the order they are told in.
        let mut held = self.feature_version.lock();
        if *held != version {
            feature_version::store(&self.catalog, version)?;
            *held = version;
        }
        Ok(())
    }

    /// Counts what keeps no charges of its own: it grows by little with each request, and is bounded.
    pub fn count_memory(&self) {
        let sessions = self.sessions.len() * Sessions::BYTES;
        self.memory.count(Part::Sessions, sessions as u64);
        let statistics = query::plan_cache_bytes() + self.metrics.top_bytes();
        self.memory.count(Part::Statistics, statistics as u64);
    }

    /// Waits for `time`, or for the server's end.
    pub fn wait(&self, time: Duration) {
        let mut ending = self.ending.lock();
        if !*ending {
            self.woken.wait_for(&mut ending, time);
        }
    }

    /// Calls `wake` whenever what a waiting request waits for may have come
    /// ([`dispatch::reply::Reply::wait`]). Only the first call counts.
    pub fn on_change(&self, wake: Wake) {
        // A second server over one state would be a bug of the program's wiring.
        let _first_stays = self.wake.set(wake);
    }

    /// Tells whoever waits that the topology changed.
    pub fn topology_changed(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Server time since the start.
    pub fn uptime(&self) -> Duration {
        self.os.clock.monotonic().saturating_sub(self.started)
    }
}

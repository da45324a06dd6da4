//! How a server's state is built.

use crate::auto_compact::AutoCompact;
use crate::backups::Backups;
use crate::cluster_parameters::ClusterParameters;
use crate::copies::Copies;
use crate::fail_point::FailPoints;
use crate::host::{Host, LogEvent, Severity};
use crate::housekeeping::FORGETTING_SECONDS;
use crate::index_advice::IndexAdvice;
use crate::link_acceptance::LinkAcceptance;
use crate::metrics::Metrics;
use crate::parked::Parked;
use crate::profiler::Profiler;
use crate::replication::Replication;
use crate::replication::config::Config;
use crate::security::{AuthMode, Security};
use crate::session_records::SessionRecords;
use crate::session_state::{LIFETIME_SECONDS, LOCK_TIMEOUT_MS, TxnCounters};
use crate::state::{ServerInfo, ServerState, Settings};
use crate::versions::FEATURE_VERSION;
use crate::write_gate::WriteGate;
use crate::{feature_version, lock_log};
use bson::Document;
use catalog::Catalog;
use errors::{Code, Error, Result};
use links::Dialer;
use os::Os;
use os::sync::{Condvar, Mutex};
use query::{Expiry, FastUpdates, TtlMonitor};
use session::{Checkouts, Cursors, Operations, Sessions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// What a server's state is built from.
pub struct Parts {
    /// The collections.
    pub catalog: Arc<Catalog>,
    /// What its sessions have done.
    pub session_records: SessionRecords,
    /// Clock and randomness.
    pub os: Os,
    /// What the server says about itself.
    pub info: ServerInfo,
    /// The program around the commands.
    pub host: Arc<dyn Host>,
    /// The memory that clients may use.
    pub memory: Arc<limits::Account>,
    /// Catalog and records were opened without writing: the server is a member of a set of several, or may
    /// become one.
    pub follows: bool,
}

/// Sessions, and the plans that queries have found, take at most one part in so many of clients'
/// memory each.
const SMALL_SHARE: u64 = 16;

/// How long the expiry of documents waits where nobody says otherwise.
const TTL_SLEEP: Duration = Duration::from_mins(1);

/// What this server connects to other members with.
fn dialer(info: &ServerInfo, os: &Os) -> Dialer {
    let must_hold = info.auth == AuthMode::On;
    let dialer = if info.cluster_auth.sends_certificate() {
        Dialer::by_certificate(os.clone(), must_hold)
    } else {
        Dialer::new(os.clone(), info.cluster_key.clone(), must_hold)
    };
    dialer.with_tls(info.members_tls.clone()).with_addresses(info.dialled_instead.clone())
}

impl ServerState {
    /// Builds the state over its parts, for commands of these names.
    ///
    /// Each name goes with whether that command writes.
    pub fn new(parts: Parts, commands: &[(&'static str, bool)]) -> Arc<Self> {
        limits::seed_hashes(|bytes| parts.os.entropy.fill(bytes));
        let mut id = [0; 12];
        parts.os.entropy.fill(&mut id);
        let share = usize::try_from(parts.memory.capacity() / SMALL_SHARE).unwrap_or(usize::MAX);
        let most = share / Sessions::BYTES;
        let sessions = Sessions::with_room(parts.os.entropy.next_u64(), most);
        query::bound_plan_caches(share);
        let settings = Settings { log: parts.host.log_settings(), ..Settings::default() };
        // Who has written nothing has nothing that expires, and may become a member that follows.
        let expiry = Arc::<Expiry>::default();
        let ttl = if parts.follows {
            None
        } else {
            start_ttl_monitor(&parts.catalog, &expiry, &parts.host, TTL_SLEEP)
        };
        let audits = parts.host.audit().is_some();
        let replica_set = parts.info.replica_set.clone();
        let writing = commands.iter().filter(|(_, writes)| *writes);
        let state = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            beginning: Mutex::default(),
            replication: Replication::new(replica_set, &parts.catalog, &parts.os),
            concern_waits: Arc::default(),
            security: Security::new(
                parts.info.auth,
                (parts.info.cluster_auth, parts.info.cluster_key.clone()),
                &parts.os,
            ),
            dialer: dialer(&parts.info, &parts.os),
            started: parts.os.clock.monotonic(),
            catalog: parts.catalog,
            session_records: parts.session_records,
            os: parts.os,
            info: parts.info,
            host: parts.host,
            memory: parts.memory,
            process_id: bson::oid::ObjectId::from_bytes(id),
            metrics: Metrics::new(commands.iter().map(|(name, _)| *name)),
            writing_commands: writing.map(|(name, _)| *name).collect(),
            follows: AtomicBool::new(parts.follows),
            operations: Operations::default(),
            sessions,
            cursors: Cursors::default(),
            numbered: Checkouts::default(),
            transactions: TxnCounters::default(),
            transaction_lifetime_secs: AtomicU64::new(LIFETIME_SECONDS),
            lock_timeout_ms: AtomicU64::new(LOCK_TIMEOUT_MS),
            next_forgetting: AtomicU64::new(FORGETTING_SECONDS),
            next_failed_update: AtomicU64::new(0),
            fast_updates: FastUpdates::default(),
            cursor_timeout_ms: AtomicU64::new(Cursors::<Parked>::TIMEOUT.as_millis() as u64),
            next_connection: AtomicU64::new(1),
            connections: Mutex::default(),
            profiler: Profiler::default(),
            index_advice: IndexAdvice::default(),
            arrivals: limits::Arrivals::default(),
            audits,
            audit_failed: AtomicBool::new(false),
            audit_failure_is_fatal: AtomicBool::new(true),
            audit_successes: AtomicBool::new(false),
            scripting: Arc::default(),
            test_commands: AtomicBool::new(false),
            require_api_version: AtomicBool::new(false),
            write_gate: WriteGate::default(),
            auto_compact: AutoCompact::default(),
            backups: Backups::default(),
            settings: Mutex::new(settings),
            cluster_parameters: Mutex::default(),
            default_max_time_ms: AtomicU64::new(0),
            feature_version: Mutex::new(FEATURE_VERSION),
            refuse_open_bind: AtomicBool::new(false),
            links: LinkAcceptance::default(),
            copies: Copies::default(),
            looks_for_emptied: AtomicBool::new(false),
            fail_points: FailPoints::default(),
            ttl_sleep_secs: AtomicU64::new(TTL_SLEEP.as_secs()),
            expiry,
            keeps_history: AtomicBool::new(true),
            ttl: Mutex::new(ttl),
            ending: Mutex::new(false),
            woken: Condvar::new(),
            wake: OnceLock::new(),
        });
        lock_log::start(&state);
        state
    }

    /// Takes up the role of a server that is in no set of several. Called once, before clients come; waits for
    /// the disk.
    ///
    /// # Errors
    /// What is stored cannot be read, or says that this is another set.
    pub fn start_replication(&self) -> Result<()> {
        *self.feature_version.lock() = feature_version::load(&self.catalog)?;
        self.load_cluster_parameters()?;
        let Some(options) = self.replication.options() else {
            self.ensure_secret_of_users();
            return Ok(());
        };
        if self.follows() {
            if !options.initiate {
                return Ok(());
            }
            self.begin_writing_alone()?;
        }
        self.replication.start(&self.catalog, &self.os)?;
        self.ensure_secret_of_users();
        if options.initiate && self.replication.config().is_none() {
            let config = Config::of_one(&options.name, &options.address, &self.os)?;
            self.replication.initiate(config, &self.catalog, &self.os)?;
        }
        Ok(())
    }

    /// Makes this node a set of its own.
    pub fn initiate_alone(&self, config: Config) -> Result<()> {
        let _one_at_a_time = self.beginning.lock();
        if self.replication.is_of_several() {
            return Err(Error::new(Code::ALREADY_INITIALIZED, "already initialized"));
        }
        if self.catalog.engine().holds_back() {
            // Nobody would ever say that a commit is on a majority.
            let text = "a set of several members was begun here and failed: see the log, and start this server again";
            return Err(Error::new(Code::CONFIGURATION_IN_PROGRESS, text));
        }
        if self.follows() {
            self.begin_writing_alone()?;
            self.replication.start(&self.catalog, &self.os)?;
        }
        self.replication.initiate(config, &self.catalog, &self.os)
    }

    /// Reads the parameters that all members share.
    pub(crate) fn load_cluster_parameters(&self) -> Result<()> {
        let parameters = ClusterParameters::load(&self.catalog)?;
        let limit = parameters.default_max_time_ms();
        self.default_max_time_ms.store(limit, Ordering::Relaxed);
        *self.cluster_parameters.lock() = parameters;
        Ok(())
    }

    /// Lets no document expire from here on. Waits for the one that does.
    pub fn pause_expiry(&self) {
        let paused = self.ttl.lock().take();
        drop(paused);
    }

    /// Lets documents expire again, unless the server ends.
    pub fn resume_expiry(&self) {
        let sleep = Duration::from_secs(self.ttl_sleep_secs.load(Ordering::Relaxed));
        let mut ttl = self.ttl.lock();
        if ttl.is_none() && !self.is_stopping() {
            *ttl = start_ttl_monitor(&self.catalog, &self.expiry, &self.host, sleep);
        }
    }
}

/// A server without the monitor serves on; the log tells why it has none.
fn start_ttl_monitor(
    catalog: &Arc<Catalog>,
    expiry: &Arc<Expiry>,
    host: &Arc<dyn Host>,
    sleep: Duration,
) -> Option<TtlMonitor> {
    let told = Arc::clone(host);
    let report = move |pass: Result<u64>| {
        if let Err(error) = pass
            && error.code() != Code::INTERRUPTED_AT_SHUTDOWN
        {
            log_ttl_failure(&*told, error.message());
        }
    };
    match TtlMonitor::start(catalog, expiry, sleep, report) {
        Ok(monitor) => Some(monitor),
        Err(error) => {
            log_ttl_failure(&**host, &error.to_string());
            None
        }
    }
}

fn log_ttl_failure(host: &dyn Host, error: &str) {
    let mut attributes = Document::new();
    attributes.insert("error", error);
    host.log(&LogEvent {
        severity: Severity::Warning,
        component: "INDEX",
        id: 22537,
        context: "TTLMonitor",
        message: "Expired documents could not be deleted",
        attributes,
    });
}

//! The seam to the server: [`Service::run`] takes a request and gives a reply.
//!
//! What is always true: `run` never fails and never changes what it borrowed; every error becomes
//! a reply. A connection runs one request at a time.

use crate::admin::auto_compact::AutoCompact;
use crate::batch::Parked;
use crate::command::{Command, Registry, check_database};
use crate::connection::{Connection, OperationInterrupt, Origin};
use crate::context::Context;
use crate::diagnostics::feature_version;
use crate::diagnostics::parameters::Settings;
use crate::fail_point::{FailPointHit, FailPoints};
use crate::finished::Entry;
use crate::host::{Host, LogEvent, Severity};
use crate::index_advice::IndexAdvice;
use crate::last_write;
use crate::lock_log;
use crate::metrics::Metrics;
use crate::profiler::Profiler;
use crate::registry::COMMANDS;
use crate::replication::cluster_parameters::ClusterParameters;
use crate::replication::reply::{write_times, write_topology_of_error};
use crate::replication::{ReplicaSetOptions, Replication, Role};
use crate::replication::{read_concern, write_concern};
use crate::scripting::{ScriptHost, Scripting};
use crate::session_records::SessionRecords;
use crate::transactions::{self, LIFETIME_SECONDS, LOCK_TIMEOUT_MS, SessionState, bound, labels};
use crate::versions::FEATURE_VERSION;
use crate::write_gate::WriteGate;
use bson::{Document, RawBsonRef, RawDocument};
use bsonval::raw;
use catalog::Catalog;
use dispatch::arguments::{Arguments, Fields, not_in_api};
use dispatch::fields::Field;
use dispatch::reply::{Reply, write_error, write_labels};
use dispatch::rules::{Class, Counter};
use dispatch::{ConnectionInfo, OpKind, Request, Wake};
use errors::{Code, Error, Result};
use limits::{Charge, Part};
use os::Os;
use parking_lot::{Condvar, Mutex};
use query::{DdlRetries, TtlMonitor};
use session::{Checkouts, Cursors, Killed, Operations, SessionId, Sessions, Start};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

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
    /// How it was told to be a replica set member, if it was.
    pub replica_set: Option<ReplicaSetOptions>,
}

/// What a service is built from.
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
}

/// Runs commands.
pub struct Service {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) session_records: SessionRecords,
    pub(crate) os: Os,
    pub(crate) info: ServerInfo,
    pub(crate) host: Arc<dyn Host>,
    /// The memory that clients use.
    pub(crate) memory: Arc<limits::Account>,
    pub(crate) started: Duration,
    /// Names this start of the process in `topologyVersion`.
    pub(crate) process_id: bson::oid::ObjectId,
    /// Every command.
    pub(crate) registry: Registry,
    pub(crate) metrics: Metrics,
    pub(crate) replication: Replication,
    pub(crate) operations: Operations,
    pub(crate) sessions: Sessions,
    pub(crate) cursors: Cursors<Parked>,
    /// Transactions and retryable writes, by session.
    pub(crate) numbered: Checkouts<SessionState>,
    pub(crate) transactions: transactions::TxnCounters,
    /// `transactionLifetimeLimitSeconds`.
    pub(crate) transaction_lifetime_secs: AtomicU64,
    /// `maxTransactionLockRequestTimeoutMillis`.
    pub(crate) lock_timeout_ms: AtomicU64,
    /// Server time, in seconds, at which old records of sessions are next looked for.
    next_forgetting: AtomicU64,
    pub(crate) cursor_timeout_ms: AtomicU64,
    pub(crate) profiler: Profiler,
    pub(crate) index_advice: IndexAdvice,
    /// What clients' code may do.
    pub(crate) scripting: Arc<Scripting>,
    /// `enableTestCommands`.
    pub(crate) test_commands: AtomicBool,
    /// Closed by `fsync: {lock: true}`.
    pub(crate) write_gate: WriteGate,
    pub(crate) auto_compact: AutoCompact,
    pub(crate) settings: Mutex<Settings>,
    pub(crate) cluster_parameters: Mutex<ClusterParameters>,
    /// `defaultMaxTimeMS.readOperations`; 0: none.
    pub(crate) default_max_time_ms: AtomicU64,
    /// The version that data is compatible with, in MongoDB's words.
    pub(crate) feature_version: Mutex<&'static str>,
    /// `refuseOpenBind`.
    pub(crate) refuse_open_bind: AtomicBool,
    pub(crate) fail_points: FailPoints,
    next_connection: AtomicU64,
    /// Guards the list of open connections.
    connections: Mutex<BTreeMap<u64, Arc<Connection>>>,
    pub(crate) ttl_sleep_secs: AtomicU64,
    /// Whether a row of figures is kept each second.
    pub(crate) keeps_history: AtomicBool,
    /// Deletes what has expired; `None` once the server ends.
    ttl: Mutex<Option<TtlMonitor>>,
    /// Guards nothing but waits for time to pass; true once the server ends.
    ending: Mutex<bool>,
    /// The server ends.
    woken: Condvar,
    /// Runs requests that wait for a change of the topology.
    wake: OnceLock<Wake>,
}

/// Smaller replies are not charged: the worker that sends one holds as much anyway.
const SMALL_REPLY: usize = 16 << 10;

/// Seconds between two looks for old records of sessions.
const FORGETTING_SECONDS: u64 = 300;

/// Sessions, and the plans that queries have found, take at most one part in so many of clients' memory each.
const SMALL_SHARE: u64 = 16;

/// How long the expiry of documents waits where nobody says otherwise.
const TTL_SLEEP: Duration = Duration::from_mins(1);

/// A server without the monitor serves on; the log tells why it has none.
fn start_ttl_monitor(
    catalog: &Arc<Catalog>,
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
    match TtlMonitor::start(catalog, sleep, report) {
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

impl Service {
    /// Builds the service over its parts.
    pub fn new(parts: Parts) -> Arc<Self> {
        limits::seed_hashes(|bytes| parts.os.entropy.fill(bytes));
        let mut id = [0; 12];
        parts.os.entropy.fill(&mut id);
        let share = usize::try_from(parts.memory.capacity() / SMALL_SHARE).unwrap_or(usize::MAX);
        let most = share / Sessions::BYTES;
        let sessions = Sessions::with_room(parts.os.entropy.next_u64(), most);
        query::bound_plan_caches(share);
        let settings = Settings::new(parts.host.log_settings());
        let ttl = start_ttl_monitor(&parts.catalog, &parts.host, TTL_SLEEP);
        let replica_set = parts.info.replica_set.clone();
        let service = Arc::new(Self {
            replication: Replication::new(replica_set, &parts.catalog, &parts.os),
            started: parts.os.clock.monotonic(),
            catalog: parts.catalog,
            session_records: parts.session_records,
            os: parts.os,
            info: parts.info,
            host: parts.host,
            memory: parts.memory,
            process_id: bson::oid::ObjectId::from_bytes(id),
            registry: Registry::new(COMMANDS),
            metrics: Metrics::new(COMMANDS.iter().map(|command| command.name)),
            operations: Operations::default(),
            sessions,
            cursors: Cursors::default(),
            numbered: Checkouts::default(),
            transactions: transactions::TxnCounters::default(),
            transaction_lifetime_secs: AtomicU64::new(LIFETIME_SECONDS),
            lock_timeout_ms: AtomicU64::new(LOCK_TIMEOUT_MS),
            next_forgetting: AtomicU64::new(FORGETTING_SECONDS),
            cursor_timeout_ms: AtomicU64::new(Cursors::<Parked>::TIMEOUT.as_millis() as u64),
            next_connection: AtomicU64::new(1),
            connections: Mutex::default(),
            profiler: Profiler::default(),
            index_advice: IndexAdvice::default(),
            scripting: Arc::default(),
            test_commands: AtomicBool::new(false),
            write_gate: WriteGate::default(),
            auto_compact: AutoCompact::default(),
            settings: Mutex::new(settings),
            cluster_parameters: Mutex::default(),
            default_max_time_ms: AtomicU64::new(0),
            feature_version: Mutex::new(FEATURE_VERSION),
            refuse_open_bind: AtomicBool::new(false),
            fail_points: FailPoints::default(),
            ttl_sleep_secs: AtomicU64::new(TTL_SLEEP.as_secs()),
            keeps_history: AtomicBool::new(true),
            ttl: Mutex::new(ttl),
            ending: Mutex::new(false),
            woken: Condvar::new(),
            wake: OnceLock::new(),
        });
        lock_log::start(&service);
        service
    }

    /// Takes up this node's role in its replica set. Called once, before clients come; waits for
    /// the disk.
    pub fn start_replication(&self) -> Result<()> {
        *self.feature_version.lock() = feature_version::load(&self.catalog)?;
        let parameters = ClusterParameters::load(&self.catalog)?;
        let limit = parameters.default_max_time_ms();
        self.default_max_time_ms.store(limit, Ordering::Relaxed);
        *self.cluster_parameters.lock() = parameters;
        self.replication.start(&self.catalog, &self.os)
    }

    /// Lets no document expire from here on. Waits for the one that does.
    pub(crate) fn pause_expiry(&self) {
        let paused = self.ttl.lock().take();
        drop(paused);
    }

    /// Lets documents expire again, unless the server ends.
    pub(crate) fn resume_expiry(&self) {
        let sleep = Duration::from_secs(self.ttl_sleep_secs.load(Ordering::Relaxed));
        let mut ttl = self.ttl.lock();
        if ttl.is_none() && !self.is_stopping() {
            *ttl = start_ttl_monitor(&self.catalog, &self.host, sleep);
        }
    }

    /// The profiler's level, from 0 to 2, of databases that nobody sets one for.
    pub fn profile_all(&self, level: i32) {
        self.profiler.set_usual_level(level);
    }

    /// What is to be told of missing and unused indexes since this was asked last. Looks at every
    /// collection.
    pub fn index_advice(&self) -> Vec<String> {
        let uptime = self.os.clock.monotonic().saturating_sub(self.started);
        self.index_advice.news(&self.catalog, uptime)
    }

    /// Greets a new connection.
    pub fn open_connection(&self, info: ConnectionInfo) -> Arc<Connection> {
        self.connect(info, Origin::Client)
    }

    /// The connection of the program itself, by which it sets what is fixed once clients may come.
    pub fn open_startup_connection(&self) -> Arc<Connection> {
        self.connect(ConnectionInfo::default(), Origin::Startup)
    }

    fn connect(&self, info: ConnectionInfo, origin: Origin) -> Arc<Connection> {
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let operation = self.operations.open(id);
        let interrupt = Arc::new(OperationInterrupt {
            operation: Arc::clone(&operation),
            clock: Arc::clone(&self.os.clock),
        });
        let script_host = Arc::new(ScriptHost::new(&self.scripting, &self.catalog, &interrupt));
        let connection = Arc::new(Connection {
            id,
            info,
            origin,
            operation,
            script_host,
            limit: Arc::clone(&interrupt) as _,
            interrupt,
            client: OnceLock::new(),
            compressors: AtomicU8::new(0),
            last_write: OnceLock::new(),
            bound: Mutex::default(),
            txn_id: AtomicU64::new(0),
            lock_timeout_ms: AtomicI64::new(-1),
            yields_write_lock: AtomicBool::new(false),
            exhaust_cursor: AtomicI64::new(0),
        });
        self.connections.lock().insert(id, Arc::clone(&connection));
        connection
    }

    /// Forgets a connection, and aborts the transaction that was bound to it. Its other cursors
    /// and its sessions live on: another connection may continue them.
    pub fn close_connection(&self, connection: &Connection) {
        bound::abort(self, connection);
        // Nobody else knows of it: a stream of replies that was broken off ends its cursor.
        let streamed = connection.exhaust_cursor.swap(0, Ordering::Relaxed);
        if streamed != 0 {
            let _killed = self.cursors.kill_where(|cursor| cursor.id.0 == streamed);
        }
        self.operations.close(connection.id);
        let gone = self.connections.lock().remove(&connection.id);
        drop(gone);
    }

    /// The open connections.
    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        self.connections.lock().values().cloned().collect()
    }

    /// The connection to which this transaction is bound.
    pub(crate) fn connection_of(&self, txn: u64) -> Option<Arc<Connection>> {
        let connections = self.connections.lock();
        connections.values().find(|c| c.txn_id.load(Ordering::Relaxed) == txn).cloned()
    }

    /// Runs one request. May wait for locks and the disk; an awaitable `hello` waits by its reply.
    pub fn run(&self, connection: &Connection, request: &Request<'_>) -> Reply {
        let started = self.os.clock.monotonic();
        let body = unwrap_query(request);
        let (position, command) = match find_command(&self.registry, connection, body) {
            Ok(found) => found,
            Err(error) => {
                self.metrics.unknown_commands.fetch_add(1, Ordering::Relaxed);
                self.metrics.user_asserts.fetch_add(1, Ordering::Relaxed);
                return Reply::error(&error);
            }
        };
        let running = self.operations.start(
            &connection.operation,
            &Start {
                name: command.name,
                database: request.database,
                command: body.as_bytes(),
                now: started,
            },
        );
        let mut context = Context::new(self, connection, request, body, command, started);
        let limited = limits::enter(Arc::clone(&connection.limit), Arc::clone(&self.memory));
        let hosted = script::hosted_by(Arc::clone(&connection.script_host));
        let result = match self.fail_points.meet(&context) {
            None => execute(&mut context),
            Some(hit) => self.fail(hit, &mut context),
        };
        let admitted = limits::take_admitted();
        let durable = wait_for_disk(&context, result.is_ok());
        drop(hosted);
        drop(limited);
        if let (Some(until), Ok(())) = (context.wait, &result) {
            drop(running);
            return Reply { wait: Some(until), ..Reply::default() };
        }
        // Where the reply has no place for it, the wait's error is the command's.
        let (result, durable) =
            if command.write_concern { (result, durable) } else { (result.and(durable), Ok(())) };
        let result = result.map_err(|error| labels::label(&context, error));
        let runs = &self.metrics.runs[position];
        runs.total.fetch_add(1, Ordering::Relaxed);
        match &result {
            Ok(()) => context.reply.ok(),
            Err(error) => {
                runs.failed.fetch_add(1, Ordering::Relaxed);
                self.metrics.user_asserts.fetch_add(1, Ordering::Relaxed);
                context.reply.clear();
                context.exhaust = None;
                write_error(&mut context.reply, error);
                write_topology_of_error(self, &mut context.reply, error.code());
            }
        }
        if command.write_concern {
            // Beside an error too: it may be one for something that was done before.
            let concern = context.arguments.write_concern;
            let failed = durable.as_ref().err();
            write_concern::write_error(&concern, &self.replication, failed, &mut context.reply);
            if let (Ok(()), Some(error)) = (&result, failed) {
                let label = labels::label_of_concern(&context, error.code());
                write_labels(&mut context.reply, label.as_slice());
            }
        }
        write_times(self, &mut context.reply);
        let time = self.os.clock.monotonic().saturating_sub(started + context.waited);
        self.account(&context, time, result.as_ref().err());
        drop(running);
        let Context { reply, exhaust, hang_up, figures, .. } = context;
        let streamed = if exhaust.is_some() { figures.cursor } else { 0 };
        connection.exhaust_cursor.store(streamed, Ordering::Relaxed);
        let document = reply.finish();
        let memory = self.reply_memory(admitted, document.as_bytes().len());
        let reply = Reply { document, exhaust, hang_up, wait: None, memory };
        last_write::note(&connection.last_write, command, request.op, &reply.document);
        reply
    }

    /// A write of the old kind was refused before it became a command; `getLastError` tells.
    pub fn refuse_write(&self, connection: &Connection, error: &Error) {
        self.metrics.user_asserts.fetch_add(1, Ordering::Relaxed);
        last_write::refused(&connection.last_write, error);
    }

    /// Runs a command as a fail point wants it.
    fn fail(&self, hit: FailPointHit, context: &mut Context<'_>) -> Result<()> {
        if let Some(time) = hit.block {
            self.block(context, time)?;
        }
        context.hang_up = hit.hang_up;
        if let Some(error) = hit.error {
            context.labels_given = hit.labels.is_some();
            // The labels that the code has by itself depend on the request's number.
            let mut own = Fields::new();
            if let Ok(arguments) = Arguments::parse(context.command, context.body, &mut own) {
                context.arguments = arguments;
            }
            return Err(error);
        }
        let result = execute(context);
        if let (Ok(()), Some(error)) = (&result, &hit.write_concern_error) {
            context.reply.bson("writeConcernError", &bson::Bson::Document(error.clone()));
            let own = || {
                let code = Code(error.get_i32("code").unwrap_or(0));
                labels::label_of_concern(context, code).map(str::to_owned).into_iter().collect()
            };
            let labels: Vec<String> = hit.labels.unwrap_or_else(own);
            write_labels(&mut context.reply, &labels);
        }
        result
    }

    /// Waits for `time`, for the server's end, or until the operation is told to stop.
    fn block(&self, context: &Context<'_>, time: Duration) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(20);
        let until = context.now().saturating_add(time);
        while !self.is_stopping() {
            context.check_interrupt()?;
            let left = until.saturating_sub(context.now());
            if left.is_zero() {
                break;
            }
            self.wait(left.min(LOOK));
        }
        Ok(())
    }

    /// Ends waiting and running requests with `InterruptedAtShutdown`.
    pub fn begin_shutdown(&self) {
        self.operations.begin_shutdown();
        self.end_waits();
    }

    /// The client hung up while its request runs: a read is told to stop, a write goes on, for
    /// it may have been sent without waiting for an answer.
    pub fn client_left(&self, connection: &Connection) {
        let number = connection.operation.number();
        let running = self.operations.list();
        let is_read = running.iter().filter(|running| running.number == number).any(|running| {
            self.registry
                .find(running.name)
                .is_some_and(|(_, command)| command.class == Class::Read)
        });
        if is_read {
            connection.operation.kill(number, Code::INTERRUPTED);
        }
    }

    /// Ends requests that only wait, for time to pass or for a lock, transactions that no request
    /// works in, and the expiry of documents; other requests go on.
    pub fn end_waits(&self) {
        self.operations.end_waits();
        self.abort_transactions();
        // Out of the lock first: ending it waits for the document it is at.
        let ttl = self.ttl.lock().take();
        drop(ttl);
        *self.ending.lock() = true;
        self.woken.notify_all();
        self.topology_changed();
        self.auto_compact.disable();
        self.write_gate.give_up();
    }

    /// Whether [`Service::end_waits`] was called.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.ending.lock()
    }

    /// Whether whoever keeps the history of figures is to take a row now; off, the page's graphs and
    /// the runtime advice have nothing to go by.
    pub fn keeps_history(&self) -> bool {
        self.keeps_history.load(Ordering::Relaxed)
    }

    /// How long the expiry of documents waits between two passes.
    pub(crate) fn set_ttl_sleep(&self, seconds: u64) {
        self.ttl_sleep_secs.store(seconds, Ordering::Relaxed);
        if let Some(monitor) = &*self.ttl.lock() {
            monitor.set_period(Duration::from_secs(seconds));
        }
    }

    /// Counts what keeps no charges of its own: it grows by little with each request, and is bounded.
    pub(crate) fn count_memory(&self) {
        let sessions = self.sessions.len() * Sessions::BYTES;
        self.memory.count(Part::Sessions, sessions as u64);
        let statistics = query::plan_cache_bytes() + self.metrics.top_bytes();
        self.memory.count(Part::Statistics, statistics as u64);
    }

    /// Ends idle cursors and sessions; the server calls it every few seconds.
    pub fn housekeep(&self) {
        let now = self.os.clock.monotonic();
        self.catalog.count_memory();
        self.count_memory();
        let timeout = Duration::from_millis(self.cursor_timeout_ms.load(Ordering::Relaxed));
        self.cursors.expire(now, timeout);
        if self.replication.keeps_time() {
            self.replication.clock.housekeep();
        }
        let dead = self.sessions.expire(now);
        if !dead.is_empty() {
            let dead: BTreeSet<SessionId> = dead.into_iter().collect();
            self.kill_cursors_of(&dead);
            for id in dead {
                self.numbered.remove(id);
            }
        }
        self.expire_transactions(now);
        let due = now.as_secs() >= self.next_forgetting.load(Ordering::Relaxed);
        if due && !self.write_gate.is_closed() {
            self.next_forgetting.store(now.as_secs() + FORGETTING_SECONDS, Ordering::Relaxed);
            // A full disk, or one that stopped, will be told to whoever writes.
            let _later = self.forget_old_records();
        }
    }

    /// Notes a use of a session at `now`. Where there are too many, one that has neither a cursor nor
    /// a transaction makes room; what it knew of its retryable writes stands in the records.
    pub(crate) fn touch_session(&self, id: SessionId, now: Duration) -> Result<()> {
        let holds_nothing = |old| {
            !self.cursors.any(|owner| owner == Some(old))
                && self.numbered.remove_if(old, |state| state.open().is_none())
        };
        self.sessions.touch(id, now, holds_nothing)
    }

    /// Ends the cursors of sessions, also those that run.
    pub(crate) fn kill_cursors_of(&self, sessions: &BTreeSet<SessionId>) {
        let killed = self
            .cursors
            .kill_where(|cursor| cursor.session.is_some_and(|owner| sessions.contains(&owner)));
        for cursor in killed {
            self.stop_runner(cursor);
        }
    }

    /// Stops the operation that runs a killed cursor.
    pub(crate) fn stop_runner(&self, killed: Killed) {
        if let Some(number) = killed.running {
            self.operations.kill(number, Code::CURSOR_KILLED);
        }
    }

    /// Waits for `time`, or for the server's end.
    pub(crate) fn wait(&self, time: Duration) {
        let mut ending = self.ending.lock();
        if !*ending {
            self.woken.wait_for(&mut ending, time);
        }
    }

    /// Calls `wake` whenever what a waiting request waits for may have come ([`Reply::wait`]). Only the
    /// first call counts.
    pub fn on_change(&self, wake: Wake) {
        // A second server over one service would be a bug of the program's wiring.
        let _first_stays = self.wake.set(wake);
    }

    /// Tells whoever waits that the topology changed.
    pub(crate) fn topology_changed(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Server time since the start.
    pub(crate) fn uptime(&self) -> Duration {
        self.os.clock.monotonic().saturating_sub(self.started)
    }

    /// What a reply of so many bytes holds until it is sent; at first it was admitted for more.
    fn reply_memory(&self, admitted: Option<Charge>, bytes: usize) -> Option<Charge> {
        match admitted {
            Some(mut charge) => {
                charge.set(bytes as u64);
                Some(charge)
            }
            None if bytes > SMALL_REPLY => {
                Some(self.memory.charge_regardless(Part::Replies, bytes as u64))
            }
            None => None,
        }
    }

    fn account(&self, context: &Context<'_>, time: Duration, error: Option<&Error>) {
        self.metrics.finish(context.command.class, time);
        if let Some(namespace) = &context.collection {
            let exists = || self.catalog.collection(namespace).is_some();
            self.metrics.top(namespace.as_str(), context.command.counter, time, exists);
        }
        Entry { context, time, examined: query::take_examined(), error }.tell();
    }
}

/// Clients that send `OP_QUERY` wrap a command in `$query` to add a read preference. Nobody else may:
/// what looks at the first field of an `OP_MSG` to know the command must see the one that runs.
fn unwrap_query<'a>(request: &Request<'a>) -> &'a RawDocument {
    if request.op != OpKind::Query {
        return request.body;
    }
    match request.body.iter().next() {
        Some(Ok((key, RawBsonRef::Document(inner))))
            if matches!(key.as_str(), "$query" | "query") =>
        {
            inner
        }
        _ => request.body,
    }
}

/// What clients of old servers may ask for in place of a command that is no more.
fn dropped(name: &str) -> Option<&'static str> {
    Some(match name {
        "group" => "use aggregate with $group",
        "eval" | "$eval" => "run the code in the client, or use aggregate with $function",
        "geoNear" => "use aggregate with $geoNear",
        "geoSearch" => "use find with $geoWithin",
        "parallelCollectionScan" => "use find",
        "copydb" | "clone" | "cloneCollection" => "use mongodump and mongorestore",
        "repairDatabase" => "use validate, and fern check on the data directory",
        _ => return None,
    })
}

fn find_command(
    registry: &Registry,
    connection: &Connection,
    body: &RawDocument,
) -> Result<(usize, &'static Command)> {
    let name = match raw::first(body) {
        Some(element) => element?.name(),
        None => "",
    };
    registry
        .find(name)
        .filter(|(_, command)| !command.legacy || connection.last_write.get().is_some())
        .ok_or_else(|| match body.get("apiStrict") {
            Ok(Some(RawBsonRef::Boolean(true))) => not_in_api(name),
            _ => match dropped(name) {
                Some(instead) => Error::new(
                    Code::COMMAND_NOT_FOUND,
                    format!("no such command: '{name}'. MongoDB has dropped it: {instead}"),
                ),
                None => Error::new(Code::COMMAND_NOT_FOUND, format!("no such command: '{name}'")),
            },
        })
}

/// Settles what depends on this node's role: times, concerns, whether it may be asked at all.
fn settle(context: &Context<'_>, arguments: &mut Arguments<'_>) -> Result<()> {
    let (service, command) = (context.service, context.command);
    let replication = &service.replication;
    if let (true, Some(seen)) = (replication.keeps_time(), arguments.cluster_time) {
        replication.clock.advance(seen)?;
    }
    if arguments.read_concern.given {
        let starts = arguments.numbered.is_some_and(|numbered| numbered.starts);
        read_concern::check(&arguments.read_concern, command, starts, replication)?;
    }
    if command.leaves_something() {
        // Nobody is told that nothing happened (no such transaction, not found) by a server that
        // cannot know what its next start will find in the log.
        service.catalog.check_running()?;
    }
    if command.write_concern {
        write_concern::settle(&mut arguments.write_concern, replication)?;
    }
    let role = replication.role(&service.os);
    if matches!(role, Role::Standalone | Role::Primary) {
        return Ok(());
    }
    let local = context.request.database == "local";
    if (command.write_concern || command.class == Class::Write) && !local {
        return Err(Error::new(Code::NOT_WRITABLE_PRIMARY, "not primary"));
    }
    if command.class != Class::Read || local || command.name == "getMore" {
        return Ok(());
    }
    if role == Role::Uninitiated {
        let text = "node is not in primary or recovering state";
        return Err(Error::new(Code::NOT_PRIMARY_OR_SECONDARY, text));
    }
    if arguments.secondary_ok || context.request.op != OpKind::Msg {
        return Ok(());
    }
    Err(Error::new(Code::NOT_PRIMARY_NO_SECONDARY_OK, "not primary and secondaryOk=false"))
}

/// Whether the limit of the cluster parameter `defaultMaxTimeMS` holds for a command that names none.
fn takes_default_limit(command: &Command) -> bool {
    command.class == Class::Read && !matches!(command.name, "getMore" | "explain")
}

/// Whether a command may change what is stored.
fn writes(command: &Command, body: &RawDocument) -> bool {
    match command.name {
        // It only undoes what nobody has seen.
        "abortTransaction" | "getLastError" => false,
        "aggregate" => {
            let last = body.get_array("pipeline").ok().and_then(|p| p.into_iter().last());
            let stage = match last {
                Some(Ok(RawBsonRef::Document(stage))) => stage.iter().next().and_then(Result::ok),
                _ => None,
            };
            stage.is_some_and(|(name, _)| matches!(name.as_str(), "$out" | "$merge"))
        }
        "mapReduce" => {
            !matches!(body.get_document("out"), Ok(out) if out.get("inline").is_ok_and(|i| i.is_some()))
        }
        "compact" => true,
        _ => command.leaves_something(),
    }
}

/// Whether a command that waits for the gate is to go on waiting.
fn wait_is_over(context: &Context<'_>) -> Result<()> {
    if context.service.is_stopping() {
        return Err(Error::new(Code::INTERRUPTED_AT_SHUTDOWN, "the server is shutting down"));
    }
    context.check_interrupt()
}

fn execute(context: &mut Context<'_>) -> Result<()> {
    let command = context.command;
    let mut fields = Fields::new();
    let mut arguments = Arguments::parse(command, context.body, &mut fields)?;
    let anywhere = transactions::is_end(command) && arguments.numbered.is_none();
    if !anywhere {
        check_database(command, context.request.database)?;
    }
    if !context.request.sequences.is_empty() {
        context.check_sequences(command.sequences)?;
    }
    let service = context.service;
    if let Some(session) = arguments.session {
        service.touch_session(session, context.started)?;
        service.operations.set_session(&context.connection.operation, session);
    }
    if arguments.max_time_ms.is_none() && takes_default_limit(command) {
        let limit = service.default_max_time_ms.load(Ordering::Relaxed);
        arguments.max_time_ms = (limit > 0).then_some(limit);
    }
    if let Some(millis) = arguments.max_time_ms
        && service.fail_points.time_limits_count()
    {
        let deadline = context.started + Duration::from_millis(millis);
        context.connection.operation.set_deadline(Some(deadline));
    }
    transactions::check(command, &arguments, context.request.database)?;
    settle(context, &mut arguments)?;
    context.arguments = arguments;
    // Writes count per document, which only they know.
    if !matches!(command.counter, Counter::Insert | Counter::Update | Counter::Delete) {
        service.metrics.count(command.counter, 1);
    }
    let _writing = if writes(command, context.body) {
        Some(service.write_gate.enter(|| wait_is_over(context))?)
    } else {
        None
    };
    if context.arguments.numbered.is_some() {
        bound::refuse_numbered(context)?;
        transactions::enter(context)?;
        context.inside = context.transaction().is_some() && !transactions::is_end(command);
        // A statement that ends by a bug must not stay half done in its transaction.
        let ended = catch_unwind(AssertUnwindSafe(|| run(context, &fields)));
        let failed = !matches!(ended, Ok(Ok(()))) || context.statement_failed;
        transactions::leave(context, failed);
        return ended.unwrap_or_else(|bug| resume_unwind(bug)).map_err(bound::outside);
    }
    context.read_state =
        read_concern::state(&context.arguments.read_concern, &service.replication)?;
    bound::enter(context)?;
    if context.bound.is_some() {
        context.inside = true;
        let result = run(context, &fields).map_err(bound::inside);
        bound::leave(context, result.is_err());
        return result;
    }
    run(context, &fields).map_err(bound::outside)
}

/// Runs the command's code; again, where a change of the metadata beside it made it fail before it
/// had done anything. Only where the service waits for the disk afterwards may it have
/// written something.
fn run<'a>(context: &mut Context<'a>, fields: &[Field<'a>]) -> Result<()> {
    let before = engine::thread_commits();
    let mut retries = DdlRetries::default();
    let result = loop {
        let result = (context.command.run)(context, fields);
        context.committed = engine::thread_commits() != before;
        // A cursor that failed has lost its place.
        let repeatable = !context.committed
            && !context.inside
            && context.read_state.is_none()
            && context.command.counter != Counter::GetMore;
        match &result {
            Err(error)
                if repeatable
                    && retries.again(
                        error,
                        &context.service.catalog,
                        &*context.connection.interrupt,
                    )? =>
            {
                context.start_over();
            }
            _ => break result,
        }
    };
    debug_assert!(
        context.command.leaves_something() || !context.committed,
        "{} has written, and its registration says nothing of a write concern",
        context.command.name
    );
    result
}

/// Waits until what a command did is as durable as was asked; an error is one of this wait alone,
/// for what was done stays. Of a command that failed half-way that is what it had done by then. A
/// statement of a transaction has done nothing yet.
fn wait_for_disk(context: &Context<'_>, succeeded: bool) -> Result<()> {
    let Context { service, command, .. } = context;
    if !command.leaves_something() || context.inside || !(succeeded || context.committed) {
        return Ok(());
    }
    let always = command.durable || service.catalog.engine().options().log_flush_period.is_zero();
    if always || context.arguments.write_concern.synced {
        service.catalog.sync()?;
    }
    Ok(())
}

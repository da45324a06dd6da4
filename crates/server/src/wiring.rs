//! Where the rooms meet: the engine under the catalog, the commands over it, the sockets above.
//!
//! Nothing is decided here; settings go down, figures and log lines come up.

use crate::audit::AuditLog;
use crate::config::{EncryptionSettings, Settings};
use crate::log::Log;
use crate::master_keys;
use crate::startup::{ExitCode, StartError};
use crate::tls_files::TlsFiles;
use auth::{ClusterKey, Network as Addresses, RoleName};
use bson::{Bson, Document, RawDocumentBuf, doc};
use crypt::MasterKey;
use dispatch::{ConnectionInfo, OpKind, Reply, Request, Wake};
use engine::{Engine, HistoryOptions, Options, Showing};
use history::History;
use limits::{Arrivals, BeforeLogin};
use membership::{SetDocument, Stored};
use net::NetStats;
use net::Service;
use os::Os;
use serverstate::replication::ReplicaSetOptions;
use serverstate::{
    Allocator, AuditSink, Certificate, ClientCertificate, Host, LogEvent, LogSettings, Network,
    ServerInfo, Severity, StartAgain,
};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;
use telemetry::Registry;
use tls::Certificates;

/// Why the program's main thread wakes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// End cleanly, giving running requests this long.
    ShutDown(Duration),
    /// End cleanly, then start again with the same options.
    StartAgain,
    /// End, and say that the program failed, and why.
    Fail(&'static str),
    /// Start a new log file.
    RotateLog,
    /// Load the files of TLS again.
    RotateCertificates,
}

/// `mongod`'s and our default of `--slowms`.
const DEFAULT_SLOW_MS: i64 = 100;

/// The commands behind the sockets.
pub(crate) struct Commands {
    pub(crate) service: Arc<commands::Service>,
    /// The log has a line for each connection that speaks one of these.
    pub(crate) logged_versions: Vec<tls::Version>,
    /// Connections from here are let in beyond the usual number.
    pub(crate) beyond_max_connections: Vec<Addresses>,
}

impl Service for Commands {
    type Connection = serverstate::Connection;

    fn open_connection(&self, peer: ConnectionInfo) -> Arc<serverstate::Connection> {
        self.service.open_connection(peer)
    }

    fn number(&self, connection: &serverstate::Connection) -> u64 {
        connection.id()
    }

    fn run(&self, connection: &serverstate::Connection, request: &Request<'_>) -> Reply {
        self.service.run(connection, request)
    }

    fn secured(&self, connection: &serverstate::Connection, established: &tls::Established) {
        if self.logged_versions.contains(&established.version) {
            let (version, remote) = (established.version.name(), &connection.info().remote);
            tracing::info!(target: "NETWORK", id = 23218, connectionId = connection.id(), tlsVersion = version, %remote,
                "Accepted connection with TLS");
        }
        if let Some(why) = &established.unverified {
            tracing::warn!(target: "NETWORK", id = 23236, connectionId = connection.id(), why,
                "A client's certificate is not good, and its client is let in as nobody");
        }
        if let Some(subject) = &established.subject {
            let (subject, of_member) = (subject.clone(), established.of_member);
            let roles =
                established.roles.iter().map(|(role, db)| RoleName::new(role, db)).collect();
            let certificate = ClientCertificate { subject, of_member, roles };
            let _told_once = connection.certificate.set(certificate);
        }
    }

    fn before_login(&self, connection: &serverstate::Connection) -> Option<&BeforeLogin> {
        let security = &self.service.security;
        let asks = security.is_enforced() && !connection.login.lock().is_somebody();
        asks.then_some(&security.before_login)
    }

    fn arrivals(&self) -> Option<&Arrivals> {
        Some(&self.service.arrivals)
    }

    fn is_let_in_beyond(&self, from: IpAddr) -> bool {
        self.beyond_max_connections.iter().any(|network| network.contains(from))
    }

    fn agreed(&self, connection: &serverstate::Connection, compressor: wire::Compressor) -> bool {
        connection.agreed(compressor.id())
    }

    fn on_change(&self, wake: Wake) {
        self.service.on_change(wake);
    }

    fn write_refused(&self, connection: &serverstate::Connection, error: &errors::Error) {
        self.service.refuse_write(connection, error);
    }

    fn close_connection(&self, connection: &serverstate::Connection) {
        self.service.close_connection(connection);
    }

    fn client_left(&self, connection: &serverstate::Connection) {
        self.service.client_left(connection);
    }

    fn stopping(&self) {
        self.service.end_waits();
    }

    fn interrupt_all(&self) {
        self.service.begin_shutdown();
    }
}

/// What commands ask of the program around them.
pub(crate) struct Program {
    pub(crate) log: Arc<Log>,
    pub(crate) stats: Arc<NetStats>,
    pub(crate) max_connections: usize,
    pub(crate) events: Sender<Event>,
    pub(crate) history: Option<Arc<History>>,
    /// Connections and their ends are not logged.
    pub(crate) quiet: Arc<AtomicBool>,
    pub(crate) audit: Option<AuditLog>,
    /// There unless TLS is off.
    pub(crate) tls: Option<Arc<TlsFiles>>,
    /// There where the data directory is encrypted.
    pub(crate) encryption: Option<EncryptionSettings>,
    pub(crate) os: Os,
}

impl Host for Program {
    fn log(&self, event: &LogEvent<'_>) {
        let severity = match event.severity {
            Severity::Info => "I",
            Severity::Warning => "W",
            Severity::Error => "E",
        };
        let LogEvent { component, id, context, message, attributes, .. } = event;
        self.log.tell(severity, component, *id, context, message, attributes);
    }

    fn recent_log(&self, name: &str) -> Option<(Vec<String>, u64)> {
        let (lines, total) = match name {
            "global" => self.log.recent(),
            "startupWarnings" => {
                let lines = self.log.startup_warnings();
                let total = lines.len() as u64;
                (lines, total)
            }
            _ => return None,
        };
        Some((lines.iter().map(ToString::to_string).collect(), total))
    }

    fn read_master_key(&self) -> Option<Result<MasterKey, String>> {
        let read = master_keys::of(self.encryption.as_ref()?).master_key(&self.os);
        Some(read.map_err(|error| error.line))
    }

    fn rotate_log(&self) -> Result<(), String> {
        self.log.rotate().map_err(|error| error.to_string())
    }

    fn certificate(&self) -> Option<Certificate> {
        let loaded = self.tls.as_ref()?.certificates().now();
        Some(Certificate {
            subject: loaded.subject().to_owned(),
            not_after_ms: loaded.not_after().saturating_mul(1000),
            has_authority: loaded.asks_for_certificates(),
        })
    }

    fn rotate_certificates(&self) -> Result<(), String> {
        self.tls.as_ref().ok_or("TLS is off")?.load_again()
    }

    fn log_settings(&self) -> LogSettings {
        let mut settings = self.log.settings();
        settings.quiet = self.quiet.load(Ordering::Relaxed);
        settings
    }

    fn set_log_settings(&self, settings: &LogSettings) {
        self.quiet.store(settings.quiet, Ordering::Relaxed);
        self.log.set_settings(settings);
    }

    fn shut_down(&self, timeout: Duration) {
        // Where nobody takes it the program has ended.
        let _taken = self.events.send(Event::ShutDown(timeout));
    }

    fn start_again(&self) -> Result<StartAgain, String> {
        let events = self.events.clone();
        Ok(StartAgain::by(move || {
            // Where nobody takes it the program has ended.
            let _taken = events.send(Event::StartAgain);
        }))
    }

    fn audit(&self) -> Option<&dyn AuditSink> {
        self.audit.as_ref().map(|audit| audit as _)
    }

    fn fail(&self, why: &'static str) {
        // Where nobody takes it the program has ended.
        let _taken = self.events.send(Event::Fail(why));
    }

    fn history(&self) -> Option<Arc<History>> {
        self.history.clone()
    }

    fn network(&self) -> Network {
        let stats = &self.stats;
        Network {
            bytes_in: stats.bytes_in(),
            bytes_out: stats.bytes_out(),
            physical_bytes_in: stats.bytes_in(),
            physical_bytes_out: stats.bytes_out(),
            requests: stats.requests(),
            connections: stats.open() as u64,
            available: self.max_connections.saturating_sub(stats.open()) as u64,
            total_created: stats.accepted(),
            rejected: stats.rejected(),
            active: stats.active() as u64,
            threads: stats.threads() as u64,
            awaiting: stats.deferred() as u64,
            closed_before_login: stats.closed_before_login(),
            tls12: stats.tls12(),
            tls13: stats.tls13(),
        }
    }

    fn allocator(&self) -> Option<Allocator> {
        use tikv_jemalloc_ctl::{epoch, stats};
        // The figures are those of the newest epoch.
        epoch::advance().ok()?;
        let figures = (stats::allocated::read(), stats::active::read(), stats::resident::read());
        let (Ok(allocated), Ok(active), Ok(resident)) = figures else { return None };
        Some(Allocator {
            allocated: allocated as u64,
            active: active as u64,
            resident: resident as u64,
        })
    }
}

/// What the server says about itself.
pub(crate) fn server_info(
    settings: &Settings,
    (cluster_key, tls): (Option<Arc<ClusterKey>>, Option<&TlsFiles>),
    version: &str,
    port: u16,
    status_port: u16,
    max_connections: usize,
    code_in_huge_pages: bool,
) -> ServerInfo {
    let mut parsed_options = settings.parsed.clone();
    parsed_options.insert("statusPort", i32::from(status_port));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let replica_set = settings.replica_set.as_ref().map(|name| ReplicaSetOptions {
        name: name.clone(),
        address: format!("{}:{port}", reachable_at(settings, &host)),
        initiate: settings.replica_set_initiate,
    });
    ServerInfo {
        argv: settings.argv.clone(),
        parsed_options,
        version: version.to_owned(),
        git_version: env!("FERN_GIT_VERSION").to_owned(),
        host,
        port,
        replica_set,
        pid: std::process::id(),
        max_connections: max_connections as u64,
        auth: settings.auth,
        cluster_key,
        cluster_auth: settings.cluster_auth,
        members_from: settings.members_from.clone(),
        members_tls: members_tls(settings, tls),
        dialled_instead: settings.dialled_instead.clone(),
        code_in_huge_pages,
        data_directory: settings.dbpath.display().to_string(),
        backup_root: settings.backup_root.clone(),
    }
}

/// What members are spoken to by TLS with, where they are.
fn members_tls(settings: &Settings, tls: Option<&TlsFiles>) -> Option<Arc<Certificates>> {
    let speaks = settings.tls.mode.links_speak_tls();
    tls.filter(|_| speaks).map(|tls| Arc::clone(tls.certificates()))
}

/// Refuses a member of a set of several that could not speak TLS to the others, where it is to.
///
/// # Errors
/// What to do instead.
pub(crate) fn check_tls_of_members(
    settings: &Settings,
    tls: Option<&TlsFiles>,
    is_of_several: bool,
) -> Result<(), StartError> {
    let certificates = members_tls(settings, tls).filter(|_| is_of_several);
    serverstate::check_members_by_tls(certificates.as_deref())
        .map_err(|text| StartError::new(ExitCode::BadOptions, text))
}

/// The name by which clients are told to reach this server: what it listens at, or the machine's
/// name where it listens everywhere.
fn reachable_at<'a>(settings: &'a Settings, host: &'a str) -> &'a str {
    match settings.bind_ip.first().map(String::as_str) {
        None | Some("*" | "0.0.0.0" | "::" | "::0") => host,
        Some(first) => first,
    }
}

/// Sets what `--setParameter` and `--slowms` ask for, through the commands a client would use, so
/// that each is checked in one place.
pub(crate) fn apply_parameters(
    service: &commands::Service,
    settings: &Settings,
) -> Result<(), StartError> {
    let connection = service.open_startup_connection();
    let mut requests = Vec::new();
    if settings.slow_ms != DEFAULT_SLOW_MS {
        requests.push(("slowms", doc! { "profile": 0, "slowms": settings.slow_ms }));
    }
    for (name, value) in &settings.parameters {
        requests.push((name.as_str(), doc! { "setParameter": 1, name: typed(value) }));
    }
    let mut result = Ok(());
    for (name, request) in requests {
        if let Err(reason) = run_at_start(service, &connection, &request) {
            let line = format!("option {name} is refused: {reason}");
            result = Err(StartError::new(ExitCode::BadOptions, line));
            break;
        }
    }
    service.close_connection(&connection);
    result
}

/// A parameter's text as the value a client would send.
fn typed(text: &str) -> Bson {
    match (text.parse::<i64>(), text) {
        (Ok(number), _) => Bson::Int64(number),
        (_, "true") => Bson::Boolean(true),
        (_, "false") => Bson::Boolean(false),
        _ => Bson::String(text.to_owned()),
    }
}

fn run_at_start(
    service: &commands::Service,
    connection: &serverstate::Connection,
    request: &Document,
) -> Result<(), String> {
    let reply = run_locally(service, connection, "admin", request);
    if reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) {
        return Ok(());
    }
    Err(reply.get_str("errmsg").unwrap_or("no reason given").to_owned())
}

/// Runs a command as a client's message would be run.
pub(crate) fn run_locally(
    service: &commands::Service,
    connection: &serverstate::Connection,
    database: &str,
    request: &Document,
) -> RawDocumentBuf {
    let mut request = request.clone();
    request.insert("$db", database);
    // The server's own questions are answered by every member.
    request.insert("$readPreference", doc! { "mode": "primaryPreferred" });
    let body = match RawDocumentBuf::try_from(&request) {
        Ok(body) => body,
        Err(error) => {
            let error = errors::Error::bad_value(error.to_string());
            return Reply::error(&error).document;
        }
    };
    let reply = service.run(
        connection,
        &Request {
            database,
            body: &body,
            sequences: &[],
            op: OpKind::Msg,
            exhaust_allowed: false,
            request_id: 0,
            waited_until: None,
            waker: None,
            finisher: None,
        },
    );
    reply.document
}

const MIB: u64 = 1 << 20;

/// How much history a member keeps.
fn history_options(os: &Os, settings: &Settings) -> HistoryOptions {
    if let Some(min_age) = settings.oplog_age {
        return HistoryOptions { bytes: settings.oplog_bytes.unwrap_or(0), min_age };
    }
    let dir = settings.log_dir.as_ref().unwrap_or(&settings.dbpath);
    let bytes = settings.oplog_bytes.unwrap_or_else(|| {
        let space = os.vfs.space(dir);
        space.map_or(990 * MIB, |space| default_oplog_bytes(space.total, space.available))
    });
    HistoryOptions { bytes, min_age: settings.oplog_min_age }
}

/// Where nothing is said: a twentieth of what is free, within MongoDB's limits, and never more than an
/// eighth of the disk.
fn default_oplog_bytes(total: u64, available: u64) -> u64 {
    (available / 20).clamp(990 * MIB, 51_200 * MIB).min(total / 8)
}

/// Whether the data directory is that of a member of a set of several.
///
/// # Errors
/// It is, and the options say something else; or what stands in it cannot be read.
pub(crate) fn is_of_several(os: &Os, settings: &Settings) -> Result<bool, StartError> {
    let refuse = |line: String| Err(StartError::new(ExitCode::DataDirectory, line));
    let path = settings.dbpath.display();
    let stored = match Stored::find(os, &settings.dbpath) {
        Ok(Some(stored)) => stored,
        Ok(None) => return Ok(false),
        Err(error) => return refuse(format!("cannot read what set {path} belongs to: {error}")),
    };
    let set = stored.document.as_ref().map(SetDocument::name);
    match (&settings.replica_set, set) {
        (None, Some(set)) => refuse(format!(
            "the data directory {path} is a member of the replica set {set}: start with --replSet {set}"
        )),
        (Some(asked), Some(set)) if asked != set => refuse(format!(
            "the data directory {path} is a member of the replica set {set}, not of {asked}"
        )),
        (Some(_), Some(_)) => Ok(true),
        // A crash came before the set's document: nothing was acknowledged, and it is begun again.
        (_, None) => Ok(false),
    }
}

/// Opens the data directory: recovery, then a running engine. May take as long as there is log.
pub(crate) fn open_engine(
    os: &Os,
    settings: &Settings,
    cache_size: u64,
    master: Option<Arc<MasterKey>>,
    is_of_several: bool,
) -> Result<Engine, StartError> {
    let history = settings.replica_set.is_some().then(|| history_options(os, settings));
    let showing = if is_of_several { Showing::Committed } else { Showing::Complete };
    check_archive_place(os, settings)?;
    let options = Options { history, showing, cache_size, master, ..engine_options(settings) };
    Engine::open(os.clone(), Arc::new(Registry::new()), options)
        .map_err(|error| engine_error(settings, &error))
}

/// The archive of the log is to outlive the data directory: it is not in it, nor the other way round, whatever
/// links lead there.
fn check_archive_place(os: &Os, settings: &Settings) -> Result<(), StartError> {
    let Some(archive) = &settings.log_archive_dir else { return Ok(()) };
    let real = |path: &Path| {
        let made = os.vfs.create_dir_all(path).and_then(|()| std::fs::canonicalize(path));
        made.map_err(|error| {
            StartError::new(
                ExitCode::BadOptions,
                format!("logArchiveDir: {} cannot be made: {error}", path.display()),
            )
        })
    };
    let place = real(archive)?;
    for own in [&settings.dbpath].into_iter().chain(settings.log_dir.as_ref()) {
        let own = real(own)?;
        if place.starts_with(&own) || own.starts_with(&place) {
            return Err(StartError::new(
                ExitCode::BadOptions,
                format!(
                    "logArchiveDir: {} is the data directory, or the log's, or one in or above it",
                    archive.display()
                ),
            ));
        }
    }
    Ok(())
}

/// The key of an encrypted data directory.
///
/// # Errors
/// There is none.
pub(crate) fn master_key(
    os: &Os,
    settings: &Settings,
) -> Result<Option<Arc<MasterKey>>, StartError> {
    let Some(encryption) = &settings.encryption else { return Ok(None) };
    Ok(Some(Arc::new(master_keys::of(encryption).master_key(os)?)))
}

/// A copy of another member's data that came as a whole takes the place of what the data directory has.
pub(crate) fn take_received(os: &Os, settings: &Settings) -> Result<(), StartError> {
    let taken = engine::take_received(os, &engine_options(settings));
    if taken.map_err(|error| engine_error(settings, &error))? {
        tracing::info!(target: "REPL", id = 9_016_762, "Started with a copy of another member's data");
    }
    Ok(())
}

fn engine_options(settings: &Settings) -> Options {
    Options {
        log_dir: settings.log_dir.clone(),
        log_archive_dir: settings.log_archive_dir.clone(),
        tmp_dir: settings.tmp_dir.clone(),
        checkpoint_period: settings.checkpoint_period.unwrap_or_default(),
        log_flush_period: settings.log_flush_period,
        lock_timeout: settings.lock_timeout,
        cleaner_period: settings.cleaner_period.unwrap_or_default(),
        cleaner_iterations: settings.cleaner_iterations,
        fs_redzone_percent: settings.fs_redzone,
        directio: settings.direct_io,
        compress_log: settings.compress_log,
        locktree_max_memory: settings.locktree_max_memory,
        record_part: Some(catalog::record_part),
        updates: Some(Arc::clone(serverstate::fast_update_rules()) as Arc<dyn engine::Updates>),
        ..Options::new(&settings.dbpath)
    }
}

/// The engine's refusal as the operator reads it.
pub(crate) fn engine_error(settings: &Settings, error: &engine::Error) -> StartError {
    use engine::Error;
    let path = settings.dbpath.display();
    match error {
        Error::Locked(_) => StartError::new(
            ExitCode::DataDirectory,
            format!("the data directory {path} is in use by another fernd"),
        ),
        Error::Keys(what) => StartError::new(ExitCode::DataDirectory, what),
        Error::InvalidOption(what) => StartError::new(ExitCode::BadOptions, what),
        Error::NoSpace(what) => StartError::new(
            ExitCode::DataDirectory,
            format!("the disk of the data directory {path} is full: {what}"),
        ),
        other => StartError::new(
            ExitCode::DataDirectory,
            format!("cannot open the data directory {path}: {other}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oplog_takes_its_share_of_the_disk() {
        const GIB: u64 = 1 << 10;
        for (total, available, expected) in [
            (1000 * GIB, 500 * GIB, 25 * GIB),
            (1000 * GIB, 10 * GIB, 990),
            (10_000 * GIB, 9_000 * GIB, 51_200),
            // a small disk
            (4 * GIB, 3 * GIB, 512),
            (160, 100, 20),
            (0, 0, 0),
        ] {
            let found = default_oplog_bytes(total * MIB, available * MIB) / MIB;
            assert_eq!(found, expected, "{available} of {total} MiB");
        }
    }
}

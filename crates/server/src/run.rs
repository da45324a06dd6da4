//! The life of `fernd`: read the options, check, open, serve, end.
//!
//! ```text
//!   options ─ checks ─ (fork) ─ log ─ signals ─ sockets bound ─ engine open ─ serving
//!                                                                               │
//!   exit 0 ─ engine closed (checkpoint) ─ requests finished ─ sockets closed ─ SIGTERM
//! ```
//!
//! Sockets are bound before the engine is opened, so that a port in use is told at once and
//! clients that come during a recovery wait for it instead of being refused.

use crate::advisor::{self, Advisor};
use crate::audit::AuditLog;
use crate::config::{CommandLine, Settings, parse};
use crate::exposure::Exposure;
use crate::key_file;
use crate::log::{Destination, Log, is_regular};
use crate::panics;
use crate::startup::{self, ExitCode, StartError};
use crate::status::{self, Recorder};
use crate::status_token;
use crate::tls_files::TlsFiles;
use crate::wiring::{self, Commands, Event, Program};
use crate::{allocator, code_pages};
use catalog::{Catalog, CatalogOptions};
use dashboard::PageTls;
use engine::Engine;
use net::{Listener, NetOptions, NetStats, Server, TlsPort};
use os::{Os, Signal};
use serverstate::{AuditSink, Parts, SessionRecords};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tls::Mode;

/// What the program takes at least, whatever its cache: its code, its threads, and what the allocator loses.
const PROGRAM_BYTES: u64 = 36 << 20;

/// How often idle cursors and sessions are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(4);

/// FernDB's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `--version` prints behind the program's name. The commit is `unknown` where neither git nor the
/// builder told it (`build.rs`).
const VERSION_AND_COMMIT: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("FERN_GIT_VERSION"), ")");

/// Runs the server as `argv` asks, until it is told to stop. The result is the exit code.
pub fn main(argv: &[String]) -> std::process::ExitCode {
    let ended = start_and_serve(argv).and_then(|end| match end {
        End::Done => Ok(()),
        End::Failed(why) => Err(StartError::new(ExitCode::Abrupt, why)),
        // It returns only where it fails.
        End::StartsAgain => {
            let error = os::re_exec();
            Err(StartError::new(ExitCode::Abrupt, format!("cannot start again: {error}")))
        }
    });
    match ended {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // Where standard error is closed there is nobody to tell.
            let _unheard = writeln!(io::stderr(), "fernd: {error}");
            std::process::ExitCode::from(error.code as u8)
        }
    }
}

/// How a run of the server ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The process ends.
    Done,
    /// The same process starts again.
    StartsAgain,
    /// The process ends because of this.
    Failed(&'static str),
}

fn start_and_serve(argv: &[String]) -> Result<End, StartError> {
    os::keep_new_files_private();
    let os = Os::real();
    let settings = match parse(&os, argv, VERSION_AND_COMMIT)? {
        CommandLine::Start(settings) => *settings,
        CommandLine::Print(text) => {
            say(&text);
            return Ok(End::Done);
        }
    };
    let starts_again = os::was_re_executed();
    let memory = os::memory();
    let cache_size = startup::cache_size(settings.cache_size, memory)?;
    if startup::holds_keys(&settings) && !settings.allow_core_dumps {
        os::keep_memory_private().map_err(|error| {
            let text = format!(
                "cannot keep the memory with the keys out of core files: {error}; --setParameter allowCoreDumps=true \
                 starts without that"
            );
            StartError::new(ExitCode::Abrupt, text)
        })?;
    }
    let key = settings.key_file.as_deref().map(|path| key_file::read(&os, path)).transpose()?;
    let status_token = settings.status_token_file.as_deref();
    let status_token = status_token.map(|path| status_token::read(&os, path)).transpose()?;
    let master = wiring::master_key(&os, &settings)?;
    let tls = TlsFiles::load(&os, &settings.tls)?.map(Arc::new);
    let daemon = if settings.fork && !starts_again { Some(daemonize()?) } else { None };
    let moved = code_pages::move_code(settings.code_in_huge_pages, cache_size)?;
    let log = open_log(&os, &settings)?;
    let code_in_huge_pages = code_pages::log(moved);
    // Without a bound: an end that is asked for is never lost behind other events, and nobody waits to ask for it.
    let (sender, events) = channel();
    watch_signals(&os, &sender)?;
    allocator::give_back_in_background();
    announce(&settings, cache_size);

    let open_files = os::raise_open_file_limit().unwrap_or(1024);
    let max_connections = startup::max_connections(settings.max_connections, open_files);
    let listeners = startup::listen(&os, &settings)?;
    let port = startup::port_of(&listeners).unwrap_or(settings.port);
    let status_sockets = status::listen(&os, &settings);
    let status_port = status::port_of(&status_sockets);
    startup::prepare_directory(&os, &settings.dbpath)?;
    let sockets = status_sockets.iter().filter_map(|socket| socket.local_addr().ok());
    let exposure = Exposure::of(&settings, listeners.iter().map(Listener::endpoint), sockets);
    exposure.tell();
    for (id, warning) in tls.iter().flat_map(|tls| tls.warnings(settings.certificate_days)) {
        tracing::warn!(target: "CONTROL", id, startupWarning = true, "{warning}");
    }
    advisor::at_start(&os, &settings, cache_size, memory);
    wiring::take_received(&os, &settings)?;
    let is_of_several = wiring::is_of_several(&os, &settings)?;
    wiring::check_tls_of_members(&settings, tls.as_deref(), is_of_several)?;
    let engine = wiring::open_engine(&os, &settings, cache_size, master, is_of_several)?;
    let history = status::open_history(&os, &settings);
    let stats = Arc::new(NetStats::default());
    let quiet = Arc::new(AtomicBool::new(settings.quiet));
    let audit = settings.audit.as_ref();
    let audit = audit.map(|audit| AuditLog::open(&os, audit, &settings.dbpath)).transpose()?;
    let program = Program {
        log: Arc::clone(&log),
        stats: Arc::clone(&stats),
        max_connections,
        events: sender,
        history: history.clone(),
        quiet: Arc::clone(&quiet),
        audit,
        tls: tls.clone(),
        encryption: settings.encryption.clone(),
        os: os.clone(),
    };
    let info = wiring::server_info(
        &settings,
        (key.map(Arc::new), tls.as_deref()),
        VERSION,
        port,
        status_port,
        max_connections,
        code_in_huge_pages,
    );
    let clients = limits::Account::new(client_memory_bytes(cache_size));
    clients.bound(limits::Part::Scripts, script_bytes(clients.capacity()));
    let (lender, share) = (engine.clone(), clients.capacity() / 2);
    let pages = allocator::Pages::below(process_memory_bytes(cache_size));
    clients.on_change(move |total| {
        lender.lend_memory(total.saturating_sub(share));
        pages.watch(total);
    });
    let service =
        build_service(&os, &engine, &settings, info, program, Arc::clone(&clients), is_of_several)?;
    wiring::apply_parameters(&service, &settings)?;
    exposure.tell_of_first_user(&service);
    service.profile_all(settings.profile_level);
    write_pid_file(&os, settings.pid_file.as_deref())?;
    let recorder = history
        .map(|history| Recorder::start(&os, history, &service, Advisor::new(&settings)))
        .transpose();
    let recorder = recorder.map_err(|error| StartError::new(ExitCode::Abrupt, error))?;
    let by_tcp = startup::port_of(&listeners).is_some();
    let page_tls = tls.as_ref().map(|tls| PageTls {
        mode: settings.tls.mode,
        certificates: Arc::clone(tls.certificates()),
    });
    let status =
        status::serve(&os, status_sockets, &settings, by_tcp, &service, page_tls, status_token);
    let options = NetOptions {
        max_connections,
        quiet,
        connections_beyond: if settings.beyond_max_connections.is_empty() {
            0
        } else {
            startup::supported_connections(open_files)
        },
        partial_bytes: settings.ingress_buffer_bytes.unwrap_or(clients.capacity()),
        memory: clients,
        tls: TlsPort {
            mode: settings.tls.mode,
            certificates: tls.as_ref().map(|tls| Arc::clone(tls.certificates())),
        },
        ..NetOptions::default()
    };
    // A member's links come by the clients' port, which takes them from here on.
    let started =
        if is_of_several { service.this().start_membership() } else { service.start_replication() };
    started.map_err(|error| {
        let text = format!("cannot take up the replica set's role: {}", error.message());
        StartError::new(ExitCode::DataDirectory, text)
    })?;
    let started = bson::doc! { "options": settings.parsed.clone() };
    service
        .tell_audit("startup", started)
        .map_err(|error| StartError::new(ExitCode::Abrupt, error.message()))?;
    let commands = Arc::new(Commands {
        service: Arc::clone(&service),
        logged_versions: settings.tls.logged_versions.clone(),
        beyond_max_connections: settings.beyond_max_connections.clone(),
    });
    let server = Server::start(&os, listeners, commands, options, stats)
        .map_err(|error| StartError::new(ExitCode::NetError, error))?;
    for endpoint in server.endpoints() {
        tracing::info!(target: "NETWORK", id = 23015, address = %endpoint, "Listening on");
    }
    tracing::info!(target: "NETWORK", id = 23016, port, ssl = if tls.is_some() { "on" } else { "off" }, "Waiting for connections");
    match daemon {
        Some(daemon) => daemon.ready().map_err(|error| StartError::new(ExitCode::Abrupt, error))?,
        None if starts_again => {}
        None => greet(&settings, port, status.as_ref().map(|_| status_port)),
    }

    let (grace, end) = wait_for_the_end(&events, &service);
    tracing::info!(target: "CONTROL", id = 23138, startsAgain = end == End::StartsAgain, "Shutting down");
    drop(status);
    // Another member leads before the clients of this one are sent away.
    service.leave_set();
    server.stop(grace);
    drop(server);
    drop(recorder);
    service.abort_transactions();
    // Where it cannot be told the log has said why.
    let _told = service.tell_audit("shutdown", bson::Document::new());
    service.end_membership();
    close_engine(&engine, &settings)?;
    if let Some(path) = &settings.pid_file {
        // One that is gone already is what is wanted.
        let _gone =
            is_regular(path).and_then(|is| if is { os.vfs.remove_file(path) } else { Ok(()) });
    }
    // Who was told to end while it ended to start again does not start again.
    let is_told_to_end = events.try_iter().any(|event| matches!(event, Event::ShutDown(_)));
    let end = if is_told_to_end { End::Done } else { end };
    tracing::info!(target: "CONTROL", id = 23138, exitCode = 0, "Shutdown complete");
    Ok(end)
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    // Where standard output is closed there is nobody to tell.
    let _unheard = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn daemonize() -> Result<os::Daemon, StartError> {
    say("about to fork child process, waiting until server is ready for connections.\n");
    let daemon = os::daemonize()
        .map_err(|error| StartError::new(ExitCode::Abrupt, format!("cannot fork: {error}")))?;
    say(&format!("forked process: {}\n", std::process::id()));
    Ok(daemon)
}

fn open_log(os: &Os, settings: &Settings) -> Result<Arc<Log>, StartError> {
    let destination = match &settings.log_path {
        None => Destination::Stdout,
        Some(path) => {
            // Of one process there is one log.
            let append = settings.log_append || os::was_re_executed();
            Destination::File { path: path.clone(), append }
        }
    };
    let log = Log::open(os, destination, settings.verbosity).map_err(|error| {
        let path = settings.log_path.as_deref().unwrap_or(Path::new("")).display();
        StartError::new(ExitCode::BadOptions, format!("cannot open the log {path}: {error}"))
    })?;
    log.install();
    telemetry::Context::named("initandlisten").enter();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panics::told(panic.payload());
        let backtrace = std::backtrace::Backtrace::force_capture();
        tracing::error!(target: "CONTROL", id = 6384300, place, text, %backtrace, "Panic");
    }));
    Ok(log)
}

fn watch_signals(os: &Os, sender: &Sender<Event>) -> Result<(), StartError> {
    let sender = sender.clone();
    let told = os::on_signals(&*os.spawner, move |signal| {
        let event = match signal {
            Signal::User1 => Event::RotateLog,
            Signal::User2 => Event::RotateCertificates,
            Signal::Terminate | Signal::Interrupt | Signal::HangUp => {
                tracing::info!(target: "CONTROL", id = 23377, ?signal, "Received signal");
                Event::ShutDown(Duration::ZERO)
            }
        };
        // Where nobody takes it the program has ended.
        let _taken = sender.send(event);
    });
    told.map(drop).map_err(|error| {
        StartError::new(ExitCode::Abrupt, format!("cannot watch for signals: {error}"))
    })
}

fn announce(settings: &Settings, cache_size: u64) {
    tracing::info!(target: "CONTROL", id = 4615611, pid = std::process::id(), port = settings.port,
        dbPath = %settings.dbpath.display(), cacheSize = cache_size, version = VERSION, commit = env!("FERN_GIT_VERSION"),
        "FernDB starting");
    for warning in &settings.warnings {
        tracing::warn!(target: "CONTROL", id = 5123300, startupWarning = true, "{warning}");
    }
}

fn build_service(
    os: &Os,
    engine: &Engine,
    settings: &Settings,
    info: serverstate::ServerInfo,
    program: Program,
    memory: Arc<limits::Account>,
    is_of_several: bool,
) -> Result<Arc<commands::Service>, StartError> {
    let spill = settings.tmp_dir.clone().unwrap_or_else(|| settings.dbpath.join("tmp"));
    let unreadable = |error: errors::Error| {
        let text = format!("cannot read the catalog: {}", error.message());
        StartError::new(ExitCode::DataDirectory, text)
    };
    let options = CatalogOptions::new(os.clone(), spill);
    // Who may become a member of a set of several writes nothing before that is known.
    let is_empty = settings.replica_set.is_some() && engine.complete().timestamp().0 == 0;
    let follows = is_of_several || is_empty;
    let (catalog, session_records) = if follows {
        let catalog = Catalog::following(engine.clone(), options).map_err(unreadable)?;
        let records = SessionRecords::following(&catalog);
        (catalog, records)
    } else {
        let catalog = Catalog::open(engine.clone(), options).map_err(unreadable)?;
        let records = SessionRecords::open(&catalog).map_err(unreadable)?;
        (catalog, records)
    };
    let host = Arc::new(program);
    let parts = Parts { os: os.clone(), catalog, session_records, info, host, memory, follows };
    Ok(commands::Service::new(parts))
}

/// What all of the process is to stay below: the cache, a quarter of it and 64 MB.
fn process_memory_bytes(cache_size: u64) -> u64 {
    cache_size.saturating_add(memory_beside_the_cache(cache_size))
}

fn memory_beside_the_cache(cache_size: u64) -> u64 {
    cache_size / 4 + (64 << 20)
}

/// What clients' requests, replies and computations may hold together. A third of what lies beside the
/// cache is left to the program itself, its threads, and what the allocator loses between objects; with a
/// small cache that is [`PROGRAM_BYTES`].
fn client_memory_bytes(cache_size: u64) -> u64 {
    let beside = memory_beside_the_cache(cache_size);
    beside - (beside / 3).max(PROGRAM_BYTES)
}

/// What the heaps of clients' JavaScript may hold together, unless `jsHeapLimitMB` says otherwise: an eighth, and
/// enough for one that works.
fn script_bytes(clients: u64) -> u64 {
    (clients / 8).max(16 << 20)
}

fn write_pid_file(os: &Os, path: Option<&Path>) -> Result<(), StartError> {
    let Some(path) = path else { return Ok(()) };
    let text = format!("{}\n", std::process::id());
    let options = os::OpenOptions { truncate: true, no_follow: true, ..os::OpenOptions::create() };
    let written = os.vfs.open(path, options).and_then(|file| file.write_all_at(text.as_bytes(), 0));
    written.map_err(|error| {
        let path = path.display();
        StartError::new(ExitCode::BadOptions, format!("cannot write pidfilepath {path}: {error}"))
    })
}

fn greet(settings: &Settings, port: u16, status_port: Option<u16>) {
    let data = settings.dbpath.display();
    let (scheme, with_tls) = match settings.tls.mode {
        Mode::Require => ("https", "/?tls=true"),
        _ => ("http", ""),
    };
    let hint = if settings.dbpath_is_default { " (change it with --dbpath)" } else { "" };
    let page = match (status_port, settings.status_bind_ip.first()) {
        (Some(port), Some(host)) => format!("\x20 status     {scheme}://{host}:{port}/\n"),
        _ => String::new(),
    };
    say(&format!(
        "\nFernDB {VERSION} is ready.\n\n\
         \x20 data       {data}{hint}\n\
         \x20 connect    mongosh mongodb://127.0.0.1:{port}{with_tls}\n\
         {page}\
         \x20 stop       Ctrl-C\n\n"
    ));
}

/// Requests that run when the server starts again go on for so long at most.
const STARTS_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Runs the periodic work until a shutdown is requested; says how long running requests may go on.
fn wait_for_the_end(events: &Receiver<Event>, service: &commands::Service) -> (Duration, End) {
    loop {
        match events.recv_timeout(HOUSEKEEPING) {
            Ok(Event::ShutDown(grace)) => return (grace, End::Done),
            Ok(Event::StartAgain) => return (STARTS_AGAIN_AFTER, End::StartsAgain),
            Ok(Event::Fail(why)) => return (Duration::ZERO, End::Failed(why)),
            Ok(Event::RotateLog) => {
                let audit = || service.host.audit().map_or(Ok(()), AuditSink::rotate);
                if let Err(error) = service.host.rotate_log().and_then(|()| audit()) {
                    tracing::error!(target: "CONTROL", id = 23166, %error, "Log rotation failed");
                }
            }
            Ok(Event::RotateCertificates) => service.rotate_certificates(),
            Err(RecvTimeoutError::Timeout) => service.housekeep(),
            Err(RecvTimeoutError::Disconnected) => return (Duration::ZERO, End::Done),
        }
    }
}

fn close_engine(engine: &Engine, settings: &Settings) -> Result<(), StartError> {
    engine.close().map_err(|error| {
        tracing::error!(target: "STORAGE", %error, "The engine did not close cleanly");
        let path = settings.dbpath.display();
        let text = format!("{path} was not closed cleanly (its log is kept): {error}");
        StartError::new(ExitCode::Abrupt, text)
    })
}

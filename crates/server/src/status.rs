//! The status port and the history: what the server shows of itself, beside the port for clients.
//!
//! Always true: neither keeps the server from running. A port in use, a history that cannot be
//! written: a warning, and the server goes on without.

use crate::advisor::Advisor;
use crate::config::Settings;
use crate::wiring::run_locally;
use auth::{Action, ActionSet, Privilege, Resource, Secret, UserName, keyed_digest};
use bson::{Document, RawDocumentBuf};
use commands::Sampler;
use dashboard::{Access, PageTls, ShowValues, StatusPort, StatusSource};
use dispatch::ConnectionInfo;
use history::History;
use net::{Endpoint, Listener};
use os::{JoinHandle, Os};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// The folder of the history, as MongoDB calls its own.
const FOLDER: &str = "diagnostic.data";

/// The history has a row for each of these.
const SECOND: Duration = Duration::from_secs(1);

/// Sockets of the status port; none where it was not asked for or cannot be had.
pub(crate) fn listen(os: &Os, settings: &Settings) -> Vec<TcpListener> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    if settings.status_port == 0 {
        return listeners;
    }
    for word in &settings.status_bind_ip {
        match bind(os, settings, word) {
            Ok(bound) => listeners.extend(bound),
            Err(error) => {
                tracing::warn!(target: "NETWORK", id = 5123301, startupWarning = true,
                    "No status page: {error}. Choose another with --statusPort, or 0 for none");
            }
        }
    }
    listeners
}

fn bind(os: &Os, settings: &Settings, word: &str) -> Result<Vec<TcpListener>, String> {
    let endpoints = Endpoint::resolve(word, settings.status_port, settings.ipv6)
        .map_err(|error| error.to_string())?;
    let mut bound = Vec::new();
    for endpoint in endpoints {
        let listener = Listener::bind(&endpoint, &*os.vfs).map_err(|error| error.to_string())?;
        let socket = listener.tcp().map_err(|error| format!("{endpoint}: {error}"))?;
        bound.push(socket);
    }
    Ok(bound)
}

/// The port that is really listened at; 0: none.
pub(crate) fn port_of(listeners: &[TcpListener]) -> u16 {
    let first = listeners.first().and_then(|listener| listener.local_addr().ok());
    first.map_or(0, |address| address.port())
}

/// Opens the history of the data directory; without one the server goes on.
pub(crate) fn open_history(os: &Os, settings: &Settings) -> Option<Arc<History>> {
    match History::open(os, &settings.dbpath.join(FOLDER)) {
        Ok(history) => Some(Arc::new(history)),
        Err(error) => {
            tracing::warn!(target: "FTDC", id = 5123302, startupWarning = true,
                "No history of figures is kept: {error}");
            None
        }
    }
}

/// Serves the page over the commands of a service; `by_tcp`: clients reach the server by TCP too.
pub(crate) fn serve(
    os: &Os,
    listeners: Vec<TcpListener>,
    settings: &Settings,
    by_tcp: bool,
    service: &Arc<commands::Service>,
    tls: Option<PageTls>,
    token: Option<Secret>,
) -> Option<StatusPort> {
    if listeners.is_empty() {
        return None;
    }
    let port = port_of(&listeners);
    let mut names = settings.status_bind_ip.clone();
    names.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    let connection = service.open_connection(ConnectionInfo {
        remote: "status page".to_owned(),
        local: format!("127.0.0.1:{port}"),
    });
    let logins = Arc::new(Logins::new(os));
    let token = token.map(Arc::new);
    let source = Page { os: os.clone(), service: Arc::clone(service), connection, logins, token };
    // A server that only a Unix socket leads to is meant for whom its permissions let in; the page
    // cannot see who asks.
    let values = match settings.status_show_values {
        ShowValues::Local if !by_tcp => ShowValues::Never,
        values => values,
    };
    match StatusPort::start(os, listeners, names, values, Arc::new(source), tls) {
        Ok(started) => {
            tracing::info!(target: "NETWORK", id = 5123303, port, "Status page");
            Some(started)
        }
        Err(error) => {
            tracing::warn!(target: "NETWORK", id = 5123301, startupWarning = true,
                "No status page: {error}");
            None
        }
    }
}

/// The page as a client of the server.
struct Page {
    os: Os,
    service: Arc<commands::Service>,
    connection: Arc<serverstate::Connection>,
    logins: Arc<Logins>,
    /// By which the figures are read without a user.
    token: Option<Arc<Secret>>,
}

impl StatusSource for Page {
    fn command(&self, database: &str, command: &Document) -> RawDocumentBuf {
        run_locally(&self.service, &self.connection, database, command)
    }

    fn metrics(&self) -> String {
        self.service.metrics_page()
    }

    fn requires_authentication(&self) -> bool {
        self.service.security.is_enforced()
    }

    fn authenticate(&self, user: &str, password: &str, peer: IpAddr) -> Access {
        let name = UserName::new(user, "admin");
        let page = match self.logins.find(&self.os, user, password, peer) {
            Some(known) => known,
            // This port has one thread, on which nobody waits.
            None if self.is_too_early(peer) => return Access::Unauthenticated,
            None => match self.log_in(&name, password, peer) {
                Some(page) => self.logins.keep(&self.os, (user, password, peer), page),
                None => return Access::Unauthenticated,
            },
        };
        let Ok(Some(identity)) = self.service.identity(&page.connection) else {
            return Access::Unauthenticated;
        };
        let figures = ActionSet::of(&[Action::ServerStatus]);
        if identity
            .rights
            .grants
            .covers(&Privilege { resource: Resource::Cluster, actions: figures })
        {
            Access::Granted(page)
        } else {
            Access::Forbidden
        }
    }

    fn admits_token(&self, token: &str, peer: IpAddr) -> bool {
        let Some(known) = self.token.as_ref().filter(|_| !self.is_too_early(peer)) else {
            return false;
        };
        let admits = known.constant_time_eq(token.as_bytes());
        if !admits {
            let now = self.os.clock.monotonic();
            self.service.security.failed_logins.count(peer, now);
            tracing::info!(target: "ACCESS", id = 5_286_307, client = %peer,
                "A token that is not the status port's");
        }
        admits
    }

    fn entropy(&self, bytes: &mut [u8]) {
        self.os.entropy.fill(bytes);
    }
}

impl Page {
    /// Whether who guesses passwords from there, here or at the clients' port, has to wait yet.
    fn is_too_early(&self, peer: IpAddr) -> bool {
        self.service.security.failed_logins.is_too_early(peer, self.os.clock.monotonic())
    }

    /// A page of its own for who knows the password.
    fn log_in(&self, user: &UserName, password: &str, peer: IpAddr) -> Option<Arc<Self>> {
        let connection = self.service.open_connection(ConnectionInfo {
            remote: SocketAddr::new(peer, 0).to_string(),
            local: self.connection.info().local.clone(),
        });
        let (os, service, logins) =
            (self.os.clone(), Arc::clone(&self.service), Arc::clone(&self.logins));
        let page = Self { os, service, connection, logins, token: None };
        match page.service.log_in_by_password(user, password, &page.connection) {
            Ok(()) => Some(Arc::new(page)),
            Err(error) => {
                let now = self.os.clock.monotonic();
                page.service.security.failed_logins.count(peer, now);
                tracing::info!(target: "ACCESS", id = 5_286_307, user = user.user, client = %peer,
                    error = error.message(), "Failed to authenticate at the status port");
                None
            }
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.service.close_connection(&self.connection);
    }
}

/// Who has logged in at the status port lately, so that a password is hashed once a minute and not each second.
///
/// Always true: what is kept of a password is a digest under a key of this start.
struct Logins {
    key: Secret,
    /// Newest last.
    known: Mutex<VecDeque<KnownLogin>>,
}

struct KnownLogin {
    digest: Secret,
    until: Duration,
    page: Arc<Page>,
}

/// So many are kept at most.
const MOST_LOGINS: usize = 16;
/// So long, whatever becomes of the password; what the user may is looked up each time.
const LOGIN_LIVES: Duration = Duration::from_mins(1);

impl Logins {
    fn new(os: &Os) -> Self {
        let mut key = vec![0; 32];
        os.entropy.fill(&mut key);
        Self { key: Secret::new(key), known: Mutex::default() }
    }

    fn digest(&self, user: &str, password: &str, peer: IpAddr) -> Secret {
        let peer = peer.to_string();
        let parts = [user.as_bytes(), password.as_bytes(), peer.as_bytes()];
        Secret::new(keyed_digest(&self.key, &parts).to_vec())
    }

    fn find(&self, os: &Os, user: &str, password: &str, peer: IpAddr) -> Option<Arc<Page>> {
        let (digest, now) = (self.digest(user, password, peer), os.clock.monotonic());
        let mut known = self.known.lock();
        known.retain(|one| one.until > now);
        let found = known.iter().find(|one| one.digest.constant_time_eq(digest.bytes()));
        found.map(|one| Arc::clone(&one.page))
    }

    fn keep(
        &self,
        os: &Os,
        (user, password, peer): (&str, &str, IpAddr),
        page: Arc<Page>,
    ) -> Arc<Page> {
        let digest = self.digest(user, password, peer);
        let until = os.clock.monotonic().saturating_add(LOGIN_LIVES);
        let mut known = self.known.lock();
        if known.len() == MOST_LOGINS {
            known.pop_front();
        }
        known.push_back(KnownLogin { digest, until, page: Arc::clone(&page) });
        page
    }
}

/// The thread that takes a row a second. Dropping it ends it and writes what it has.
pub(crate) struct Recorder {
    told: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle>,
}

impl Recorder {
    pub(crate) fn start(
        os: &Os,
        history: Arc<History>,
        service: &Arc<commands::Service>,
        mut advisor: Advisor,
    ) -> io::Result<Self> {
        let told = Arc::new((Mutex::new(false), Condvar::new()));
        let (ours, clock) = (Arc::clone(&told), Arc::clone(&os.clock));
        let mut sampler = Sampler::new(service);
        let service = Arc::clone(service);
        let job = move || {
            let mut failing = false;
            let mut add = |row: io::Result<()>| {
                if let Err(error) = &row
                    && !failing
                {
                    tracing::warn!(target: "FTDC", id = 5123302, %error,
                        "The history of figures cannot be written");
                }
                failing = row.is_err();
            };
            // Rows fall on whole seconds, however long one of them took.
            let mut next = clock.monotonic();
            while !wait_until(&ours, next.saturating_sub(clock.monotonic())) {
                if service.keeps_history() {
                    let row = sampler.take();
                    add(history.add(clock.wall_ms(), &row));
                    advisor.look(&row, &service);
                }
                next = (next + SECOND).max(clock.monotonic());
            }
            add(history.flush());
        };
        let thread = os.spawner.spawn("history", Box::new(job))?;
        Ok(Self { told, thread: Some(thread) })
    }
}

/// Waits this long or until the end is told; whether it was.
fn wait_until(told: &(Mutex<bool>, Condvar), time: Duration) -> bool {
    let (ended, woken) = told;
    let mut ended = ended.lock();
    if !*ended {
        woken.wait_for(&mut ended, time);
    }
    *ended
}

impl Drop for Recorder {
    fn drop(&mut self) {
        *self.told.0.lock() = true;
        self.told.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic was logged where it happened.
            let _ended = thread.join();
        }
    }
}

//! How the network behaves, and what it tells of itself.

use crate::pool::{Done, WorkerPool};
use limits::Account;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tls::{Certificates, Mode, Version};

/// How the network behaves.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// Connections beyond these are closed at once.
    pub max_connections: usize,
    /// The same of those that are let in beyond these ([`crate::Service::is_let_in_beyond`]).
    pub connections_beyond: usize,
    /// Requests that run at once and do not wait: as many as there are processors.
    pub permits: usize,
    /// A message must be whole so long after its first byte. The wait for room does not count.
    pub message_timeout: Duration,
    /// What half messages and waiting requests may take together; over it the largest is closed.
    pub partial_bytes: u64,
    /// What messages are charged to.
    pub memory: Arc<Account>,
    /// A client that took nothing of a reply for this long is cut off.
    pub write_timeout: Duration,
    /// A worker without a permit and without work for this long ends.
    pub worker_idle: Duration,
    /// Address space of a worker's stack; only what is touched costs memory.
    pub worker_stack_bytes: usize,
    /// Connections and their ends are not logged.
    pub quiet: Arc<AtomicBool>,
    /// Whether TLS is spoken.
    pub tls: TlsPort,
}

/// How the port speaks TLS. Sockets of this machine's files do not.
#[derive(Clone, Debug, Default)]
pub struct TlsPort {
    /// Who may, and who must.
    pub mode: Mode,
    /// What the server shows; there unless nobody may.
    pub certificates: Option<Arc<Certificates>>,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            max_connections: 65_536,
            connections_beyond: 0,
            permits: os::cpu_count().max(2),
            message_timeout: Duration::from_mins(2),
            partial_bytes: 1 << 30,
            memory: Account::new(4 << 30),
            write_timeout: Duration::from_mins(2),
            worker_idle: Duration::from_secs(5),
            worker_stack_bytes: 2 << 20,
            quiet: Arc::default(),
            tls: TlsPort::default(),
        }
    }
}

/// What `serverStatus` tells of the network.
#[derive(Default)]
pub struct NetStats {
    pub(crate) open: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) deferred: AtomicUsize,
    pub(crate) partial_closed: AtomicU64,
    pub(crate) closed_before_login: AtomicU64,
    tls12: AtomicU64,
    tls13: AtomicU64,
    pub(crate) pool: OnceLock<Arc<WorkerPool>>,
}

impl std::fmt::Debug for NetStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetStats").field("open", &self.open).finish_non_exhaustive()
    }
}

impl NetStats {
    /// Connections whose request waits for a time, without a thread.
    pub fn deferred(&self) -> usize {
        self.deferred.load(Ordering::Relaxed)
    }

    /// Connections closed because their half message took too long, or memory that others needed.
    pub fn partial_closed(&self) -> u64 {
        self.partial_closed.load(Ordering::Relaxed)
    }

    /// Connections closed because nobody logged in on them: they said nothing, or were too many.
    pub fn closed_before_login(&self) -> u64 {
        self.closed_before_login.load(Ordering::Relaxed)
    }

    pub(crate) fn established(&self, version: Version) {
        let of_version = match version {
            Version::Tls12 => &self.tls12,
            Version::Tls13 => &self.tls13,
        };
        of_version.fetch_add(1, Ordering::Relaxed);
    }

    /// Handshakes of TLS 1.2 since the start.
    pub fn tls12(&self) -> u64 {
        self.tls12.load(Ordering::Relaxed)
    }

    /// Handshakes of TLS 1.3 since the start.
    pub fn tls13(&self) -> u64 {
        self.tls13.load(Ordering::Relaxed)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections accepted since the start.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections closed at once because there were too many.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Connections that a thread serves now.
    pub fn active(&self) -> usize {
        self.pool.get().map_or(0, |pool| pool.serving())
    }

    /// Threads that serve connections, or are ready to.
    pub fn threads(&self) -> usize {
        self.pool.get().map_or(0, |pool| pool.threads())
    }

    fn done(&self) -> Done {
        self.pool.get().map_or_else(Done::default, |pool| pool.done())
    }

    /// Bytes received.
    pub fn bytes_in(&self) -> u64 {
        self.done().bytes_in
    }

    /// Bytes sent.
    pub fn bytes_out(&self) -> u64 {
        self.done().bytes_out
    }

    /// Messages received.
    pub fn requests(&self) -> u64 {
        self.done().requests
    }
}

//! A running server: how it starts, and the way to stop it.
//!
//! Always true: a server that is stopped or dropped has closed every connection, or has waited for those
//! as long as [`Server::stop`] says.

use crate::listener::{Endpoint, Listener};
use crate::listening::Listening;
use crate::poll::Poll;
use crate::pool::WorkerPool;
use crate::service::Service;
use crate::settings::{NetOptions, NetStats};
use crate::shared::{Ready, Shared};
use os::{JoinHandle, Os};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// At the end: what requests that are about to be done are given, whoever is in a hurry.
const LEAST_GRACE: Duration = Duration::from_millis(100);
/// At the end: what interrupted requests are given until their connections are cut.
const INTERRUPTED_GRACE: Duration = Duration::from_secs(5);
/// At the end: what requests whose connections are cut are given.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// A running server: its listeners, its listening thread and its workers.
pub struct Server<S: Service> {
    shared: Arc<Shared<S>>,
    endpoints: Vec<Endpoint>,
    listening: Mutex<Option<JoinHandle>>,
}

impl<S: Service> Server<S> {
    /// Starts serving the listeners. `stats` is shared with whoever reports it.
    ///
    /// # Errors
    /// Where the machine gives no epoll instance or no thread.
    pub fn start(
        os: &Os,
        listeners: Vec<Listener>,
        service: Arc<S>,
        options: NetOptions,
        stats: Arc<NetStats>,
    ) -> io::Result<Self> {
        let endpoints = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
        let pool = Arc::new(WorkerPool::new(
            options.permits,
            options.max_connections.max(options.connections_beyond).max(options.permits),
        ));
        let _only_one_server_has_these = stats.pool.set(Arc::clone(&pool));
        let shared = Arc::new(Shared {
            os: os.clone(),
            service,
            options,
            stats,
            pool,
            sockets: Poll::new()?,
            listening: Poll::new()?,
            table: RwLock::default(),
            ready: Ready::default(),
            waiting: Mutex::default(),
            unauthenticated: Mutex::default(),
            by_network: Mutex::default(),
            to_close: Mutex::default(),
            may_have_hung_up: AtomicBool::new(false),
            is_short_of_room: AtomicBool::new(false),
            must_rerun_waiting: AtomicBool::new(false),
            change_count: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        });
        let changed = Arc::downgrade(&shared);
        shared.service.on_change(Arc::new(move || {
            if let Some(shared) = changed.upgrade() {
                shared.change_count.fetch_add(1, Ordering::SeqCst);
                shared.run_waiting_again();
            }
        }));
        let listening = Listening::new(&shared, listeners)?;
        let thread = os.spawner.spawn("listener", Box::new(move || listening.run()))?;
        let server = Self { shared, endpoints, listening: Mutex::new(Some(thread)) };
        for _ in 0..server.shared.options.permits {
            let need = server.shared.pool.start_one();
            server.shared.satisfy(need);
        }
        if server.shared.pool.is_without_threads() {
            return Err(io::Error::other("the machine gives no thread to serve connections"));
        }
        Ok(server)
    }

    /// Where the server listens.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Stops: no new connections, quiet ones closed, requests that only wait ended. Those that work
    /// are given `grace` to finish (a tenth of a second where that is less), then interrupted, then
    /// cut. Waits for all that, which takes no longer than `grace` and six seconds.
    pub fn stop(&self, grace: Duration) {
        let shared = &self.shared;
        if shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        shared.listening.wake();
        shared.service.stopping();
        if let Some(thread) = self.listening.lock().take()
            && let Err(panicked) = thread.join()
        {
            tracing::error!(target: "NETWORK", %panicked, "The listening thread ended by a bug");
        }
        shared.sockets.wake();
        shared.pool.stop();
        if !self.all_closed_within(grace.max(LEAST_GRACE)) {
            shared.service.interrupt_all();
            if !self.all_closed_within(INTERRUPTED_GRACE) {
                shared.table.read().all().for_each(|connection| connection.stream.shut_down());
                self.all_closed_within(CUT_GRACE);
            }
        }
    }

    fn all_closed_within(&self, time: Duration) -> bool {
        let clock = &self.shared.os.clock;
        let until = clock.monotonic() + time;
        while self.shared.stats.open() > 0 {
            // Those that their workers have parked meanwhile.
            self.shared.close_all_parked();
            if clock.monotonic() >= until {
                return false;
            }
            clock.sleep(Duration::from_millis(2));
        }
        true
    }
}

impl<S: Service> std::fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl<S: Service> Drop for Server<S> {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(1));
    }
}

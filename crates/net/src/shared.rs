//! What the threads share, and how a connection is handed on and closed.
//!
//! Always true: each opened connection is counted down and closed once, whatever panics meanwhile.
//!
//! Lock order: a connection's progress, then any other lock here. Those are leaves: none is held while
//! another is taken, or while a socket or the service is called.

use crate::connection::{Connection, Progress, Table};
use crate::poll::Poll;
use crate::pool::WorkerPool;
use crate::service::Service;
use crate::settings::{NetOptions, NetStats};
use crate::unauthenticated::Unauthenticated;
use crate::waiting::WaitingRequests;
use dispatch::{HandedOver, Wake};
use os::Os;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Runs what may meet a bug; `None` where it did. The panic hook has logged where and why.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Connections that are to be served although their sockets have no news. Each is held for whoever takes it.
pub(crate) struct Ready<S: Service> {
    queue: Mutex<VecDeque<Arc<Connection<S>>>>,
    length: AtomicUsize,
}

impl<S: Service> Default for Ready<S> {
    fn default() -> Self {
        Self { queue: Mutex::default(), length: AtomicUsize::new(0) }
    }
}

impl<S: Service> Ready<S> {
    pub(crate) fn is_waiting(&self) -> bool {
        self.length.load(Ordering::SeqCst) > 0
    }

    /// Whether it is the first.
    fn put(&self, connection: Arc<Connection<S>>) -> bool {
        let mut queue = self.queue.lock();
        queue.push_back(connection);
        self.length.store(queue.len(), Ordering::SeqCst);
        queue.len() == 1
    }

    fn take(&self) -> Option<Arc<Connection<S>>> {
        if !self.is_waiting() {
            return None;
        }
        let mut queue = self.queue.lock();
        let first = queue.pop_front();
        self.length.store(queue.len(), Ordering::SeqCst);
        first
    }
}

/// Why a connection is to be closed by the listening thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CloseCause {
    /// Its client left while its request waits.
    Left,
    /// Half messages and requests that wait take more than their budget, and its is the largest.
    OverBudget,
}

/// What the threads share.
pub(crate) struct Shared<S: Service> {
    pub(crate) os: Os,
    pub(crate) service: Arc<S>,
    pub(crate) options: NetOptions,
    pub(crate) stats: Arc<NetStats>,
    pub(crate) pool: Arc<WorkerPool>,
    /// The sockets of clients; workers wait here.
    pub(crate) sockets: Poll,
    /// The listening sockets; the listening thread waits here.
    pub(crate) listening: Poll,
    pub(crate) table: RwLock<Table<S>>,
    pub(crate) ready: Ready<S>,
    pub(crate) waiting: Mutex<WaitingRequests<S>>,
    pub(crate) unauthenticated: Mutex<Unauthenticated<S>>,
    /// How many connections are open from each network.
    pub(crate) by_network: Mutex<BTreeMap<u128, u64>>,
    pub(crate) to_close: Mutex<Vec<(Arc<Connection<S>>, CloseCause)>>,
    /// There may be clients that hung up while they are served.
    pub(crate) may_have_hung_up: AtomicBool,
    /// Messages wait for room: others must queue behind them.
    pub(crate) is_short_of_room: AtomicBool,
    /// Waiting requests are to be run again.
    pub(crate) must_rerun_waiting: AtomicBool,
    /// How often the service has called for that.
    pub(crate) change_count: AtomicU64,
    pub(crate) stopping: AtomicBool,
}

impl<S: Service> Shared<S> {
    pub(crate) fn run_waiting_again(&self) {
        self.must_rerun_waiting.store(true, Ordering::SeqCst);
        self.listening.wake();
    }

    /// Has a connection served that the caller holds.
    pub(crate) fn make_ready(&self, connection: Arc<Connection<S>>) {
        // Whoever takes one or passes by wakes another for the rest.
        if self.ready.put(connection) {
            self.sockets.wake();
        }
    }

    /// Makes what runs the connection's request again, should it wait.
    pub(crate) fn waker_of(self: &Arc<Self>, connection: &Arc<Connection<S>>) -> Wake {
        let (shared, connection) = (Arc::downgrade(self), Arc::downgrade(connection));
        Arc::new(move || {
            if let (Some(shared), Some(connection)) = (shared.upgrade(), connection.upgrade()) {
                shared.run_again(&connection);
            }
        })
    }

    /// Runs a connection's request again that waits, or is about to: whoever parks it looks at `woken`
    /// afterwards.
    pub(crate) fn run_again(&self, connection: &Arc<Connection<S>>) {
        connection.woken.store(true, Ordering::SeqCst);
        if connection.owner.end_wait() {
            self.make_ready(Arc::clone(connection));
        }
    }

    /// Takes a connection that is ready without news, if there is one.
    pub(crate) fn take_ready(&self) -> Option<Arc<Connection<S>>> {
        let first = self.ready.take();
        if first.is_some() {
            self.leave_ready_to_others();
        }
        first
    }

    /// The caller goes to work: another worker is to take what is ready. One may have been told of several.
    pub(crate) fn leave_ready_to_others(&self) {
        if self.ready.is_waiting() {
            self.sockets.wake();
        }
    }

    /// Takes a connection out of the list of those who wait.
    pub(crate) fn forget(&self, id: u64) {
        let mut waiting = self.waiting.lock();
        waiting.remove(id);
        self.stats.deferred.store(waiting.deferred_count(), Ordering::Relaxed);
    }

    /// Has the poller tell of room for a reply, or no longer.
    pub(crate) fn set_write_interest(
        &self,
        connection: &Connection<S>,
        room: bool,
    ) -> io::Result<()> {
        self.sockets.set_write_interest(&connection.stream, connection.token, room)
    }

    /// Lays a connection down whose next message needs so many bytes, until there is room for it.
    pub(crate) fn await_room(&self, connection: &Arc<Connection<S>>, needed: usize) {
        let now = self.os.clock.monotonic();
        let awaited = self.options.memory.wait_for_room();
        self.waiting.lock().crowd(Arc::clone(connection), needed, now, awaited);
        self.is_short_of_room.store(true, Ordering::Relaxed);
        self.listening.wake();
    }

    /// Has the listening thread close connections, if they still wait.
    pub(crate) fn close_later(
        &self,
        connections: impl IntoIterator<Item = Arc<Connection<S>>>,
        why: CloseCause,
    ) {
        let mut to_close = self.to_close.lock();
        let before = to_close.len();
        to_close.extend(connections.into_iter().map(|connection| (connection, why)));
        let more = to_close.len() > before;
        drop(to_close);
        if more {
            self.listening.wake();
        }
    }

    /// Closes a connection whose request waits, if it still does.
    pub(crate) fn close_waiting(&self, connection: &Arc<Connection<S>>) {
        if connection.owner.end_wait() {
            self.close_served(connection, connection.progress.lock(), None);
        }
    }

    /// Closes a connection that nobody has, if that is still so. `reason` is for the log.
    pub(crate) fn close_quiet(&self, connection: &Arc<Connection<S>>, reason: &str) -> bool {
        let taken = connection.owner.take_quiet();
        if taken {
            self.close_served(connection, connection.progress.lock(), Some(reason));
        }
        taken
    }

    /// Closes a connection that the caller serves.
    pub(crate) fn close_served(
        &self,
        connection: &Arc<Connection<S>>,
        mut progress: MutexGuard<'_, Progress>,
        reason: Option<&str>,
    ) {
        let _met_a_bug = catch_panic(|| progress.channel.close(&connection.stream)).is_none();
        self.end_served(connection, progress, reason, || connection.stream.shut_down());
    }

    /// Gives the socket of a connection that the caller serves to whoever goes on with it. For the clients'
    /// side the connection is over.
    pub(crate) fn hand_over(
        &self,
        connection: &Arc<Connection<S>>,
        mut progress: MutexGuard<'_, Progress>,
    ) {
        let read = std::mem::take(&mut progress.partial).into_arrived();
        let channel = std::mem::take(&mut progress.channel);
        let Some(take) = progress.hand_over.take() else {
            return self.close_served(connection, progress, None);
        };
        let both = connection.stream.for_another().and_then(|socket| {
            let input = channel.into_input(socket.try_clone()?);
            Ok((socket, Box::new(Cursor::new(read).chain(input))))
        });
        let (socket, input) = match both {
            Ok(both) => both,
            Err(error) => {
                let reason = format!("cannot be handed over: {error}");
                return self.close_served(connection, progress, Some(&reason));
            }
        };
        // The registration would live on with the socket.
        if let Err(error) = self.sockets.remove(&connection.stream) {
            let reason = format!("cannot be handed over: {error}");
            return self.close_served(connection, progress, Some(&reason));
        }
        self.end_served(connection, progress, None, || {
            tracing::info!(target: "NETWORK", connectionId = connection.id,
                "The connection is a link of another member from now on");
        });
        let _met_a_bug = catch_panic(|| take(HandedOver { socket, input })).is_none();
    }

    /// One connection less from a network.
    pub(crate) fn leave_network(&self, network: u128) {
        let mut all = self.by_network.lock();
        if let Some(count) = all.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                all.remove(&network);
            }
        }
    }

    fn end_served(
        &self,
        connection: &Arc<Connection<S>>,
        mut progress: MutexGuard<'_, Progress>,
        reason: Option<&str>,
        leave_socket: impl FnOnce(),
    ) {
        let listed = progress.listed;
        *progress = Progress::default();
        drop(progress);
        connection.owner.close();
        if listed {
            self.forget(connection.id);
        }
        if connection.unauthenticated.swap(false, Ordering::Relaxed) {
            self.unauthenticated.lock().remove(connection.id);
        }
        if let Some(network) = connection.network {
            self.leave_network(network);
        }
        leave_socket();
        self.table.write().remove(connection.token);
        let _met_a_bug = catch_panic(|| self.service.close_connection(&connection.state)).is_none();
        let left = self.stats.open.fetch_sub(1, Ordering::SeqCst) - 1;
        if let Some(reason) = reason {
            tracing::info!(target: "NETWORK", connectionId = connection.id, reason,
                "Closing a connection");
        }
        if !self.options.quiet.load(Ordering::Relaxed) {
            tracing::info!(target: "NETWORK", id = 22944, connectionId = connection.id,
                connectionCount = left, "Connection ended");
        }
    }

    /// Closes every connection that no thread serves.
    pub(crate) fn close_all_parked(&self) {
        let all: Vec<_> = self.table.read().all().cloned().collect();
        for connection in all {
            let owner = &connection.owner;
            if owner.take_quiet() || owner.end_wait() || owner.end_wait_for_room() {
                self.close_served(&connection, connection.progress.lock(), None);
            }
        }
        while let Some(connection) = self.ready.take() {
            self.close_served(&connection, connection.progress.lock(), None);
        }
    }
}

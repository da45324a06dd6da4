//! The server's threads: one that polls, workers that come and go, and the way to stop them.
//!
//! Always true: a panic below ends at most the connection it was met on. Neither the polling thread
//! nor a worker ends by one, and each opened connection is counted down and closed.

use crate::log;
use crate::net::connection::{Connection, ServeOutcome, Serving, WorkerBuffers, serve};
use crate::net::inbox::Partial;
use crate::net::listener::{Endpoint, Listener};
use crate::net::parked::Parked;
use crate::net::poll::{Poll, hung_up};
use crate::net::stream::Stream;
use crate::service::Service;
use dispatch::ConnectionInfo;
use limits::{Account, Part};
use os::{JoinHandle, Os};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Tokens from here up are listeners; connection numbers count up from below.
const FIRST_LISTENER: u64 = 1 << 62;

/// After the machine refused a descriptor, wait this long before asking again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// At the end: what requests that are about to be done are given, whoever is in a hurry.
const LEAST_GRACE: Duration = Duration::from_millis(100);
/// At the end: what interrupted requests are given until their connections are cut.
const INTERRUPTED_GRACE: Duration = Duration::from_secs(5);
/// At the end: what requests whose connections are cut are given.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// How often busy connections are looked at for clients that hung up.
const LEAVERS_PERIOD: Duration = Duration::from_secs(1);

/// Sockets accepted from one listener before the others get a turn.
const ACCEPT_BATCH: usize = 256;

/// How often is looked for room while a message waits for it.
const ROOM_PERIOD: Duration = Duration::from_millis(10);

/// How the network behaves.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// Connections beyond these are closed at once.
    pub max_connections: usize,
    /// A connection that was silent this long gives its thread back.
    pub park_after: Duration,
    /// A message must be whole so long after its first byte. The wait for room does not count.
    pub message_timeout: Duration,
    /// What half messages of parked connections may take together; over it the largest is closed.
    pub partial_bytes: u64,
    /// What messages are charged to.
    pub memory: Arc<Account>,
    /// A client that took nothing of a reply for this long is cut off.
    pub write_timeout: Duration,
    /// A worker without work for this long ends.
    pub worker_idle: Duration,
    /// Address space of a worker's stack; only what is touched costs memory.
    pub worker_stack_bytes: usize,
    /// Connections and their ends are not logged.
    pub quiet: Arc<AtomicBool>,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            max_connections: 65_536,
            park_after: Duration::from_millis(100),
            message_timeout: Duration::from_mins(2),
            partial_bytes: 1 << 30,
            memory: Account::new(4 << 30),
            write_timeout: Duration::from_mins(2),
            worker_idle: Duration::from_secs(5),
            worker_stack_bytes: 2 << 20,
            quiet: Arc::default(),
        }
    }
}

/// What `serverStatus` tells of the network.
#[derive(Debug, Default)]
pub struct NetStats {
    open: AtomicUsize,
    accepted: AtomicU64,
    rejected: AtomicU64,
    active: AtomicUsize,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    requests: AtomicU64,
    deferred: AtomicUsize,
    partial_closed: AtomicU64,
}

impl NetStats {
    /// Connections whose request waits, without a thread.
    pub fn deferred(&self) -> usize {
        self.deferred.load(Ordering::Relaxed)
    }

    /// Connections closed because their half message took too long, or memory that others needed.
    pub fn partial_closed(&self) -> u64 {
        self.partial_closed.load(Ordering::Relaxed)
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

    /// Connections that own a thread now.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Bytes received.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.load(Ordering::Relaxed)
    }

    /// Bytes sent.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Ordering::Relaxed)
    }

    /// Messages received.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn requested(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// Connections waiting for a worker, and the workers waiting for a connection.
struct Ready<S: Service> {
    queue: VecDeque<Box<Connection<S>>>,
    workers: usize,
    idle: usize,
}

/// What others may know of a connection that a worker owns.
struct Busy<S: Service> {
    stream: Arc<Stream>,
    state: Arc<S::Connection>,
}

struct Shared<S: Service> {
    os: Os,
    service: Arc<S>,
    options: NetOptions,
    stats: Arc<NetStats>,
    poll: Poll,
    /// Connections without a thread.
    parked: Mutex<Parked<S>>,
    /// Messages wait for room: others must queue behind them.
    crowded: AtomicBool,
    /// Waiting requests are to be run again.
    changed: AtomicBool,
    /// How often the service said so.
    changes: AtomicU64,
    ready: Mutex<Ready<S>>,
    work: Condvar,
    /// Connections with a worker, or waiting for one, so that they can be watched and cut from
    /// outside.
    busy: Mutex<BTreeMap<u64, Busy<S>>>,
    stopping: AtomicBool,
}

impl<S: Service> Shared<S> {
    fn run_waiting_again(&self) {
        self.changed.store(true, Ordering::SeqCst);
        self.poll.wake();
    }
}

/// A running server: its listeners, its polling thread and its workers.
pub struct Server<S: Service> {
    shared: Arc<Shared<S>>,
    endpoints: Vec<Endpoint>,
    poller: Mutex<Option<JoinHandle>>,
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
        let poll = Poll::new()?;
        for (at, listener) in listeners.iter().enumerate() {
            poll.add(listener, FIRST_LISTENER + at as u64)?;
        }
        let endpoints = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
        let shared = Arc::new(Shared {
            os: os.clone(),
            service,
            options,
            stats,
            poll,
            parked: Mutex::default(),
            crowded: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            ready: Mutex::new(Ready { queue: VecDeque::new(), workers: 0, idle: 0 }),
            work: Condvar::new(),
            busy: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let changed = Arc::downgrade(&shared);
        shared.service.on_change(Arc::new(move || {
            if let Some(shared) = changed.upgrade() {
                shared.changes.fetch_add(1, Ordering::SeqCst);
                shared.run_waiting_again();
            }
        }));
        let polling = Arc::clone(&shared);
        let job = Box::new(move || Poller { shared: polling, listeners }.run());
        let poller = Mutex::new(Some(os.spawner.spawn("listener", job)?));
        Ok(Self { shared, endpoints, poller })
    }

    /// Where the server listens.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Stops: no new connections, parked ones closed, requests that only wait ended. Those that work
    /// are given `grace` to finish (a tenth of a second where that is less), then interrupted, then
    /// cut. Waits for all that, which takes no longer than `grace` and six seconds.
    pub fn stop(&self, grace: Duration) {
        if self.shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.poll.wake();
        self.shared.service.stopping();
        if let Some(poller) = self.poller.lock().take()
            && let Err(panicked) = poller.join()
        {
            tracing::error!(target: "NETWORK", %panicked, "The polling thread ended by a bug");
        }
        self.shared.work.notify_all();
        if !self.all_closed_within(grace.max(LEAST_GRACE)) {
            self.shared.service.interrupt_all();
            if !self.all_closed_within(INTERRUPTED_GRACE) {
                self.shared.busy.lock().values().for_each(|busy| busy.stream.shut_down());
                self.all_closed_within(CUT_GRACE);
            }
        }
    }

    fn all_closed_within(&self, time: Duration) -> bool {
        let clock = &self.shared.os.clock;
        let until = clock.monotonic() + time;
        while self.shared.stats.open() > 0 {
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

/// The polling thread: it never reads, never writes and never waits but in epoll.
struct Poller<S: Service> {
    shared: Arc<Shared<S>>,
    listeners: Vec<Listener>,
}

impl<S: Service> Poller<S> {
    fn run(mut self) {
        log::set_context("listener");
        let mut events = Vec::with_capacity(256);
        let mut tokens = Vec::new();
        let mut pause: Option<Duration> = None;
        let mut looked = self.shared.os.clock.monotonic();
        while !self.shared.stopping.load(Ordering::SeqCst) {
            let timeout = self.timeout(pause);
            if let Err(error) = self.shared.poll.wait(&mut events, &mut tokens, timeout) {
                tracing::error!(target: "NETWORK", %error, "Polling failed");
                self.shared.os.clock.sleep(ACCEPT_PAUSE);
            }
            if pause.take().is_some() {
                tokens.extend((0..self.listeners.len() as u64).map(|at| FIRST_LISTENER + at));
            }
            for token in tokens.drain(..) {
                if let Some(at) = token.checked_sub(FIRST_LISTENER) {
                    if !self.accept_from(at as usize) {
                        pause = Some(ACCEPT_PAUSE);
                    }
                    continue;
                }
                self.has_news(token);
            }
            let now = self.shared.os.clock.monotonic();
            self.run_waiting(now);
            self.let_in(now);
            if now.saturating_sub(looked) >= LEAVERS_PERIOD {
                looked = now;
                self.tell_of_leavers();
                self.close_overdue(now);
            }
        }
        self.listeners.clear();
        let parked = self.shared.parked.lock().clear();
        for connection in parked {
            close(&self.shared, &connection, None);
        }
    }

    /// How long nothing is to be done unless a socket has news.
    fn timeout(&self, pause: Option<Duration>) -> Option<Duration> {
        let anyone_busy = !self.shared.busy.lock().is_empty();
        let parked = self.shared.parked.lock();
        let timer = parked.next_timer().map(|at| {
            // A millisecond more: the kernel's and ours are not rounded alike.
            at.saturating_sub(self.shared.os.clock.monotonic()) + Duration::from_millis(1)
        });
        let periodic = (anyone_busy || parked.has_halves()).then_some(LEAVERS_PERIOD);
        let room = parked.is_crowded().then_some(ROOM_PERIOD);
        [pause, timer, periodic, room].into_iter().flatten().min()
    }

    /// A parked connection's socket has something to read, or the end.
    fn has_news(&self, token: u64) {
        let mut parked = self.shared.parked.lock();
        if let Some(waiting) = parked.deferred(token) {
            // What the client says meanwhile stays in the socket until it was answered.
            let left = hung_up(std::iter::once(&*waiting.stream)).map(|left| left == [true]);
            let gone = if left.unwrap_or(true) { parked.remove(token) } else { None };
            drop(parked);
            if let Some(connection) = gone {
                self.count_deferred();
                close(&self.shared, &connection, None);
            }
            return;
        }
        let found = parked.remove(token);
        drop(parked);
        if let Some(connection) = found {
            dispatch(&self.shared, connection);
        }
    }

    /// Hands requests that waited to workers: those whose time has come, or all after a change.
    fn run_waiting(&self, now: Duration) {
        let all = self.shared.changed.swap(false, Ordering::SeqCst);
        let due = self.shared.parked.lock().due((!all).then_some(now));
        if !due.is_empty() {
            self.count_deferred();
        }
        for connection in due {
            dispatch(&self.shared, connection);
        }
    }

    fn count_deferred(&self) {
        let count = self.shared.parked.lock().deferred_count();
        self.shared.stats.deferred.store(count, Ordering::Relaxed);
    }

    /// Gives room to messages that wait for it, and takes it from half messages that do not go on.
    fn let_in(&self, now: Duration) {
        let shared = &self.shared;
        let memory = &shared.options.memory;
        let mut parked = shared.parked.lock();
        if !parked.is_crowded() && !memory.is_awaited() {
            return;
        }
        let inside = parked.let_in(now, |bytes| memory.try_admit(Part::Requests, bytes as u64));
        let stalled = if memory.is_awaited() { parked.stalled(now) } else { None };
        shared.crowded.store(parked.is_crowded(), Ordering::Relaxed);
        drop(parked);
        if let Some(connection) = stalled {
            close_partial(shared, &connection, "its half message kept memory that others wait for");
        }
        for connection in inside {
            dispatch(shared, connection);
        }
    }

    fn close_overdue(&self, now: Duration) {
        let late = self.shared.parked.lock().overdue(now, self.shared.options.message_timeout);
        for connection in late {
            close_partial(&self.shared, &connection, "a message did not arrive in time");
        }
    }

    /// Tells the service of clients that hung up while a worker is busy for them.
    fn tell_of_leavers(&self) {
        let busy: Vec<_> = {
            let busy = self.shared.busy.lock();
            busy.values().map(|one| (Arc::clone(&one.stream), Arc::clone(&one.state))).collect()
        };
        match hung_up(busy.iter().map(|(stream, _)| &**stream)) {
            Ok(left) => {
                for ((_, state), left) in busy.iter().zip(left) {
                    if left {
                        let _told = catch_panic(|| self.shared.service.client_left(state));
                    }
                }
            }
            Err(error) => {
                tracing::warn!(target: "NETWORK", %error, "Cannot look for clients that left");
            }
        }
    }

    /// Takes in whoever waits at a listener; `false` when the machine has no descriptors left and
    /// the listener pauses for a while.
    fn accept_from(&self, at: usize) -> bool {
        for _ in 0..ACCEPT_BATCH {
            match self.listeners[at].accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        tracing::warn!(target: "NETWORK", %error, "Cannot accept a connection");
                        return false;
                    }
                },
            }
        }
        let listener = &self.listeners[at];
        match self.shared.poll.arm(listener, FIRST_LISTENER + at as u64) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(target: "NETWORK", %error, "Cannot watch a listener");
                false
            }
        }
    }

    fn admit(&self, stream: Stream, peer: ConnectionInfo) {
        let (shared, options) = (&self.shared, &self.shared.options);
        let open = shared.stats.open();
        if open >= options.max_connections {
            shared.stats.rejected.fetch_add(1, Ordering::Relaxed);
            if !options.quiet.load(Ordering::Relaxed) {
                tracing::info!(target: "NETWORK", id = 22942, remote = peer.remote,
                    "Connection refused because there are too many open connections");
            }
            return;
        }
        if let Err(error) = stream.prepare(options.park_after, options.write_timeout) {
            tracing::debug!(target: "NETWORK", remote = peer.remote, %error, "Client left while connecting");
            return;
        }
        let quiet = options.quiet.load(Ordering::Relaxed);
        let remote = if quiet { String::new() } else { peer.remote.clone() };
        let Some(state) = catch_panic(|| shared.service.open_connection(peer)) else { return };
        shared.stats.open.fetch_add(1, Ordering::Relaxed);
        shared.stats.accepted.fetch_add(1, Ordering::Relaxed);
        let id = shared.service.number(&state);
        if !quiet {
            tracing::info!(target: "NETWORK", id = 22943, remote, connectionId = id,
                connectionCount = open + 1, "Connection accepted");
        }
        let stream = Arc::new(stream);
        let connection = Connection {
            id,
            stream: Arc::clone(&stream),
            state,
            partial: Partial::default(),
            began: None,
            went_on: Duration::ZERO,
            room: None,
            deferred: None,
            next_reply: 1,
        };
        let over = shared.parked.lock().insert(Box::new(connection), &options.memory, u64::MAX);
        debug_assert!(over.is_empty(), "it has no half message");
        if let Err(error) = shared.poll.add(&*stream, id) {
            abandon(shared, id, &error);
        }
    }
}

/// Hands a connection that has something to say to a worker: a waiting one, or a new one.
fn dispatch<S: Service>(shared: &Arc<Shared<S>>, connection: Box<Connection<S>>) {
    let (stream, state) = (Arc::clone(&connection.stream), Arc::clone(&connection.state));
    shared.busy.lock().insert(connection.id, Busy { stream, state });
    let mut ready = shared.ready.lock();
    ready.queue.push_back(connection);
    if ready.queue.len() <= ready.idle {
        drop(ready);
        shared.work.notify_one();
        return;
    }
    if ready.workers >= shared.options.max_connections {
        return;
    }
    ready.workers += 1;
    drop(ready);
    let working = Arc::clone(shared);
    let stack = Some(shared.options.worker_stack_bytes);
    let job = Box::new(move || work(&working));
    if let Err(error) = shared.os.spawner.spawn_with_stack("worker", stack, job) {
        tracing::error!(target: "NETWORK", %error, "Cannot start a thread for a connection");
        let mut ready = shared.ready.lock();
        ready.workers -= 1;
        // Others will come to it; without any other, the client is told by closing.
        let stranded = if ready.workers == 0 { ready.queue.pop_back() } else { None };
        drop(ready);
        if let Some(connection) = stranded {
            close(shared, &connection, Some("no thread to serve it"));
        }
    }
}

/// A worker's life: take a ready connection, serve it until it is silent, take the next.
fn work<S: Service>(shared: &Arc<Shared<S>>) {
    let mut buffers =
        WorkerBuffers::new(shared.options.memory.charge_regardless(Part::Requests, 0));
    let serving = Serving {
        service: &*shared.service,
        clock: &*shared.os.clock,
        options: &shared.options,
        stats: &shared.stats,
        stopping: &shared.stopping,
        crowded: &shared.crowded,
    };
    while let Some(mut connection) = next_ready(shared) {
        log::set_context_number("conn", connection.id);
        shared.stats.active.fetch_add(1, Ordering::Relaxed);
        let changes = shared.changes.load(Ordering::SeqCst);
        let served = catch_panic(|| serve(&serving, &mut connection, &mut buffers));
        shared.stats.active.fetch_sub(1, Ordering::Relaxed);
        let outcome = served.unwrap_or_else(|| {
            // Nobody knows what it left in the buffers.
            buffers =
                WorkerBuffers::new(shared.options.memory.charge_regardless(Part::Requests, 0));
            ServeOutcome::Close(Some("a message could not be served because of a bug".to_owned()))
        });
        let deferred = outcome == ServeOutcome::Defer;
        match outcome {
            ServeOutcome::Park | ServeOutcome::Defer => park(shared, connection),
            ServeOutcome::AwaitRoom(needed) => await_room(shared, connection, needed),
            ServeOutcome::Close(reason) => close(shared, &connection, reason.as_deref()),
        }
        if deferred && shared.changes.load(Ordering::SeqCst) != changes {
            // What it waits for may have come between its look and its parking.
            shared.run_waiting_again();
        }
    }
}

/// Runs what may meet a bug; `None` where it did. The panic hook has logged where and why.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Waits for a connection; `None` when none came for a while or the server stops.
fn next_ready<S: Service>(shared: &Shared<S>) -> Option<Box<Connection<S>>> {
    let mut ready = shared.ready.lock();
    loop {
        if let Some(connection) = ready.queue.pop_front() {
            return Some(connection);
        }
        if shared.stopping.load(Ordering::SeqCst) {
            ready.workers -= 1;
            return None;
        }
        ready.idle += 1;
        let timed_out = shared.work.wait_for(&mut ready, shared.options.worker_idle).timed_out();
        ready.idle -= 1;
        if timed_out && ready.queue.is_empty() {
            ready.workers -= 1;
            return None;
        }
    }
}

/// Lays a connection down until it speaks again, or its request's time has come.
fn park<S: Service>(shared: &Arc<Shared<S>>, connection: Box<Connection<S>>) {
    let (id, stream) = (connection.id, Arc::clone(&connection.stream));
    let needs_poller = connection.deferred.is_some() || !connection.partial.is_empty();
    let busy = shared.busy.lock().remove(&id);
    drop(busy);
    let mut parked = shared.parked.lock();
    // The poller empties the map after it saw `stopping`; what comes later closes itself.
    if shared.stopping.load(Ordering::SeqCst) {
        drop(parked);
        close(shared, &connection, None);
        return;
    }
    let options = &shared.options;
    let over = parked.insert(connection, &options.memory, options.partial_bytes);
    shared.stats.deferred.store(parked.deferred_count(), Ordering::Relaxed);
    drop(parked);
    for connection in &over {
        close_partial(shared, connection, "half messages take more than their budget");
    }
    if over.iter().any(|closed| closed.id == id) {
        return;
    }
    if let Err(error) = shared.poll.arm(&*stream, id) {
        abandon(shared, id, &error);
    }
    if needs_poller {
        shared.poll.wake();
    }
}

/// Lays a connection down whose next message needs so many bytes, until there is room for it.
fn await_room<S: Service>(shared: &Arc<Shared<S>>, connection: Box<Connection<S>>, needed: usize) {
    let busy = shared.busy.lock().remove(&connection.id);
    drop(busy);
    let now = shared.os.clock.monotonic();
    let waiting = shared.options.memory.wait_for_room();
    let mut parked = shared.parked.lock();
    if shared.stopping.load(Ordering::SeqCst) {
        drop(parked);
        close(shared, &connection, None);
        return;
    }
    parked.crowd(connection, needed, now, waiting);
    shared.crowded.store(true, Ordering::Relaxed);
    drop(parked);
    shared.poll.wake();
}

/// Closes a parked connection that cannot be watched.
fn abandon<S: Service>(shared: &Shared<S>, id: u64, error: &io::Error) {
    let found = shared.parked.lock().remove(id);
    if let Some(connection) = found {
        close(shared, &connection, Some(&format!("cannot be watched: {error}")));
    }
}

fn close_partial<S: Service>(shared: &Shared<S>, connection: &Connection<S>, reason: &str) {
    shared.stats.partial_closed.fetch_add(1, Ordering::Relaxed);
    close(shared, connection, Some(reason));
}

fn close<S: Service>(shared: &Shared<S>, connection: &Connection<S>, reason: Option<&str>) {
    let busy = shared.busy.lock().remove(&connection.id);
    drop(busy);
    connection.stream.shut_down();
    let _met_a_bug = catch_panic(|| shared.service.close_connection(&connection.state)).is_none();
    let left = shared.stats.open.fetch_sub(1, Ordering::Relaxed) - 1;
    if let Some(reason) = reason {
        tracing::info!(target: "NETWORK", connectionId = connection.id, reason,
            "Closing a connection");
    }
    if !shared.options.quiet.load(Ordering::Relaxed) {
        tracing::info!(target: "NETWORK", id = 22944, connectionId = connection.id,
            connectionCount = left, "Connection ended");
    }
}

//! The listening thread: it accepts connections, ends waits whose time has come, closes those whose time
//! is over, and looks at workers whose requests take long.
//!
//! Always true: it never reads, never writes, never runs a request and never waits but in its poller.

use crate::channel::Channel;
use crate::connection::{Connection, Ownership, Progress};
use crate::listener::Listener;
use crate::poll::{Readiness, hung_up};
use crate::pool::LongRequests;
use crate::service::Service;
use crate::shared::{CloseCause, Shared, catch_panic};
use crate::stream::Stream;
use dispatch::ConnectionInfo;
use limits::Part;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use telemetry::Context;

/// After the machine refused a descriptor, wait this long before asking again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often is looked for clients that hung up while they are served, and for half messages and replies
/// whose time is over.
const PERIOD: Duration = Duration::from_secs(1);

/// Sockets accepted from one listener before the others get a turn.
const ACCEPT_BATCH: usize = 256;

/// How often is looked for room while a message waits for it.
const ROOM_PERIOD: Duration = Duration::from_millis(10);

/// The listening thread.
pub(crate) struct Listening<S: Service> {
    shared: Arc<Shared<S>>,
    listeners: Vec<Listener>,
    /// Listeners that have somebody waiting, or may have.
    pending: Vec<bool>,
    /// Ask them again at this time.
    paused_until: Option<Duration>,
    looked: Duration,
    long_requests: LongRequests,
    check_at: Option<Duration>,
}

impl<S: Service> Listening<S> {
    /// # Errors
    /// Where the machine does not let a listener be watched.
    pub(crate) fn new(shared: &Arc<Shared<S>>, listeners: Vec<Listener>) -> io::Result<Self> {
        for (at, listener) in listeners.iter().enumerate() {
            shared.listening.add(listener, at as u64)?;
        }
        let pending = vec![true; listeners.len()];
        let (shared, looked) = (Arc::clone(shared), shared.os.clock.monotonic());
        let (paused_until, long_requests, check_at) = (None, LongRequests::default(), None);
        Ok(Self { shared, listeners, pending, paused_until, looked, long_requests, check_at })
    }

    pub(crate) fn run(mut self) {
        Context::named("listener").enter();
        let mut events = Vec::with_capacity(64);
        while !self.shared.stopping.load(Ordering::SeqCst) {
            let now = self.shared.os.clock.monotonic();
            self.accept(now);
            self.end_waits(now);
            self.let_in(now);
            self.close_those_asked_for();
            self.check_workers(now);
            if now.saturating_sub(self.looked) >= self.period() {
                self.looked = now;
                self.tell_of_leavers();
                self.close_overdue(now);
            }
            let timeout = self.timeout();
            let pending = &mut self.pending;
            let waited = self.shared.listening.wait(&mut events, timeout, |told| {
                if let Readiness::Socket { token, .. } = told
                    && let Some(listener) = pending.get_mut(token as usize)
                {
                    *listener = true;
                }
            });
            if let Err(error) = waited {
                tracing::error!(target: "NETWORK", %error, "Polling failed");
                self.shared.os.clock.sleep(ACCEPT_PAUSE);
            }
        }
        self.listeners.clear();
        self.shared.waiting.lock().clear();
        self.shared.close_all_laid_down();
    }

    fn period(&self) -> Duration {
        PERIOD.min(self.shared.options.write_timeout)
    }

    /// How long nothing is to be done unless somebody wakes this thread.
    fn timeout(&self) -> Option<Duration> {
        let now = self.shared.os.clock.monotonic();
        // A millisecond more: the kernel's and ours are not rounded alike.
        let until = |at: Duration| at.saturating_sub(now) + Duration::from_millis(1);
        let more = self.paused_until.is_none() && self.pending.contains(&true);
        let pause = self.paused_until.map(until);
        let check = self.check_at.map(|at| at.saturating_sub(now));
        let waiting = self.shared.waiting.lock();
        let timer = waiting.next_timer().map(until);
        let leavers = self.shared.leavers.load(Ordering::SeqCst);
        let periodic = (leavers || waiting.has_overdue()).then(|| self.period());
        let room = waiting.is_crowded().then_some(ROOM_PERIOD);
        let more = more.then_some(Duration::ZERO);
        [more, pause, check, timer, periodic, room].into_iter().flatten().min()
    }

    /// Runs requests again that wait, where their time has come or something changed.
    fn end_waits(&self, now: Duration) {
        let changed = self.shared.changed.swap(false, Ordering::SeqCst);
        let due = self.shared.waiting.lock().due((!changed).then_some(now));
        for connection in due {
            if connection.owner.end_wait() {
                self.shared.make_ready(connection);
            }
        }
    }

    /// Gives room to messages that wait for it, and takes it from half messages that do not go on.
    fn let_in(&self, now: Duration) {
        let shared = &self.shared;
        let memory = &shared.options.memory;
        let mut waiting = shared.waiting.lock();
        if !waiting.is_crowded() && !memory.is_awaited() {
            return;
        }
        let inside = waiting.let_in(now, |bytes| memory.try_admit(Part::Requests, bytes as u64));
        let stalled = if memory.is_awaited() { waiting.stalled(now) } else { None };
        shared.crowded.store(waiting.is_crowded(), Ordering::Relaxed);
        drop(waiting);
        if let Some(connection) = stalled {
            self.close_partial(&connection, "its half message kept memory that others wait for");
        }
        for (connection, room, waited) in inside {
            if connection.owner.end_wait_for_room() {
                let mut progress = connection.progress.lock();
                // The client did not keep it waiting.
                progress.began = progress.began.map(|began| began + waited);
                progress.room = Some(room);
                drop(progress);
                shared.make_ready(connection);
            }
        }
    }

    fn close_those_asked_for(&self) {
        let to_close = std::mem::take(&mut *self.shared.to_close.lock());
        for (connection, why) in to_close {
            match why {
                CloseCause::Left => self.shared.close_waiting(&connection),
                CloseCause::OverBudget => {
                    let reason = "half messages and waiting requests take more than their budget";
                    self.close_partial(&connection, reason);
                    self.shared.close_waiting(&connection);
                }
            }
        }
    }

    fn close_overdue(&self, now: Duration) {
        let (shared, options) = (&self.shared, &self.shared.options);
        let awaited = options.memory.is_awaited();
        let mut waiting = shared.waiting.lock();
        let late = waiting.overdue(now, options.message_timeout);
        let untaken = waiting.untaken(now, options.write_timeout, awaited);
        drop(waiting);
        for connection in late {
            self.close_partial(&connection, "a message did not arrive in time");
        }
        for connection in untaken {
            shared.close_quiet(&connection, "the client stopped reading");
        }
    }

    fn close_partial(&self, connection: &Arc<Connection<S>>, reason: &str) {
        if self.shared.close_quiet(connection, reason) {
            self.shared.stats.partial_closed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn check_workers(&mut self, now: Duration) {
        if !self.long_requests.is_due(&self.shared.pool, self.check_at, now) {
            return;
        }
        let (needs, next) = self.long_requests.check(&self.shared.pool);
        self.check_at = next.map(|next| now + next);
        for need in needs {
            self.shared.satisfy(need);
        }
    }

    /// Tells the service of clients that hung up while a worker is busy for them.
    fn tell_of_leavers(&self) {
        if !self.shared.leavers.swap(false, Ordering::SeqCst) {
            return;
        }
        let table = self.shared.table.read();
        let served: Vec<_> =
            table.all().filter(|connection| connection.owner.is_served()).cloned().collect();
        drop(table);
        match hung_up(served.iter().map(|connection| &connection.stream)) {
            Ok(left) => {
                for (connection, left) in served.iter().zip(left) {
                    if left {
                        self.shared.leavers.store(true, Ordering::SeqCst);
                        let told = || self.shared.service.client_left(&connection.state);
                        let _met_a_bug = catch_panic(told).is_none();
                    }
                }
            }
            Err(error) => {
                tracing::warn!(target: "NETWORK", %error, "Cannot look for clients that left");
            }
        }
    }

    /// Takes in whoever waits at a listener.
    fn accept(&mut self, now: Duration) {
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.paused_until = None;
        for at in 0..self.listeners.len() {
            if self.pending[at] && !self.accept_from(at) {
                self.paused_until = Some(now + ACCEPT_PAUSE);
            }
        }
    }

    /// `false` when the machine has no descriptors left and listeners pause for a while.
    fn accept_from(&mut self, at: usize) -> bool {
        for _ in 0..ACCEPT_BATCH {
            match self.listeners[at].accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        self.pending[at] = false;
                        break;
                    }
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        tracing::warn!(target: "NETWORK", %error, "Cannot accept a connection");
                        return false;
                    }
                },
            }
        }
        true
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
        if let Err(error) = stream.prepare() {
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
        let progress = Progress { channel: Channel::of(&stream), ..Progress::default() };
        let connection = shared.table.write().insert(|token| Connection {
            id,
            token,
            stream,
            state,
            owner: Ownership::new(),
            hung_up: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            progress: Mutex::new(progress),
        });
        if let Err(error) = shared.sockets.add(&connection.stream, connection.token) {
            shared.close_quiet(&connection, &format!("cannot be watched: {error}"));
        }
    }
}

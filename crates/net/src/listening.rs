//! The listening thread: it accepts connections, ends waits whose time has come, closes those whose time
//! is over, and looks at workers whose requests take long.
//!
//! Always true: it never reads, never writes, never runs a request and never waits but in its poller.

use crate::accept_rate::TokenBucket;
use crate::channel::Channel;
use crate::connection::{Connection, Ownership, Progress};
use crate::listener::Listener;
use crate::poll::{Readiness, hung_up};
use crate::pool::LongRequests;
use crate::serve::message_time;
use crate::service::Service;
use crate::shared::{CloseCause, Shared, catch_panic};
use crate::stream::Stream;
use dispatch::ConnectionInfo;
use limits::{Arrivals, Part, network_of};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
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
    /// How fast connections are taken in.
    rate: TokenBucket,
    /// Accepted ones that wait for their turn.
    queued: VecDeque<(Stream, ConnectionInfo)>,
    /// They are to make way for others, and were served when they were to be closed.
    make_way: Vec<Arc<Connection<S>>>,
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
        Ok(Self {
            shared,
            listeners,
            pending,
            paused_until: None,
            looked,
            rate: TokenBucket::default(),
            queued: VecDeque::new(),
            make_way: Vec::new(),
            long_requests: LongRequests::default(),
            check_at: None,
        })
    }

    pub(crate) fn run(mut self) {
        Context::named("listener").enter();
        let mut events = Vec::with_capacity(64);
        while !self.shared.stopping.load(Ordering::SeqCst) {
            let now = self.shared.os.clock.monotonic();
            self.admit_queued(now);
            self.accept(now);
            self.close_those_that_make_way();
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
            let waited = self.shared.listening.wait(&mut events, timeout, |readiness| {
                if let Readiness::Socket { token, .. } = readiness
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
        self.shared.close_all_parked();
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
        let mut waiting = self.shared.waiting.lock();
        let timer = waiting.plan_next_timer().map(until);
        let may_have_hung_up = self.shared.may_have_hung_up.load(Ordering::SeqCst);
        let silent = self.shared.unauthenticated.lock().has_not_yet_heard();
        let periodic = (may_have_hung_up || silent || waiting.has_overdue()).then(|| self.period());
        let room = waiting.is_crowded().then_some(ROOM_PERIOD);
        let more = more.then_some(Duration::ZERO);
        let make_way = (!self.make_way.is_empty()).then_some(ROOM_PERIOD);
        let turn = match self.rate_limit() {
            Some(rate) => self.rate.next(now, rate) + Duration::from_millis(1),
            None => Duration::ZERO,
        };
        let turn = (!self.queued.is_empty()).then_some(turn);
        [turn, more, pause, check, timer, periodic, room, make_way].into_iter().flatten().min()
    }

    /// Runs requests again that wait, where their time has come or something changed.
    fn end_waits(&self, now: Duration) {
        let changed = self.shared.must_rerun_waiting.swap(false, Ordering::SeqCst);
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
        shared.is_short_of_room.store(waiting.is_crowded(), Ordering::Relaxed);
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
        let late = waiting.overdue(now, |connection| {
            message_time(&*shared.service, connection, options.message_timeout)
        });
        let untaken = waiting.untaken(now, options.write_timeout, awaited);
        drop(waiting);
        for connection in late {
            self.close_partial(&connection, "a message did not arrive in time");
        }
        for connection in untaken {
            shared.close_quiet(&connection, "the client stopped reading");
        }
        self.close_silent(now);
    }

    /// Closes those on which nobody has asked anything, where a login is asked for.
    fn close_silent(&self, now: Duration) {
        let shared = &self.shared;
        let time = {
            let unauthenticated = shared.unauthenticated.lock();
            let of = |first| message_time(&*shared.service, first, shared.options.message_timeout);
            unauthenticated.first_not_yet_heard().map_or(Duration::MAX, of)
        };
        let silent = shared.unauthenticated.lock().take_silent(now, time);
        for connection in silent {
            if !self.close_before_login(&connection, "the client said nothing in time") {
                shared.unauthenticated.lock().requeue(connection.id, now);
            }
        }
    }

    /// Closes a connection that nobody serves just now; whether that was so.
    fn close_before_login(&self, connection: &Arc<Connection<S>>, reason: &str) -> bool {
        let shared = &self.shared;
        let taken = connection.owner.take_quiet() || connection.owner.end_wait();
        if taken {
            shared.stats.closed_before_login.fetch_add(1, Ordering::Relaxed);
            shared.close_served(connection, connection.progress.lock(), Some(reason));
        }
        taken
    }

    /// Closes who is to make way, but for those that somebody has logged in on by now.
    fn close_those_that_make_way(&mut self) {
        let mut served = std::mem::take(&mut self.make_way);
        served.retain(|connection| {
            let reason = "too many connections on which nobody has logged in";
            connection.unauthenticated.load(Ordering::Relaxed)
                && !self.close_before_login(connection, reason)
        });
        self.make_way = served;
    }

    /// Counts a new connection until somebody logs in on it, where that is asked for.
    fn count_unauthenticated(&mut self, connection: &Arc<Connection<S>>, from: Option<IpAddr>) {
        let shared = Arc::clone(&self.shared);
        let (Some(limits), Some(from)) = (shared.service.before_login(&connection.state), from)
        else {
            return;
        };
        connection.unauthenticated.store(true, Ordering::Relaxed);
        let now = shared.os.clock.monotonic();
        let mut all = shared.unauthenticated.lock();
        let makes_way = all.add(Arc::clone(connection), from, now, limits);
        drop(all);
        self.make_way.extend(makes_way);
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
        if !self.shared.may_have_hung_up.swap(false, Ordering::SeqCst) {
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
                        self.shared.may_have_hung_up.store(true, Ordering::SeqCst);
                        let tell_service = || self.shared.service.client_left(&connection.state);
                        let _met_a_bug = catch_panic(tell_service).is_none();
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
                Ok((stream, peer)) => self.arrived(stream, peer),
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

    fn rate_limit(&self) -> Option<(u64, u64)> {
        self.shared.service.arrivals().and_then(Arrivals::rate)
    }

    /// Takes in those whose turn has come; all where there is no rate any more.
    fn admit_queued(&mut self, now: Duration) {
        while !self.queued.is_empty() {
            if self.rate_limit().is_some_and(|rate| !self.rate.take(now, rate)) {
                return;
            }
            let Some((stream, peer)) = self.queued.pop_front() else { return };
            self.admit(stream, peer);
        }
    }

    /// Somebody has connected: takes him in, lets him wait for his turn, or leaves him.
    fn arrived(&mut self, stream: Stream, peer: ConnectionInfo) {
        let shared = Arc::clone(&self.shared);
        let Some(arrivals) = shared.service.arrivals() else { return self.admit(stream, peer) };
        let now = shared.os.clock.monotonic();
        let may_enter =
            self.queued.is_empty() && arrivals.rate().is_none_or(|rate| self.rate.take(now, rate));
        if may_enter {
            return self.admit(stream, peer);
        }
        // Each holds a descriptor.
        let most = arrivals.queue_depth.load(Ordering::Relaxed);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(shared.options.max_connections);
        if self.queued.len() < most {
            self.queued.push_back((stream, peer));
        } else {
            self.refuse(
                &peer,
                "connections come faster than ingressConnectionEstablishmentRatePerSec",
            );
        }
    }

    /// Counts and tells of a connection that is closed at once.
    fn refuse(&self, peer: &ConnectionInfo, reason: &str) {
        self.shared.stats.rejected.fetch_add(1, Ordering::Relaxed);
        if !self.shared.options.quiet.load(Ordering::Relaxed) {
            tracing::info!(target: "NETWORK", id = 22942, remote = peer.remote, reason,
                "Connection refused");
        }
    }

    /// Counts a connection from a network, unless that has as many as it may.
    fn enter_network(&self, network: u128) -> bool {
        let limit = self
            .shared
            .service
            .arrivals()
            .map_or(0, |arrivals| arrivals.connections_per_address.load(Ordering::Relaxed));
        let mut all = self.shared.by_network.lock();
        let open = all.get(&network).copied().unwrap_or(0);
        if limit > 0 && open >= limit {
            return false;
        }
        all.insert(network, open + 1);
        true
    }

    fn admit(&mut self, stream: Stream, peer: ConnectionInfo) {
        let shared = Arc::clone(&self.shared);
        let options = &shared.options;
        let from = stream.remote_address();
        let most = match from {
            Some(from) if shared.service.is_let_in_beyond(from) => {
                options.max_connections.max(options.connections_beyond)
            }
            _ => options.max_connections,
        };
        if shared.stats.open() >= most {
            // Nobody who only holds a connection keeps others out.
            let oldest = shared.unauthenticated.lock().take_oldest();
            self.make_way.extend(oldest);
            self.close_those_that_make_way();
        }
        let open = shared.stats.open();
        if open >= most {
            return self.refuse(&peer, "there are too many open connections");
        }
        if let Err(error) = stream.prepare() {
            tracing::debug!(target: "NETWORK", remote = peer.remote, %error, "Client left while connecting");
            return;
        }
        let quiet = options.quiet.load(Ordering::Relaxed);
        let remote = if quiet { String::new() } else { peer.remote.clone() };
        let network = from.map(network_of);
        if network.is_some_and(|network| !self.enter_network(network)) {
            return self.refuse(&peer, "its address has maxConnectionsPerIP open connections");
        }
        let Some(state) = catch_panic(|| shared.service.open_connection(peer)) else {
            if let Some(network) = network {
                shared.leave_network(network);
            }
            return;
        };
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
            network,
            state,
            owner: Ownership::new(),
            unauthenticated: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            progress: Mutex::new(progress),
        });
        self.count_unauthenticated(&connection, from);
        if let Err(error) = shared.sockets.add(&connection.stream, connection.token) {
            shared.close_quiet(&connection, &format!("cannot be watched: {error}"));
        }
    }
}

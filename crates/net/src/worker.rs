//! What workers do: take a connection that has something to say, serve it, take the next.
//!
//! Always true: a panic below ends at most the connection it was met on; a worker never ends by one, and
//! each opened connection is counted down and closed.

use crate::arrived::SocketNews;
use crate::connection::{Connection, News, Progress};
use crate::exchange::Serving;
use crate::poll::{Readiness, hung_up};
use crate::pool::{Need, SystemThread, Worker};
use crate::serve::{Outcome, WorkerBuffers, serve};
use crate::service::Service;
use crate::shared::{CloseCause, Shared, catch_panic};
use dispatch::MakeWaker;
use rustix::event::epoll::Event;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use telemetry::Context;

/// News that a worker takes from the poller for others too.
const TAKEN_TOGETHER: usize = 16;

/// After so many requests a worker looks whether more is ready than there are workers; where it was, it takes news for
/// others too for so many.
const CROWD_PERIOD: u32 = 32;

/// What a worker has of the poller.
struct Polled {
    /// Room for one piece of news: what comes next is for whoever waits.
    next: Vec<Event>,
    many: Vec<Event>,
    /// Requests until it looks for a crowd.
    until_look: u32,
    /// Requests for which it takes news for others too.
    takes_for_others: u32,
}

impl Polled {
    fn new() -> Self {
        let (next, many) = (Vec::with_capacity(1), Vec::with_capacity(TAKEN_TOGETHER));
        Self { next, many, until_look: CROWD_PERIOD, takes_for_others: 0 }
    }

    /// Whether all that is ready is to be taken, before the next request.
    fn takes_many(&mut self) -> bool {
        self.takes_for_others = self.takes_for_others.saturating_sub(1);
        self.until_look = self.until_look.checked_sub(1).unwrap_or(CROWD_PERIOD);
        self.takes_for_others > 0 || self.until_look == 0
    }

    /// So much was ready.
    fn note(&mut self, ready: usize, workers: usize) {
        if ready > workers || ready == TAKEN_TOGETHER {
            self.takes_for_others = CROWD_PERIOD;
        }
    }
}

/// A worker's life.
pub(crate) fn work<S: Service>(shared: &Arc<Shared<S>>) {
    let worker = Arc::new(Worker::on(Box::new(SystemThread::of_this_thread())));
    shared.pool.joined(&worker);
    let (giver, own) = (Arc::clone(shared), Arc::clone(&worker));
    os::before_waits(move || giver.satisfy(giver.pool.release_permit(&own)));
    let mut buffers = WorkerBuffers::new(&shared.options.memory);
    let mut polled = Polled::new();
    let mut sockets_next = false;
    let mut last = None;
    while let Some(connection) = next(shared, &mut polled, &mut sockets_next, last) {
        last = Some(connection.token);
        if !shared.pool.somebody_polls() && shared.pool.begins_watch() {
            shared.listening.wake();
        }
        worker.turn();
        Context::numbered("conn", connection.id).enter();
        serve_fully(shared, &worker, &connection, &mut buffers);
        worker.turn();
        drop(connection);
        if !shared.pool.wait_for_permit(&worker, shared.options.worker_idle) {
            break;
        }
    }
    let need = shared.pool.left(&worker);
    if !shared.stopping.load(Ordering::SeqCst) {
        shared.satisfy(need);
    }
}

/// Waits for a connection that is to be served, behind the one of this token; `None` when the server stops.
fn next<S: Service>(
    shared: &Arc<Shared<S>>,
    polled: &mut Polled,
    sockets_next: &mut bool,
    last: Option<u64>,
) -> Option<Arc<Connection<S>>> {
    loop {
        if shared.stopping.load(Ordering::SeqCst) {
            // The others must see it too.
            shared.sockets.wake();
            return None;
        }
        // Connections that are ready without news, and sockets with news, by turns.
        *sockets_next = !*sockets_next;
        if !*sockets_next && let Some(ready) = shared.take_ready() {
            return Some(ready);
        }
        if let Some(news) = arrived(shared, polled, last) {
            if let Some(connection) = has_news(shared, news) {
                shared.leave_ready_to_others();
                return Some(connection);
            }
            continue;
        }
        let mut readiness = None;
        shared.pool.begin_polling();
        let at_once = shared.ready.is_waiting() || shared.arrived.is_waiting();
        let waited =
            shared.sockets.wait(&mut polled.next, at_once.then_some(Duration::ZERO), |news| {
                readiness = Some(news);
            });
        let (need, watch) = shared.pool.end_polling();
        shared.satisfy(need);
        if watch {
            shared.listening.wake();
        }
        if let Err(error) = waited {
            tracing::error!(target: "NETWORK", %error, "Polling failed");
            shared.os.clock.sleep(Duration::from_millis(100));
        }
        if let Some(Readiness::Socket(news)) = readiness
            && let Some(connection) = has_news(shared, news)
        {
            shared.leave_ready_to_others();
            return Some(connection);
        }
    }
}

/// What the caller is to serve of what came while all others worked.
fn arrived<S: Service>(
    shared: &Arc<Shared<S>>,
    polled: &mut Polled,
    last: Option<u64>,
) -> Option<SocketNews> {
    let processor = rustix::thread::sched_getcpu();
    let own = shared.arrived.take(processor, false);
    // What comes while somebody polls is told to that one, which has nothing else to do.
    let takes_many = polled.takes_many() || shared.pool.one_is_enough();
    if own.is_some() || !takes_many || shared.pool.somebody_polls() {
        return own.or_else(|| shared.arrived.take(processor, true));
    }
    let mut woken = false;
    let mut came = SmallVec::<[SocketNews; TAKEN_TOGETHER]>::new();
    let _waits_for_the_same_error =
        shared.sockets.wait(&mut polled.many, Some(Duration::ZERO), |news| match news {
            Readiness::Socket(news) => came.push(news),
            Readiness::Wake => woken = true,
        });
    if woken {
        // It is for whoever waits next.
        shared.sockets.wake();
    }
    polled.note(came.len(), shared.pool.usual_permits());
    if came.iter().any(|news| last != Some(news.token)) {
        shared.satisfy(shared.pool.note_crowd());
    }
    if let ([only], false) = (&came[..], shared.arrived.is_waiting()) {
        return Some(*only);
    }
    for news in came {
        let connection = shared.table.read().get(news.token);
        let through = connection
            .and_then(|connection| connection.through.processor(|| connection.stream.processor()));
        shared.arrived.put(through.unwrap_or(processor), news);
    }
    shared.arrived.take(processor, true)
}

/// A socket has something to say; its connection where it is to be served by the caller.
fn has_news<S: Service>(
    shared: &Arc<Shared<S>>,
    SocketNews { token, hung_up: left }: SocketNews,
) -> Option<Arc<Connection<S>>> {
    let connection = shared.table.read().get(token)?;
    // The news may have been another's, who had the token before.
    let left = left && has_left(&connection);
    if left {
        connection.hung_up.store(true, Ordering::SeqCst);
    }
    if left && !shared.may_have_hung_up.swap(true, Ordering::SeqCst) {
        // What it said last may run for long.
        shared.listening.wake();
    }
    match connection.owner.news() {
        News::Serve => return Some(connection),
        News::Noted if left => {
            let _told = catch_panic(|| shared.service.client_left(&connection.state));
        }
        News::Waits if left => shared.close_waiting(&connection),
        News::Noted | News::Waits | News::WaitsForRoom | News::Closed => {}
    }
    None
}

fn has_left<S: Service>(connection: &Connection<S>) -> bool {
    // One that cannot be asked is found out by whoever reads.
    hung_up(std::iter::once(&connection.stream)).map_or(true, |left| left == [true])
}

/// Serves a connection until nothing is left to do without waiting.
fn serve_fully<S: Service>(
    shared: &Arc<Shared<S>>,
    worker: &Worker,
    connection: &Arc<Connection<S>>,
    buffers: &mut WorkerBuffers,
) {
    let waker = || shared.waker_of(connection);
    let serving = Serving {
        waker: MakeWaker(&waker),
        service: &*shared.service,
        clock: &*shared.os.clock,
        options: &shared.options,
        worker,
        stopping: &shared.stopping,
        stats: &shared.stats,
        is_short_of_room: &shared.is_short_of_room,
        unauthenticated: &shared.unauthenticated,
    };
    let mut progress = connection.progress.lock();
    loop {
        if progress.listed {
            progress.listed = false;
            shared.forget(connection.id);
        }
        let changes = shared.change_count.load(Ordering::SeqCst);
        let had_unsent = progress.awaits_room_to_send();
        let served = catch_panic(|| serve(&serving, connection, &mut progress, buffers));
        let outcome = served.unwrap_or_else(|| {
            // Nobody knows what it left in the buffers.
            *buffers = WorkerBuffers::new(&shared.options.memory);
            Outcome::Close(Some("a message could not be served because of a bug".to_owned()))
        });
        if had_unsent != progress.awaits_room_to_send()
            && let Err(error) = shared.set_write_interest(connection, !had_unsent)
        {
            let reason = format!("cannot be watched: {error}");
            return shared.close_served(connection, progress, Some(&reason));
        }
        match outcome {
            Outcome::Close(reason) => {
                return shared.close_served(connection, progress, reason.as_deref());
            }
            Outcome::HandOver => return shared.hand_over(connection, progress),
            Outcome::Again => return shared.make_ready(Arc::clone(connection)),
            Outcome::AwaitRoom(needed) => {
                connection.owner.wait_for_room();
                return shared.await_room(connection, needed);
            }
            Outcome::Defer => return defer(shared, connection, &mut progress, changes),
            Outcome::Quiet => {
                if connection.owner.settle() {
                    list(shared, connection, &mut progress);
                    return;
                }
            }
        }
    }
}

/// Lays a connection down until its request's time has come.
fn defer<S: Service>(
    shared: &Arc<Shared<S>>,
    connection: &Arc<Connection<S>>,
    progress: &mut Progress,
    changes: u64,
) {
    connection.owner.wait();
    list(shared, connection, progress);
    // What it waits for may have come between its look and now; so may the end of its client.
    if connection.woken.load(Ordering::SeqCst) {
        shared.run_again(connection);
    }
    if shared.change_count.load(Ordering::SeqCst) != changes {
        shared.run_waiting_again();
    }
    if connection.hung_up.load(Ordering::SeqCst) {
        shared.close_later([Arc::clone(connection)], CloseCause::Left);
    }
}

/// Notes in the list of those who wait what this one waits for, if for anything but news.
fn list<S: Service>(
    shared: &Arc<Shared<S>>,
    connection: &Arc<Connection<S>>,
    progress: &mut Progress,
) {
    if !progress.is_half() && progress.deferred.is_none() && progress.unsent.is_none() {
        return;
    }
    progress.listed = true;
    let mut waiting = shared.waiting.lock();
    let had_overdue = waiting.has_overdue();
    waiting.insert(connection, progress, &shared.options.memory);
    shared.stats.deferred.store(waiting.deferred_count(), Ordering::Relaxed);
    let over = waiting.over_budget(shared.options.partial_bytes);
    let has_overdue = waiting.has_overdue();
    let must_look_earlier = waiting.must_look_earlier();
    drop(waiting);
    if has_overdue && !had_overdue || !over.is_empty() || must_look_earlier {
        // Whose time may run out is looked at by the listening thread now and then.
        shared.listening.wake();
    }
    shared.close_later(over, CloseCause::OverBudget);
}

impl<S: Service> Shared<S> {
    /// Does what a permit needs to come to use.
    pub(crate) fn satisfy(self: &Arc<Self>, need: Need) {
        if need == Need::Nothing {
            return;
        }
        let working = Arc::clone(self);
        let stack = Some(self.options.worker_stack_bytes);
        let job = Box::new(move || work(&working));
        if let Err(error) = self.os.spawner.spawn_with_stack("worker", stack, job) {
            if self.pool.not_started() {
                tracing::error!(target: "NETWORK", %error, "Cannot start a thread for connections");
            }
            self.listening.wake();
        }
    }
}

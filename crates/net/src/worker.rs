//! What workers do: take a connection that has something to say, serve it, take the next.
//!
//! Always true: a panic below ends at most the connection it was met on; a worker never ends by one, and
//! each opened connection is counted down and closed.

use crate::connection::{Connection, News, Progress};
use crate::exchange::Serving;
use crate::poll::{Readiness, hung_up};
use crate::pool::{Need, SystemThread, Worker};
use crate::serve::{Outcome, WorkerBuffers, serve};
use crate::service::Service;
use crate::shared::{CloseCause, Shared, catch_panic};
use dispatch::MakeWaker;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use telemetry::Context;

/// A worker's life.
pub(crate) fn work<S: Service>(shared: &Arc<Shared<S>>) {
    let worker = Arc::new(Worker::on(Box::new(SystemThread::of_this_thread())));
    shared.pool.joined(&worker);
    let (giver, own) = (Arc::clone(shared), Arc::clone(&worker));
    os::before_waits(move || giver.satisfy(giver.pool.release_permit(&own)));
    let mut buffers = WorkerBuffers::new(&shared.options.memory);
    let mut events = Vec::with_capacity(1);
    let mut sockets_next = false;
    let mut last = None;
    while let Some(connection) = next(shared, &mut events, &mut sockets_next, last) {
        last = Some(connection.token);
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
    events: &mut Vec<rustix::event::epoll::Event>,
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
        let at_once = shared.ready.is_waiting();
        let mut readiness = None;
        let is_only_one = shared.pool.begin_polling();
        // The only one looks first and waits then, to know what had come before it waited.
        let mut timeout = (at_once || is_only_one).then_some(Duration::ZERO);
        let waited = loop {
            let waited = shared.sockets.wait(events, timeout, |news| readiness = Some(news));
            if waited.is_err() || readiness.is_some() || at_once || timeout.take().is_none() {
                break waited;
            }
        };
        if is_only_one
            && timeout.is_some()
            && let Some(Readiness::Socket { token, .. }) = readiness
            && last != Some(token)
        {
            // It came while another's request ran.
            shared.pool.let_all_poll();
        }
        let (need, watch) = shared.pool.end_polling();
        shared.satisfy(need);
        if watch {
            shared.listening.wake();
        }
        if let Err(error) = waited {
            tracing::error!(target: "NETWORK", %error, "Polling failed");
            shared.os.clock.sleep(Duration::from_millis(100));
        }
        if let Some(Readiness::Socket { token, hung_up }) = readiness
            && let Some(connection) = has_news(shared, token, hung_up)
        {
            shared.leave_ready_to_others();
            return Some(connection);
        }
    }
}

/// A socket has something to say; its connection where it is to be served by the caller.
fn has_news<S: Service>(
    shared: &Arc<Shared<S>>,
    token: u64,
    left: bool,
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

//! Connections that wait for something else than their client's next message: for the rest of a
//! message, for the client to take a reply, for a time, or for room.
//!
//! What is always true:
//! 1. Nothing here is with a worker when it is put in: whoever takes it out takes the connection first
//!    ([`crate::connection::Ownership`]), and passes by where it cannot.
//! 2. `kept_bytes` is the memory of all half messages and of all requests that wait for a time.
//! 3. Messages get room in the order in which they asked.

use crate::connection::{Connection, Progress};
use crate::exchange::is_slow;
use crate::service::Service;
use limits::{Account, Charge, Part, WaiterGuard as Awaited};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A half message with room of its own that did not go on for this long makes way for others.
const STALL_TIMEOUT: Duration = Duration::from_millis(500);

/// What a client has for a start before it is called slow in sending or in taking.
const SENDING_GRACE: Duration = Duration::from_secs(1);
const TAKING_GRACE: Duration = Duration::from_secs(5);

/// The connections.
pub(crate) struct WaitingRequests<S: Service> {
    halves: BTreeMap<u64, Half<S>>,
    kept_bytes: u64,
    unsent: BTreeMap<u64, Untaken<S>>,
    deferred: BTreeMap<u64, Postponed<S>>,
    /// When requests that wait are run again.
    timers: BTreeSet<(Duration, u64)>,
    /// The time at which the listening thread looks at the timers next, if it does so without being woken.
    looked_at_next: Option<Duration>,
    crowd: VecDeque<Crowded<S>>,
}

/// A request that waits for a time.
struct Postponed<S: Service> {
    connection: Arc<Connection<S>>,
    until: Duration,
    /// Memory that it takes.
    bytes: u64,
}

/// A half message.
struct Half<S: Service> {
    connection: Arc<Connection<S>>,
    /// Memory that it takes.
    bytes: u64,
    /// Room for all of it, where that is taken.
    room: Option<u64>,
    /// It stands behind a request that waits, so it is not the client that keeps it waiting.
    is_behind: bool,
    began: Duration,
    went_on: Duration,
    _charge: Charge,
}

/// A reply that the client has not taken.
struct Untaken<S: Service> {
    connection: Arc<Connection<S>>,
    sent: usize,
    began: Duration,
    went_on: Duration,
}

/// A connection whose next message has no room.
struct Crowded<S: Service> {
    connection: Arc<Connection<S>>,
    needed: usize,
    since: Duration,
    _waiting: Awaited,
}

impl<S: Service> Default for WaitingRequests<S> {
    fn default() -> Self {
        Self {
            halves: BTreeMap::new(),
            kept_bytes: 0,
            unsent: BTreeMap::new(),
            deferred: BTreeMap::new(),
            timers: BTreeSet::new(),
            looked_at_next: None,
            crowd: VecDeque::new(),
        }
    }
}

impl<S: Service> WaitingRequests<S> {
    /// Puts a connection in for what of `progress` waits: the rest of a message, of a reply, or a time.
    pub(crate) fn insert(
        &mut self,
        connection: &Arc<Connection<S>>,
        progress: &Progress,
        account: &Arc<Account>,
    ) {
        let id = connection.id;
        if let Some(deferred) = &progress.deferred
            && let Some(until) = deferred.until
        {
            let bytes = deferred.memory.bytes();
            self.timers.insert((until, id));
            let postponed = Postponed { connection: Arc::clone(connection), until, bytes };
            self.deferred.insert(id, postponed);
            self.kept_bytes += bytes;
        }
        if progress.is_half() {
            let bytes = progress.half_bytes() as u64;
            let room = progress.room.as_ref().map(Charge::bytes);
            let charged = if room.is_some() { 0 } else { bytes };
            let half = Half {
                connection: Arc::clone(connection),
                bytes,
                room,
                is_behind: progress.deferred.is_some(),
                began: progress.began.unwrap_or(progress.went_on),
                went_on: progress.went_on,
                _charge: account.charge_regardless(Part::PartialRequests, charged),
            };
            self.kept_bytes += bytes;
            self.halves.insert(id, half);
        }
        if let Some(unsent) = &progress.unsent {
            let (sent, began, went_on) = (unsent.sent, unsent.began, unsent.went_on);
            let connection = Arc::clone(connection);
            self.unsent.insert(id, Untaken { connection, sent, began, went_on });
        }
    }

    /// Takes a connection out, whatever it waits for but room.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Arc<Connection<S>>> {
        let half = self.halves.remove(&id).map(|half| {
            self.kept_bytes -= half.bytes;
            half.connection
        });
        let unsent = self.unsent.remove(&id).map(|untaken| untaken.connection);
        let deferred = self.deferred.remove(&id).map(|postponed| {
            self.kept_bytes -= postponed.bytes;
            self.timers.remove(&(postponed.until, id));
            postponed.connection
        });
        half.or(unsent).or(deferred)
    }

    fn remove_all(&mut self, ids: Vec<u64>) -> Vec<Arc<Connection<S>>> {
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Whether there is anything whose time may run out without news.
    pub(crate) fn has_overdue(&self) -> bool {
        !self.halves.is_empty() || !self.unsent.is_empty()
    }

    /// How many requests wait for a time.
    pub(crate) fn deferred_count(&self) -> usize {
        self.timers.len()
    }

    /// When the next waiting request is to be run. Asked by the listening thread, which looks again then.
    pub(crate) fn plan_next_timer(&mut self) -> Option<Duration> {
        self.looked_at_next = self.timers.first().map(|(at, _)| *at);
        self.looked_at_next
    }

    /// Whether the listening thread would look too late at the next timer: the caller wakes it. Where the timer that it
    /// goes by is no more it looks in vain, which costs less than to wake it for each that comes.
    pub(crate) fn must_look_earlier(&mut self) -> bool {
        let first = self.timers.first().map(|(at, _)| *at);
        let is_late =
            first.is_some_and(|first| self.looked_at_next.is_none_or(|next| first < next));
        if is_late {
            self.looked_at_next = first;
        }
        is_late
    }

    /// Takes out those whose time has come; all that wait for a time where there is none.
    pub(crate) fn due(&mut self, now: Option<Duration>) -> Vec<Arc<Connection<S>>> {
        let due = |at: Duration| now.is_none_or(|now| at <= now);
        let ids = self.timers.iter().take_while(|(at, _)| due(*at)).map(|(_, id)| *id).collect();
        self.remove_all(ids)
    }

    /// Takes out those whose half message began longer ago than its connection may take.
    pub(crate) fn overdue(
        &mut self,
        now: Duration,
        time: impl Fn(&Connection<S>) -> Duration,
    ) -> Vec<Arc<Connection<S>>> {
        let late = |half: &Half<S>| {
            !half.is_behind && now.saturating_sub(half.began) >= time(&half.connection)
        };
        let ids = self.halves.iter().filter(|(_, half)| late(half)).map(|(id, _)| *id).collect();
        self.remove_all(ids)
    }

    /// Takes out the largest half messages and requests that wait until the rest takes no more than `budget`.
    pub(crate) fn over_budget(&mut self, budget: u64) -> Vec<Arc<Connection<S>>> {
        let mut over = Vec::new();
        while self.kept_bytes > budget {
            let halves = self.halves.iter().map(|(id, half)| (half.bytes, *id));
            let deferred = self.deferred.iter().map(|(id, postponed)| (postponed.bytes, *id));
            let Some((_, largest)) = halves.chain(deferred).max() else { break };
            let Some(largest) = self.remove(largest) else { break };
            over.push(largest);
        }
        over
    }

    /// Takes out those who took nothing of their reply for `timeout`; where others wait for memory, also
    /// those who take it slowly.
    pub(crate) fn untaken(
        &mut self,
        now: Duration,
        timeout: Duration,
        awaited: bool,
    ) -> Vec<Arc<Connection<S>>> {
        let late = |reply: &Untaken<S>| {
            let time = now.saturating_sub(reply.began);
            now.saturating_sub(reply.went_on) >= timeout
                || awaited && time >= TAKING_GRACE && is_slow(reply.sent, time)
        };
        let ids = self.unsent.iter().filter(|(_, reply)| late(reply)).map(|(id, _)| *id).collect();
        self.remove_all(ids)
    }

    /// Takes in a connection whose next message needs so many bytes.
    pub(crate) fn crowd(
        &mut self,
        connection: Arc<Connection<S>>,
        needed: usize,
        since: Duration,
        waiting: Awaited,
    ) {
        self.crowd.push_back(Crowded { connection, needed, since, _waiting: waiting });
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_crowded(&self) -> bool {
        !self.crowd.is_empty()
    }

    /// Gives room to those who wait for it, as far as `admit` has some. With each: its room, and how long it
    /// waited.
    pub(crate) fn let_in(
        &mut self,
        now: Duration,
        admit: impl Fn(usize) -> Option<Charge>,
    ) -> Vec<(Arc<Connection<S>>, Charge, Duration)> {
        let mut inside = Vec::new();
        while let Some(first) = self.crowd.front() {
            let Some(room) = admit(first.needed) else { break };
            let Some(Crowded { connection, since, .. }) = self.crowd.pop_front() else { break };
            inside.push((connection, room, now.saturating_sub(since)));
        }
        inside
    }

    /// Takes out the largest half message that keeps room for what does not come.
    pub(crate) fn stalled(&mut self, now: Duration) -> Option<Arc<Connection<S>>> {
        let idle = |half: &Half<S>| {
            let time = now.saturating_sub(half.began);
            let arrived = usize::try_from(half.bytes).unwrap_or(usize::MAX);
            now.saturating_sub(half.went_on) >= STALL_TIMEOUT
                || time >= SENDING_GRACE && is_slow(arrived, time)
        };
        let may_go_on = |half: &Half<S>| half.room.is_some() && !half.is_behind;
        let stalled = self.halves.iter().filter(|(_, half)| may_go_on(half) && idle(half));
        let largest = stalled.max_by_key(|(_, half)| half.room).map(|(id, _)| *id)?;
        self.remove(largest)
    }

    /// Forgets everybody.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

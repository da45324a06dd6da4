//! Connections without a thread: silent ones, half messages, requests that wait, and messages for which
//! there is no room.
//!
//! What is always true:
//! 1. A connection here is in `silent` or in `crowd`, never in both; `halves` and `timers` name only
//!    connections in `silent`.
//! 2. `half_bytes` is the memory of all half messages in `silent`.
//! 3. Messages get room in the order in which they asked.
#![expect(clippy::vec_box, reason = "connections stay in the boxes that they are parked in")]

use crate::net::connection::{Connection, is_slow};
use crate::service::Service;
use limits::{Charge, Part, Waiting};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A half message with room of its own that did not go on for this long makes way for others.
const STALLED: Duration = Duration::from_millis(500);

/// What a half message has for a start before it is called slow.
const GRACE: Duration = Duration::from_secs(1);

/// The connections.
pub(crate) struct Parked<S: Service> {
    silent: BTreeMap<u64, Box<Connection<S>>>,
    halves: BTreeMap<u64, Half>,
    half_bytes: u64,
    /// When requests that wait are run again.
    timers: BTreeSet<(Duration, u64)>,
    crowd: VecDeque<Crowded<S>>,
}

/// A half message.
struct Half {
    _charge: Charge,
    /// Room for all of it is taken.
    admitted: bool,
    began: Duration,
    went_on: Duration,
}

/// A connection whose next message has no room.
struct Crowded<S: Service> {
    connection: Box<Connection<S>>,
    needed: usize,
    since: Duration,
    _waiting: Waiting,
}

impl<S: Service> Default for Parked<S> {
    fn default() -> Self {
        Self {
            silent: BTreeMap::new(),
            halves: BTreeMap::new(),
            half_bytes: 0,
            timers: BTreeSet::new(),
            crowd: VecDeque::new(),
        }
    }
}

impl<S: Service> Parked<S> {
    /// Takes in a connection that waits for its client, or for a time. Half messages together take at most
    /// `budget` bytes: for those beyond it returns the largest ones, which are to be closed.
    pub(crate) fn insert(
        &mut self,
        connection: Box<Connection<S>>,
        account: &std::sync::Arc<limits::Account>,
        budget: u64,
    ) -> Vec<Box<Connection<S>>> {
        let id = connection.id;
        if let Some(deferred) = &connection.deferred {
            self.timers.insert((deferred.until, id));
        }
        if !connection.partial.is_empty() {
            let bytes = connection.partial.bytes() as u64;
            let admitted = connection.room.is_some();
            let charged = if admitted { 0 } else { bytes };
            let charge = account.charge_regardless(Part::PartialRequests, charged);
            let (began, went_on) = (connection.began, connection.went_on);
            let began = began.unwrap_or(went_on);
            self.halves.insert(id, Half { _charge: charge, admitted, began, went_on });
            self.half_bytes += bytes;
        }
        self.silent.insert(id, connection);
        let mut over = Vec::new();
        while self.half_bytes > budget {
            let halves = self.halves.keys().filter_map(|id| self.silent.get(id));
            let largest = halves.max_by_key(|half| half.partial.bytes()).map(|half| half.id);
            let Some(largest) = largest.and_then(|id| self.remove(id)) else { break };
            over.push(largest);
        }
        over
    }

    /// Takes a silent connection out.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Box<Connection<S>>> {
        let connection = self.silent.remove(&id)?;
        if self.halves.remove(&id).is_some() {
            self.half_bytes -= connection.partial.bytes() as u64;
        }
        if let Some(deferred) = &connection.deferred {
            self.timers.remove(&(deferred.until, id));
        }
        Some(connection)
    }

    /// The socket of a connection whose request waits.
    pub(crate) fn deferred(&self, id: u64) -> Option<&Connection<S>> {
        self.silent.get(&id).map(|found| &**found).filter(|found| found.deferred.is_some())
    }

    /// Whether there are half messages.
    pub(crate) fn has_halves(&self) -> bool {
        !self.halves.is_empty()
    }

    /// How many requests wait.
    pub(crate) fn deferred_count(&self) -> usize {
        self.timers.len()
    }

    /// When the next waiting request is to be run.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Takes out those whose time has come; all that wait where there is none.
    pub(crate) fn due(&mut self, now: Option<Duration>) -> Vec<Box<Connection<S>>> {
        let due = |at: Duration| now.is_none_or(|now| at <= now);
        let ids: Vec<u64> =
            self.timers.iter().take_while(|(at, _)| due(*at)).map(|(_, id)| *id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Takes out those whose half message began longer ago than `timeout`.
    pub(crate) fn overdue(&mut self, now: Duration, timeout: Duration) -> Vec<Box<Connection<S>>> {
        let late = |half: &Half| now.saturating_sub(half.began) >= timeout;
        let ids: Vec<u64> =
            self.halves.iter().filter(|(_, half)| late(half)).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Takes in a connection whose next message needs so many bytes.
    pub(crate) fn crowd(
        &mut self,
        connection: Box<Connection<S>>,
        needed: usize,
        since: Duration,
        waiting: Waiting,
    ) {
        self.crowd.push_back(Crowded { connection, needed, since, _waiting: waiting });
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_crowded(&self) -> bool {
        !self.crowd.is_empty()
    }

    /// Gives room to those who wait for it, as far as `admit` has some.
    pub(crate) fn let_in(
        &mut self,
        now: Duration,
        admit: impl Fn(usize) -> Option<Charge>,
    ) -> Vec<Box<Connection<S>>> {
        let mut inside = Vec::new();
        while let Some(first) = self.crowd.front() {
            let Some(room) = admit(first.needed) else { break };
            let Some(Crowded { mut connection, since, .. }) = self.crowd.pop_front() else { break };
            // The client did not keep it waiting.
            let waited = now.saturating_sub(since);
            connection.began = connection.began.map(|began| began + waited);
            connection.room = Some(room);
            inside.push(connection);
        }
        inside
    }

    /// Takes out the largest half message that keeps room for what does not come.
    pub(crate) fn stalled(&mut self, now: Duration) -> Option<Box<Connection<S>>> {
        let idle = |id: u64, half: &Half| {
            let arrived = self.silent.get(&id).map_or(0, |connection| connection.partial.bytes());
            let time = now.saturating_sub(half.began);
            now.saturating_sub(half.went_on) >= STALLED || time >= GRACE && is_slow(arrived, time)
        };
        let stalled = self.halves.iter().filter(|(id, half)| half.admitted && idle(**id, half));
        let room = |id: u64| self.silent.get(&id).and_then(|half| half.room.as_ref());
        let largest = stalled.max_by_key(|(id, _)| room(**id).map_or(0, Charge::bytes));
        let largest = largest.map(|(id, _)| *id)?;
        self.remove(largest)
    }

    /// Takes out everybody.
    pub(crate) fn clear(&mut self) -> Vec<Box<Connection<S>>> {
        self.halves.clear();
        self.timers.clear();
        self.half_bytes = 0;
        let silent = std::mem::take(&mut self.silent).into_values();
        silent.chain(self.crowd.drain(..).map(|crowded| crowded.connection)).collect()
    }
}

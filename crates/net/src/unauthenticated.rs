//! Connections on which nobody has logged in, where clients are asked to: how many there may be,
//! and which is closed when there are too many.
//!
//! What is always true:
//! 1. Over a limit the one is closed that has been silent for longest: of many that come and say nothing the honest one
//!    that logs in is never the victim, for it is done before it is the oldest.
//! 2. A connection is here from its beginning until somebody logs in on it, it makes way, or it ends.
//! 3. The monitors of drivers never log in: one that goes on asking stays while there is room.

use crate::connection::Connection;
use crate::service::Service;
use limits::{BeforeLogin, network_of};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The connections.
pub(crate) struct Unauthenticated<S: Service> {
    all: BTreeMap<u64, Entry<S>>,
    /// By when they were heard last.
    order: BTreeSet<(Duration, u64)>,
    /// The same, of each network.
    by_network: BTreeMap<u128, BTreeSet<(Duration, u64)>>,
    /// By when they began, those on which no request may have come yet.
    not_yet_heard: VecDeque<(Duration, u64)>,
}

struct Entry<S: Service> {
    connection: Arc<Connection<S>>,
    network: u128,
    heard: Duration,
    has_asked: bool,
}

impl<S: Service> Default for Unauthenticated<S> {
    fn default() -> Self {
        let (all, order) = (BTreeMap::new(), BTreeSet::new());
        Self { all, order, by_network: BTreeMap::new(), not_yet_heard: VecDeque::new() }
    }
}

impl<S: Service> Unauthenticated<S> {
    /// Adds a connection, and returns those that must be closed to keep the limits: they are no
    /// longer here.
    pub(crate) fn add(
        &mut self,
        connection: Arc<Connection<S>>,
        from: IpAddr,
        now: Duration,
        limits: &BeforeLogin,
    ) -> Vec<Arc<Connection<S>>> {
        let (id, network) = (connection.id, network_of(from));
        self.all.insert(id, Entry { connection, network, heard: now, has_asked: false });
        self.order.insert((now, id));
        self.by_network.entry(network).or_default().insert((now, id));
        self.not_yet_heard.push_back((now, id));
        debug_assert_eq!(self.all.len(), self.order.len(), "each has one place in the order");
        let most = |limit: &AtomicU64| {
            usize::try_from(limit.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
        };
        let mut make_way = Vec::new();
        // More than one where a limit was lowered.
        while let Some(of_network) = self.by_network.get(&network)
            && of_network.len() > most(&limits.connections_per_address)
            && let Some((_, oldest)) = of_network.first().copied()
        {
            make_way.extend(self.take(oldest));
        }
        while self.all.len() > most(&limits.connections)
            && let Some(oldest) = self.take_oldest()
        {
            make_way.push(oldest);
        }
        make_way
    }

    /// Takes out the one that has been silent for longest.
    pub(crate) fn take_oldest(&mut self) -> Option<Arc<Connection<S>>> {
        let (_, oldest) = self.order.first().copied()?;
        self.take(oldest)
    }

    fn take(&mut self, id: u64) -> Option<Arc<Connection<S>>> {
        let connection = self.all.get(&id).map(|entry| Arc::clone(&entry.connection));
        self.remove(id);
        connection
    }

    /// It could not be closed for its silence just now: it is looked at once more.
    pub(crate) fn requeue(&mut self, id: u64, now: Duration) {
        self.not_yet_heard.push_back((now, id));
    }

    /// A request has come on that connection, on which nobody has logged in.
    pub(crate) fn record_request(&mut self, id: u64, now: Duration) {
        if let Some(entry) = self.all.get_mut(&id) {
            entry.has_asked = true;
            self.touch(id, now);
        }
    }

    fn touch(&mut self, id: u64, now: Duration) {
        let Some(entry) = self.all.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.heard, now);
        let orders = [Some(&mut self.order), self.by_network.get_mut(&entry.network)];
        for order in orders.into_iter().flatten() {
            order.remove(&(before, id));
            order.insert((now, id));
        }
    }

    /// Somebody has logged in on that connection, or it is over.
    pub(crate) fn remove(&mut self, id: u64) {
        let Some(entry) = self.all.remove(&id) else { return };
        self.order.remove(&(entry.heard, id));
        if let Some(of_network) = self.by_network.get_mut(&entry.network) {
            of_network.remove(&(entry.heard, id));
            if of_network.is_empty() {
                self.by_network.remove(&entry.network);
            }
        }
    }

    /// Takes those out on which no request has come since they began, `time` ago or longer.
    pub(crate) fn take_silent(&mut self, now: Duration, time: Duration) -> Vec<Arc<Connection<S>>> {
        let mut silent = Vec::new();
        while let Some((began, id)) = self.not_yet_heard.front().copied() {
            let entry = self.all.get(&id).filter(|entry| !entry.has_asked);
            if entry.is_some() && now.saturating_sub(began) < time {
                break;
            }
            self.not_yet_heard.pop_front();
            silent.extend(entry.map(|entry| Arc::clone(&entry.connection)));
        }
        silent
    }

    /// Whether there may be some on which no request has come.
    pub(crate) fn has_not_yet_heard(&self) -> bool {
        !self.not_yet_heard.is_empty()
    }

    /// The first of those.
    pub(crate) fn first_not_yet_heard(&self) -> Option<&Connection<S>> {
        self.not_yet_heard
            .iter()
            .find_map(|(_, id)| self.all.get(id))
            .map(|entry| &*entry.connection)
    }
}

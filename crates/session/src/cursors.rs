//! Parked cursors: queries that wait for their next `getMore`.
//!
//! A cursor is in one of three states, and changes only here:
//!
//! | from | to | function |
//! |---|---|---|
//! | – | idle | [`Cursors::park_new`] |
//! | idle | busy | [`Cursors::check_out`] |
//! | busy | idle | [`CursorGuard::park`] |
//! | busy | gone | [`CursorGuard`] dropped |
//! | busy | waited for | [`CursorGuard::await_more`]: a request waits for what it finds next, on no thread |
//! | waited for | busy | [`Cursors::check_out_awaited`] |
//! | idle | gone | [`Cursors::kill`], [`Cursors::kill_where`], [`Cursors::expire`] |
//! | waited for | gone | [`Cursors::kill`], [`Cursors::kill_where`], which wake who waits; [`Cursors::drop_awaited`] |
//! | busy | busy, doomed | [`Cursors::kill`], [`Cursors::kill_where`]; gone at `park` and `await_more` |
//!
//! What is always true: an id is random, positive and never 0; a cursor is run, or waited for, by at most one
//! request at a time; a killed cursor is dropped, and who waits for it woken, outside the lock.

use crate::{SessionId, UserDigest};
use errors::{Code, Error, Result};
use os::{Call, Watch};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number under which a client asks for the next batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(pub i64);

impl fmt::Display for CursorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for CursorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CursorId({})", self.0)
    }
}

/// What is known of a cursor when it is first parked.
pub struct NewCursor<C> {
    /// `db.collection` it reads.
    pub namespace: Arc<str>,
    /// The user whose requests alone may continue it.
    pub user: UserDigest,
    /// The session whose requests alone may continue it.
    pub session: Option<SessionId>,
    /// The number of the session's transaction it reads in, if it does.
    pub transaction: Option<i64>,
    /// The connection whose transaction it reads in, if it does.
    pub connection: Option<u64>,
    /// Idle time does not end it.
    pub no_timeout: bool,
    /// The query itself.
    pub cursor: C,
}

/// A request for the next batch of a cursor: who sends it, and for what.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetMoreRequest<'a> {
    /// `db.collection` the client takes it for.
    pub namespace: &'a str,
    /// The client's user.
    pub user: UserDigest,
    /// The client's session.
    pub session: Option<SessionId>,
    /// The number of the session's transaction.
    pub transaction: Option<i64>,
    /// The connection, where that has a transaction of its own.
    pub connection: Option<u64>,
    /// The operation that is going to run it.
    pub operation: u64,
}

/// A request that waits for a cursor's next documents, on no thread.
pub struct Waiter {
    /// Its connection.
    pub connection: u64,
    /// Runs it again.
    pub wake: Call,
    /// Its place among those who are told of news.
    pub watch: Watch,
}

/// A cursor as `currentOp` shows it.
#[derive(Clone, Debug)]
pub struct CursorInfo {
    /// Its number.
    pub id: CursorId,
    /// `db.collection` it reads.
    pub namespace: Arc<str>,
    /// Whose it is.
    pub user: UserDigest,
    /// Its owner.
    pub session: Option<SessionId>,
    /// The number of the owner's transaction it reads in.
    pub transaction: Option<i64>,
    /// The connection whose transaction it reads in, if it does.
    pub connection: Option<u64>,
    /// Idle time does not end it.
    pub no_timeout: bool,
    /// Whether a request runs it just now, or waits for what it finds next.
    pub busy: bool,
    /// Server time at which it was made.
    pub created: Duration,
    /// Server time of its last use.
    pub last_use: Duration,
}

/// A cursor that was ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Killed {
    /// Its number.
    pub id: CursorId,
    /// The operation that ran it just then.
    pub running: Option<u64>,
}

/// Figures for `serverStatus.metrics.cursor`.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct CursorStats {
    /// Cursors that exist.
    pub open: u64,
    /// Of these, run by a request just now, or waited for.
    pub pinned: u64,
    /// Of these, waited for by a request on no thread.
    pub awaited: u64,
    /// Of the open ones, without a timeout.
    pub no_timeout: u64,
    /// Ended by idleness since the start.
    pub timed_out: u64,
    /// Made since the start.
    pub total_opened: u64,
}

struct Entry<C> {
    namespace: Arc<str>,
    user: UserDigest,
    session: Option<SessionId>,
    transaction: Option<i64>,
    connection: Option<u64>,
    no_timeout: bool,
    created: Duration,
    last_use: Duration,
    state: State<C>,
    /// The operation that runs it, or ran it last.
    runner: u64,
    doomed: bool,
}

enum State<C> {
    Idle(C),
    /// A request runs it.
    Busy,
    /// A request waits for what it finds next.
    Awaited(C, Waiter),
}

impl<C> State<C> {
    /// Takes the cursor out where a new request may have it.
    fn take_idle(&mut self) -> Option<C> {
        match std::mem::replace(self, Self::Busy) {
            Self::Idle(cursor) => Some(cursor),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the cursor out for the request of this connection that waited for it.
    fn take_awaited(&mut self, connection: u64) -> Option<(C, Waiter)> {
        match std::mem::replace(self, Self::Busy) {
            Self::Awaited(cursor, waiter) if waiter.connection == connection => {
                Some((cursor, waiter))
            }
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Drops a cursor that is gone from the list, and wakes who waits for it.
fn bury<C>(entry: Option<Entry<C>>) {
    let Some(Entry { state, .. }) = entry else { return };
    if let State::Awaited(cursor, Waiter { wake, watch, .. }) = state {
        drop((cursor, watch));
        wake();
    }
}

const SHARDS: usize = 16;

/// The registry. Each shard's lock guards its map.
pub struct Cursors<C> {
    shards: [Mutex<BTreeMap<CursorId, Entry<C>>>; SHARDS],
    timed_out: AtomicU64,
    total_opened: AtomicU64,
}

impl<C> Default for Cursors<C> {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(BTreeMap::new())),
            timed_out: AtomicU64::new(0),
            total_opened: AtomicU64::new(0),
        }
    }
}

impl<C> Cursors<C> {
    /// Idle time after which a cursor is ended, unless `cursorTimeoutMillis` says otherwise.
    pub const TIMEOUT: Duration = Duration::from_mins(10);

    /// Parks a query for the first time under a number made from `random`.
    pub fn park_new(&self, new: NewCursor<C>, now: Duration, random: impl Fn() -> u64) -> CursorId {
        let mut entry = Some(Entry {
            namespace: new.namespace,
            user: new.user,
            session: new.session,
            transaction: new.transaction,
            connection: new.connection,
            no_timeout: new.no_timeout,
            created: now,
            last_use: now,
            state: State::Idle(new.cursor),
            runner: 0,
            doomed: false,
        });
        self.total_opened.fetch_add(1, Ordering::Relaxed);
        loop {
            let id = CursorId((random() >> 1) as i64);
            if id.0 == 0 {
                continue;
            }
            let mut shard = self.shard(id).lock();
            if let std::collections::btree_map::Entry::Vacant(place) = shard.entry(id)
                && let Some(entry) = entry.take()
            {
                place.insert(entry);
                return id;
            }
        }
    }

    /// Takes a cursor to run it. Whoever asks must be who it was made for.
    pub fn check_out(
        &self,
        id: CursorId,
        request: GetMoreRequest<'_>,
    ) -> Result<CursorGuard<'_, C>> {
        let mut shard = self.shard(id).lock();
        let entry =
            shard.get_mut(&id).filter(|entry| !entry.doomed).ok_or_else(|| not_found(id))?;
        if entry.user != request.user {
            return Err(Error::new(
                Code::UNAUTHORIZED,
                format!("cursor id {id} was not created by the authenticated user"),
            ));
        }
        if !matches!(entry.state, State::Idle(_)) {
            return Err(Error::new(
                Code::CURSOR_IN_USE,
                format!("cursor id {id} is already in use"),
            ));
        }
        check_owner(id, entry.session, request.session)?;
        check_transaction(id, entry.transaction, request.transaction)?;
        check_connection(id, entry.connection, request.connection)?;
        let namespace = request.namespace;
        if &*entry.namespace != namespace {
            return Err(Error::new(
                Code::UNAUTHORIZED,
                format!(
                    "Requested getMore on namespace '{namespace}', but cursor belongs to a \
                     different namespace {}",
                    entry.namespace
                ),
            ));
        }
        entry.runner = request.operation;
        Ok(CursorGuard {
            registry: self,
            id,
            namespace: Arc::clone(&entry.namespace),
            cursor: entry.state.take_idle(),
        })
    }

    /// Checks out a cursor that this connection's request has waited for, to run it. Fails where it
    /// was killed meanwhile.
    pub fn check_out_awaited(
        &self,
        id: CursorId,
        connection: u64,
        operation: u64,
    ) -> Result<CursorGuard<'_, C>> {
        let mut shard = self.shard(id).lock();
        let taken = shard.get_mut(&id).and_then(|entry| {
            let (cursor, waiter) = entry.state.take_awaited(connection)?;
            entry.runner = operation;
            Some((Arc::clone(&entry.namespace), cursor, waiter))
        });
        drop(shard);
        let Some((namespace, cursor, waiter)) = taken else {
            return Err(Error::new(Code::CURSOR_KILLED, "cursor was killed"));
        };
        drop(waiter);
        Ok(CursorGuard { registry: self, id, namespace, cursor: Some(cursor) })
    }

    /// The request of this connection that waited for a cursor has failed, and with it the cursor.
    pub fn drop_awaited(&self, id: CursorId, connection: u64) {
        if let Ok(out) = self.check_out_awaited(id, connection, 0) {
            drop(out);
        }
    }

    /// Kills the cursor `id` if it reads `namespace` and `may` accepts its user. A cursor that runs
    /// cannot come back; the caller stops the operation named.
    pub fn kill(
        &self,
        id: CursorId,
        namespace: &str,
        may: impl FnOnce(UserDigest) -> bool,
    ) -> Option<Killed> {
        self.kill_if(id, |of, user| of == namespace && may(user))
    }

    /// Ends a cursor, whatever it reads, as [`Cursors::kill`] does.
    pub fn kill_any(&self, id: CursorId) -> Option<Killed> {
        self.kill_if(id, |_, _| true)
    }

    fn kill_if(&self, id: CursorId, of: impl FnOnce(&str, UserDigest) -> bool) -> Option<Killed> {
        let mut shard = self.shard(id).lock();
        let entry =
            shard.get_mut(&id).filter(|entry| !entry.doomed && of(&entry.namespace, entry.user))?;
        entry.doomed = true;
        let running = entry.running();
        let dead = if running.is_none() { shard.remove(&id) } else { None };
        drop(shard);
        bury(dead);
        Some(Killed { id, running })
    }

    /// Ends every cursor that `condemned` picks (by session, by idleness).
    pub fn kill_where(&self, mut condemned: impl FnMut(&CursorInfo) -> bool) -> Vec<Killed> {
        let mut killed = Vec::new();
        for shard in &self.shards {
            let mut dead = Vec::new();
            let mut shard = shard.lock();
            let ids: Vec<CursorId> = shard
                .iter()
                .filter(|(id, entry)| !entry.doomed && condemned(&entry.info(**id)))
                .map(|(id, _)| *id)
                .collect();
            for id in ids {
                let Some(entry) = shard.get_mut(&id) else { continue };
                entry.doomed = true;
                let running = entry.running();
                killed.push(Killed { id, running });
                if running.is_none() {
                    dead.push(shard.remove(&id));
                }
            }
            drop(shard);
            dead.into_iter().for_each(bury);
        }
        killed
    }

    /// Ends cursors idle for at least `timeout`; counts them.
    pub fn expire(&self, now: Duration, timeout: Duration) -> usize {
        let dead = self.kill_where(|info| {
            !info.busy && !info.no_timeout && now.saturating_sub(info.last_use) >= timeout
        });
        let count = dead.len();
        self.timed_out.fetch_add(count as u64, Ordering::Relaxed);
        count
    }

    /// All cursors.
    pub fn list(&self) -> Vec<CursorInfo> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().iter().map(|(id, entry)| entry.info(*id)));
        }
        all
    }

    /// Whether any cursor is of a session that is `wanted`.
    pub fn any(&self, wanted: impl Fn(Option<SessionId>) -> bool) -> bool {
        self.shards.iter().any(|shard| shard.lock().values().any(|entry| wanted(entry.session)))
    }

    /// Figures of now.
    pub fn stats(&self) -> CursorStats {
        let mut stats = CursorStats {
            timed_out: self.timed_out.load(Ordering::Relaxed),
            total_opened: self.total_opened.load(Ordering::Relaxed),
            ..CursorStats::default()
        };
        for shard in &self.shards {
            for entry in shard.lock().values() {
                stats.open += 1;
                stats.pinned += u64::from(entry.is_busy());
                stats.awaited += u64::from(matches!(entry.state, State::Awaited(..)));
                stats.no_timeout += u64::from(entry.no_timeout);
            }
        }
        stats
    }

    fn shard(&self, id: CursorId) -> &Mutex<BTreeMap<CursorId, Entry<C>>> {
        &self.shards[id.0 as usize % SHARDS]
    }
}

impl<C> Entry<C> {
    fn running(&self) -> Option<u64> {
        matches!(self.state, State::Busy).then_some(self.runner)
    }

    fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle(_))
    }

    fn info(&self, id: CursorId) -> CursorInfo {
        CursorInfo {
            id,
            namespace: Arc::clone(&self.namespace),
            user: self.user,
            session: self.session,
            transaction: self.transaction,
            connection: self.connection,
            no_timeout: self.no_timeout,
            busy: self.is_busy(),
            created: self.created,
            last_use: self.last_use,
        }
    }
}

fn not_found(id: CursorId) -> Error {
    Error::new(Code::CURSOR_NOT_FOUND, format!("cursor id {id} not found"))
}

fn check_owner(id: CursorId, owner: Option<SessionId>, requester: Option<SessionId>) -> Result<()> {
    match (owner, requester) {
        (None, Some(requester)) => Err(Error::location(
            50736,
            format!(
                "Cannot run getMore on cursor {id}, which was not created in a session, in \
                 session {requester}"
            ),
        )),
        (Some(owner), None) => Err(Error::location(
            50737,
            format!(
                "Cannot run getMore on cursor {id}, which was created in session {owner}, \
                 without an lsid"
            ),
        )),
        (Some(owner), Some(requester)) if owner != requester => Err(Error::location(
            50738,
            format!(
                "Cannot run getMore on cursor {id}, which was created in session {owner}, in \
                 session {requester}"
            ),
        )),
        _ => Ok(()),
    }
}

/// A connection's transaction and its cursors belong together, as in TokuMX.
fn check_connection(id: CursorId, owner: Option<u64>, requester: Option<u64>) -> Result<()> {
    if owner == requester {
        return Ok(());
    }
    Err(Error::location(
        16813,
        format!("Cannot run getMore on cursor {id}, which is not of this transaction"),
    ))
}

fn check_transaction(id: CursorId, owner: Option<i64>, requester: Option<i64>) -> Result<()> {
    match (owner, requester) {
        (None, Some(requester)) => Err(Error::location(
            50740,
            format!(
                "Cannot run getMore on cursor {id}, which was not created in a transaction, in \
                 transaction {requester}"
            ),
        )),
        (Some(owner), None) => Err(Error::location(
            50741,
            format!(
                "Cannot run getMore on cursor {id}, which was created in transaction {owner}, \
                 without a txnNumber"
            ),
        )),
        (Some(owner), Some(requester)) if owner != requester => Err(Error::location(
            50739,
            format!(
                "Cannot run getMore on cursor {id}, which was created in transaction {owner}, in \
                 transaction {requester}"
            ),
        )),
        _ => Ok(()),
    }
}

/// Dropping it ends the cursor, [`CursorGuard::park`] keeps it: a cursor that one request runs.
pub struct CursorGuard<'a, C> {
    registry: &'a Cursors<C>,
    id: CursorId,
    namespace: Arc<str>,
    /// Taken only by `park`.
    cursor: Option<C>,
}

impl<C> CursorGuard<'_, C> {
    /// Its number.
    pub fn id(&self) -> CursorId {
        self.id
    }

    /// `db.collection` it reads.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The query itself.
    pub fn cursor(&mut self) -> &mut C {
        self.cursor.as_mut().expect("only `park` takes it, and `park` consumes self")
    }

    /// Gives it back for the next request. Says no where it was killed meanwhile; it is gone then.
    pub fn park(self, now: Duration) -> bool {
        self.give_back(now, State::Idle)
    }

    /// Gives it back for this request alone, which is run again when its waiter is woken
    /// ([`Cursors::check_out_awaited`]). Says no where it was killed meanwhile; it is gone then.
    pub fn await_more(self, waiter: Waiter, now: Duration) -> bool {
        self.give_back(now, |cursor| State::Awaited(cursor, waiter))
    }

    fn give_back(mut self, now: Duration, state: impl FnOnce(C) -> State<C>) -> bool {
        let mut shard = self.registry.shard(self.id).lock();
        let kept = match shard.get_mut(&self.id) {
            Some(entry) if !entry.doomed => self.cursor.take().map(|cursor| {
                entry.state = state(cursor);
                entry.last_use = now;
            }),
            _ => None,
        };
        drop(shard);
        kept.is_some()
    }
}

impl<C> Drop for CursorGuard<'_, C> {
    fn drop(&mut self) {
        if self.cursor.is_some() {
            let dead = self.registry.shard(self.id).lock().remove(&self.id);
            drop(dead);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn registry() -> (Cursors<&'static str>, CursorId) {
        let cursors = Cursors::default();
        let id = park(&cursors, None, false);
        (cursors, id)
    }

    fn park(
        cursors: &Cursors<&'static str>,
        session: Option<SessionId>,
        no_timeout: bool,
    ) -> CursorId {
        let seed = Cell::new(cursors.stats().total_opened * 1000);
        let new = NewCursor {
            namespace: "a.b".into(),
            user: UserDigest::NOBODY,
            session,
            transaction: None,
            connection: None,
            no_timeout,
            cursor: "query",
        };
        cursors.park_new(new, Duration::ZERO, || {
            seed.set(seed.get() + 1);
            seed.get()
        })
    }

    fn by(namespace: &str, session: Option<SessionId>) -> GetMoreRequest<'_> {
        GetMoreRequest { namespace, session, operation: 9, ..GetMoreRequest::default() }
    }

    #[test]
    fn checked_out_cursor_is_in_use_until_parked() {
        let (cursors, id) = registry();
        let mut out = cursors.check_out(id, by("a.b", None)).unwrap();
        assert_eq!(*out.cursor(), "query");
        let Err(error) = cursors.check_out(id, by("a.b", None)) else { panic!("in use") };
        assert_eq!(error.code(), Code::CURSOR_IN_USE);
        assert!(out.park(Duration::ZERO));
        assert!(cursors.check_out(id, by("a.b", None)).is_ok());
    }

    #[test]
    fn dropped_cursor_is_gone() {
        let (cursors, id) = registry();
        drop(cursors.check_out(id, by("a.b", None)).unwrap());
        let Err(error) = cursors.check_out(id, by("a.b", None)) else { panic!("gone") };
        assert_eq!(error.message(), format!("cursor id {id} not found"));
        assert_eq!(cursors.stats().open, 0);
    }

    #[test]
    fn cursor_killed_while_running_does_not_come_back() {
        let (cursors, id) = registry();
        let out = cursors.check_out(id, by("a.b", None)).unwrap();
        assert_eq!(cursors.kill(id, "a.other", |_| true), None);
        assert_eq!(cursors.kill(id, "a.b", |_| true), Some(Killed { id, running: Some(9) }));
        assert_eq!(cursors.kill(id, "a.b", |_| true), None);
        assert!(!out.park(Duration::ZERO));
        assert_eq!(cursors.stats().open, 0);
    }

    #[test]
    fn namespace_of_getmore_must_match() {
        let (cursors, id) = registry();
        let Err(error) = cursors.check_out(id, by("a.c", None)) else { panic!("mismatch") };
        assert_eq!(error.code(), Code::UNAUTHORIZED);
    }

    #[test]
    fn session_of_getmore_must_match() {
        let (cursors, id) = registry();
        let one = SessionId::of_nobody([1; 16]);
        let codes = [
            (id, Some(one), 50736),
            (park(&cursors, Some(one), false), None, 50737),
            (park(&cursors, Some(one), false), Some(SessionId::of_nobody([2; 16])), 50738),
        ];
        for (id, requester, code) in codes {
            let Err(error) = cursors.check_out(id, by("a.b", requester)) else {
                panic!("mismatch")
            };
            assert_eq!(error.code().0, code);
        }
    }

    /// A waiter of connection 3, and how often it was woken.
    fn waiter(watchers: &Arc<os::Watchers>) -> (Waiter, Arc<AtomicU64>) {
        let woken = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&woken);
        let wake: Call = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let watch = watchers.watch(Arc::clone(&wake));
        (Waiter { connection: 3, wake, watch }, woken)
    }

    #[test]
    fn a_cursor_that_is_waited_for_is_its_waiters_alone() {
        let (cursors, id) = registry();
        let watchers = Arc::<os::Watchers>::default();
        let (one, woken) = waiter(&watchers);
        let out = cursors.check_out(id, by("a.b", None)).unwrap();
        assert!(out.await_more(one, Duration::ZERO));
        let Err(error) = cursors.check_out(id, by("a.b", None)) else { panic!("waited for") };
        assert_eq!(error.code(), Code::CURSOR_IN_USE);
        assert!(cursors.check_out_awaited(id, 4, 9).is_err(), "another connection's");
        assert_eq!(cursors.expire(Duration::from_hours(1), Cursors::<&str>::TIMEOUT), 0);
        assert_eq!((cursors.stats().pinned, watchers.count()), (1, 1));
        assert_eq!(*cursors.check_out_awaited(id, 3, 9).unwrap().cursor(), "query");
        assert_eq!((cursors.stats().open, watchers.count()), (0, 0), "it was dropped");
        assert_eq!(woken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_cursor_that_is_waited_for_is_killed_at_once_and_its_waiter_woken() {
        let watchers = Arc::<os::Watchers>::default();
        let kills: [fn(&Cursors<&str>, CursorId) -> usize; 3] = [
            |cursors, id| {
                usize::from(cursors.kill(id, "a.b", |_| true) == Some(Killed { id, running: None }))
            },
            |cursors, id| usize::from(cursors.kill_any(id).is_some()),
            |cursors, _| cursors.kill_where(|_| true).len(),
        ];
        for kill in kills {
            let (cursors, id) = registry();
            let (one, woken) = waiter(&watchers);
            assert!(
                cursors.check_out(id, by("a.b", None)).unwrap().await_more(one, Duration::ZERO)
            );
            assert_eq!(kill(&cursors, id), 1);
            assert_eq!((cursors.stats().open, watchers.count()), (0, 0));
            assert_eq!(woken.load(Ordering::Relaxed), 1);
            let Err(error) = cursors.check_out_awaited(id, 3, 9) else { panic!("killed") };
            assert_eq!(error.code(), Code::CURSOR_KILLED);
        }
        let (cursors, id) = registry();
        let (one, woken) = waiter(&watchers);
        let out = cursors.check_out(id, by("a.b", None)).unwrap();
        assert_eq!(cursors.kill(id, "a.b", |_| true), Some(Killed { id, running: Some(9) }));
        assert!(!out.await_more(one, Duration::ZERO), "killed before it waits");
        assert_eq!((woken.load(Ordering::Relaxed), watchers.count()), (0, 0));
    }

    #[test]
    fn only_idle_cursors_with_a_timeout_expire() {
        let (cursors, id) = registry();
        park(&cursors, None, true);
        let busy = park(&cursors, None, false);
        let out = cursors.check_out(busy, by("a.b", None)).unwrap();
        assert_eq!(cursors.expire(Duration::from_secs(599), Cursors::<&str>::TIMEOUT), 0);
        assert_eq!(cursors.expire(Duration::from_mins(10), Cursors::<&str>::TIMEOUT), 1);
        assert!(cursors.check_out(id, by("a.b", None)).is_err());
        assert!(out.park(Duration::from_mins(10)));
        let stats = cursors.stats();
        assert_eq!((stats.open, stats.no_timeout, stats.timed_out), (2, 1, 1));
    }

    #[test]
    fn taken_number_is_not_given_twice() {
        let cursors = Cursors::default();
        let numbers = [0_u64, 2, 2, 4];
        let at = Cell::new(0);
        let next = || {
            at.set(at.get() + 1);
            numbers[at.get() - 1]
        };
        let new = || NewCursor {
            namespace: "a.b".into(),
            user: UserDigest::NOBODY,
            session: None,
            transaction: None,
            connection: None,
            no_timeout: false,
            cursor: (),
        };
        assert_eq!(cursors.park_new(new(), Duration::ZERO, next), CursorId(1));
        assert_eq!(cursors.park_new(new(), Duration::ZERO, next), CursorId(2));
    }
}

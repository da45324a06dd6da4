//! What ends by time, by the end of its session, or with the server: cursors, sessions, their
//! transactions and their records.

use crate::session_rows::Row;
use crate::session_state::{Open, SessionState};
use crate::state::ServerState;
use errors::{Code, Result};
use session::{Killed, SessionId, Sessions};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Seconds between two looks for old records of sessions.
pub(crate) const FORGETTING_SECONDS: u64 = 300;

impl ServerState {
    /// Ends idle cursors and sessions; the server calls it every few seconds.
    pub fn housekeep(&self) {
        let now = self.os.clock.monotonic();
        self.catalog.count_memory();
        self.count_memory();
        let timeout = Duration::from_millis(self.cursor_timeout_ms.load(Ordering::Relaxed));
        self.cursors.expire(now, timeout);
        self.copies.forget_idle(now);
        self.log_failed_update(now);
        self.look_for_emptied_members();
        self.give_votes();
        self.prefer_higher_priority(now);
        self.tell_of_room();
        if self.replication.keeps_time() {
            self.replication.clock.housekeep();
        }
        let dead = self.sessions.expire(now);
        if !dead.is_empty() {
            let dead: BTreeSet<SessionId> = dead.into_iter().collect();
            self.kill_cursors_of(&dead);
            for id in dead {
                self.numbered.remove(id);
            }
        }
        self.expire_transactions(now);
        if !self.takes_writes() {
            if self.replication.is_of_several() {
                self.follow_stored();
            }
            return;
        }
        let due = now.as_secs() >= self.next_forgetting.load(Ordering::Relaxed);
        if due && !self.write_gate.is_closed() {
            self.next_forgetting.store(now.as_secs() + FORGETTING_SECONDS, Ordering::Relaxed);
            // A full disk, or one that stopped, will be told to whoever writes.
            let _later = self.forget_old_records();
        }
    }

    /// Ends waiting and running requests with `InterruptedAtShutdown`.
    pub fn begin_shutdown(&self) {
        self.operations.begin_shutdown();
        self.end_waits();
    }

    /// Ends requests that only wait, for time to pass or for a lock, transactions that no request
    /// works in, and the expiry of documents; other requests go on.
    pub fn end_waits(&self) {
        self.operations.end_waits();
        self.abort_transactions();
        // Out of the lock first: ending it waits for the document it is at.
        let ttl = self.ttl.lock().take();
        drop(ttl);
        *self.ending.lock() = true;
        self.woken.notify_all();
        self.topology_changed();
        self.auto_compact.disable();
        self.write_gate.give_up();
    }

    /// Notes a use of a session at `now`. Where there are too many, one that has neither a cursor nor
    /// a transaction makes room; what it knew of its retryable writes stands in the records.
    pub fn touch_session(&self, id: SessionId, now: Duration) -> Result<()> {
        let holds_nothing = |old| {
            !self.cursors.any(|owner| owner == Some(old))
                && self.numbered.remove_if(old, |state| state.open().is_none())
        };
        self.sessions.touch(id, now, holds_nothing)
    }

    /// Ends the cursors of sessions, also those that run.
    pub fn kill_cursors_of(&self, sessions: &BTreeSet<SessionId>) {
        let killed = self
            .cursors
            .kill_where(|cursor| cursor.session.is_some_and(|owner| sessions.contains(&owner)));
        for cursor in killed {
            self.stop_runner(cursor);
        }
    }

    /// Stops the operation that runs a killed cursor.
    pub fn stop_runner(&self, killed: Killed) {
        if let Some(number) = killed.running {
            self.operations.kill(number, Code::CURSOR_KILLED);
        }
    }

    /// Aborts a session's open transaction and ends its cursors; says whether there was one.
    pub fn abort_session(&self, state: &mut SessionState, id: SessionId) -> bool {
        let Some(open) = state.take_open() else { return false };
        drop(open);
        self.transactions.aborted.fetch_add(1, Ordering::Relaxed);
        self.end_cursors(id, state.number);
        true
    }

    /// Ends the cursors of a session's transaction that is over.
    pub fn end_cursors(&self, id: SessionId, number: i64) {
        self.cursors
            .kill_where(|cursor| cursor.session == Some(id) && cursor.transaction == Some(number));
    }

    /// Aborts a session's transaction that has been open for too long.
    pub fn expire_session(&self, state: &mut SessionState, id: SessionId, now: Duration) {
        let lifetime = self.transaction_lifetime();
        if state.open().is_some_and(|open| now.saturating_sub(open.started) >= lifetime) {
            self.abort_session(state, id);
        }
    }

    /// Aborts idle transactions that have been open for too long.
    pub fn expire_transactions(&self, now: Duration) {
        let lifetime = self.transaction_lifetime();
        self.abort_idle(|open| now.saturating_sub(open.started) >= lifetime);
    }

    /// Aborts every transaction that no request works in: the server ends, or steps down.
    pub fn abort_transactions(&self) {
        for connection in self.connections() {
            self.abort_bound(&connection);
        }
        self.abort_idle(|_| true);
    }

    fn abort_idle(&self, condemned: impl Fn(&Open) -> bool) {
        let dead = self.numbered.edit_idle(|id, state| {
            let is_dead = state.open().is_some_and(|open| condemned(open));
            let open = is_dead.then(|| state.take_open()).flatten();
            open.map(|open| (id, state.number, open))
        });
        for (id, number, open) in dead {
            drop(open);
            self.transactions.aborted.fetch_add(1, Ordering::Relaxed);
            self.end_cursors(id, number);
        }
    }

    fn transaction_lifetime(&self) -> Duration {
        Duration::from_secs(self.transaction_lifetime_secs.load(Ordering::Relaxed))
    }

    /// Deletes the records of sessions that have not been used for as long as one lives.
    pub fn forget_old_records(&self) -> Result<u64> {
        let oldest = self.os.clock.wall_ms() - Sessions::TIMEOUT.as_millis() as i64;
        let of_users = self.sessions.keys_of_users();
        self.session_records.forget(|id, value| {
            let old = Row::decode(value).map_or(true, |row| row.wall_ms < oldest);
            old && !self.sessions.lives(SessionId::of_nobody(*id)) && !of_users.contains(id)
        })
    }
}

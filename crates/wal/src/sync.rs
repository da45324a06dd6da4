//! Who syncs for whom: one thread at a time syncs for all who wait.
//!
//! | who wants to be on disk | where nobody syncs | where a sync is under way, or others wait |
//! |---|---|---|
//! | waits on its thread ([`Wal::sync_to`]) | syncs | waits for the end of that sync, and looks again |
//! | may wait without one ([`Wal::sync_or_join`]) | syncs | is called when a sync covers it ([`Wal::watch_sync`]) |
//!
//! Those who are to be called are synced for by a thread that serves them ([`Wal::sync_for_waiters`]); it sleeps where it
//! likes, and is woken when there is something to do. Who would write alone is its own thread's, and costs no hand-over.
//!
//! While one sync is under way the next group forms. Behind a sync for several, the next one waits for as many as were
//! writing then: for half of what that sync took, and [`LONGEST_GATHERING`](crate::group) at most. So those who write one after the
//! other share a sync, and do not fall into two halves that take turns.
//!
//! Always true:
//! 1. Nobody is called before its position is on disk, unless a sync has failed or nobody serves any more: who is called
//!    asks again ([`Wal::sync_or_join`]), and learns that.
//! 2. Who waits is called: by the end of the sync that covers it, whoever has led that, or by the end of who serves.

use crate::error::Result;
use crate::group::{Gathering, GroupDue, State, SyncWatch};
use crate::writer::Wal;
use crate::{Lsn, PlantedSyncBug};
use os::Call;
use os::sync::MutexGuard;
use os::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Makes calls, none of which waits. No lock of the group is held.
fn call_all(calls: Vec<Call>) {
    for call in calls {
        call();
    }
}

impl Wal {
    /// Returns when everything before `lsn` is on disk. One of all waiting callers writes and
    /// syncs for the others.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        let lsn = lsn.min(self.next_lsn());
        loop {
            self.check_running()?;
            if self.synced_lsn() >= lsn {
                return Ok(());
            }
            let mut state = self.group.state.lock();
            if state.is_syncing {
                self.metrics.sync_waits.inc();
                self.await_end(&mut state);
                continue;
            }
            if self.synced_lsn() >= lsn {
                return Ok(());
            }
            self.lead(state, 0)?;
        }
    }

    /// As [`Wal::sync_to`] where nobody else writes; where others do, and somebody serves those who wait, it answers
    /// `false` and the caller may wait without a thread ([`Wal::watch_sync`]).
    pub fn sync_or_join(&self, lsn: Lsn) -> Result<bool> {
        self.check_running()?;
        if self.synced_lsn() >= lsn {
            return Ok(true);
        }
        let state = self.group.state.lock();
        if state.server.is_some() && !state.is_idle() {
            return Ok(self.synced_lsn() >= lsn);
        }
        if state.server.is_some() {
            self.lead(state, 1)?;
        } else {
            drop(state);
        }
        self.sync_to(lsn).map(|()| true)
    }

    /// Has `call` made once everything before `lsn` is on disk, or never will be; `None` where it is. It must not wait:
    /// it is called on the thread that has synced. Who relies on it looks after this.
    pub fn watch_sync(&self, lsn: Lsn, call: &Call) -> Option<SyncWatch> {
        let mut state = self.group.state.lock();
        if self.synced_lsn() >= lsn {
            return None;
        }
        let key = (lsn, state.next);
        state.next += 1;
        state.waiting.insert(key, Arc::clone(call));
        self.metrics.sync_waits.inc();
        let is_last = state.gathering.is_none_or(|next| state.waiting.len() >= next.writers);
        let server = (is_last && !state.is_syncing).then(|| state.server.clone()).flatten();
        drop(state);
        if let Some(server) = server {
            server();
        }
        Some(SyncWatch { group: Arc::clone(&self.group), key })
    }

    /// From now on `wake`, which must not wait, is called where [`Wal::group_due`] says something new, and the caller
    /// syncs for those who wait ([`Wal::sync_for_waiters`]), until [`Wal::end_serving`].
    pub fn begin_serving(&self, wake: Call) {
        self.group.state.lock().server = Some(wake);
    }

    /// Nobody serves those who wait any more: they are called, and sync on threads of their own.
    pub fn end_serving(&self) {
        let mut state = self.group.state.lock();
        (state.server, state.gathering) = (None, None);
        let left = std::mem::take(&mut state.waiting);
        drop(state);
        call_all(left.into_values().collect());
    }

    /// When those who wait are to be synced for.
    pub fn group_due(&self, now: Duration) -> GroupDue {
        let mut state = self.group.state.lock();
        let due = state.due(now);
        if due == GroupDue::Never {
            // Nobody has come: the next one is alone again.
            state.gathering = None;
        }
        due
    }

    /// Syncs for those who wait, where that is due.
    pub fn sync_for_waiters(&self) -> Result<()> {
        let mut state = self.group.state.lock();
        while state.is_syncing {
            self.await_end(&mut state);
        }
        if state.due(self.os.clock.monotonic()) == GroupDue::Now {
            self.lead(state, 0)?;
        }
        Ok(())
    }

    fn await_end(&self, state: &mut MutexGuard<'_, State>) {
        state.blocked += 1;
        self.group.ended.wait(state);
        state.blocked -= 1;
    }

    /// Writes and syncs for everybody; `own` writers are none of those who wait.
    fn lead(&self, mut state: MutexGuard<'_, State>, own: usize) -> Result<()> {
        debug_assert!(!state.is_syncing, "one sync at a time");
        state.is_syncing = true;
        state.gathering = None;
        drop(state);
        let started = self.os.clock.monotonic();
        let result = self.write_and_sync();
        let now = self.os.clock.monotonic();
        let mut state = self.group.state.lock();
        state.is_syncing = false;
        // Where it failed, each finds out for itself: the log has stopped, or the disk is full.
        let until = if result.is_ok() { self.synced_lsn() } else { Lsn::MAX };
        let covered = state.take_before(until);
        if result.is_ok() && state.server.is_some() {
            let writers = own + covered.len() + state.waiting.len();
            state.gathering = Gathering::behind(now, now.saturating_sub(started), writers);
        }
        let has_work = state.gathering.is_some() || !state.waiting.is_empty();
        let server = if has_work { state.server.clone() } else { None };
        let is_awaited = state.blocked > 0;
        drop(state);
        if is_awaited {
            self.group.ended.notify_all();
        }
        call_all(covered);
        if let Some(server) = server {
            server();
        }
        result
    }

    fn write_and_sync(&self) -> Result<()> {
        let (file, written) = {
            let mut writer = self.writer.lock();
            self.write_out_locked(&mut writer)?;
            (writer.file.clone(), self.written_lsn())
        };
        if self.planted == Some(PlantedSyncBug::CountsWhatIsWritten) {
            self.synced.fetch_max(written, Ordering::AcqRel);
            let covered = self.group.state.lock().take_before(written);
            call_all(covered);
        }
        // segments before this file were synced when they were full
        self.sync_file(&*file)?;
        self.synced.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::group::LONGEST_GATHERING;
    use crate::{Metrics, WalOptions};
    use os::sim::SimOs;
    use std::path::Path;
    use std::sync::atomic::AtomicUsize;

    fn counting() -> (Arc<AtomicUsize>, Call) {
        let count = Arc::new(AtomicUsize::new(0));
        let called = Arc::clone(&count);
        let call = Arc::new(move || {
            called.fetch_add(1, Ordering::Relaxed);
        });
        (count, call)
    }

    fn open(sim: &SimOs) -> Wal {
        let metrics = Metrics::new(&telemetry::Registry::new());
        let replay = Wal::open(&sim.os(), Path::new("/log"), WalOptions::default(), metrics);
        replay.and_then(|mut replay| replay.start_writing()).expect("an empty log opens")
    }

    fn append(wal: &Wal) -> Lsn {
        wal.append(&[b"record"]).expect("the log has room")
    }

    #[test]
    fn who_writes_alone_syncs_and_others_are_called() {
        let sim = SimOs::new(1);
        let wal = open(&sim);
        let ((woken, wake), (called, call)) = (counting(), counting());
        let woken = || woken.load(Ordering::Relaxed);
        let called = || called.load(Ordering::Relaxed);
        wal.begin_serving(wake);
        let alone = append(&wal);
        assert!(wal.sync_or_join(alone).unwrap() && wal.watch_sync(alone, &call).is_none());
        assert_eq!((woken(), called()), (0, 0));

        let (first, second) = (append(&wal), append(&wal));
        let watches = [first, second].map(|end| wal.watch_sync(end, &call).unwrap());
        let given_up = wal.watch_sync(second, &call);
        drop(given_up);
        assert_eq!(woken(), 3);
        assert!(!wal.sync_or_join(second).unwrap(), "it is not the turn of who is behind them");
        assert_eq!(wal.group_due(Duration::ZERO), GroupDue::Now);
        wal.sync_for_waiters().unwrap();
        assert_eq!((called(), wal.sync_or_join(second).unwrap()), (2, true));
        drop(watches);

        // Two were writing: the next one waits for the other, and not for ever.
        let third = append(&wal);
        assert!(!wal.sync_or_join(third).unwrap());
        let _watch = wal.watch_sync(third, &call);
        let now = sim.os().clock.monotonic();
        // As if the sync had taken its time.
        let next = Gathering::behind(now, Duration::from_millis(4), 2);
        assert!(wal.group.state.lock().gathering.replace(next.unwrap()).is_some());
        assert_eq!(wal.group_due(now), GroupDue::At(now + LONGEST_GATHERING));
        wal.sync_for_waiters().unwrap();
        assert_eq!(called(), 2, "it is not due");
        sim.os().clock.sleep(LONGEST_GATHERING);
        wal.sync_for_waiters().unwrap();
        assert_eq!(called(), 3);
        let fourth = append(&wal);
        assert!(wal.sync_or_join(fourth).unwrap(), "it is alone again");
    }

    #[test]
    fn who_waits_when_nobody_serves_any_more_is_called_and_syncs_itself() {
        let wal = open(&SimOs::new(1));
        let ((_, wake), (called, call)) = (counting(), counting());
        wal.begin_serving(wake);
        let end = append(&wal);
        let _watch = wal.watch_sync(end, &call);
        wal.end_serving();
        assert_eq!(called.load(Ordering::Relaxed), 1);
        let _late = wal.watch_sync(end, &call);
        assert!(wal.sync_or_join(end).unwrap() && wal.synced_lsn() >= end);
    }
}

//! The cluster's time: seconds and a counter, growing with every commit that becomes visible.
//!
//! Where it comes from: the engine numbers its commits without gaps. Asked for the time, the clock
//! looks at the newest visible commit; if there is one that it has not seen, it ticks: to the wall
//! clock's second, or by one where that is not ahead. So a reply that is written after a commit
//! names a time that no earlier state has had, and the time of an idle server stands still.
//!
//! Always true:
//! 1. It never goes back, also not over a crash or a wall clock that was set back: only seconds
//!    up to a *lease* are handed out, the lease is on stable storage, and a start begins above it.
//!    It is stored ahead of use; where it is used up nevertheless, one request stores the next one
//!    and the others go on below the wall clock. Nobody waits for the disk with the lock that
//!    every reply takes.
//! 2. The same stored document holds the term, which only grows.
//! 3. The state of a time is the state at the newest commit seen when the clock ticked to it. The
//!    states of a short window, a few seconds, can all be read again; beyond it those that are
//!    pinned: a snapshot read pins the one it gets.

use bson::raw::RawDocumentBuf;
use bson::{Timestamp, doc};
use catalog::{Catalog, Namespace};
use engine::{Snapshot, Timestamp as CommitTime};
use errors::{Code, Error, Result};
use os::Os;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Seconds by which the lease runs ahead of the wall clock when it is renewed.
const LEASE_SECONDS: u64 = 20;
/// The lease is renewed when fewer are left.
const RENEW_SECONDS: u64 = 10;
/// How far ahead of us a client's time may be before we refuse to follow. MongoDB says a year, but
/// there such a time is signed once there are users; here anybody can name one, and it is kept: a day
/// is more than clocks of machines that work together are apart.
pub const MAX_DRIFT_SECONDS: u64 = 24 * 3600;
/// How many states are pinned at once at most.
const MAX_PINS: usize = 64;
/// How long a pinned state stays readable after its last use at least.
const PIN_LIFE: Duration = Duration::from_mins(5);
/// How many times are remembered at most: 3 MiB, and the window of 26,000 commits a second.
const MAX_TICKS: usize = 1 << 17;

/// A time as one number that sorts like it.
fn pack(time: Timestamp) -> u64 {
    u64::from(time.time) << 32 | u64::from(time.increment)
}

fn unpack(time: u64) -> Timestamp {
    Timestamp { time: (time >> 32) as u32, increment: time as u32 }
}

/// The clock. Times are packed: seconds above, counter below.
pub struct ClusterClock {
    catalog: Arc<Catalog>,
    os: Os,
    newest: AtomicU64,
    /// The newest commit when it last ticked.
    seen: AtomicU64,
    /// Milliseconds for which every state is kept.
    window_ms: AtomicU64,
    /// Only seconds up to here may be handed out. Changed in the turn of `storing`.
    lease: AtomicU64,
    /// One at a time stores the lease and the term. Taken before `inner`; held over the disk.
    storing: Mutex<()>,
    /// Guards ticking and the history. Never held over a wait for the disk.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Changed in the turn of `storing`.
    term: i64,
    pins: VecDeque<Pin>,
    /// The times of the window, ascending; the last one is the newest.
    ticks: VecDeque<Tick>,
}

/// A time that was handed out.
struct Tick {
    time: u64,
    /// The newest commit it shows.
    commit: u64,
    /// Server time when the clock moved to it.
    at: Duration,
}

/// A state that can be read again.
struct Pin {
    from: u64,
    /// The next time handed out; `None` while `from` is the newest.
    until: Option<u64>,
    snapshot: Snapshot,
    last_use: Duration,
}

impl ClusterClock {
    /// How long every state stays readable, unless a parameter says otherwise. MongoDB's five
    /// minutes would keep five minutes of every hot document's versions.
    const WINDOW: Duration = Duration::from_secs(5);

    /// A clock that was not started.
    pub fn new(catalog: &Arc<Catalog>, os: &Os) -> Self {
        Self {
            catalog: Arc::clone(catalog),
            os: os.clone(),
            newest: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            window_ms: AtomicU64::new(Self::WINDOW.as_millis() as u64),
            lease: AtomicU64::new(0),
            storing: Mutex::default(),
            inner: Mutex::default(),
        }
    }

    /// Goes on above everything handed out before this start. Waits for the disk.
    pub fn start(&self) -> Result<()> {
        let mut lease = 0;
        if let Some(stored) = self.catalog.system_document(&namespace()?)? {
            self.inner.lock().term = stored.get_i64("term").unwrap_or(0);
            lease = stored.get_i64("lease").unwrap_or(0).unsigned_abs();
        }
        let second = self.wall_seconds().max(lease + 1);
        self.renew(&self.storing.lock(), second)?;
        let mut inner = self.inner.lock();
        let commit = self.catalog.engine().newest_commit();
        self.catalog.engine().keep_history((!self.window().is_zero()).then_some(commit));
        self.newest.store(second << 32 | 1, Ordering::Release);
        self.seen.store(commit.0, Ordering::Release);
        self.note(&mut inner);
        Ok(())
    }

    /// How long every state stays readable.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms.load(Ordering::Relaxed))
    }

    /// From now on keeps states for so long; what was let go does not come back.
    pub fn set_window(&self, window: Duration) {
        let mut inner = self.inner.lock();
        self.window_ms.store(window.as_millis() as u64, Ordering::Relaxed);
        let engine = self.catalog.engine();
        if inner.ticks.is_empty() {
            // No member: there are no times.
        } else if window.is_zero() {
            let old = inner.ticks.len() - 1;
            inner.ticks.drain(..old);
            engine.keep_history(None);
        } else {
            engine.keep_history(Some(CommitTime(0)));
            self.trim(&mut inner);
        }
    }

    /// Remembers the newest time and what it shows.
    fn note(&self, inner: &mut Inner) {
        let at = self.os.clock.monotonic();
        let time = self.newest.load(Ordering::Acquire);
        let commit = self.seen.load(Ordering::Acquire);
        match inner.ticks.back_mut().filter(|last| last.time == time) {
            Some(last) => *last = Tick { time, commit, at },
            None => inner.ticks.push_back(Tick { time, commit, at }),
        }
        let window = self.window();
        let oldest = inner.ticks.front().map_or(at, |tick| tick.at);
        // A bit late, so that it is seldom.
        if at.saturating_sub(oldest) > window + window / 8 || inner.ticks.len() > MAX_TICKS {
            self.trim(inner);
        }
    }

    /// Lets the states go that are older than the window.
    fn trim(&self, inner: &mut Inner) {
        let (now, window) = (self.os.clock.monotonic(), self.window());
        // A state lasts until the next one.
        let ended = |next: &Tick| now.saturating_sub(next.at) >= window;
        while inner.ticks.len() > MAX_TICKS || inner.ticks.get(1).is_some_and(ended) {
            inner.ticks.pop_front();
        }
        if let Some(oldest) = inner.ticks.front()
            && !window.is_zero()
        {
            self.catalog.engine().keep_history(Some(CommitTime(oldest.commit)));
        }
    }

    /// The next term, stored before it is told. Waits for the disk.
    pub fn next_term(&self) -> Result<i64> {
        let _turn = self.storing.lock();
        let term = self.inner.lock().term + 1;
        self.store(term, self.lease.load(Ordering::Acquire))?;
        self.inner.lock().term = term;
        Ok(term)
    }

    /// The time of the newest state. Where the lease is used up one caller waits for the disk.
    pub fn now(&self) -> Timestamp {
        let newest = self.catalog.engine().newest_commit().0;
        if newest <= self.seen.load(Ordering::Acquire) {
            return unpack(self.newest.load(Ordering::Acquire));
        }
        let second = self.wall_seconds();
        if second > self.lease.load(Ordering::Acquire)
            && let Some(turn) = self.storing.try_lock()
        {
            // Where it fails the engine has stopped, and every write with it.
            let _later = self.renew(&turn, second);
        }
        let mut inner = self.inner.lock();
        unpack(self.tick(&mut inner))
    }

    /// Ticks where a commit came since; the packed time. As long as no lease reaches the wall clock's
    /// second it stays below that.
    fn tick(&self, inner: &mut Inner) -> u64 {
        let commit = self.catalog.engine().newest_commit().0;
        let before = self.newest.load(Ordering::Acquire);
        if commit <= self.seen.load(Ordering::Acquire) {
            return before;
        }
        let second = self.wall_seconds().min(self.lease.load(Ordering::Acquire));
        let next = (before + 1).max(second << 32 | 1);
        self.move_to(inner, next, commit);
        self.newest.load(Ordering::Acquire)
    }

    /// Moves to a time within the lease that shows everything up to `commit`.
    fn move_to(&self, inner: &mut Inner, next: u64, commit: u64) {
        debug_assert!(next >> 32 <= self.lease.load(Ordering::Acquire), "handed out unstored");
        if let Some(pin) = inner.pins.back_mut() {
            pin.until.get_or_insert(next);
        }
        self.newest.store(next, Ordering::Release);
        // After the time: who finds its commit seen must not be told an older time.
        self.seen.fetch_max(commit, Ordering::AcqRel);
        self.note(inner);
    }

    /// Follows a client that has seen a later time elsewhere.
    pub fn advance(&self, seen: Timestamp) -> Result<()> {
        let seen = pack(seen);
        if seen <= self.newest.load(Ordering::Acquire) {
            return Ok(());
        }
        if seen >> 32 > self.wall_seconds() + MAX_DRIFT_SECONDS {
            return Err(Error::new(
                Code::CLUSTER_TIME_FAILS_RATE_LIMITER,
                "New cluster time is too far from this node's wall clock time.",
            ));
        }
        let is_stored = seen >> 32 <= self.lease.load(Ordering::Acquire);
        if !is_stored {
            self.renew(&self.storing.lock(), seen >> 32)?;
        }
        let mut inner = self.inner.lock();
        if seen > self.newest.load(Ordering::Acquire) {
            // The renewal is a commit itself, and none to tick for.
            let newest = || self.catalog.engine().newest_commit().0;
            self.move_to(&mut inner, seen, if is_stored { 0 } else { newest() });
        }
        Ok(())
    }

    /// Renews the lease before it is used up; called every few seconds.
    pub fn housekeep(&self) {
        let mut inner = self.inner.lock();
        let (now, life) = (self.os.clock.monotonic(), self.window().max(PIN_LIFE));
        inner.pins.retain(|pin| now.saturating_sub(pin.last_use) < life);
        self.trim(&mut inner);
        drop(inner);
        let newest = self.newest.load(Ordering::Acquire) >> 32;
        // An idle server's time stands still, and nothing is to be written for it.
        let ticked = newest + RENEW_SECONDS > self.wall_seconds();
        if ticked && self.lease.load(Ordering::Acquire) < self.wall_seconds() + RENEW_SECONDS {
            // Failing here only means trying again when a second is needed.
            let _later = self.renew(&self.storing.lock(), newest);
        }
    }

    /// Makes seconds up to `second` and some more available, in the turn of `storing`. Waits for the
    /// disk.
    fn renew(&self, _turn: &MutexGuard<'_, ()>, second: u64) -> Result<()> {
        if second > self.wall_seconds() && second <= self.lease.load(Ordering::Acquire) {
            // Somebody else has, while this one waited for its turn.
            return Ok(());
        }
        let lease = second.max(self.wall_seconds() + LEASE_SECONDS);
        let term = self.inner.lock().term;
        self.store(term, lease)?;
        self.lease.fetch_max(lease, Ordering::AcqRel);
        Ok(())
    }

    fn store(&self, term: i64, lease: u64) -> Result<()> {
        let document = doc! { "_id": "self", "term": term, "lease": lease as i64 };
        let document = RawDocumentBuf::try_from(&document)?;
        engine::besides_the_task(|| self.catalog.put_system_document(&namespace()?, &document))?;
        self.catalog.sync()
    }

    /// The newest state and its time, which stays readable for a while.
    pub fn pin_newest(&self) -> (Timestamp, Snapshot) {
        let mut inner = self.inner.lock();
        let snapshot = self.pin(&mut inner);
        (unpack(self.newest.load(Ordering::Acquire)), snapshot)
    }

    fn pin(&self, inner: &mut Inner) -> Snapshot {
        let now = self.os.clock.monotonic();
        // What can take a renewal comes first: the next tick stays within the second.
        self.tick(inner);
        let snapshot = self.catalog.snapshot();
        // The state's own time: ticking afterwards would give it to a later state.
        if snapshot.timestamp().0 > self.seen.load(Ordering::Acquire) {
            let next = self.newest.load(Ordering::Acquire) + 1;
            self.move_to(inner, next, snapshot.timestamp().0);
        }
        let newest = self.newest.load(Ordering::Acquire);
        if let Some(pin) = inner.pins.back_mut()
            && pin.from == newest
        {
            pin.last_use = now;
            return pin.snapshot.clone();
        }
        let pin = Pin { from: newest, until: None, snapshot: snapshot.clone(), last_use: now };
        inner.pins.push_back(pin);
        if inner.pins.len() > MAX_PINS {
            inner.pins.pop_front();
        }
        snapshot
    }

    /// The state of a time.
    pub fn state_at(&self, time: Timestamp) -> Result<Snapshot> {
        let engine = self.catalog.engine();
        let asked = pack(time);
        self.check_reached("atClusterTime", time)?;
        let mut inner = self.inner.lock();
        let now = self.os.clock.monotonic();
        let pinned = inner
            .pins
            .iter_mut()
            .find(|pin| asked >= pin.from && pin.until.is_none_or(|until| asked < until));
        if let Some(pin) = pinned
            && (pin.until.is_some() || asked == pin.from)
        {
            pin.last_use = now;
            return Ok(pin.snapshot.clone());
        }
        let newest = self.tick(&mut inner);
        if asked == newest {
            return Ok(self.pin(&mut inner));
        }
        let behind = inner.ticks.partition_point(|tick| tick.time <= asked);
        let tick = behind.checked_sub(1).and_then(|at| inner.ticks.get(at));
        if let Some(state) = tick.and_then(|tick| engine.snapshot_at(CommitTime(tick.commit))) {
            return Ok(state);
        }
        Err(Error::new(
            Code::SNAPSHOT_TOO_OLD,
            format!(
                "Read timestamp {} is older than the oldest available timestamp.",
                shown(unpack(asked))
            ),
        ))
    }

    /// Refuses a time that nobody was told yet.
    pub fn check_reached(&self, field: &str, time: Timestamp) -> Result<()> {
        let now = self.now();
        if pack(time) <= pack(now) {
            return Ok(());
        }
        Err(Error::new(
            Code::INVALID_OPTIONS,
            format!(
                "readConcern {field} value must not be greater than the current clusterTime. \
                 Requested clusterTime: {{ ts: {} }}; current clusterTime: {{ ts: {} }}",
                shown(time),
                shown(now)
            ),
        ))
    }

    fn wall_seconds(&self) -> u64 {
        u64::try_from(self.os.clock.wall_ms() / 1000).unwrap_or(0)
    }
}

fn shown(time: Timestamp) -> String {
    format!("Timestamp({}, {})", time.time, time.increment)
}

fn namespace() -> Result<Namespace> {
    Namespace::parse(Namespace::ELECTION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::CatalogOptions;
    use engine::Engine;

    #[test]
    fn replies_go_on_within_the_old_lease_while_a_new_one_is_stored() {
        let os = Os::real();
        let options = CatalogOptions::new(os.clone(), std::env::temp_dir());
        let catalog = Catalog::open(Engine::temporary(), options).unwrap();
        let clock = ClusterClock::new(&catalog, &os);
        clock.start().unwrap();
        let commit = || {
            let document = RawDocumentBuf::try_from(&doc! { "_id": "other" }).unwrap();
            let namespace = namespace().unwrap();
            catalog.put_system_document(&namespace, &document).unwrap();
        };
        commit();
        let first = clock.now();
        // The lease is used up, and somebody is at the disk for the next one.
        let used_up = u64::from(first.time);
        clock.lease.store(used_up, Ordering::Release);
        let storing = clock.storing.lock();
        while clock.wall_seconds() <= used_up {
            std::thread::yield_now();
        }
        for _ in 0..3 {
            commit();
            let now = clock.now();
            assert_eq!(u64::from(now.time), used_up, "no second is handed out that is not stored");
            assert!(pack(now) > pack(first), "every commit has a time");
        }
        assert!(clock.pin_newest().0.time <= used_up as u32);
        drop(storing);
        commit();
        assert!(u64::from(clock.now().time) > used_up, "whoever comes first stores it");
        assert!(clock.lease.load(Ordering::Acquire) > used_up);
    }
}

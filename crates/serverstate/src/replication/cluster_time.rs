//! The cluster's time: seconds and a counter, growing with every commit that becomes visible.
//!
//! Where it comes from: the engine gives every commit its times, and keeps them in the log. Asked for the
//! time, the clock says that of the newest visible commit. So a reply that is written after a commit
//! names a time that no earlier state has had, and the time of an idle server stands still: the next
//! commit takes the wall clock's second.
//!
//! On a member of a set of several ([`ClusterClock::follow_commits`]) the times that are told are those of visible
//! commits and no others: every member comes to them, and nothing is stored.
//!
//! Always true:
//! 1. It never goes back, also not over a crash. Times of commits are in the log and in checkpoints. A
//!    start begins above the wall clock's second, so above what was told of commits that are lost. A time
//!    that a client brought, and that is ahead of the wall clock, is stored before it is told: the
//!    *persisted bound*; a start begins above it.
//! 2. The same stored document holds the term, which only grows.
//! 3. The state of a time is that of all commits up to it and of no other ([`states`]). The states of a
//!    short window, a few seconds, can all be read again, while what was written since is a small part of the
//!    cache; beyond it those that are pinned: a snapshot read pins the one it gets.

mod states;

use bson::raw::RawDocumentBuf;
use bson::{Timestamp, doc};
use catalog::{Catalog, Namespace};
use engine::{History, Snapshot, Timestamp as CommitTime};
use errors::{Code, Error, Result};
use os::Os;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Seconds by which the persisted bound runs ahead of the time that it is for, so that it is stored seldom.
const BOUND_AHEAD_SECONDS: u64 = 20;
/// How often the newest state is looked for, where commits come faster than it is read.
const TRIES: usize = 100;
/// How far ahead of us a client's time may be before we refuse to follow. MongoDB says a year, but
/// there such a time is signed once there are users; here anybody can name one, and it is kept: a day
/// is more than clocks of machines that work together are apart.
pub const MAX_DRIFT_SECONDS: u64 = 24 * 3600;
/// What is written within the window, unless that was set, is at most this part of the cache: versions that mostly nobody
/// reads are written, and take memory, as others do.
const WINDOW_PART_OF_CACHE: u64 = 16;
/// How many states are pinned at once at most.
const MAX_PINS: usize = 64;
/// How long a pinned state stays readable after its last use at least.
const PIN_LIFE: Duration = Duration::from_mins(5);
/// How often who waits for a time looks whether it has come: at first, and after a while.
const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
/// How long a time that no commit has yet is waited for before one is made.
const BEFORE_NO_OP: Duration = Duration::from_millis(500);
/// How far ahead of the wall clock a time may be that is waited for: clocks of members differ.
const AHEAD_SECONDS: u64 = 60;
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
    /// Where times come from; an engine without one has no times.
    history: Option<Arc<History>>,
    os: Os,
    /// Of a member of a set of several.
    of_several: AtomicBool,
    newest: AtomicU64,
    /// The newest commit when it last ticked.
    seen: AtomicU64,
    /// Milliseconds for which every state is kept.
    window_ms: AtomicU64,
    /// Bytes of log after which the window ends in any case.
    window_bytes: AtomicU64,
    /// The window was set, and lasts as long as that says.
    window_is_set: AtomicBool,
    /// Seconds that clients brought are told up to here only. Written only while `storing` is held.
    persisted_bound: AtomicU64,
    /// Held by whoever stores the persisted bound and the term. Taken before `inner`; held over the disk.
    storing: Mutex<()>,
    /// Guards moving and the history. Never held over a wait for the disk.
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
    /// Where the log was then, about.
    position: u64,
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
            history: catalog.engine().history(),
            os: os.clone(),
            of_several: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            window_ms: AtomicU64::new(Self::WINDOW.as_millis() as u64),
            window_bytes: AtomicU64::new(u64::MAX),
            window_is_set: AtomicBool::new(false),
            persisted_bound: AtomicU64::new(0),
            storing: Mutex::default(),
            inner: Mutex::default(),
        }
    }

    /// Goes on above everything handed out before this start. Reads the disk.
    pub fn start(&self) -> Result<()> {
        let mut persisted_bound = 0;
        if let Some(stored) = self.catalog.system_document(&namespace()?)? {
            self.inner.lock().term = stored.get_i64("term").unwrap_or(0);
            persisted_bound = u64::try_from(stored.get_i64("lease").unwrap_or(0)).unwrap_or(0);
        }
        let Some(history) = &self.history else {
            return Err(Error::new(Code::INTERNAL_ERROR, "a member of a set keeps a history"));
        };
        self.persisted_bound.store(persisted_bound, Ordering::Release);
        let second = self.wall_seconds().max(persisted_bound).min(u64::from(u32::MAX) - 1) + 1;
        history.raise(second << 32);
        self.begin(history);
        Ok(())
    }

    /// Tells the times of visible commits from now on, those of whoever leads the set of several.
    pub fn follow_commits(&self) -> Result<()> {
        let Some(history) = &self.history else {
            return Err(Error::new(Code::INTERNAL_ERROR, "a member of a set keeps a history"));
        };
        self.of_several.store(true, Ordering::Release);
        self.begin(history);
        Ok(())
    }

    fn begin(&self, history: &History) {
        let mut inner = self.inner.lock();
        self.bound_window();
        let (commit, time) = history.newest();
        self.catalog.engine().retain_states_since((!self.window().is_zero()).then_some(commit));
        self.newest.store(time, Ordering::Release);
        self.seen.store(commit.0, Ordering::Release);
        self.note(&mut inner);
    }

    fn is_of_several(&self) -> bool {
        self.of_several.load(Ordering::Relaxed)
    }

    /// How long every state stays readable.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms.load(Ordering::Relaxed))
    }

    /// How much log the window may span.
    fn bound_window(&self) {
        let bytes = if self.window_is_set.load(Ordering::Relaxed) {
            u64::MAX
        } else {
            self.catalog.engine().memory().0 / WINDOW_PART_OF_CACHE
        };
        self.window_bytes.store(bytes, Ordering::Relaxed);
    }

    /// From now on keeps states for so long, whatever that takes; what was let go does not come back.
    pub fn set_window(&self, window: Duration) {
        let mut inner = self.inner.lock();
        self.window_is_set.store(true, Ordering::Relaxed);
        self.bound_window();
        self.window_ms.store(window.as_millis() as u64, Ordering::Relaxed);
        let engine = self.catalog.engine();
        if inner.ticks.is_empty() {
            // No member: there are no times.
        } else if window.is_zero() {
            let old = inner.ticks.len() - 1;
            inner.ticks.drain(..old);
            engine.retain_states_since(None);
        } else {
            engine.retain_states_since(Some(CommitTime(0)));
            self.trim(&mut inner);
        }
    }

    /// Remembers the newest time and what it shows.
    fn note(&self, inner: &mut Inner) {
        let at = self.os.clock.monotonic();
        let time = self.newest.load(Ordering::Acquire);
        let commit = self.seen.load(Ordering::Acquire);
        let position = self.history.as_ref().map_or(0, |history| history.written_position());
        let newest = Tick { time, commit, at, position };
        match inner.ticks.back_mut().filter(|last| last.time == time) {
            Some(last) => *last = newest,
            None => inner.ticks.push_back(newest),
        }
        let (window, bytes) = (self.window(), self.window_bytes.load(Ordering::Relaxed));
        let (oldest, from) =
            inner.ticks.front().map_or((at, position), |tick| (tick.at, tick.position));
        // A bit late, so that it is seldom.
        if at.saturating_sub(oldest) > window + window / 8
            || position.saturating_sub(from) > bytes.saturating_add(bytes / 8)
            || inner.ticks.len() > MAX_TICKS
        {
            self.trim(inner);
        }
    }

    /// Lets the states go that are older than the window.
    fn trim(&self, inner: &mut Inner) {
        let (now, window) = (self.os.clock.monotonic(), self.window());
        let bytes = self.window_bytes.load(Ordering::Relaxed);
        let position = inner.ticks.back().map_or(0, |newest| newest.position);
        // A state lasts until the next one.
        let ended = |next: &Tick| {
            now.saturating_sub(next.at) >= window || position.saturating_sub(next.position) >= bytes
        };
        while inner.ticks.len() > MAX_TICKS || inner.ticks.get(1).is_some_and(ended) {
            inner.ticks.pop_front();
        }
        if let Some(oldest) = inner.ticks.front()
            && !window.is_zero()
        {
            self.catalog.engine().retain_states_since(Some(CommitTime(oldest.commit)));
        }
    }

    /// The next term, stored before it is told. Waits for the disk.
    pub fn next_term(&self) -> Result<i64> {
        let _turn = self.storing.lock();
        let term = self.inner.lock().term + 1;
        self.store(term, self.persisted_bound.load(Ordering::Acquire))?;
        self.inner.lock().term = term;
        Ok(term)
    }

    /// The time of the newest state. Reading moves nothing: only commits do.
    pub fn now(&self) -> Timestamp {
        let newest = self.catalog.engine().visible().timestamp().0;
        if newest <= self.seen.load(Ordering::Acquire) {
            return unpack(self.newest.load(Ordering::Acquire));
        }
        let mut inner = self.inner.lock();
        unpack(self.tick(&mut inner))
    }

    /// Moves to the time of the newest visible commit; the packed time.
    fn tick(&self, inner: &mut Inner) -> u64 {
        let before = self.newest.load(Ordering::Acquire);
        let Some(history) = &self.history else { return before };
        let (commit, time) = history.newest();
        if commit.0 <= self.seen.load(Ordering::Acquire) {
            return before;
        }
        self.move_to(inner, time.max(before), commit.0);
        self.newest.load(Ordering::Acquire)
    }

    /// Moves to a time that shows everything up to `commit`.
    fn move_to(&self, inner: &mut Inner, next: u64, commit: u64) {
        if let Some(pin) = inner.pins.back_mut()
            && pin.from < next
        {
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
        if self.is_of_several() {
            return Ok(());
        }
        let Some(history) = &self.history else { return Ok(()) };
        // A start begins above the wall clock; what is ahead of it has to be on disk first.
        if seen >> 32 >= self.wall_seconds() {
            self.extend_bound(seen >> 32)?;
        }
        // From here on every commit is later, and those before it are visible.
        let newest = history.raise(seen);
        let mut inner = self.inner.lock();
        if seen > self.newest.load(Ordering::Acquire) {
            self.move_to(&mut inner, seen, newest.0);
        }
        Ok(())
    }

    /// Before something is written: what it is told of the time, after a while in which nothing was
    /// written, is the present second. Once a second at most.
    pub fn reach_wall_clock(&self) {
        let second = self.wall_seconds().min(u64::from(u32::MAX));
        if self.newest.load(Ordering::Acquire) >> 32 >= second || self.is_of_several() {
            return;
        }
        let Some(history) = &self.history else { return };
        let time = second << 32 | 1;
        let newest = history.raise(time);
        let mut inner = self.inner.lock();
        if time > self.newest.load(Ordering::Acquire) {
            self.move_to(&mut inner, time, newest.0);
        }
    }

    /// Lets states go that nobody reads; called every few seconds.
    pub fn housekeep(&self) {
        let mut inner = self.inner.lock();
        self.bound_window();
        // Where nobody asks for the time the window moves on all the same.
        self.tick(&mut inner);
        let (now, life) = (self.os.clock.monotonic(), self.window().max(PIN_LIFE));
        inner.pins.retain(|pin| now.saturating_sub(pin.last_use) < life);
        self.trim(&mut inner);
    }

    /// Makes seconds up to `second` and some more safe to tell. Waits for the disk.
    fn extend_bound(&self, second: u64) -> Result<()> {
        let _turn = self.storing.lock();
        if second <= self.persisted_bound.load(Ordering::Acquire) {
            return Ok(());
        }
        let persisted_bound = second.saturating_add(BOUND_AHEAD_SECONDS);
        let term = self.inner.lock().term;
        self.store(term, persisted_bound)?;
        self.persisted_bound.fetch_max(persisted_bound, Ordering::AcqRel);
        Ok(())
    }

    fn store(&self, term: i64, persisted_bound: u64) -> Result<()> {
        // The field's name is older than the variable's.
        let document = doc! { "_id": "self", "term": term, "lease": persisted_bound as i64 };
        let document = RawDocumentBuf::try_from(&document)?;
        engine::outside_request(|| self.catalog.put_system_document(&namespace()?, &document))?;
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
        let snapshot = self.newest_state(inner);
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

    /// The newest state, whose time the clock then shows.
    fn newest_state(&self, inner: &mut Inner) -> Snapshot {
        for _ in 0..TRIES {
            let snapshot = self.catalog.snapshot();
            self.tick(inner);
            if snapshot.timestamp().0 == self.seen.load(Ordering::Acquire) {
                return snapshot;
            }
        }
        // Commits come between all the time: the states of the window are kept.
        self.tick(inner);
        let seen = CommitTime(self.seen.load(Ordering::Acquire));
        self.catalog.engine().snapshot_at(seen).unwrap_or_else(|| self.catalog.snapshot())
    }

    /// Refuses a time that nobody was told yet. A member of a set of several waits until its state has come to it,
    /// as long as the operation of this thread may.
    pub fn check_reached(&self, field: &str, time: Timestamp) -> Result<()> {
        let mut now = self.now();
        if pack(time) > pack(now) && self.is_of_several() {
            now = self.wait_for(time)?;
        }
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

    /// Waits until the visible state is of that time or later; not for what no clock of a member can have said.
    fn wait_for(&self, time: Timestamp) -> Result<Timestamp> {
        let began = self.os.clock.monotonic();
        let mut may_write_no_op = true;
        loop {
            let now = self.now();
            let is_ahead = pack(time) >> 32 > self.wall_seconds() + AHEAD_SECONDS;
            if pack(time) <= pack(now) || is_ahead {
                return Ok(now);
            }
            limits::check_wait()?;
            let waited = self.os.clock.monotonic().saturating_sub(began);
            // A commit that is made now has a later time than a second that is over.
            let is_past = u64::from(time.time) < self.wall_seconds();
            if may_write_no_op && is_past && waited > BEFORE_NO_OP {
                // The time came from somebody who saw a commit that this member has not, or from another set.
                may_write_no_op = self.write_no_op().is_ok();
            }
            let [first, later] = LOOKS;
            self.os.clock.sleep(if waited < BEFORE_NO_OP { first } else { later });
        }
    }

    /// Makes a commit that changes nothing, so that the visible time advances. Only a primary can. What the
    /// document says is read at a start alone, and by no member of a set of several.
    fn write_no_op(&self) -> Result<()> {
        self.store(0, 0)
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
    use engine::{Engine, HistoryOptions};

    fn clock_over(engine: Engine) -> ClusterClock {
        let os = Os::real();
        let options = CatalogOptions::new(os.clone(), std::env::temp_dir());
        ClusterClock::new(&Catalog::open(engine, options).unwrap(), &os)
    }

    fn member() -> Engine {
        let all = HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO };
        Engine::temporary_with(|options| options.history = Some(all))
    }

    fn commit(clock: &ClusterClock) {
        let document = RawDocumentBuf::try_from(&doc! { "_id": "other" }).unwrap();
        let other = Namespace::parse("config.other").unwrap();
        clock.catalog.put_system_document(&other, &document).unwrap();
    }

    #[test]
    fn time_is_that_of_the_newest_commit_and_stands_still_without_one() {
        let clock = clock_over(member());
        clock.start().unwrap();
        commit(&clock);
        let first = clock.now();
        assert!(u64::from(first.time) > clock.wall_seconds() - 5);
        assert_eq!(clock.now(), first);
        assert_eq!(clock.pin_newest().0, first, "reading moves nothing");
        commit(&clock);
        assert!(pack(clock.now()) > pack(first));
        let engine_time = clock.history.as_ref().unwrap().newest().1;
        assert_eq!(pack(clock.now()), engine_time);
        assert!(clock_over(Engine::temporary()).start().is_err(), "there are no times");
    }

    #[test]
    fn time_that_a_client_brings_is_followed_and_stored() {
        let clock = clock_over(member());
        clock.start().unwrap();
        commit(&clock);
        let (before, state) = clock.pin_newest();
        let ahead = Timestamp { time: before.time + 1000, increment: 7 };
        clock.advance(ahead).unwrap();
        assert_eq!(clock.now(), ahead);
        clock.advance(before).unwrap();
        assert_eq!(clock.now(), ahead, "an older one changes nothing");
        commit(&clock);
        assert_eq!(clock.now(), Timestamp { increment: 8, ..ahead });
        assert_eq!(clock.state_at(before).unwrap().timestamp(), state.timestamp());
        let stored = clock.catalog.system_document(&namespace().unwrap()).unwrap();
        let stored = stored.unwrap().get_i64("lease").unwrap();
        assert!(stored >= i64::from(ahead.time), "a start begins above it");
        assert!(clock.persisted_bound.load(Ordering::Acquire) >= u64::from(ahead.time));
        let far = Timestamp { time: u32::MAX, increment: u32::MAX };
        assert!(clock.advance(far).is_err(), "nobody's clock is so far ahead");
    }

    #[test]
    fn start_is_above_everything_that_was_told() {
        let engine = member();
        let clock = clock_over(engine.clone());
        clock.start().unwrap();
        clock.next_term().unwrap();
        let ahead = Timestamp { time: clock.wall_seconds() as u32 + 1000, increment: 7 };
        clock.advance(ahead).unwrap();
        let again = ClusterClock::new(&clock.catalog, &clock.os);
        again.start().unwrap();
        assert_eq!(again.next_term().unwrap(), 2);
        assert!(pack(again.now()) > pack(ahead));
    }

    #[test]
    fn state_of_a_time_that_no_reply_named_has_all_commits_up_to_it() {
        let clock = clock_over(member());
        clock.start().unwrap();
        let history = Arc::clone(clock.history.as_ref().unwrap());
        // The first one makes the collection.
        commit(&clock);
        let (before, _) = history.newest();
        clock.now();
        let mut times = Vec::new();
        for _ in 0..5 {
            commit(&clock);
            times.push(history.newest());
        }
        // The oplog names each of them, and the clock has moved to none but the last.
        let last = clock.now();
        assert_eq!(pack(last), times[4].1);
        let state = |time: u64| clock.state_at(unpack(time)).unwrap().timestamp();
        for (commit, time) in &times {
            assert_eq!(state(*time), *commit);
        }
        assert_eq!(state(times[0].1 - 1), before);
        // Time that went on without a commit shows the newest before it.
        let ahead = Timestamp { time: last.time + 10, increment: 9 };
        clock.advance(ahead).unwrap();
        let (newest, _) = history.newest();
        commit(&clock);
        assert_eq!(state(pack(ahead)), newest);
        assert_eq!(state(pack(ahead) - 5), newest);
        assert_eq!(state(times[3].1), times[3].0);
    }

    #[test]
    fn states_of_the_window_take_a_part_of_the_cache_unless_the_window_was_set() {
        for is_set in [false, true] {
            let clock = clock_over(member());
            if is_set {
                clock.set_window(Duration::from_hours(1));
            }
            clock.start().unwrap();
            clock.window_ms.store(3_600_000, Ordering::Relaxed);
            commit(&clock);
            let (first, within) = (clock.now(), clock.catalog.engine().memory().0 / 32);
            // The log has it as it is: it cannot be compressed.
            let next = |n: &u64| Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            let noise = std::iter::successors(Some(1_u64), next);
            let bytes = noise.take(within as usize / 4).map(|n| (n >> 56) as u8).collect();
            let binary = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes };
            let large = doc! { "_id": "other", "binary": binary };
            let large = RawDocumentBuf::try_from(&large).unwrap();
            let other = Namespace::parse("config.other").unwrap();
            let mut last = first;
            for round in 0..12 {
                // The newest one would be pinned.
                let is_kept = (1..4).contains(&round);
                assert!(!is_kept || clock.state_at(first).is_ok(), "{round}");
                last = clock.now();
                clock.catalog.put_system_document(&other, &large).unwrap();
                clock.catalog.sync().unwrap();
            }
            clock.housekeep();
            assert!(clock.state_at(last).is_ok());
            let found = clock.state_at(first).map(drop).map_err(|error| error.code());
            assert_eq!(found, if is_set { Ok(()) } else { Err(Code::SNAPSHOT_TOO_OLD) });
        }
    }

    #[test]
    fn pinned_state_stands_for_the_times_up_to_the_next_commit_alone() {
        let clock = clock_over(member());
        clock.start().unwrap();
        clock.set_window(Duration::ZERO);
        commit(&clock);
        let (time, pinned) = clock.pin_newest();
        commit(&clock);
        let between = clock.history.as_ref().unwrap().newest().1;
        commit(&clock);
        clock.now();
        assert_eq!(clock.state_at(time).unwrap().timestamp(), pinned.timestamp());
        assert_eq!(clock.state_at(unpack(between - 1)).unwrap().timestamp(), pinned.timestamp());
        let gone = clock.state_at(unpack(between)).unwrap_err();
        assert_eq!(gone.code(), Code::SNAPSHOT_TOO_OLD);
    }
}

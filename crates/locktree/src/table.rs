//! The lock table: granting, waiting, releasing.

use crate::inspect::{Counters, RefusalHook};
use crate::owner::{Interrupt, KeyLock, Locks, Owner};
use crate::shard::{self, Entry, Fast, LockId, LockIdRef, Shard};
use crate::wait::{HeldRange, LockedWaits, Request, Target, WaitOutcome, Waiter, Waits};
use crate::{Error, Granted, Mode, Range};
use os::sync::Mutex;
use os::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use os::{Clock, Padded};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A wait above this is an event of its own.
const LONG_WAIT_MS: u64 = 1000;

/// How often a request that waits asks whether its operation goes on.
const CHECK_PERIOD: Duration = Duration::from_millis(25);

/// The longest sleep where nothing is asked, so that "for ever" does not overflow the clock.
const LONGEST_SLEEP: Duration = Duration::from_hours(1);

/// The number of no dictionary.
const EVERY_DICTIONARY: u64 = 0;

/// Counters of ranges; a power of two.
const RANGE_COUNTERS: usize = 64;

/// How a request that must wait does so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Waiting {
    /// It sleeps; other threads wake it.
    #[default]
    Threads,
    /// There is one thread, so nobody could wake it: the (simulated) clock moves on by the
    /// timeout and the request fails.
    Alone,
}

/// How a lock table is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Limit on lock memory in bytes.
    pub max_bytes: u64,
    /// Shards; a power of two.
    pub shards: usize,
    /// See [`Waiting`].
    pub waiting: Waiting,
    /// Of the hash of ids: a number of the process's own, so that no client can choose keys that
    /// all meet in one place.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_bytes: 64 << 20, shards: 64, waiting: Waiting::Threads, seed: 0 }
    }
}

/// All locks of one engine.
pub struct LockTable {
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shards: Vec<Padded<Mutex<Shard>>>,
    /// The queues and the wait-for graph; taken before a shard, never after.
    pub(crate) waits: Mutex<Waits>,
    /// Ranges held or asked for, by dictionary: while not zero, requests there take the slow path.
    /// Dictionaries may share a counter.
    ranges: [AtomicUsize; RANGE_COUNTERS],
    /// What shards have reported; without their `unreported` it may be below zero.
    bytes: Padded<AtomicI64>,
    /// Newest commit of an escalated transaction per dictionary: its keys were not remembered. Under
    /// [`EVERY_DICTIONARY`], the newest of which nothing was.
    escalated: Mutex<BTreeMap<u64, u64>>,
    any_escalated: AtomicBool,
    pub(crate) counters: Counters,
    /// Who hears of refused requests.
    pub(crate) on_refusal: OnceLock<RefusalHook>,
    /// See [`LockTable::ask_while_waiting`].
    may_wait: OnceLock<MayWait>,
}

/// Says whether the operation that runs on this thread may go on waiting.
type MayWait = Box<dyn Fn() -> bool + Send + Sync>;

impl LockTable {
    /// An empty table.
    pub fn new(clock: Arc<dyn Clock>, options: Options) -> Arc<Self> {
        let shards = options.shards.max(1).next_power_of_two();
        Arc::new(Self {
            options: Options { shards, ..options },
            clock,
            shards: (0..shards).map(|_| Padded::default()).collect(),
            waits: Mutex::default(),
            ranges: std::array::from_fn(|_| AtomicUsize::new(0)),
            bytes: Padded::default(),
            escalated: Mutex::default(),
            any_escalated: AtomicBool::new(false),
            counters: Counters::default(),
            on_refusal: OnceLock::new(),
            may_wait: OnceLock::new(),
        })
    }

    /// From now on each request that waits asks `may_wait`, many times a second and on its own
    /// thread, and fails with [`Error::Interrupted`] soon after the answer is no. Only the first
    /// call counts.
    pub fn ask_while_waiting(&self, may_wait: impl Fn() -> bool + Send + Sync + 'static) {
        // Whoever comes second is not asked, as documented.
        let _first = self.may_wait.set(Box::new(may_wait));
    }

    /// A transaction without locks. Ids must be unique among those alive.
    pub fn owner(self: &Arc<Self>, txn: u64) -> Owner {
        Owner::new(Arc::clone(self), Interrupt::new(txn))
    }

    /// Locks a key, waiting up to `timeout`. Idempotent; a shared lock is upgraded.
    pub fn acquire(
        &self,
        owner: &mut Locks,
        dictionary: u64,
        key: &[u8],
        mode: Mode,
        timeout: Duration,
    ) -> Result<Granted, Error> {
        self.settle_before(owner);
        if let Some(granted) = owner.last(dictionary, key, mode) {
            return Ok(self.with_escalated(dictionary, granted));
        }
        let id = shard::lock_id(self.options.seed, dictionary, key);
        let id = id.borrow();
        if !owner.ranges.is_empty() && owner.covers(dictionary, key, mode) {
            return Ok(self.with_escalated(dictionary, self.shard(id).lock().known(id)));
        }
        let (granted, new) = match self.grant_at_once(owner, dictionary, id, mode) {
            Fast::Granted(granted, new) => (granted, new),
            Fast::Contended => self.acquire_slowly(owner, id, mode, timeout)?,
        };
        self.note_granted(owner, new, (mode, granted), timeout)?;
        Ok(self.with_escalated(dictionary, granted))
    }

    /// As [`LockTable::acquire`], where nobody has to be waited for; false, and nothing was done, where somebody
    /// holds the key or waits for it, or anybody has or wants a range in its dictionary.
    pub fn acquire_at_once(
        &self,
        owner: &mut Locks,
        dictionary: u64,
        key: &[u8],
        mode: Mode,
        timeout: Duration,
    ) -> Result<bool, Error> {
        if owner.queued.is_some() {
            self.hold_granted(owner);
        }
        let id = shard::lock_id(self.options.seed, dictionary, key);
        let Fast::Granted(granted, new) = self.grant_at_once(owner, dictionary, id.borrow(), mode)
        else {
            return Ok(false);
        };
        self.note_granted(owner, new, (mode, granted), timeout)?;
        Ok(true)
    }

    /// Before another request of an owner: it has no place in a queue any more.
    fn settle_before(&self, owner: &mut Locks) {
        if owner.queued.is_some() {
            self.hold_granted(owner);
            self.leave_queue(owner);
        }
    }

    pub(crate) fn grant_at_once(
        &self,
        owner: &Locks,
        dictionary: u64,
        id: LockIdRef<'_>,
        mode: Mode,
    ) -> Fast {
        let mut shard = self.shard(id).lock();
        // Read under the shard's lock: a range request raises it before it looks at shards.
        if self.has_ranges(dictionary) {
            return Fast::Contended;
        }
        let fast = shard.try_grant(id, owner.txn, mode);
        if let Fast::Granted(_, Some(id)) = &fast {
            self.take_bytes(&mut shard, shard::cost(id) as i64);
        }
        fast
    }

    /// Adds a key, where it is new to its owner. May wait, for room in the table.
    pub(crate) fn note_granted(
        &self,
        owner: &mut Locks,
        new: Option<LockId>,
        (mode, granted): (Mode, Granted),
        timeout: Duration,
    ) -> Result<(), Error> {
        let Some(id) = new else { return Ok(()) };
        owner.bytes += shard::cost(&id);
        owner.held.push(KeyLock { id, mode, granted });
        self.within_memory(owner, timeout)
    }

    /// Locks a range with the gaps in it, waiting up to `timeout`. Looks at the key locks that lie in
    /// it, and at every shard; key locks in a dictionary of which a range is held are slower, too.
    pub fn acquire_range(
        &self,
        owner: &mut Locks,
        dictionary: u64,
        range: Range,
        mode: Mode,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.settle_before(owner);
        if owner.covers_range(dictionary, &range, mode) {
            return Ok(());
        }
        self.wait_for(owner, Target::Range(dictionary, range.clone()), mode, false, timeout)?;
        let size = shard::cost_of_range(&range);
        owner.ranges.entry(dictionary).or_default().push((range, mode));
        owner.bytes += size;
        self.count_bytes(size as i64);
        self.within_memory(owner, timeout)
    }

    fn has_ranges(&self, dictionary: u64) -> bool {
        self.ranges_of(dictionary).load(Ordering::SeqCst) > 0
    }

    fn ranges_of(&self, dictionary: u64) -> &AtomicUsize {
        &self.ranges[dictionary as usize % RANGE_COUNTERS]
    }

    fn acquire_slowly(
        &self,
        owner: &mut Locks,
        id: LockIdRef<'_>,
        mode: Mode,
        timeout: Duration,
    ) -> Result<(Granted, Option<LockId>), Error> {
        let (shared_name, held) = {
            let shard = self.shard(id).lock();
            match shard.entries.get_key_value(&id) {
                Some((id, entry)) => (id.clone(), entry.held_by(owner.txn)),
                None => (LockId::from(&id), None),
            }
        };
        if held.is_none_or(|held| held < mode) {
            let target = Target::Key(shared_name.clone());
            self.wait_for(owner, target, mode, held.is_some(), timeout)?;
        }
        let mut shard = self.shard(id).lock();
        let granted = shard.known(id);
        if held.is_some() {
            return Ok((granted, None));
        }
        self.take_bytes(&mut shard, shard::cost(&shared_name) as i64);
        Ok((granted, Some(shared_name)))
    }

    /// Queues a request and sleeps until it is granted, refused or out of time.
    pub(crate) fn wait_for(
        &self,
        owner: &Locks,
        target: Target,
        mode: Mode,
        upgrade: bool,
        timeout: Duration,
    ) -> Result<(), Error> {
        let (started, waiter) = (self.clock.monotonic(), Waiter::new());
        let place = (started, &waiter);
        let Some(number) = self.enqueue(owner, target, mode, upgrade, timeout, place)? else {
            return Ok(());
        };
        let outcome = self.sleep(&waiter, started, timeout);
        let waited = self.count_wait(started);
        self.settle(number, &waiter, outcome, waited)
    }

    /// Queues a request, since when and by whom it waits; its number, or `None` where it was granted at once.
    pub(crate) fn enqueue(
        &self,
        owner: &Locks,
        target: Target,
        mode: Mode,
        upgrade: bool,
        timeout: Duration,
        (since, waiter): (Duration, &Arc<Waiter>),
    ) -> Result<Option<u64>, Error> {
        let mut waits = self.lock_waits();
        let waiter = Arc::clone(waiter);
        let request = Request { txn: owner.txn, target, mode, upgrade, since, waiter };
        let number = self.join(&mut waits, request);
        if self.grant_if_free(&mut waits, number) {
            return Ok(None);
        }
        let blocker = self.blockers(&waits, number).first().copied().unwrap_or_default();
        let refused = if timeout.is_zero() {
            self.counters.timeouts.fetch_add(1, Ordering::Relaxed);
            Some(Error::Timeout { waited_ms: 0, blocker })
        } else if owner.interrupt.is_set() {
            Some(Error::Interrupted)
        } else if !owner.holds_nothing() && self.closes_cycle(&waits, number) {
            // Nobody waits for who holds nothing, and comes last.
            self.counters.deadlocks.fetch_add(1, Ordering::Relaxed);
            Some(Error::Deadlock { blocker })
        } else {
            None
        };
        if let Some(error) = refused {
            let refusal = self.refusal(&waits, number, &error);
            self.leave(&mut waits, number);
            drop(waits);
            self.tell(refusal);
            return Err(error);
        }
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        Ok(Some(number))
    }

    /// Counts a wait that has ended; how many milliseconds it took.
    pub(crate) fn count_wait(&self, since: Duration) -> u64 {
        let time = self.clock.monotonic().saturating_sub(since);
        os::Waits::add(os::Wait::Lock, time);
        let waited = time.as_millis() as u64;
        self.counters.waited_ms.fetch_add(waited, Ordering::Relaxed);
        if waited > LONG_WAIT_MS {
            self.counters.long_waits.fetch_add(1, Ordering::Relaxed);
            self.counters.long_waited_ms.fetch_add(waited, Ordering::Relaxed);
        }
        waited
    }

    pub(crate) fn lock_waits(&self) -> LockedWaits<'_> {
        LockedWaits::new(&self.waits)
    }

    /// Whether the operation on this thread may go on waiting.
    pub(crate) fn may_go_on_waiting(&self) -> bool {
        self.may_wait.get().is_none_or(|may_wait| may_wait())
    }

    fn sleep(&self, waiter: &Waiter, started: Duration, timeout: Duration) -> WaitOutcome {
        if self.options.waiting == Waiting::Alone {
            self.clock.sleep(timeout);
            return waiter.outcome();
        }
        let deadline = started.saturating_add(timeout);
        let may_wait = self.may_wait.get();
        let longest = if may_wait.is_some() { CHECK_PERIOD } else { LONGEST_SLEEP };
        loop {
            let left = deadline.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return waiter.outcome();
            }
            if may_wait.is_some_and(|may_wait| !may_wait()) {
                // Changes nothing where it was granted meanwhile; nobody but this thread waits.
                drop(waiter.finish(WaitOutcome::Interrupted));
                return waiter.outcome();
            }
            let outcome = waiter.sleep(left.min(longest));
            if outcome != WaitOutcome::Waiting {
                return outcome;
            }
        }
    }

    /// What a request that woke up got. A grant that came with the timeout counts as a grant.
    pub(crate) fn settle(
        &self,
        number: u64,
        waiter: &Waiter,
        outcome: WaitOutcome,
        waited_ms: u64,
    ) -> Result<(), Error> {
        if outcome == WaitOutcome::Granted {
            return Ok(());
        }
        let mut waits = self.lock_waits();
        // Grants happen under `waits` and take the request out: so this is the last word, also
        // where a kill or the timeout came first.
        if !waits.requests.contains_key(&number) {
            return Ok(());
        }
        let outcome = waiter.outcome();
        if outcome == WaitOutcome::Interrupted {
            self.leave(&mut waits, number);
            return Err(Error::Interrupted);
        }
        let blocker = self.blockers(&waits, number).first().copied().unwrap_or_default();
        let error = Error::Timeout { waited_ms, blocker };
        let refusal = self.refusal(&waits, number, &error);
        self.leave(&mut waits, number);
        drop(waits);
        self.counters.timeouts.fetch_add(1, Ordering::Relaxed);
        self.tell(refusal);
        Err(error)
    }

    /// Kills a transaction's waiting: the request it waits in, and every later one, fails with
    /// [`Error::Interrupted`].
    pub fn interrupt(&self, interrupt: &Interrupt) {
        interrupt.flag.store(true, Ordering::SeqCst);
        let mut waits = self.lock_waits();
        if let Some(number) = waits.by_txn.get(&interrupt.txn())
            && let Some(request) = waits.requests.get(number)
        {
            let waiter = Arc::clone(&request.waiter);
            waits.finish(&waiter, WaitOutcome::Interrupted);
        }
    }

    pub(crate) fn release(&self, owner: &mut Locks, commit: Option<u64>) {
        if owner.queued.is_some() {
            self.leave_queue(owner);
        }
        if owner.holds_nothing() {
            return;
        }
        let mut waited_for: Vec<LockId> = Vec::new();
        let mut ranged: Vec<u64> = Vec::new();
        for KeyLock { id, .. } in owner.held.drain(..) {
            let mut shard = self.shard(id.borrow()).lock();
            let released = shard.release(&id, owner.txn, commit);
            // Under the shard's lock, as a request that looked before has raised it by then.
            let dictionary = shard::split(&id).0;
            if self.has_ranges(dictionary) && !ranged.contains(&dictionary) {
                ranged.push(dictionary);
            }
            // A remembered commit keeps the entry, and its bytes, until it is forgotten.
            if !released.remembered {
                self.take_bytes(&mut shard, -(shard::cost(&id) as i64));
            }
            drop(shard);
            if released.waited_for {
                waited_for.push(id);
            }
        }
        owner.bytes = 0;
        // Most transactions hold keys alone, for which nobody waits.
        if !(owner.ranges.is_empty()
            && owner.escalated.is_empty()
            && waited_for.is_empty()
            && ranged.is_empty())
        {
            self.release_ranges(owner, commit, waited_for, ranged.into_iter().collect());
        }
    }

    /// What is to be done when the keys are open: opens the ranges, and grants what waits for those, for
    /// keys of `ranged` dictionaries, or in the queues of `waited_for`.
    #[cold]
    fn release_ranges(
        &self,
        owner: &mut Locks,
        commit: Option<u64>,
        waited_for: Vec<LockId>,
        mut ranged: BTreeSet<u64>,
    ) {
        let ranges = std::mem::take(&mut owner.ranges);
        for (dictionary, held) in &ranges {
            let freed: u64 = held.iter().map(|(range, _)| shard::cost_of_range(range)).sum();
            self.count_bytes(-(freed as i64));
            // Keys that an exclusive range covers were not noted one by one.
            if held.iter().any(|(_, mode)| *mode == Mode::Exclusive) {
                owner.escalated.insert(*dictionary);
            }
        }
        if let Some(ts) = commit {
            self.remember_escalated(&owner.escalated, ts);
        }
        owner.escalated.clear();
        if waited_for.is_empty() && ranges.is_empty() && ranged.is_empty() {
            return;
        }
        let mut waits = self.lock_waits();
        for dictionary in ranges.keys() {
            self.drop_ranges(&mut waits, *dictionary, owner.txn, |_| true);
        }
        let holds = |held: &HeldRange| held.txn == owner.txn;
        debug_assert!(!waits.ranges.values().flatten().any(holds), "all its ranges are open");
        debug_assert!(!waits.by_txn.contains_key(&owner.txn), "who ends waits for nothing");
        ranged.extend(ranges.keys());
        for id in waited_for {
            if !ranged.contains(&shard::split(&id).0) {
                self.grant_queue(&mut waits, &id);
            }
        }
        for dictionary in ranged {
            self.grant_in(&mut waits, dictionary);
        }
    }

    /// Opens those of a transaction's ranges in a dictionary that `condemned` picks.
    pub(crate) fn drop_ranges(
        &self,
        waits: &mut Waits,
        dictionary: u64,
        txn: u64,
        condemned: impl Fn(&HeldRange) -> bool,
    ) {
        let Some(held) = waits.ranges.get_mut(&dictionary) else { return };
        let before = held.len();
        held.retain(|held| held.txn != txn || !condemned(held));
        let gone = before - held.len();
        let counted = self.ranges_of(dictionary).fetch_sub(gone, Ordering::SeqCst);
        assert!(counted >= gone, "ranges are counted while they are held");
        if held.is_empty() {
            waits.ranges.remove(&dictionary);
        }
    }

    fn join(&self, waits: &mut Waits, request: Request) -> u64 {
        match &request.target {
            Target::Key(id) => self.shard(id.borrow()).lock().waiter_joins(id),
            Target::Range(dictionary, _) => {
                self.ranges_of(*dictionary).fetch_add(1, Ordering::SeqCst);
            }
        }
        waits.add(request)
    }

    /// Takes a request out of its queue; those behind it may now be free.
    pub(crate) fn leave(&self, waits: &mut Waits, number: u64) {
        let Some(request) = waits.remove(number) else { return };
        match request.target {
            Target::Key(id) => {
                self.shard(id.borrow()).lock().waiter_leaves(&id);
                self.grant_queue(waits, &id);
            }
            Target::Range(dictionary, _) => {
                let counted = self.ranges_of(dictionary).fetch_sub(1, Ordering::SeqCst);
                assert!(counted > 0, "ranges are counted while they are waited for");
                self.grant_in(waits, dictionary);
            }
        }
    }

    /// Grants from the head of a key's queue as far as nobody is in the way. Past the first
    /// request that stays, all stay: they wait for it or for what it waits for.
    fn grant_queue(&self, waits: &mut Waits, id: &LockId) {
        while let Some(number) = waits.queues.get(id).and_then(|queue| queue.front().copied()) {
            if !self.grant_if_free(waits, number) {
                return;
            }
        }
    }

    /// Grants what a range, or a key that a range waited for, has freed.
    fn grant_in(&self, waits: &mut Waits, dictionary: u64) {
        for number in waits.of_dictionary(dictionary) {
            self.grant_if_free(waits, number);
        }
    }

    fn grant_if_free(&self, waits: &mut Waits, number: u64) -> bool {
        if !self.blockers(waits, number).is_empty() {
            return false;
        }
        let Some(request) = waits.remove(number) else { return false };
        match request.target {
            Target::Key(id) => {
                let mut shard = self.shard(id.borrow()).lock();
                if let Some(entry) = shard.entries.get_mut(&id.borrow()) {
                    entry.add(request.txn, request.mode);
                }
                shard.waiter_leaves(&id);
            }
            // The range stays counted in `ranges` until it is released.
            Target::Range(dictionary, range) => {
                let held = HeldRange { txn: request.txn, range, mode: request.mode };
                waits.ranges.entry(dictionary).or_default().push(held);
            }
        }
        waits.finish(&request.waiter, WaitOutcome::Granted);
        true
    }

    /// The transactions a queued request waits for. Empty means it can be granted.
    pub(crate) fn blockers(&self, waits: &Waits, number: u64) -> Vec<u64> {
        let Some(request) = waits.requests.get(&number) else { return Vec::new() };
        let mut found = match &request.target {
            Target::Key(id) => self.key_blockers(waits, number, request, id),
            Target::Range(dictionary, range) => {
                self.range_blockers(waits, number, request, *dictionary, range)
            }
        };
        found.retain(|txn| *txn != request.txn);
        found
    }

    fn key_blockers(&self, waits: &Waits, number: u64, request: &Request, id: &LockId) -> Vec<u64> {
        let (mut found, complete) = waits.ahead(number, id, request.mode);
        if !complete && let Some(entry) = self.shard(id.borrow()).lock().entries.get(&id.borrow()) {
            let in_way = entry.holders.iter().filter(|h| !h.mode.compatible(request.mode));
            found.extend(in_way.map(|holder| holder.txn));
        }
        let (dictionary, key) = shard::split(id);
        for held in waits.ranges.get(&dictionary).into_iter().flatten() {
            if !held.mode.compatible(request.mode) && held.range.contains(key) {
                found.push(held.txn);
            }
        }
        // An upgrade does not queue behind a range: the range waits for its shared lock.
        if !request.upgrade {
            for (earlier, range) in waits.ranges_before(number, dictionary) {
                if !earlier.mode.compatible(request.mode)
                    && range.contains(key)
                    // Whoever holds something the range waits for goes first.
                    && !self.holds_in(request.txn, dictionary, range)
                {
                    found.push(earlier.txn);
                }
            }
        }
        found
    }

    fn range_blockers(
        &self,
        waits: &Waits,
        number: u64,
        request: &Request,
        dictionary: u64,
        range: &Range,
    ) -> Vec<u64> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for (_, entry) in shard.lock().within(dictionary, range) {
                let in_way = entry.holders.iter().filter(|h| !h.mode.compatible(request.mode));
                found.extend(in_way.map(|holder| holder.txn));
            }
        }
        for held in waits.ranges.get(&dictionary).into_iter().flatten() {
            if !held.mode.compatible(request.mode) && held.range.overlaps(range) {
                found.push(held.txn);
            }
        }
        for (id, queue) in waits.queues_within(dictionary, range) {
            let earlier = queue.iter().filter(|n| **n < number);
            let earlier = earlier.filter_map(|n| waits.requests.get(n));
            let mut earlier = earlier.filter(|e| !e.mode.compatible(request.mode)).peekable();
            // Where they wait for the requester itself they cannot come first.
            let is_holder = |entry: &Entry| entry.held_by(request.txn).is_some();
            if earlier.peek().is_some()
                && !self.shard(id.borrow()).lock().entries.get(&id.borrow()).is_some_and(is_holder)
            {
                found.extend(earlier.map(|earlier| earlier.txn));
            }
        }
        for (earlier, other) in waits.ranges_before(number, dictionary) {
            if other.overlaps(range)
                && !earlier.mode.compatible(request.mode)
                && !self.holds_in(request.txn, dictionary, other)
            {
                found.push(earlier.txn);
            }
        }
        found
    }

    fn holds_in(&self, txn: u64, dictionary: u64, range: &Range) -> bool {
        self.shards.iter().any(|shard| {
            let mut shard = shard.lock();
            shard.within(dictionary, range).any(|(_, entry)| entry.held_by(txn).is_some())
        })
    }

    /// Whether the queued request reaches itself over the edges "waits for". Called for each new
    /// request under `waits`, where no edge among waiters can appear meanwhile: so the request
    /// that closes a cycle always finds it.
    fn closes_cycle(&self, waits: &Waits, number: u64) -> bool {
        let Some(start) = waits.requests.get(&number).map(|request| request.txn) else {
            return false;
        };
        let mut seen = BTreeSet::new();
        let mut open = self.blockers(waits, number);
        while let Some(txn) = open.pop() {
            if txn == start {
                return true;
            }
            if seen.insert(txn)
                && let Some(next) = waits.by_txn.get(&txn)
            {
                open.extend(self.blockers(waits, *next));
            }
        }
        false
    }

    /// Forgets the commits that no snapshot can conflict with any more.
    pub fn prune(&self, oldest_snapshot: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let freed = shard.forget(oldest_snapshot, usize::MAX);
            shard.age();
            self.take_bytes(&mut shard, -(freed as i64));
        }
        if self.any_escalated.load(Ordering::SeqCst) {
            let mut escalated = self.escalated.lock();
            escalated.retain(|_, ts| *ts > oldest_snapshot);
            self.any_escalated.store(!escalated.is_empty(), Ordering::SeqCst);
        }
    }

    /// The commits up to `ts` were made without this table: no request is told of their keys.
    pub fn not_remembered(&self, ts: u64) {
        self.remember_escalated(&BTreeSet::from([EVERY_DICTIONARY]), ts);
    }

    /// Forgets every remembered commit: what was committed under their numbers may be something else from
    /// now on. Until snapshots are newer than all of them, requests are told that it had to forget.
    pub fn forget_commits(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let freed = shard.forget(0, 0);
            self.take_bytes(&mut shard, -(freed as i64));
        }
    }

    /// Forgets half of the remembered commits, oldest first: locks that are held come first.
    pub(crate) fn forget_half_of_commits(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let keep = shard.remembered() / 2;
            let freed = shard.forget(0, keep);
            self.take_bytes(&mut shard, -(freed as i64));
        }
    }

    /// Bytes of lock memory in use, exact. Looks at every shard.
    pub fn bytes(&self) -> u64 {
        let unreported: i64 = self.shards.iter().map(|shard| shard.lock().unreported).sum();
        // A shard that reports while others are looked at may be counted twice: not below zero.
        (self.bytes.load(Ordering::Relaxed) + unreported).max(0).cast_unsigned()
    }

    /// True where the sum, whatever the shards have not yet reported, is at most `bytes`.
    pub(crate) fn is_surely_within(&self, bytes: u64) -> bool {
        let unreported = self.quantum() * self.shards.len() as i64;
        self.bytes.load(Ordering::Relaxed) + unreported <= bytes.cast_signed()
    }

    /// Counts bytes that a shard takes or, below zero, gives back. The common sum is written to
    /// once in many times only: every lock would otherwise meet every other there.
    pub(crate) fn take_bytes(&self, shard: &mut Shard, bytes: i64) {
        shard.unreported += bytes;
        if shard.unreported.abs() >= self.quantum() {
            self.bytes.fetch_add(shard.unreported, Ordering::Relaxed);
            shard.unreported = 0;
        }
    }

    /// Counts bytes that belong to no shard.
    pub(crate) fn count_bytes(&self, bytes: i64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What a shard may leave unreported: all of them together a sixteenth of the limit.
    fn quantum(&self) -> i64 {
        (self.options.max_bytes / 16 / self.shards.len() as u64).clamp(1, 4096) as i64
    }

    pub(crate) fn shard(&self, id: LockIdRef<'_>) -> &Mutex<Shard> {
        &self.shards[id.shard() & (self.shards.len() - 1)]
    }

    pub(crate) fn with_escalated(&self, dictionary: u64, mut granted: Granted) -> Granted {
        if self.any_escalated.load(Ordering::SeqCst) {
            let escalated = self.escalated.lock();
            for ts in [dictionary, EVERY_DICTIONARY].into_iter().filter_map(|id| escalated.get(&id))
            {
                granted.complete_since = granted.complete_since.max(*ts);
            }
        }
        granted
    }

    fn remember_escalated(&self, dictionaries: &BTreeSet<u64>, ts: u64) {
        if dictionaries.is_empty() {
            return;
        }
        let mut escalated = self.escalated.lock();
        for dictionary in dictionaries {
            let newest = escalated.entry(*dictionary).or_default();
            *newest = (*newest).max(ts);
        }
        self.any_escalated.store(true, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for LockTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockTable").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

//! Which commits are complete and which visible, and which old states somebody still reads.
//!
//! What is always true:
//! 1. The complete watermark moves in timestamp order, and only over commits whose every write is in its
//!    tree; the visible one is never above it: no reader sees half a commit.
//! 2. Whoever asks what is still needed ([`Snapshots::oldest`], [`Snapshots::visibility`]) gets an
//!    answer at or below every snapshot that lives or will be taken.
//! 3. A kept state can be taken like that of now: its versions are all there, and so
//!    are the dictionaries it sees. Only the lock table does not remember the commits since.
//! 4. A commit is newer than no snapshot that [`Watch::Commits`], or [`Snapshots::oldest_watching`]
//!    is below it: the lock table remembers commits for those transactions alone.
//! 5. Only who [`Watch::Newest`] reads above the visible watermark, at the complete one.
//!
//! Snapshots are registered per stripe, so that threads that begin and end them do not meet. The
//! price is paid by those who ask, who look at every stripe. Why 2 holds without a common lock: a
//! stripe's first snapshot is announced and then the watermark read again; the one who asks reads
//! the watermark and then the announcements; one of the two sees the other. Of those who read at the
//! complete watermark as well: it is not below the visible one, which is what who asks reads.

mod held_back;
mod kept_states;

pub use held_back::CommitState;
pub(crate) use held_back::{CommitWaiter, Notify, WhenVisible};

use crate::Showing;
use crate::handle::EngineHandle;
use crate::watermarks::{Complete, Visible};
use ftree::Visibility;
use held_back::HeldBack;
use kept_states::KeptStates;
use os::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use os::sync::{Condvar, Mutex, spin_loop, yield_now};
use os::{Call, Padded, STRIPES};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Commits that can be complete before the one they wait for; more of them wait their turn.
const RING: usize = 1024;
/// Looks at the watermark before a commit gives its core away, and before it blocks: the commits
/// it waits for are in the middle of inserting, which takes about a microsecond.
const SPINS: u32 = 64;
const YIELDS: u32 = 16;
/// After that the thread of one of them lacks a processor. For this long it is not said that the commit waits, because another
/// worker would begin a request then, and take the processor that is lacking.
const BRIEFLY: Duration = Duration::from_millis(1);

/// A stripe without snapshots.
const NONE: u64 = u64::MAX;

pub(crate) struct Snapshots {
    complete: Padded<AtomicU64>,
    /// Commits are held back until they are said to be committed; without it what is complete is visible.
    held_back: OnceLock<Box<HeldBack>>,
    /// One for each [`Watch`].
    stripes: [Box<[Padded<Stripe>; STRIPES]>; 3],
    kept_states: KeptStates,
    /// Commit `ts` is complete when slot `ts % RING` holds `ts`.
    ring: Box<[AtomicU64]>,
    /// Some commit will never be complete: nobody waits for the watermark any more.
    abandoned: AtomicBool,
    /// Commits that wait until the watermark has moved.
    waiters: AtomicUsize,
    wait_lock: Mutex<()>,
    advanced: Condvar,
}

/// What the owner of a snapshot asks of the lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// It reads, or writes whatever was committed since.
    Nothing,
    /// Whether a key that it locks was committed to since.
    Commits,
    /// Nothing; it reads what is complete, visible or not.
    Newest,
}

struct Stripe {
    /// At or below the stripe's oldest snapshot; changed under the lock of `live`.
    oldest: AtomicU64,
    /// Snapshots of now that were ever taken; changed under the lock of `live`.
    taken: AtomicU64,
    live: Mutex<Live>,
}

/// The snapshots of one stripe: (timestamp, how many), ascending because the watermark only grows.
#[derive(Default)]
struct Live {
    queue: VecDeque<(u64, u32)>,
    /// Entries of `queue` that count nobody any more.
    spent: usize,
}

impl Snapshots {
    pub(crate) fn new(showing: Showing) -> Self {
        let held_back = match showing {
            Showing::Complete => OnceLock::new(),
            Showing::Committed => OnceLock::from(Box::default()),
        };
        let stripe = |_| {
            Padded(Stripe {
                oldest: AtomicU64::new(NONE),
                taken: AtomicU64::new(0),
                live: Mutex::new(Live::default()),
            })
        };
        Self {
            complete: Padded::default(),
            held_back,
            stripes: std::array::from_fn(|_| Box::new(std::array::from_fn(stripe))),
            kept_states: KeptStates::default(),
            ring: (0..RING).map(|_| AtomicU64::new(0)).collect(),
            abandoned: AtomicBool::new(false),
            waiters: AtomicUsize::new(0),
            wait_lock: Mutex::new(()),
            advanced: Condvar::new(),
        }
    }

    /// Every commit up to here is complete.
    pub(crate) fn complete(&self) -> Complete {
        Complete::at(self.complete.load(Ordering::SeqCst))
    }

    /// Every commit up to here is visible.
    pub(crate) fn visible(&self) -> Visible {
        match self.held_back.get() {
            None => Visible::at(self.complete.load(Ordering::SeqCst)),
            Some(held_back) => held_back.visible(),
        }
    }

    /// Whether commits are held back until they are said to be committed.
    pub(crate) fn holds_back(&self) -> bool {
        self.held_back.get().is_some()
    }

    /// From now on they are. Only before the first commit: what is visible stays so.
    pub(crate) fn hold_back(&self) {
        assert_eq!(self.complete().get(), 0, "nothing is visible yet");
        let _is_so_already = self.held_back.set(Box::default());
    }

    /// Has this called when somebody waits for a commit that is held back.
    pub(crate) fn set_notify(&self, notify: Notify) {
        if let Some(held_back) = self.held_back.get() {
            held_back.set_notify(notify);
        }
    }

    /// The newest commit that somebody waits for, or has waited for.
    pub(crate) fn awaited(&self) -> u64 {
        self.held_back.get().map_or(0, |held_back| held_back.awaited())
    }

    /// How many must wait for commits that are held back before it is told that somebody does.
    pub(crate) fn notify_from(&self, waiting: u64) {
        if let Some(held_back) = self.held_back.get() {
            held_back.notify_from(waiting);
        }
    }

    /// How many wait for commits that are held back.
    pub(crate) fn waiting(&self) -> u64 {
        self.held_back.get().map_or(0, |held_back| held_back.waiting())
    }

    /// How many were told that their commit is visible, since this was asked last.
    pub(crate) fn take_released(&self) -> u64 {
        self.held_back.get().map_or(0, |held_back| held_back.take_released())
    }

    /// Sets the first complete watermark, before anybody reads. Where commits are held back, none above
    /// what was said to be committed becomes visible by it.
    pub(crate) fn start_at(&self, complete: u64) {
        self.complete.store(complete, Ordering::SeqCst);
        self.settle();
    }

    /// Every commit up to here is on a majority of the set; says whether more became visible.
    pub(crate) fn advance_commit_point(&self, timestamp: u64) -> bool {
        if let Some(held_back) = self.held_back.get() {
            held_back.commit(timestamp);
        }
        self.settle()
    }

    /// What is complete and committed is visible when this returns, also where who has completed it is about to
    /// make it so.
    pub(crate) fn show_complete(&self) {
        self.settle();
    }

    /// Commits above `timestamp`, which are complete and not visible, have never been: it is the newest
    /// complete one. Nobody publishes meanwhile, and nobody reads above.
    pub(crate) fn forget_after(&self, timestamp: u64) {
        let visible = self.visible().get();
        assert!(visible <= timestamp, "what is visible stays: {visible}, not {timestamp}");
        // First: who finds the era to be what it was has read the complete watermark before it goes back.
        self.begin_era();
        for slot in &self.ring {
            // Else a commit that is given its number would count as complete before it is.
            if slot.load(Ordering::SeqCst) > timestamp {
                slot.store(0, Ordering::SeqCst);
            }
        }
        self.complete.store(timestamp, Ordering::SeqCst);
        if let Some(held_back) = self.held_back.get() {
            held_back.overwrite(timestamp);
        }
    }

    /// Up to here commits are said to be committed.
    pub(crate) fn committed_to(&self) -> u64 {
        self.held_back.get().map_or(u64::MAX, |held_back| held_back.committed())
    }

    fn settle(&self) -> bool {
        self.held_back.get().is_some_and(|held_back| held_back.settle(self.complete()))
    }

    /// To be told when a commit that was given in an era becomes visible; `None` where it is.
    pub(crate) fn until_visible(&self, timestamp: u64, era: u64) -> Option<Arc<CommitWaiter>> {
        self.held_back.get().and_then(|held_back| held_back.wait_for(timestamp, era))
    }

    /// What has become of a commit that was given in an era.
    pub(crate) fn state(&self, timestamp: u64, era: u64) -> CommitState {
        let held_back = self.held_back.get();
        held_back.map_or(CommitState::Visible, |held_back| held_back.state(timestamp, era))
    }

    /// Has `call` made once a commit that was given in an era is decided; `None` where it is. Answers the key for
    /// [`Snapshots::unwatch`].
    pub(crate) fn watch(&self, timestamp: u64, era: u64, call: Call) -> Option<(u64, u64)> {
        self.held_back.get().and_then(|held_back| held_back.watch(timestamp, era, call))
    }

    /// Who waited for a commit has left, or was called.
    pub(crate) fn unwatch(&self, key: (u64, u64)) {
        if let Some(held_back) = self.held_back.get() {
            held_back.unwatch(key);
        }
    }

    /// Has `call` made once a commit that was given in an era is visible; now, where it is.
    pub(crate) fn when_visible(&self, timestamp: u64, era: u64, call: WhenVisible) {
        match self.held_back.get() {
            Some(held_back) => held_back.when_visible(timestamp, era, call),
            None => call(),
        }
    }

    /// The era: another one since each tail that was overwritten, and each time that writes were refused.
    pub(crate) fn era(&self) -> u64 {
        self.held_back.get().map_or(0, |held_back| held_back.era())
    }

    /// Who has read so far commits nothing any more.
    pub(crate) fn begin_era(&self) {
        if let Some(held_back) = self.held_back.get() {
            held_back.begin_era();
        }
    }

    /// Returns when every commit up to here is complete; false where that never will be.
    pub(crate) fn wait_complete(&self, timestamp: u64) -> bool {
        self.wait_for(timestamp)
    }

    /// What is read now by who asks for this.
    fn now(&self, watch: Watch) -> u64 {
        match watch {
            Watch::Nothing | Watch::Commits => self.visible().get(),
            Watch::Newest => self.complete().get(),
        }
    }

    /// Registers a snapshot of now in a stripe; says its timestamp.
    fn register(&self, watch: Watch, stripe: usize) -> u64 {
        let stripe = self.stripe(watch, stripe);
        let mut live = stripe.live.lock();
        let mut timestamp = self.now(watch);
        // The complete watermark goes back where commits are overwritten.
        if live.queue.front().is_none_or(|(oldest, _)| *oldest > timestamp) {
            loop {
                stripe.oldest.store(timestamp, Ordering::SeqCst);
                let now = self.now(watch);
                if now == timestamp {
                    break;
                }
                timestamp = now;
            }
        }
        let announced = stripe.oldest.load(Ordering::Relaxed);
        debug_assert!(announced <= timestamp, "a snapshot is announced before it is read");
        live.add(timestamp);
        stripe.taken.store(stripe.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        timestamp
    }

    /// How many snapshots of now were ever taken: how much is read and begun.
    pub(crate) fn taken(&self) -> u64 {
        let stripes = self.stripes.iter().flat_map(|stripes| stripes.iter());
        stripes.map(|stripe| stripe.taken.load(Ordering::Relaxed)).sum()
    }

    /// Registers one more of a snapshot that the caller holds in this stripe.
    fn register_again(&self, watch: Watch, stripe: usize, timestamp: u64) {
        self.stripe(watch, stripe).live.lock().add_again(timestamp);
    }

    fn stripe(&self, watch: Watch, stripe: usize) -> &Stripe {
        &self.stripes[watch as usize][stripe].0
    }

    fn release(&self, watch: Watch, stripe: usize, timestamp: u64) {
        let stripe = self.stripe(watch, stripe);
        let mut live = stripe.live.lock();
        live.remove(timestamp);
        let oldest = live.queue.front().map_or(NONE, |(oldest, _)| *oldest);
        if stripe.oldest.load(Ordering::Relaxed) != oldest {
            stripe.oldest.store(oldest, Ordering::Release);
        }
    }

    /// At or below the oldest timestamp anybody reads at, now or later. Takes no lock.
    pub(crate) fn oldest(&self) -> u64 {
        let horizon = self.visible().get();
        let announced = self.stripes.iter().map(|stripes| announced_in(stripes));
        announced.fold(horizon, u64::min).min(self.kept_states.oldest_reader())
    }

    /// As [`Snapshots::oldest`], of those who [`Watch::Commits`].
    pub(crate) fn oldest_watching(&self) -> u64 {
        let horizon = self.visible().get();
        horizon.min(announced_in(&self.stripes[Watch::Commits as usize]))
    }

    /// As [`Snapshots::oldest`], kept states included.
    pub(crate) fn oldest_kept(&self) -> u64 {
        self.oldest().min(self.kept_states.oldest_kept())
    }

    /// Keeps every state from `since` on, or none beyond what is read. What was let go does not
    /// come back.
    pub(crate) fn retain_states_since(&self, since: Option<u64>) {
        self.kept_states.keep(since, || self.visible());
    }

    /// What merges must keep.
    pub(crate) fn visibility(&self) -> Visibility {
        // First: whoever registers in a stripe that was looked at sees at least this watermark.
        let visible = self.visible();
        let mut timestamps = Vec::new();
        for stripe in self.stripes.iter().flat_map(|stripes| stripes.iter()) {
            timestamps.extend(stripe.live.lock().timestamps());
        }
        let floor = self.kept_states.tell(&mut timestamps);
        let visibility = Visibility::new(visible.get().min(floor), &timestamps);
        // On disk nothing is ever undone.
        if self.holds_back() { visibility.draining_to(visible.get()) } else { visibility }
    }

    /// How many snapshots are out.
    pub(crate) fn live(&self) -> usize {
        let count = |stripe: &Padded<Stripe>| {
            stripe.live.lock().queue.iter().map(|(_, count)| *count as usize).sum::<usize>()
        };
        let stripes = self.stripes.iter().flat_map(|stripes| stripes.iter());
        stripes.map(count).sum::<usize>() + self.kept_states.readers()
    }

    /// A commit's writes are all in their trees: moves the watermark over it and over whatever was
    /// waiting behind it, or leaves that to the commit before it; returns when the watermark has
    /// passed `timestamp`. False where it never will: see [`Snapshots::abandon`].
    #[must_use]
    pub(crate) fn publish(&self, timestamp: u64) -> bool {
        let complete = self.complete().get();
        assert!(timestamp > complete, "commit {timestamp} is published twice");
        if complete + 1 == timestamp {
            // It is the next one, and nobody else moves the watermark over it: threads that
            // commit one after the other do not meet in the ring.
            self.complete.store(timestamp, Ordering::SeqCst);
            self.advance(true);
            self.settle();
            return true;
        }
        // Its slot's last user must have been passed.
        if !self.wait_for(timestamp.saturating_sub(RING as u64)) {
            return false;
        }
        let before = self.slot(timestamp).swap(timestamp, Ordering::SeqCst);
        assert!(before < timestamp, "a slot of the ring is used again by a later commit");
        self.advance(false);
        self.settle();
        self.wait_for(timestamp)
    }

    /// As [`Snapshots::publish`], of all commits up to `timestamp` at once, where nobody else commits.
    pub(crate) fn publish_all(&self, timestamp: u64) {
        let complete = self.complete().get();
        assert!(timestamp > complete, "commits up to {timestamp} are published twice");
        self.complete.store(timestamp, Ordering::SeqCst);
        self.advance(true);
        self.settle();
    }

    /// Some commit will never be published: those behind it stop waiting for it.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        drop(self.wait_lock.lock());
        self.advanced.notify_all();
    }

    /// Moves the watermark over complete commits; `moved` where the caller has moved it too. Of two
    /// commits that complete at once, the later store (into the ring, or of the watermark) is
    /// followed by a look that sees the earlier one: none is left behind.
    fn advance(&self, mut moved: bool) {
        let mut at = self.complete().get();
        while self.slot(at + 1).load(Ordering::SeqCst) == at + 1 {
            let (from, to) = (at, at + 1);
            match self.complete.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => (at, moved) = (to, true),
                Err(now) => at = now,
            }
        }
        if moved && self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.wait_lock.lock());
            self.advanced.notify_all();
        }
    }

    fn slot(&self, timestamp: u64) -> &AtomicU64 {
        &self.ring[timestamp as usize % RING]
    }

    /// Returns when the watermark is at or past `timestamp`, or nobody waits any more: false.
    fn wait_for(&self, timestamp: u64) -> bool {
        for look in 0..SPINS + YIELDS {
            if self.complete().get() >= timestamp {
                return true;
            }
            if look < SPINS {
                spin_loop();
            } else {
                yield_now();
            }
        }
        let mut guard = self.wait_lock.lock();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut is_brief = true;
        let passed = loop {
            if self.complete().get() >= timestamp {
                break true;
            }
            if self.abandoned.load(Ordering::SeqCst) {
                break false;
            }
            if is_brief {
                is_brief = !self.advanced.wait_briefly(&mut guard, BRIEFLY).timed_out();
            } else {
                self.advanced.wait(&mut guard);
            }
        };
        let before = self.waiters.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "who wakes up has slept");
        passed
    }
}

fn announced_in(stripes: &[Padded<Stripe>; STRIPES]) -> u64 {
    stripes.iter().fold(NONE, |oldest, stripe| oldest.min(stripe.oldest.load(Ordering::SeqCst)))
}

impl Live {
    /// A snapshot of now: none in the queue is newer, unless what it read was overwritten since.
    fn add(&mut self, timestamp: u64) {
        match self.queue.back_mut() {
            Some((newest, count)) if *newest == timestamp => *count += 1,
            Some((newest, _)) if *newest > timestamp => match self.place(timestamp) {
                Ok(at) => {
                    self.spent -= usize::from(self.queue[at].1 == 0);
                    self.queue[at].1 += 1;
                }
                Err(at) => self.queue.insert(at, (timestamp, 1)),
            },
            _ => self.queue.push_back((timestamp, 1)),
        }
    }

    fn add_again(&mut self, timestamp: u64) {
        let place = self.place(timestamp);
        debug_assert!(place.is_ok(), "only a snapshot that is held is held once more");
        if let Ok(at) = place {
            self.queue[at].1 += 1;
        }
    }

    fn remove(&mut self, timestamp: u64) {
        let place = self.place(timestamp);
        debug_assert!(place.is_ok(), "a snapshot is let go of once");
        let Ok(at) = place else { return };
        assert!(self.queue[at].1 > 0, "a snapshot is let go of once");
        self.queue[at].1 -= 1;
        if self.queue[at].1 > 0 {
            return;
        }
        self.spent += 1;
        while self.queue.front().is_some_and(|(_, count)| *count == 0) {
            self.queue.pop_front();
            self.spent -= 1;
        }
        while self.queue.back().is_some_and(|(_, count)| *count == 0) {
            self.queue.pop_back();
            self.spent -= 1;
        }
        // Between an old snapshot and a new one the spent could pile up.
        if self.spent > 16 && self.spent * 2 > self.queue.len() {
            self.queue.retain(|(_, count)| *count > 0);
            self.spent = 0;
        }
        debug_assert!(self.spent <= self.queue.len(), "what is spent is in the queue");
    }

    fn place(&self, timestamp: u64) -> Result<usize, usize> {
        self.queue.binary_search_by_key(&timestamp, |(timestamp, _)| *timestamp)
    }

    fn timestamps(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().filter(|(_, count)| *count > 0).map(|(timestamp, _)| *timestamp)
    }
}

/// A registered snapshot, and the handle it was taken through; dropping it lets its versions go.
pub(crate) struct Pinned {
    pub(crate) timestamp: u64,
    /// What the lock table remembers for it; nothing where it is [past](Self::is_past).
    watch: Watch,
    /// Taken of a kept state.
    is_past: bool,
    handle: Arc<EngineHandle>,
    registered: bool,
    /// When it was taken, or before.
    era: u64,
}

impl Pinned {
    /// The state as of now.
    pub(crate) fn new(handle: &Arc<EngineHandle>) -> Self {
        Self::watching(Watch::Nothing, handle)
    }

    /// The state as of now, of somebody who asks the lock table for this.
    pub(crate) fn watching(watch: Watch, handle: &Arc<EngineHandle>) -> Self {
        // First: what it sees is of this era or a later one.
        let era = handle.snapshots.era();
        let timestamp = handle.snapshots.register(watch, handle.stripe());
        // Where another entry has taken the place of the newest ones since, the watermark went back behind a new era.
        debug_assert!(
            timestamp <= handle.snapshots.complete().get() || handle.snapshots.era() != era,
            "only complete commits are seen"
        );
        let handle = Arc::clone(handle);
        Self { timestamp, watch, is_past: false, handle, registered: true, era }
    }

    /// A kept state; `None` where it is gone, or yet to come.
    pub(crate) fn past(handle: &Arc<EngineHandle>, timestamp: u64) -> Option<Self> {
        let snapshots = &handle.snapshots;
        let era = snapshots.era();
        snapshots.kept_states.enter(timestamp, || snapshots.visible()).then(|| Self {
            timestamp,
            watch: Watch::Nothing,
            is_past: true,
            handle: Arc::clone(handle),
            registered: true,
            era,
        })
    }

    /// The newest complete state, visible or not.
    pub(crate) fn newest(handle: &Arc<EngineHandle>) -> Self {
        Self::watching(Watch::Newest, handle)
    }

    /// What it asks the lock table for.
    pub(crate) fn watch(&self) -> Watch {
        self.watch
    }

    /// Whether the lock table knows of every commit since, but for those it says it forgot.
    pub(crate) fn watches_commits(&self) -> bool {
        self.watch == Watch::Commits
    }

    pub(crate) fn handle(&self) -> &Arc<EngineHandle> {
        &self.handle
    }

    /// When it was taken, or before.
    pub(crate) fn era(&self) -> u64 {
        self.era
    }

    /// Lets the versions go before its end; it must not be read at any more.
    pub(crate) fn release(&mut self) {
        if !std::mem::take(&mut self.registered) {
            return;
        }
        if self.is_past {
            self.handle.snapshots.kept_states.leave(self.timestamp);
        } else {
            self.handle.snapshots.release(self.watch, self.handle.stripe(), self.timestamp);
        }
    }
}

impl Clone for Pinned {
    fn clone(&self) -> Self {
        if self.registered && self.is_past {
            self.handle.snapshots.kept_states.enter_again(self.timestamp);
        } else if self.registered {
            self.handle.snapshots.register_again(self.watch, self.handle.stripe(), self.timestamp);
        }
        Self { handle: Arc::clone(&self.handle), ..*self }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests;

//! What a thread has written and read before others may see it: where commits are held back, an answer
//! that tells of it waits until they may.
//!
//! From → to: statements submit their commits and remember them for the thread ([`Engine::remember`]); those
//! that write nothing, or fail, remember what they may have read ([`Engine::newest_since`]); before the thread
//! answers, it waits once for all of it ([`Engine::settle`]), or takes it along to answer later
//! ([`Engine::take_unsettled`]).
//!
//! Always true:
//! 1. What is remembered of one era is the newest of it: whatever comes before that in the log is visible with
//!    it, or void with it.
//! 2. It is forgotten only when it is decided, or by who begins something else on the thread.
//! 3. An engine that shows every complete commit remembers nothing.

use crate::handle::EngineHandle;
use crate::snapshots::{CommitState, Pinned, WhenVisible};
use crate::submitted::{Seen, Submitted};
use crate::{Engine, Error, Result, Snapshot};
use os::Call;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Eras that are told apart for one thread. One that takes part in more of them has seen something void, as
/// far as it knows.
const MOST_ERAS: usize = 16;

thread_local! {
    static UNSETTLED: RefCell<Vec<(u64, Seen)>> = const { RefCell::new(Vec::new()) };
}

static NEXT_HOLDER: AtomicU64 = AtomicU64::new(0);

/// Names an engine among those of the process.
pub(crate) fn new_holder() -> u64 {
    NEXT_HOLDER.fetch_add(1, Ordering::Relaxed)
}

/// How a wait for a thread's statements ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleOutcome {
    /// Readers see all that they have written and read.
    Settled,
    /// The time was over first. It goes on being remembered.
    TimedOut,
}

/// What a thread has written and read before readers saw it, taken from the thread: an answer that tells of it
/// waits on no thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsettled(Vec<Seen>);

/// A place among those who wait for a commit to be decided, given up when this is dropped.
#[must_use]
pub struct DecisionWatch {
    handle: Arc<EngineHandle>,
    key: (u64, u64),
}

impl Drop for DecisionWatch {
    fn drop(&mut self) {
        self.handle.snapshots.unwatch(self.key);
    }
}

impl std::fmt::Debug for DecisionWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DecisionWatch({})", self.key.0)
    }
}

/// Forgets what this thread has written and read and not waited for: it begins something else.
pub fn forget_unsettled() {
    UNSETTLED.with_borrow_mut(Vec::clear);
}

/// Runs something whose writes and reads are not the thread's.
pub(crate) fn besides<T>(work: impl FnOnce() -> T) -> T {
    let before = UNSETTLED.take();
    let result = work();
    UNSETTLED.set(before);
    result
}

impl Seen {
    /// Part of what was read may be void: it waits for nothing.
    const VOID: Self = Self { timestamp: u64::MAX, era: u64::MAX };
}

impl Engine {
    /// Whether commits are held back until they are said to be committed.
    pub fn holds_back(&self) -> bool {
        self.environment().snapshots.holds_back()
    }

    /// A view of the newest complete state, whether readers see it yet or not, and what has to be visible
    /// before anything of it is told.
    pub fn newest_snapshot(&self) -> (Snapshot, Seen) {
        let pinned = Pinned::newest(self.handle());
        let seen = Seen { timestamp: pinned.timestamp, era: pinned.era() };
        (Snapshot::of(&pinned, None, None), seen)
    }

    /// The most that a transaction which began with `begun` can have read by now: under a lock it reads
    /// versions that are newer than its snapshot.
    pub fn newest_since(&self, begun: Seen) -> Seen {
        let snapshots = &self.environment().snapshots;
        // First: it goes back only after another era has begun. Who begins while it does has its snapshot,
        // which is void in the era after that, and nothing newer: nobody writes.
        let timestamp = snapshots.complete().get().max(begun.timestamp);
        if snapshots.era() != begun.era {
            return Seen::VOID;
        }
        Seen { timestamp, ..begun }
    }

    /// Remembers for this thread that it has written or read this.
    pub fn remember(&self, seen: Seen) {
        if !self.holds_back() {
            return;
        }
        let holder = self.environment().holder;
        // A thread that ends has nobody left to answer.
        let _ends = UNSETTLED.try_with(|unsettled| {
            let mut unsettled = unsettled.borrow_mut();
            let of_era = |(known, read): &(u64, Seen)| *known == holder && read.era == seen.era;
            if let Some(at) = unsettled.iter().position(of_era) {
                let known = &mut unsettled[at].1;
                known.timestamp = known.timestamp.max(seen.timestamp);
            } else if unsettled.len() < MOST_ERAS {
                unsettled.push((holder, seen));
            } else {
                unsettled.retain(|(known, _)| *known != holder);
                unsettled.push((holder, Seen::VOID));
            }
            debug_assert!(unsettled.len() <= MOST_ERAS, "what a thread remembers is bounded");
        });
    }

    /// Returns once readers see all that this thread has written and read, until `deadline` of the monotonic
    /// clock at most. It is forgotten then.
    ///
    /// # Errors
    /// As [`Submitted::wait`]; it goes on being remembered, but where part of it was overwritten.
    pub fn settle(&self, deadline: Option<Duration>) -> Result<SettleOutcome> {
        if !self.holds_back() {
            return Ok(SettleOutcome::Settled);
        }
        let holder = self.environment().holder;
        let own: Vec<Seen> = UNSETTLED.with_borrow(|unsettled| {
            let own = unsettled.iter().filter(|(known, _)| *known == holder);
            own.map(|(_, seen)| *seen).collect()
        });
        let now = self.environment().snapshots.era();
        let has_been = |seen: &Seen| *seen == Seen::VOID || seen.era <= now;
        debug_assert!(own.iter().all(has_been), "what is remembered was read before");
        // What is void already decides it, whatever becomes of the rest.
        let void = own.iter().filter(|seen| **seen == Seen::VOID);
        let mut outcome = Ok(SettleOutcome::Settled);
        for seen in void.chain(&own) {
            match self.wait_visible_until(*seen, deadline) {
                Ok(true) => {}
                Ok(false) => return Ok(SettleOutcome::TimedOut),
                Err(Error::Overwritten) => {
                    outcome = Err(Error::Overwritten);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        UNSETTLED.with_borrow_mut(|unsettled| unsettled.retain(|(known, _)| *known != holder));
        outcome
    }

    /// Takes from this thread what it has written and read and not waited for.
    pub fn take_unsettled(&self) -> Unsettled {
        let holder = self.environment().holder;
        UNSETTLED.with_borrow_mut(|unsettled| {
            let own = unsettled.extract_if(.., |(known, _)| *known == holder);
            Unsettled(own.map(|(_, seen)| seen).collect())
        })
    }

    /// Whether readers see all of this by now.
    ///
    /// # Errors
    /// [`Error::Overwritten`] where part of it never will be seen; [`Error::Stopped`] where the engine has
    /// stopped before it was.
    pub fn is_settled(&self, unsettled: &Unsettled) -> Result<bool> {
        let mut is_settled = true;
        for seen in &unsettled.0 {
            match self.commit_state(*seen) {
                CommitState::Visible => {}
                // It decides, whatever becomes of the rest.
                CommitState::Overwritten => return Err(Error::Overwritten),
                CommitState::Pending => is_settled = false,
            }
        }
        if !is_settled {
            self.environment().health.check_running()?;
        }
        Ok(is_settled)
    }

    /// Has `call` made once part of this is decided that is not yet; `None` where all of it is. It must not wait:
    /// it is called on the thread that finds out. The engine's stop makes no call.
    pub fn watch_unsettled(&self, unsettled: &Unsettled, call: &Call) -> Option<DecisionWatch> {
        let snapshots = &self.environment().snapshots;
        let mut undecided = unsettled.0.iter().filter(|seen| **seen != Seen::VOID);
        let key = undecided
            .find_map(|seen| snapshots.watch(seen.timestamp, seen.era, Arc::clone(call)))?;
        Some(DecisionWatch { handle: Arc::clone(self.handle()), key })
    }

    /// What has become of this state: whether readers see it, or never will.
    pub fn commit_state(&self, seen: Seen) -> CommitState {
        if seen == Seen::VOID {
            return CommitState::Overwritten;
        }
        self.environment().snapshots.state(seen.timestamp, seen.era)
    }

    /// Returns once readers see this state: what a statement answers that has read it before they did.
    ///
    /// # Errors
    /// As [`Submitted::wait`].
    pub fn wait_visible(&self, seen: Seen) -> Result<()> {
        self.wait_visible_until(seen, None).map(drop)
    }

    /// As [`Engine::wait_visible`], until `deadline` of the monotonic clock at most; says whether readers see it.
    ///
    /// # Errors
    /// As [`Submitted::wait`].
    pub fn wait_visible_until(&self, seen: Seen, deadline: Option<Duration>) -> Result<bool> {
        if seen == Seen::VOID {
            return Err(Error::Overwritten);
        }
        Submitted::of(self.handle(), (seen.timestamp, seen.era), 0, 0).wait_until(deadline)
    }

    /// Returns once readers see all that is complete now. At once where this member does not lead its set:
    /// what it holds is another one's, and may wait for long.
    ///
    /// # Errors
    /// As [`Submitted::wait`].
    pub fn wait_complete_visible(&self) -> Result<()> {
        self.wait_complete_visible_until(None).map(drop)
    }

    /// As [`Engine::wait_complete_visible`], until `deadline` of the monotonic clock at most; says whether they do.
    ///
    /// # Errors
    /// As [`Submitted::wait`].
    pub fn wait_complete_visible_until(&self, deadline: Option<Duration>) -> Result<bool> {
        if !self.holds_back() || self.environment().commits.order.lock().refuses_writes {
            return Ok(true);
        }
        let (snapshot, seen) = self.newest_snapshot();
        drop(snapshot);
        self.wait_visible_until(seen, deadline)
    }

    /// Has `call` made once readers see this state: now, where they do; never, where it is overwritten. On the
    /// thread that finds out, so it must not wait.
    pub fn when_visible(&self, seen: Seen, call: impl FnOnce() + Send + 'static) {
        let call: WhenVisible = Box::new(call);
        self.environment().snapshots.when_visible(seen.timestamp, seen.era, call);
    }
}

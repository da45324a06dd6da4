//! Scheduling: what background work is done next, by whom, and how fast writers may go on.
//!
//! ```text
//!  load     what the engine looks like now: plain numbers
//!     │     gathered under the queue's lock, without a look at the disk
//!     ▼
//!  policy   what is to be done: pure functions of a load and the tuning
//!     │
//!     ▼
//!  queue    which trees may have work, and who is at it
//!  workers  the threads: ask, run, report
//!  seals    which memtables are closed, so that they can be drained
//!  writers  how long a writer waits for memory
//!  activity how much the engine is used
//! ```
//!
//! What is always true: nothing in [`policy`] reads a clock, takes a lock or has a state. So every
//! decision that an ADR describes is a row of a table in its tests, and the simulator decides by
//! the same functions as the threads do. See ADR 32.

mod activity;
pub(crate) mod load;
pub(crate) mod policy;
pub(crate) mod queue;
mod seals;
mod threads;
mod workers;
mod writers;

use crate::adjustable::Adjustable;
use crate::counters::Counters;
use crate::dictionary::{Dictionary, Directory};
use crate::health::Health;
use crate::interrupt::MayWait;
use crate::memory::WriteBudget;
use crate::settings::{Background, Options, PlantedBug};
use crate::snapshots::Snapshots;
use crate::tuning::Tuning;
use activity::ActivityMeter;
use cachetable::CacheTable;
use load::{CleanerLoad, IdleWork, Load, ReadBackoff, TreeLoad};
use os::{Clock, Padded};
use parking_lot::Mutex;
use queue::{Queue, WorkQueue};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
pub(crate) use threads::Threads;

const TUNING: &Tuning = &Tuning::STANDARD;

/// Background work on trees, and the pace of writers: what decides about it, and does it.
pub(crate) struct Scheduler {
    pub(crate) queue: Padded<WorkQueue>,
    activity: ActivityMeter,
    /// Where commits are held back, the sealed layers that are not all visible: (a commit at or behind
    /// their newest, dictionary).
    held_layers: Mutex<BTreeSet<(u64, u64)>>,
    /// Until when background work backs off for foreground reads, in microseconds of the monotonic
    /// clock.
    read_backoff_until: AtomicU64,
    /// The last unit of background work found the disk full.
    no_space: AtomicBool,
    // When it was last done, in microseconds of the monotonic clock.
    last_clean: AtomicU64,
    last_wanted: AtomicU64,
    /// When the log last said that background work found the disk full; 0 is never.
    full_logged: AtomicU64,
    /// The cleaner has found something the last time.
    cleaned: AtomicBool,
    /// With `cleanerPeriod` and `cleanerIterations`.
    adjustable: Arc<Adjustable>,
    has_flushers: bool,
    planted: Option<PlantedBug>,
    memory: Arc<Padded<WriteBudget>>,
    directory: Arc<Directory>,
    snapshots: Arc<Snapshots>,
    cache: Arc<CacheTable>,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    counters: Arc<Counters>,
    may_wait: Arc<MayWait>,
}

/// What the scheduler works with.
pub(crate) struct Parts<'a> {
    pub(crate) options: &'a Options,
    pub(crate) adjustable: &'a Arc<Adjustable>,
    pub(crate) memory: &'a Arc<Padded<WriteBudget>>,
    pub(crate) directory: &'a Arc<Directory>,
    pub(crate) snapshots: &'a Arc<Snapshots>,
    pub(crate) cache: &'a Arc<CacheTable>,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) health: &'a Arc<Health>,
    pub(crate) counters: &'a Arc<Counters>,
    pub(crate) may_wait: &'a Arc<MayWait>,
}

impl Scheduler {
    /// A scheduler without work.
    pub(crate) fn new(parts: &Parts<'_>) -> Self {
        Self {
            queue: Padded::default(),
            activity: ActivityMeter::default(),
            held_layers: Mutex::default(),
            read_backoff_until: AtomicU64::new(0),
            no_space: AtomicBool::new(false),
            last_clean: AtomicU64::new(0),
            last_wanted: AtomicU64::new(0),
            full_logged: AtomicU64::new(0),
            cleaned: AtomicBool::new(false),
            adjustable: Arc::clone(parts.adjustable),
            has_flushers: parts.options.background == Background::Threads,
            planted: parts.options.sizes.planted,
            memory: Arc::clone(parts.memory),
            directory: Arc::clone(parts.directory),
            snapshots: Arc::clone(parts.snapshots),
            cache: Arc::clone(parts.cache),
            clock: Arc::clone(parts.clock),
            health: Arc::clone(parts.health),
            counters: Arc::clone(parts.counters),
            may_wait: Arc::clone(parts.may_wait),
        }
    }

    /// The last unit of background work found the disk full.
    pub(crate) fn found_no_space(&self) -> bool {
        self.no_space.load(Ordering::Relaxed)
    }

    fn now_us(&self) -> u64 {
        micros(self.clock.monotonic())
    }

    /// What a flusher decides from. Forgets dictionaries that are gone.
    fn load(&self, queue: &mut Queue) -> Load {
        let now = self.now_us();
        let since = |at: &AtomicU64| now.saturating_sub(at.load(Ordering::Relaxed));
        let choice = queue.choice();
        let mut trees = Vec::with_capacity(choice.len());
        self.directory.visit(&choice, |id, dictionary| match dictionary {
            Some(dictionary) => trees.push(tree_load(dictionary)),
            None => queue.remove(id),
        });
        let until = self.read_backoff_until.load(Ordering::Relaxed);
        Load {
            trees,
            working: queue.working(),
            since_filling_us: self.memory.since_filling(now),
            reads: ReadBackoff {
                left_us: until.saturating_sub(now),
                since_us: now.saturating_sub(until),
            },
            activity: self.activity(),
            since_wanted_us: since(&self.last_wanted),
            cleaner: self.cleaner_load(since(&self.last_clean)),
        }
    }

    fn cleaner_load(&self, since_us: u64) -> CleanerLoad {
        let (period, units) =
            (self.adjustable.cleaner_period(), self.adjustable.cleaner_iterations());
        let found = self.cleaned.load(Ordering::Relaxed);
        CleanerLoad { period_us: micros(period), units, since_us, found }
    }
}

fn tree_load(dictionary: &Dictionary) -> TreeLoad {
    let debt = dictionary.tree.debt();
    TreeLoad { tree: dictionary.id, sealed_bytes: debt.sealed_bytes, urgency: debt.urgency }
}

fn idle_work(dictionary: &Dictionary) -> IdleWork {
    let debt = dictionary.tree.debt();
    IdleWork {
        tree: dictionary.id,
        buffered_bytes: debt.buffered_bytes,
        // A range to be swept is work, whatever the number of its entries.
        garbage_entries: debt.garbage_entries + debt.tombstones as u64,
        lightly_compressed_bytes: debt.lightly_compressed_bytes,
    }
}

/// A time in the unit of loads.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Whether `period` (zero is never) has passed since `last`, in microseconds, which then is now.
pub(crate) fn is_due(last: &AtomicU64, now_us: u64, period: Duration) -> bool {
    let since = now_us.saturating_sub(last.load(Ordering::Relaxed));
    let due = policy::is_due(since, micros(period));
    if due {
        last.store(now_us, Ordering::Relaxed);
    }
    due
}

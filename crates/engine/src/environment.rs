//! Everything one open engine consists of, shared by its handles and threads: wiring only.
//!
//! Each part owns its state and holds the parts below that it works with:
//!
//! ```text
//!  commits ─► checkpoints ─► maintenance (free space, pruning) ─► schedule ─► memory
//!     └────────────┴──────────────┴─► log, snapshots, directory, locks, health, counters
//! ```
//!
//! Lock order: a checkpoint's → `CommitOrder` → `directory` → the log's index → the crates below. The
//! lock table and the snapshot registry are called with none of these held, except that a commit
//! publishes and releases last, and that a tail that is overwritten is forgotten in one step.

use crate::adjustable::Adjustable;
use crate::archiver::Archiver;
use crate::checkpoint::{CheckpointState, Checkpointer};
use crate::commit::Committer;
use crate::commit_order::CommitOrder;
use crate::counters::Counters;
use crate::dictionary::Directory;
use crate::health::Health;
use crate::helper::Helpers;
use crate::history::History;
use crate::interrupt::MayWait;
use crate::keys::DirectoryKeys;
use crate::live::{LiveTxns, Serializable};
use crate::log::Log;
use crate::maintenance::{FreeSpace, LogWriter, Maintenance, Pruning};
use crate::memory::WriteBudget;
use crate::open_records::OpenRecords;
use crate::schedule::{Parts, Scheduler, Threads};
use crate::settings::Options;
use crate::snapshots::Snapshots;
use crate::sorter::Sorters;
use crate::times::Times;
use crate::unapplied::Unapplied;
use crate::{Error, Result, unsettled};
use blockfile::BlockFile;
use cachetable::CacheTable;
use ftree::Context;
use locktree::LockTable;
use os::{LockGuard, Os, Padded};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use telemetry::Registry;

/// What one transaction tells readers of the history takes at most one part in so many of the cache's
/// bound, or the longest note.
const NOTES_SHARE: u64 = 4;

/// The records of a member's newest entries are kept in memory up to one part in so many of the cache's bound.
/// And up to so many bytes.
const KEPT_SHARE: u64 = 32;
const MOST_KEPT: u64 = 16 << 20;

pub(crate) struct Environment {
    pub(crate) os: Os,
    pub(crate) options: Options,
    /// What of them may have changed since.
    pub(crate) adjustable: Arc<Adjustable>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) health: Arc<Health>,
    pub(crate) blocks: BlockFile,
    pub(crate) cache: Arc<CacheTable>,
    pub(crate) trees: Arc<Context>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) live: Arc<LiveTxns>,
    pub(crate) serializable: Serializable,
    pub(crate) may_wait: Arc<MayWait>,
    // What commits write to lies on lines of its own, away from what every read looks at.
    pub(crate) log: Arc<Padded<Log>>,
    pub(crate) history: Option<Arc<History>>,
    pub(crate) memory: Arc<Padded<WriteBudget>>,
    pub(crate) schedule: Arc<Scheduler>,
    pub(crate) free_space: Arc<FreeSpace>,
    pub(crate) pruning: Pruning,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) checkpoints: Arc<Checkpointer>,
    pub(crate) log_writer: Arc<LogWriter>,
    pub(crate) archiver: Option<Arc<Archiver>>,
    pub(crate) commits: Committer,
    /// A leader's entries that are in the log and not in the trees yet; locked with nothing else held.
    pub(crate) unapplied: Mutex<Vec<Unapplied>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) sorters: Sorters,
    pub(crate) helpers: Helpers,
    /// What threads remember it by.
    pub(crate) holder: u64,
    threads: Threads,
    /// None where what is stored is not encrypted.
    pub(crate) keys: Option<DirectoryKeys>,
    /// Held while the engine is open; dropped by close.
    pub(crate) directory_lock: Mutex<Option<LockGuard>>,
    /// Held while the list of the backups is changed (`backup/written.rs`).
    pub(crate) backups_written: Mutex<()>,
}

/// What is opened before the parts are put together.
pub(crate) struct Opened {
    pub(crate) blocks: BlockFile,
    pub(crate) cache: Arc<CacheTable>,
    pub(crate) trees: Arc<Context>,
    pub(crate) locks: Arc<LockTable>,
    /// Bytes of a log segment.
    pub(crate) segment_bytes: u64,
    pub(crate) guard: LockGuard,
}

impl Environment {
    /// Puts the parts together.
    pub(crate) fn new(
        os: Os,
        registry: Arc<Registry>,
        options: Options,
        opened: Opened,
    ) -> Arc<Self> {
        let Opened { blocks, cache, trees, locks, segment_bytes, guard } = opened;
        let clock = &os.clock;
        let sizes = options.sizes;
        let keys = blocks.keys().zip(options.master.as_ref());
        let keys = keys.map(|(ring, master)| DirectoryKeys::new(ring, master));
        let (health, counters) = (Arc::new(Health::default()), Arc::new(Counters::new(&registry)));
        let (snapshots, may_wait) =
            (Arc::new(Snapshots::new(options.showing)), Arc::new(MayWait::default()));
        let directory = Arc::new(Directory::new(&trees, sizes));
        let live = Arc::new(LiveTxns::new(Arc::clone(clock)));
        let times = options.history.map(|_| Arc::new(Times::new(&snapshots, clock)));
        let order: Arc<Padded<Mutex<CommitOrder>>> = Arc::default();
        order.lock().open =
            OpenRecords::new(sizes.entry_bytes, (options.cache_size / KEPT_SHARE).min(MOST_KEPT));
        let log = Log::new(segment_bytes, times.clone(), &cache, clock, &health, &counters);
        let log = Arc::new(Padded(log));
        let history = options.history.zip(times).map(|(kept, times)| {
            let most_note_bytes = options.cache_size / NOTES_SHARE;
            Arc::new(History::new(kept, most_note_bytes, &log, &times, &order, clock))
        });
        let memory = Arc::new(Padded(WriteBudget::new(&sizes)));
        let adjustable = Arc::new(Adjustable::new(&options));
        let schedule = Arc::new(Scheduler::new(&Parts {
            options: &options,
            adjustable: &adjustable,
            memory: &memory,
            directory: &directory,
            snapshots: &snapshots,
            cache: &cache,
            clock,
            health: &health,
            counters: &counters,
            may_wait: &may_wait,
        }));
        let free_space = Arc::new(FreeSpace::new(
            (&options, &adjustable),
            &os,
            &blocks,
            &log,
            history.clone(),
            &memory,
            &schedule,
            &health,
        ));
        let pruning = Pruning {
            directory: Arc::clone(&directory),
            snapshots: Arc::clone(&snapshots),
            memory: Arc::clone(&memory),
            counters: Arc::clone(&counters),
        };
        let maintenance = Arc::new(Maintenance {
            last_round: AtomicU64::new(0),
            rounds_without_work: AtomicU64::new(0),
            compacted: Mutex::new(None),
            free_space: Arc::clone(&free_space),
            log: Arc::clone(&log),
            history: history.clone(),
            pruning: pruning.clone(),
            schedule: Arc::clone(&schedule),
            snapshots: Arc::clone(&snapshots),
            locks: Arc::clone(&locks),
            blocks: blocks.clone(),
            health: Arc::clone(&health),
            clock: Arc::clone(clock),
        });
        let checkpoints = Arc::new(Checkpointer {
            state: CheckpointState::default(),
            adjustable: Arc::clone(&adjustable),
            log_cap: sizes.log_cap,
            blocks: blocks.clone(),
            log: Arc::clone(&log),
            history: history.clone(),
            directory: Arc::clone(&directory),
            snapshots: Arc::clone(&snapshots),
            schedule: Arc::clone(&schedule),
            free_space: Arc::clone(&free_space),
            pruning: pruning.clone(),
            live: Arc::clone(&live),
            order: Arc::clone(&order),
            clock: Arc::clone(clock),
            health: Arc::clone(&health),
            counters: Arc::clone(&counters),
        });
        let log_writer =
            Arc::new(LogWriter::new(&log, &schedule, &locks, &cache, clock, &adjustable));
        let archiver = options.log_archive_dir.as_deref();
        let archiver =
            archiver.map(|dir| Arc::new(Archiver::new(dir, &options.dir, &os, &log, &schedule)));
        let commits = Committer {
            order,
            log: Arc::clone(&log),
            history: history.clone(),
            snapshots: Arc::clone(&snapshots),
            directory: Arc::clone(&directory),
            schedule: Arc::clone(&schedule),
            free_space: Arc::clone(&free_space),
            trees: Arc::clone(&trees),
            cache: Arc::clone(&cache),
            health: Arc::clone(&health),
            counters: Arc::clone(&counters),
            sizes,
            adjustable: Arc::clone(&adjustable),
        };
        Arc::new(Self {
            helpers: Helpers::new(&os.spawner, &health, options.background),
            threads: Threads::new(&os.spawner, &health),
            serializable: Serializable::default(),
            directory_lock: Mutex::new(Some(guard)),
            backups_written: Mutex::new(()),
            keys,
            os,
            options,
            adjustable,
            registry,
            health,
            blocks,
            cache,
            trees,
            directory,
            snapshots,
            locks,
            live,
            may_wait,
            log,
            history,
            memory,
            schedule,
            free_space,
            pruning,
            maintenance,
            checkpoints,
            log_writer,
            archiver,
            commits,
            unapplied: Mutex::default(),
            counters,
            sorters: Sorters::default(),
            holder: unsettled::new_holder(),
        })
    }

    /// Starts the threads that drain and merge: recovery has work for them already.
    pub(crate) fn start_flushers(&self) -> Result<()> {
        self.schedule.start();
        for number in 1..=self.options.sizes.flushers {
            let schedule = Arc::clone(&self.schedule);
            self.threads.start(&format!("fern-flush-{number}"), move || schedule.run_flusher())?;
        }
        Ok(())
    }

    /// Starts the other threads, which need the log.
    pub(crate) fn start_threads(&self) -> Result<()> {
        self.checkpoints.start();
        let log_writer = Arc::clone(&self.log_writer);
        log_writer.start();
        self.threads.start("fern-log", move || log_writer.run())?;
        let maintenance = Arc::clone(&self.maintenance);
        self.threads.start("fern-maintain", move || maintenance.run())?;
        if let Some(archiver) = self.archiver.clone() {
            self.threads.start("fern-archive", move || archiver.run())?;
        }
        let checkpoints = Arc::clone(&self.checkpoints);
        self.threads.start("fern-checkpoint", move || checkpoints.run())
    }

    /// Ends the threads, at their next unit, and waits for that.
    pub(crate) fn stop_threads(&self) {
        self.schedule.queue.stop();
        self.log.wake.notify();
        self.threads.join();
        self.trees.readers.stop();
    }

    /// Every commit up to here is on a majority of the set.
    pub(crate) fn advance_commit_point(&self, timestamp: u64) -> Result<()> {
        if !self.snapshots.holds_back() {
            let text = "every complete commit is shown: none is held back".to_owned();
            return Err(Error::InvalidOption(text));
        }
        if self.snapshots.advance_commit_point(timestamp) {
            self.commits.became_visible();
        }
        Ok(())
    }

    /// A failed write or sync below stops the engine; a full disk and damage do not.
    pub(crate) fn check<T, E: Into<Error>>(&self, result: Result<T, E>) -> Result<T> {
        self.health.check(result)
    }

    /// Makes every commit up to this position of the log durable.
    pub(crate) fn sync_log_to(&self, end: u64) -> Result<()> {
        self.log.sync_to(end)
    }

    /// The log, open for writing.
    pub(crate) fn wal(&self) -> &wal::Wal {
        self.log.wal()
    }
}

//! Checkpoints: every tree's root and the directory, durable in one step; then the log shrinks.
//!
//! ```text
//!  trees whose memtables hold back too much log are drained
//!  T = what is visible            dictionaries as of T
//!  each tree: pin the root        microseconds; writers and mergers go on
//!  each tree: store changed nodes
//!  blockfile: mark the moment     every segment those roots name is kept
//!  log: sync to its end           so nothing in the images is missing from the log
//!  blockfile: what changed in table and root, sync, superblock, sync
//!  log: trim what every tree has flushed
//! ```
//!
//! A crash anywhere shows the checkpoint before, and a log that reaches back to it. See
//! `docs/flows/checkpoint.md`.

mod root;
mod stats;

pub(crate) use root::{CheckpointRoot, MemberRoot};
pub use stats::CheckpointStats;

use crate::adjustable::Adjustable;
use crate::commit_order::CommitOrder;
use crate::counters::Counters;
use crate::dictionary::staged::STAGED;
use crate::dictionary::{Dictionary, Directory};
use crate::health::Health;
use crate::history::{self, History};
use crate::live::LiveTxns;
use crate::log::Log;
use crate::maintenance::{FreeSpace, Pruning};
use crate::schedule::load::CheckpointLoad;
use crate::schedule::policy::{self, CheckpointReason};
use crate::schedule::{Scheduler, micros};
use crate::snapshots::Snapshots;
use crate::tuning::Tuning;
use crate::{Error, Result, Timestamp};
use blockfile::{BlockFile, CheckpointMark, CheckpointWritten, Root};
use os::{Clock, Padded};
use parking_lot::Mutex;
use root::{CheckpointDigest, DictionaryImage, QUIESCENT};
use stats::{CheckpointCounters, CheckpointTimings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The last completed checkpoint, while none is being written.
#[derive(Default)]
struct Last {
    digest: CheckpointDigest,
    log_end: u64,
    mark: Option<CheckpointMark>,
}

/// What is known of the last checkpoint.
#[derive(Default)]
pub(crate) struct CheckpointState {
    /// Locked while one is being written.
    last: Mutex<Last>,
    counters: CheckpointCounters,
    /// The log's end when the last one was begun.
    log_end: AtomicU64,
    /// Bytes of the data file that waited for the next one when it was complete.
    dropped: AtomicU64,
    // When it was last begun, and last begun for the space it gives back, in microseconds of the
    // monotonic clock.
    begun: AtomicU64,
    begun_for_space: AtomicU64,
}

/// Writes checkpoints, one at a time.
pub(crate) struct Checkpointer {
    pub(crate) state: CheckpointState,
    /// With `checkpointPeriod`.
    pub(crate) adjustable: Arc<Adjustable>,
    /// Bytes of log between two checkpoints, at most.
    pub(crate) log_cap: u64,
    pub(crate) blocks: BlockFile,
    pub(crate) log: Arc<Padded<Log>>,
    pub(crate) history: Option<Arc<History>>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) schedule: Arc<Scheduler>,
    pub(crate) free_space: Arc<FreeSpace>,
    pub(crate) pruning: Pruning,
    pub(crate) live: Arc<LiveTxns>,
    pub(crate) order: Arc<Padded<Mutex<CommitOrder>>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<Counters>,
}

impl Checkpointer {
    /// What the checkpoint thread does, until everything stops.
    pub(crate) fn run(&self) {
        while !self.schedule.queue.is_stopping() {
            self.schedule.queue.pause(Tuning::STANDARD.checkpoint_look);
            if self.is_due() && self.has_changed() {
                self.schedule.report("write a checkpoint", self.write());
            }
        }
    }

    /// The period begins now.
    pub(crate) fn start(&self) {
        self.state.begun.store(micros(self.clock.monotonic()), Ordering::Relaxed);
    }

    /// Whether one is due now.
    pub(crate) fn is_due(&self) -> bool {
        let state = &self.state;
        let now = micros(self.clock.monotonic());
        let since = |at: &AtomicU64| now.saturating_sub(at.load(Ordering::Relaxed));
        let (end, log_end) = (self.log.wal().next_lsn(), state.log_end.load(Ordering::Relaxed));
        debug_assert!(log_end <= end, "the log only grows");
        let load = CheckpointLoad {
            period_us: micros(self.adjustable.checkpoint_period()),
            since_us: since(&state.begun),
            log_bytes: end.saturating_sub(log_end),
            log_cap: self.log_cap,
            idle: self.schedule.is_idle(),
            dropped_bytes: self.blocks.dropped_bytes(),
            dropped_before: state.dropped.load(Ordering::Relaxed),
            short_of_space: self.free_space.is_short_of_space(),
            since_space_us: since(&state.begun_for_space),
        };
        let reason = policy::checkpoint(&load, &Tuning::STANDARD);
        if reason == Some(CheckpointReason::Space) {
            state.begun_for_space.store(now, Ordering::Relaxed);
        }
        if reason.is_some() {
            state.begun.store(now, Ordering::Relaxed);
        }
        reason.is_some()
    }

    /// Checkpoints since the start, in figures.
    pub(crate) fn stats(&self) -> CheckpointStats {
        self.state.counters.get()
    }

    /// Writes a checkpoint. On `NoSpace` nothing has changed.
    pub(crate) fn write(&self) -> Result<()> {
        let mut last = self.state.last.lock();
        self.health.check_running()?;
        let written = self.write_checkpoint(&mut last);
        if written.is_err() {
            self.state.counters.failed();
        }
        written
    }

    /// Whether a checkpoint would hold anything that the last one does not.
    pub(crate) fn has_changed(&self) -> bool {
        let last = self.state.last.lock();
        let same_blocks = last.mark.is_some_and(|mark| !self.blocks.has_changed_since(mark));
        !same_blocks || self.log.wal().data_end() > last.log_end
    }

    /// What recovery found.
    pub(crate) fn begin_after(&self, root: &CheckpointRoot) {
        *self.state.last.lock() =
            Last { digest: CheckpointDigest::of(root), log_end: root.log_end, mark: None };
        self.state.log_end.store(root.log_end, Ordering::Relaxed);
    }

    fn write_checkpoint(&self, last: &mut Last) -> Result<()> {
        let clock = &self.clock;
        let started = clock.monotonic();
        let mut timings =
            CheckpointTimings { begun_ms: clock.wall_ms(), ..CheckpointTimings::default() };
        self.state.counters.begun(timings.begun_ms);
        match self.drain_laggards() {
            // Then the log stays longer.
            Err(Error::NoSpace(_)) => {}
            drained => drained?,
        }
        self.pruning.drop_invisible();
        let begin = clock.monotonic();
        let timestamp = self.snapshots.visible().get();
        let dictionaries = self.directory.listed_at(timestamp);
        let captures: Vec<_> = dictionaries
            .iter()
            .map(|(dictionary, _)| {
                // Nothing of a quiescent one is in memory only: it has flushed everything up to
                // now.
                let quiescent = !dictionary.is_behind();
                if quiescent {
                    dictionary.note_quiescent(timestamp);
                }
                (quiescent, dictionary.tree.capture())
            })
            .collect();
        timings.begin = clock.monotonic().saturating_sub(begin);
        let storing = clock.monotonic();
        let mut flushed = timestamp;
        let mut listed = Vec::with_capacity(dictionaries.len());
        // They pin what they name until the checkpoint is complete.
        let mut images = Vec::with_capacity(dictionaries.len());
        for ((dictionary, created), (quiescent, capture)) in dictionaries.iter().zip(captures) {
            let image = self.health.check(capture.image())?;
            let until = dictionary.flushed(image.flushed_ts());
            timings.nodes += image.written();
            flushed = flushed.min(if quiescent { timestamp } else { until });
            listed.push(DictionaryImage {
                id: dictionary.id,
                created: *created,
                flushed: if quiescent { QUIESCENT } else { until },
                options: self.directory.options_at(dictionary, timestamp),
                image: image.bytes().to_vec(),
            });
            images.push(image);
        }
        timings.node_time = clock.monotonic().saturating_sub(storing);
        let mark = self.blocks.begin_checkpoint();
        // Before the log is synced: what is said of it is on disk then.
        let member = self.member_at(timestamp);
        let log_end = self.log.wal().next_lsn();
        assert!(log_end >= last.log_end, "the log only grows");
        self.state.log_end.store(log_end, Ordering::Relaxed);
        self.log.sync_to(log_end)?;
        self.note_quiet_moment(timestamp);
        let open_from = member.as_ref().map_or(u64::MAX, |member| member.entries_from);
        // Never behind what was synced: the next start has to find this position in the log. Nor behind what
        // a member's start has to find of entries.
        let position = self.log.needed.lock().forget(flushed).min(log_end).min(open_from);
        let first = self.log.wal().first_lsn();
        debug_assert!(position >= first, "the log holds all that is needed of it");
        let visible = self.snapshots.visible().get();
        assert!(timestamp <= visible, "a checkpoint holds what is visible");
        let root = CheckpointRoot {
            timestamp,
            log_end,
            next_dictionary: self.directory.next_id(),
            next_txn: self.live.next_id(),
            time: self.time(),
            history_from: self.history.as_ref().map(|history| history.floor()),
            member,
            dictionaries: listed,
        };
        let finishing = clock.monotonic();
        timings.written = self.finish(mark, &root, &last.digest, position)?;
        let done = clock.monotonic();
        drop(images);
        let staged = dictionaries.iter().filter(|(_, created)| *created == STAGED);
        let staged: Vec<u64> = staged.map(|(dictionary, _)| dictionary.id).collect();
        self.directory.staging.note_durable(&staged);
        self.state.dropped.store(self.blocks.dropped_bytes(), Ordering::Relaxed);
        *last = Last { digest: CheckpointDigest::of(&root), log_end, mark: Some(mark) };
        if let Some(member) = &root.member {
            self.order.lock().entries.checkpointed(member.entry.index);
        }
        // Only now: the checkpoint before needed more of it.
        self.log.set_redo_from(position);
        self.trim(None)?;
        timings.finish = done.saturating_sub(finishing);
        let took = done.saturating_sub(started);
        self.counters.checkpoint_micros.record(took.as_micros() as u64);
        self.state.counters.completed(&timings, clock.wall_ms(), took);
        self.counters.checkpoints.inc();
        *self.counters.last_checkpoint.lock() = Some((Timestamp(timestamp), clock.wall_ms(), took));
        Ok(())
    }

    /// Lets go of what neither redo nor the history wants of the log; with `short` the history wants so
    /// many bytes at most.
    pub(crate) fn trim(&self, short: Option<u64>) -> Result<()> {
        history::trim(&self.log, self.history.as_deref(), short)
    }

    /// Says what changed, or all of it once the changes have grown as long.
    fn finish(
        &self,
        mark: CheckpointMark,
        root: &CheckpointRoot,
        digest: &CheckpointDigest,
        position: u64,
    ) -> Result<CheckpointWritten> {
        let change = root.encode_change(digest);
        let finish = |root: Root<'_>| self.blocks.finish_checkpoint(mark, root, position);
        if self.blocks.wants_whole_root(change.len()) {
            match finish(Root::Whole(&root.encode())) {
                // Where there is no room for all of it, there may be for the change.
                Err(blockfile::Error::NoSpace { .. }) if self.blocks.has_root() => {}
                whole => return self.health.check(whole),
            }
        }
        self.health.check(finish(Root::Change(&change)))
    }

    /// The newest time of what the checkpoint holds. Times of commits that may be overwritten, and given
    /// again, are not among them.
    fn time(&self) -> u64 {
        match &self.history {
            Some(history) if self.snapshots.holds_back() => history.times().visible().time,
            _ => self.order.lock().time,
        }
    }

    /// What is to be known of a log in which tails were, or may be, overwritten.
    fn member_at(&self, timestamp: u64) -> Option<MemberRoot> {
        let history = self.history.as_ref()?;
        let voids = history.voids().ranges().to_vec();
        let holds_back = self.snapshots.holds_back();
        if !holds_back && voids.is_empty() {
            return None;
        }
        let order = self.order.lock();
        let (entry, next) = if holds_back {
            order.entries.surely_committed(timestamp)
        } else {
            (order.entries.last(), None)
        };
        let first = next.into_iter().chain(order.open.start()).min();
        let entries_from = first.unwrap_or_else(|| self.log.wal().next_lsn());
        // A void entry is looked at with its records, or not at all.
        let void = voids.iter().find(|(_, to)| *to > entries_from).map(|(from, _)| *from);
        let entries_from = void.map_or(entries_from, |from| from.min(entries_from));
        let (configured, configuration) = match order.entries.configuration_at(entry.index) {
            Some((configured, told)) if configured > 0 => (configured, told.to_vec()),
            _ => (0, Vec::new()),
        };
        Some(MemberRoot { entry, entries_from, configured, configuration, voids })
    }

    /// Keeps checkpoints from being written meanwhile.
    pub(crate) fn keep_out<T>(&self, work: impl FnOnce() -> T) -> T {
        let _last = self.state.last.lock();
        work()
    }

    /// Where no commit is on its way, the log's end is where everything after `timestamp` begins.
    fn note_quiet_moment(&self, timestamp: u64) {
        let order = self.order.lock();
        if order.newest == timestamp {
            self.log.needed.lock().between(timestamp, self.log.wal().next_lsn());
        }
    }

    /// Drains trees with memtables so old that a recovery would have to replay too much log.
    fn drain_laggards(&self) -> Result<()> {
        let end = self.log.wal().next_lsn();
        for dictionary in self.directory.those(Dictionary::is_behind) {
            let flushed = dictionary.flushed(dictionary.tree.flushed_ts());
            let oldest = self.log.needed.lock().position_after(flushed);
            let behind = end.saturating_sub(oldest);
            if behind > self.log_cap {
                self.schedule.drain(&dictionary)?;
            }
        }
        Ok(())
    }
}

//! Checkpoints: every tree's root and the directory, durable in one step; then the log shrinks.
//!
//! ```text
//!  trees whose memtables hold back too much log are drained
//!  T = watermark                  dictionaries as of T
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

use crate::checkpoint_root::{CheckpointDigest, CheckpointRoot, DictionaryImage, QUIESCENT};
use crate::checkpoint_stats::CheckpointTimings;
use crate::dictionary::Dictionary;
use crate::environment::Environment;
use crate::{Error, Result, Timestamp};
use blockfile::{CheckpointMark, CheckpointWritten, Root};
use ftree::{Effort, Progress};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The last completed checkpoint, while none is being written.
#[derive(Default)]
pub(crate) struct Last {
    digest: CheckpointDigest,
    log_end: u64,
    mark: Option<CheckpointMark>,
}

impl Environment {
    /// Writes a checkpoint. On `NoSpace` nothing has changed.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let mut last = self.checkpointing.lock();
        self.health.check_running()?;
        let written = self.write_checkpoint(&mut last);
        if written.is_err() {
            self.counters.checkpoint.failed();
        }
        written
    }

    /// Whether a checkpoint would hold anything that the last one does not.
    pub(crate) fn has_changed(&self) -> bool {
        let last = self.checkpointing.lock();
        let same_blocks = last.mark.is_some_and(|mark| !self.blocks.has_changed_since(mark));
        !same_blocks || self.wal().data_end() > last.log_end
    }

    /// What recovery found.
    pub(crate) fn begin_after(&self, root: &CheckpointRoot) {
        *self.checkpointing.lock() =
            Last { digest: CheckpointDigest::of(root), log_end: root.log_end, mark: None };
    }

    fn write_checkpoint(&self, last: &mut Last) -> Result<()> {
        let clock = &self.os.clock;
        let started = clock.monotonic();
        let mut timings =
            CheckpointTimings { begun_ms: clock.wall_ms(), ..CheckpointTimings::default() };
        self.counters.checkpoint.begun(timings.begun_ms);
        match self.drain_laggards() {
            // Then the log stays longer.
            Err(Error::NoSpace(_)) => {}
            drained => drained?,
        }
        self.drop_invisible();
        let begin = clock.monotonic();
        let timestamp = self.snapshots.watermark();
        let dictionaries = self.listed_at(timestamp);
        let captures: Vec<_> = dictionaries
            .iter()
            .map(|dictionary| {
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
        for (dictionary, (quiescent, capture)) in dictionaries.iter().zip(captures) {
            let image = self.check(capture.image())?;
            let until = dictionary.flushed(image.flushed_ts());
            timings.nodes += image.written();
            flushed = flushed.min(if quiescent { timestamp } else { until });
            listed.push(DictionaryImage {
                id: dictionary.id,
                created: dictionary.created,
                flushed: if quiescent { QUIESCENT } else { until },
                options: dictionary.options(),
                image: image.bytes().to_vec(),
            });
            images.push(image);
        }
        timings.node_time = clock.monotonic().saturating_sub(storing);
        let mark = self.blocks.begin_checkpoint();
        let log_end = self.wal().next_lsn();
        assert!(log_end >= last.log_end, "the log only grows");
        self.jobs.checkpointed.store(log_end, Ordering::Relaxed);
        self.sync_log_to(log_end)?;
        self.note_quiet_moment(timestamp);
        // Never behind what was synced: the next start has to find this position in the log.
        let position = self.log.needed.lock().forget(flushed).min(log_end);
        let first = self.wal().first_lsn();
        debug_assert!(position >= first, "the log holds all that is needed of it");
        let visible = self.snapshots.watermark();
        assert!(timestamp <= visible, "a checkpoint holds what is visible");
        let root = CheckpointRoot {
            timestamp,
            log_end,
            next_dictionary: self.directory.next_id(),
            next_txn: self.live.next_id(),
            dictionaries: listed,
        };
        let finishing = clock.monotonic();
        timings.written = self.finish(mark, &root, &last.digest, position)?;
        let done = clock.monotonic();
        drop(images);
        self.jobs.dropped.store(self.blocks.dropped_bytes(), Ordering::Relaxed);
        *last = Last { digest: CheckpointDigest::of(&root), log_end, mark: Some(mark) };
        self.check(self.wal().trim(position))?;
        timings.finish = done.saturating_sub(finishing);
        let took = done.saturating_sub(started);
        self.counters.checkpoint_micros.record(took.as_micros() as u64);
        self.counters.checkpoint.completed(&timings, clock.wall_ms(), took);
        self.counters.checkpoints.inc();
        *self.counters.last_checkpoint.lock() = Some((Timestamp(timestamp), clock.wall_ms(), took));
        Ok(())
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
                whole => return self.check(whole),
            }
        }
        self.check(finish(Root::Change(&change)))
    }

    /// Where no commit is on its way, the log's end is where everything after `timestamp` begins.
    fn note_quiet_moment(&self, timestamp: u64) {
        let order = self.commit_order.lock();
        if order.newest == timestamp {
            self.log.needed.lock().between(timestamp, self.wal().next_lsn());
        }
    }

    /// The dictionaries that are there at `timestamp`.
    fn listed_at(&self, timestamp: u64) -> Vec<Arc<Dictionary>> {
        self.directory.those(|dictionary| dictionary.visible_at(timestamp))
    }

    /// Drains trees with memtables so old that a recovery would have to replay too much log.
    fn drain_laggards(&self) -> Result<()> {
        let end = self.wal().next_lsn();
        for dictionary in self.directory.those(Dictionary::is_behind) {
            let flushed = dictionary.flushed(dictionary.tree.flushed_ts());
            let oldest = self.log.needed.lock().position_after(flushed);
            let behind = end.saturating_sub(oldest);
            if behind > self.options.sizes.log_cap {
                self.drain(&dictionary)?;
            }
        }
        Ok(())
    }

    /// Empties one tree's memtables, as they are now, into its runs.
    pub(crate) fn drain(&self, dictionary: &Dictionary) -> Result<()> {
        self.seal(dictionary);
        while dictionary.tree.debt().sealed > 0 {
            let worked = self.work_on(dictionary, Effort::Needed);
            if self.check(worked)? == Progress::Busy {
                // A flusher is at it.
                self.os.clock.sleep(Duration::from_millis(1));
            }
            self.account(dictionary);
        }
        Ok(())
    }

    /// Empties all memtables: before a clean close, so that the next start replays nothing.
    pub(crate) fn drain_all(&self) -> Result<()> {
        for dictionary in self.directory.all() {
            if dictionary.dropped().is_none() {
                self.drain(&dictionary)?;
            }
        }
        Ok(())
    }
}

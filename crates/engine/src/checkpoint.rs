//! Checkpoints: every tree's root and the directory, durable in one step; then the log shrinks.
//!
//! ```text
//!  trees whose memtables hold back too much log are drained
//!  T = watermark                  dictionaries as of T
//!  each tree: pin the root        microseconds; writers and mergers go on
//!  blockfile: mark the moment     every segment those roots name is kept
//!  log: sync to its end           so nothing in the images is missing from the log
//!  blockfile: table, root blob, sync, superblock, sync
//!  log: trim what every tree has flushed
//! ```
//!
//! A crash anywhere shows the checkpoint before, and a log that reaches back to it. See
//! `docs/flows/checkpoint.md`.

use crate::checkpoint_root::{CheckpointRoot, DictionaryImage};
use crate::dictionary::Dictionary;
use crate::environment::Environment;
use crate::{Result, Timestamp};
use ftree::{Effort, Progress, TreeImage};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Environment {
    /// Writes a checkpoint. On `NoSpace` nothing has changed.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let _one_at_a_time = self.checkpointing.lock();
        self.health.check_running()?;
        let started = self.os.clock.monotonic();
        self.drain_laggards()?;
        self.drop_invisible();
        let timestamp = self.snapshots.watermark();
        let dictionaries = self.listed_at(timestamp);
        for dictionary in &dictionaries {
            // Nothing of it is in memory only: it has flushed everything up to now.
            if !dictionary.is_behind() {
                let _empty = dictionary.tree.seal(timestamp);
            }
        }
        let images: Result<Vec<_>, _> = dictionaries.iter().map(|d| d.tree.image()).collect();
        let images = self.check(images)?;
        let mark = self.blocks.begin_checkpoint();
        let log_end = self.wal().next_lsn();
        self.jobs.checkpointed.store(log_end, Ordering::Relaxed);
        self.sync_log_to(log_end)?;
        self.note_quiet_moment(timestamp);
        let flushed = images.iter().map(TreeImage::flushed_ts).min().unwrap_or(timestamp);
        // Never behind what was synced: the next start has to find this position in the log.
        let position = self.log.needed.lock().forget(flushed.min(timestamp)).min(log_end);
        let root = CheckpointRoot {
            timestamp,
            log_end,
            next_dictionary: self.directory.next_id(),
            next_txn: self.next_txn.load(Ordering::SeqCst),
            dictionaries: dictionaries
                .iter()
                .zip(&images)
                .map(|(dictionary, image)| DictionaryImage {
                    id: dictionary.id,
                    created: dictionary.created,
                    flushed: image.flushed_ts(),
                    options: dictionary.options(),
                    image: image.bytes().to_vec(),
                })
                .collect(),
        };
        self.check(self.blocks.finish_checkpoint(mark, &root.encode(), position))?;
        drop(images);
        self.check(self.wal().trim(position))?;
        let took = self.os.clock.monotonic().saturating_sub(started);
        self.counters.checkpoint_micros.record(took.as_micros() as u64);
        self.counters.checkpoints.inc();
        *self.counters.last_checkpoint.lock() =
            Some((Timestamp(timestamp), self.os.clock.wall_ms(), took));
        Ok(())
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
        let mut all = self.directory.all();
        all.retain(|dictionary| dictionary.visible_at(timestamp));
        all
    }

    /// Drains trees with memtables so old that a recovery would have to replay too much log.
    fn drain_laggards(&self) -> Result<()> {
        let end = self.wal().next_lsn();
        for dictionary in self.directory.all() {
            if !dictionary.is_behind() {
                continue;
            }
            let flushed = dictionary.tree.flushed_ts();
            let oldest = self.log.needed.lock().position_after(flushed);
            let behind = end.saturating_sub(oldest);
            if behind > self.options.tuning.log_cap {
                self.drain(&dictionary)?;
            }
        }
        Ok(())
    }

    /// Empties one tree's memtables, as they are now, into its runs.
    pub(crate) fn drain(&self, dictionary: &Arc<Dictionary>) -> Result<()> {
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

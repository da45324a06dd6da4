//! The tail of a member's log is overwritten: commits that nobody has seen are as if they had never been.
//!
//! Always true: what was visible, or said to be committed, stays; the log says so on disk before memory
//! forgets; afterwards the same timestamps are given again, and no version, lock, time or point of the first
//! ones is left. Who waits for one of them is told, and who comes to wait for one later.

use crate::chunk_lists::Chunked;
use crate::commit_order::CommitOrder;
use crate::environment::Environment;
use crate::records::{self, Cut};
use crate::times::Place;
use crate::{Error, Result};
use parking_lot::MutexGuard;
use wal::{NewRecord, Priority};

impl Environment {
    /// Makes void all entries from `index` on, `None` of them, and all commits that no entry has.
    pub(super) fn forget_from(&self, index: Option<u64>) -> Result<()> {
        let Some(history) = self.history.clone().filter(|_| self.snapshots.holds_back()) else {
            let text = "every complete commit is shown: none is void".to_owned();
            return Err(Error::InvalidOption(text));
        };
        self.health.check_running()?;
        // Nobody waits for ever for what was appended to be complete.
        self.apply_appended()?;
        // Also where nothing is open: a commit that an entry has closed may not be complete yet, and who asks reads
        // what readers see to know what is left.
        let is_open = !self.quiet_order()?.open.is_empty();
        self.snapshots.show_complete();
        if index.is_none() && !is_open {
            return Ok(());
        }
        self.checkpoints.keep_out(|| {
            let mut order = self.quiet_order()?;
            let index = index.unwrap_or(order.entries.last().index.saturating_add(1));
            let Some(last) = index.checked_sub(1).and_then(|last| order.entries.id_of(last)) else {
                let text = format!("entry {index} does not follow a known one");
                return Err(Error::InvalidOption(text));
            };
            let timestamp = last.timestamp;
            let committed = self.snapshots.committed_to().min(order.newest);
            if timestamp < self.snapshots.visible().get().max(committed)
                || index <= order.entries.committed()
            {
                return Err(self.health.stop("commits that a majority has were to be overwritten"));
            }
            let first = order.entries.records_from(index).into_iter().chain(order.open.start());
            let from = first.min().unwrap_or_else(|| self.log.wal().next_lsn());
            let record = records::cut_record(&Cut { index, timestamp, from });
            let pieces = [&record[..]];
            let record = NewRecord::plain(&pieces);
            let end = loop {
                let appended = self.log.wal().try_append(&record, Priority::GivesSpaceBack);
                if let Some(place) = self.health.check(appended)? {
                    break place.end;
                }
                let made = self.log.wal().make_room(&record, Priority::GivesSpaceBack);
                self.health.check(made)?;
            };
            // Before memory forgets: what comes next may be told to others.
            self.log.sync_to(end)?;
            let known = history.times().place_of(timestamp);
            let place = known.unwrap_or(Place { timestamp, time: last.time, end: from });
            order.newest = timestamp;
            order.time = last.time;
            (order.next_point, order.next_history_point) = (0, 0);
            order.entries.cut(index);
            order.open.cut(index);
            self.log.set_entry_bytes(order.open.memory_bytes());
            let reopened = self.log.needed.lock().forget_after(timestamp, from);
            order.chunked.cut(from, index);
            for (txn, first) in reopened {
                order.chunked.begin(txn, Chunked { first, fence: None });
            }
            history.cut_tail(from, end, place);
            for made in self.directory.forget_after(timestamp) {
                self.memory.forget(&made);
                made.tree.discard();
            }
            self.locks.forget_commits();
            self.schedule.forget_after(timestamp);
            self.snapshots.forget_after(timestamp);
            Ok(())
        })
    }

    /// Whether a record counts for nothing. An entry may have been overwritten and have come again: then its
    /// chunks stand in the log twice.
    pub(super) fn is_void(&self, position: u64) -> bool {
        self.history.as_ref().is_some_and(|history| history.is_void(position))
    }

    /// The lock that orders commits, while none is on its way.
    fn quiet_order(&self) -> Result<MutexGuard<'_, CommitOrder>> {
        loop {
            let order = self.commits.order.lock();
            let newest = order.newest;
            if self.snapshots.complete().get() == newest {
                return Ok(order);
            }
            drop(order);
            if !self.snapshots.wait_complete(newest) {
                self.health.check_running()?;
                return Err(self.health.stop("an earlier commit was never published"));
            }
        }
    }
}

//! The tail of a member's log is overwritten: commits that nobody has seen are as if they had never been.
//!
//! Always true: what was visible, or said to be committed, stays; the log says so on disk before memory
//! forgets; afterwards the same timestamps are given again, and no version, lock, time or point of the first
//! ones is left.

use crate::commit_order::CommitOrder;
use crate::entries::OpenEntry;
use crate::environment::Environment;
use crate::records::{self, Cut, Record};
use crate::times::Place;
use crate::{Error, Result};
use parking_lot::MutexGuard;
use std::time::Duration;
use wal::{LiveReader, Priority};

/// How often, and how far apart, is looked for commits to become complete.
const LOOKS: u32 = 1000;
const PAUSE: Duration = Duration::from_micros(50);

impl Environment {
    /// Makes void all commits above `timestamp`, and all entries from `index` on.
    pub(crate) fn forget_after(&self, timestamp: u64, index: u64) -> Result<()> {
        let Some(history) = self.history.clone().filter(|_| self.snapshots.holds_back()) else {
            let text = "every complete commit is shown: none is void".to_owned();
            return Err(Error::InvalidOption(text));
        };
        self.health.check_running()?;
        self.checkpoints.keep_out(|| {
            let mut order = self.quiet_order()?;
            let committed = self.snapshots.committed_to().min(order.newest);
            if timestamp < self.snapshots.visible().get().max(committed) {
                return Err(self.health.stop("commits that a majority has were to be overwritten"));
            }
            let timestamp = timestamp.min(order.newest);
            self.log.sync_to(self.log.wal().next_lsn())?;
            let (from, place) = self.tail_after(&order, timestamp, index)?;
            let open = match Self::first_behind(&order, index).filter(|start| *start < from) {
                Some(start) => self.reopen(start, from)?,
                None => OpenEntry::default(),
            };
            let record = records::cut_record(&Cut { index, timestamp, from });
            let end = loop {
                let appended = self.log.wal().try_append(&[&record], Priority::GivesSpaceBack);
                if let Some(end) = self.health.check(appended)? {
                    break end;
                }
                let made = self.log.wal().make_room(record.len(), Priority::GivesSpaceBack);
                self.health.check(made)?;
            };
            // Before memory forgets: what comes next may be told to others.
            self.log.sync_to(end)?;
            order.newest = timestamp;
            order.time = place.time;
            (order.next_point, order.next_history_point) = (0, 0);
            order.entries.cut(index);
            order.open = open;
            self.log.needed.lock().forget_after(timestamp, from);
            order.chunked.retain(|_, first| *first < from);
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

    /// The lock that orders commits, while none is on its way.
    fn quiet_order(&self) -> Result<MutexGuard<'_, CommitOrder>> {
        for _ in 0..LOOKS {
            let order = self.commits.order.lock();
            if self.snapshots.complete().get() == order.newest {
                return Ok(order);
            }
            drop(order);
            self.os.clock.sleep(PAUSE);
        }
        Err(Error::InvalidOption("commits are still being written".to_owned()))
    }

    /// The first record that is of the entry `index`, or would be.
    fn first_behind(order: &CommitOrder, index: u64) -> Option<u64> {
        let entry = order.entries.get(index).map(|entry| entry.start);
        entry.unwrap_or(order.open.start.filter(|_| index > order.entries.last().index))
    }

    /// What is open again: the records of a part of the log.
    fn reopen(&self, start: u64, until: u64) -> Result<OpenEntry> {
        let mut open = OpenEntry::default();
        let mut reader = LiveReader::at(start);
        while reader.position() < until
            && let Some(record) = reader.next_record(self.log.wal(), until)?
        {
            let decoded = Record::decode(record.payload);
            let decoded = decoded.map_err(|e| Error::in_record(record.lsn, e))?;
            match records::without_position(&decoded) {
                Some(sent) => open.append(record.lsn, &[&sent]),
                None => open.append(record.lsn, &[record.payload]),
            }
        }
        Ok(open)
    }

    /// Where in the log the records begin that are void, and the commit that is the newest then. The log is
    /// synced.
    fn tail_after(&self, order: &CommitOrder, timestamp: u64, index: u64) -> Result<(u64, Place)> {
        let wal = self.log.wal();
        let behind = wal.next_lsn();
        let known = self.times_of(timestamp);
        // Where entries end is known, and a tail is usually cut at the end of one.
        let is_end = index.checked_sub(1).and_then(|last| order.entries.id_of(last));
        let is_end = is_end.is_some_and(|last| last.timestamp == timestamp);
        let mut from = Self::first_behind(order, index).filter(|_| is_end);
        let mut time_before = None;
        if from.is_none() || known.is_none() {
            let start = self.log.needed.lock().position_after(timestamp);
            let mut reader = LiveReader::default();
            let mut found = reader.seek_frame(wal, start, behind)?;
            while found {
                let Some(record) = reader.next_record(wal, behind)? else { break };
                let (lsn, payload) = (record.lsn, record.payload);
                let damaged = |e| Error::in_record(lsn, e);
                if let Record::Commit { timestamp: of, chunks, history: Some(head), .. } =
                    Record::decode(payload).map_err(damaged)?
                    && of > timestamp
                    && !self.is_void(lsn)
                {
                    let begins = if chunks > 0 { head.first_chunk } else { lsn };
                    from.get_or_insert(begins);
                    time_before = Some(head.time.saturating_sub(1));
                    found = false;
                }
            }
        }
        let from = from.unwrap_or(behind);
        // Where nothing is known of it, it has no later time than what comes next.
        let time = time_before.unwrap_or(order.time);
        let place = known.unwrap_or(Place { timestamp, time, end: from });
        Ok((from, place))
    }

    fn times_of(&self, timestamp: u64) -> Option<Place> {
        self.history.as_ref().and_then(|history| history.times().place_of(timestamp))
    }

    pub(crate) fn is_void(&self, position: u64) -> bool {
        self.history.as_ref().is_some_and(|history| history.voids().has(position))
    }
}

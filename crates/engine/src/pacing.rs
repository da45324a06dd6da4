//! Memory for writes: one budget over all memtables, writers slowed before it is full.
//!
//! Total of all memtables → what happens: above half of the budget, or a memtable above its own
//! limit: the largest active one is sealed and queued to be drained. Above three quarters: each
//! commit waits 10 µs to 1 ms, more the fuller it is. Above five quarters: a commit waits until
//! there is room (hard bound); where the disk is full it fails instead.

use crate::dictionary::Dictionary;
use crate::environment::Environment;
use crate::settings::Background;
use crate::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A new memtable takes about this much before its first entry; smaller is not worth a seal.
const WORTH_SEALING: u64 = 4096;
const SHORTEST_DELAY_US: u64 = 10;
const LONGEST_DELAY_US: u64 = 1000;
/// A writer at the hard bound gives up after this long without room: background work is stuck.
const STUCK: Duration = Duration::from_mins(2);

/// Memtable memory of all dictionaries.
#[derive(Default)]
pub(crate) struct Memory {
    total: AtomicU64,
    /// Dictionaries with something in memory.
    written: Mutex<BTreeSet<u64>>,
}

impl Memory {
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

impl Environment {
    fn budget(&self) -> u64 {
        self.options.tuning.write_budget
    }

    /// Brings the total up to date with one dictionary, and seals where it is time.
    pub(crate) fn account(&self, dictionary: &Arc<Dictionary>) {
        let bytes = dictionary.tree.memory_bytes();
        let before = dictionary.accounted.swap(bytes, Ordering::Relaxed);
        // Wrapping: the sum over all dictionaries is exact whatever the order of the swaps.
        self.memory.total.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        if self.directory.find(dictionary.id).is_none() {
            // Dropped meanwhile: its memory is nobody's any more.
            self.forget_memory(dictionary);
            return;
        }
        if before == 0 && bytes > 0 {
            self.memory.written.lock().insert(dictionary.id);
        }
        if dictionary.tree.debt().active_bytes >= self.options.tuning.memtable_bytes {
            self.seal(dictionary);
        } else if self.memory.total() > self.budget() / 2 {
            self.seal_largest();
        }
    }

    pub(crate) fn forget_memory(&self, dictionary: &Dictionary) {
        let before = dictionary.accounted.swap(0, Ordering::Relaxed);
        self.memory.total.fetch_sub(before, Ordering::Relaxed);
        self.memory.written.lock().remove(&dictionary.id);
    }

    /// Seals a dictionary's memtable at the watermark and queues it to be drained.
    pub(crate) fn seal(&self, dictionary: &Arc<Dictionary>) {
        // Read before the seal: every commit up to it has finished inserting.
        let watermark = self.snapshots.watermark();
        if dictionary.tree.seal(watermark) {
            self.counters.seals.inc();
            self.jobs.queue(dictionary.id);
        }
    }

    /// Seals the largest memtable, unless enough is on its way to the disk already.
    fn seal_largest(&self) {
        let written: Vec<u64> = self.memory.written.lock().iter().copied().collect();
        let mut active = 0;
        let mut largest: Option<(u64, Arc<Dictionary>)> = None;
        for id in written {
            let Some(dictionary) = self.directory.find(id) else { continue };
            let bytes = dictionary.tree.debt().active_bytes;
            active += bytes;
            if largest.as_ref().is_none_or(|(most, _)| bytes > *most) {
                largest = Some((bytes, dictionary));
            }
        }
        if let Some((bytes, dictionary)) = largest
            && active > self.budget() / 2
            && bytes > WORTH_SEALING
        {
            self.seal(&dictionary);
        }
    }

    /// Waits until a transaction of `bytes` may go on. Holds no lock but the transaction's own.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<()> {
        let budget = self.budget();
        let total = self.memory.total() + bytes;
        if total <= budget / 4 * 3 {
            return Ok(());
        }
        let hard = budget / 4 * 5;
        if self.options.background != Background::Threads {
            // Nobody else does the work.
            return self.make_room_alone();
        }
        if total > hard && self.memory.total() > budget / 2 {
            return self.wait_for_room(hard);
        }
        let over = total - budget / 4 * 3;
        let delay = LONGEST_DELAY_US * over / (budget / 2).max(1);
        let delay = Duration::from_micros(delay.clamp(SHORTEST_DELAY_US, LONGEST_DELAY_US));
        self.counters.delays.inc();
        self.counters.delayed_micros.add(delay.as_micros() as u64);
        self.os.clock.sleep(delay);
        Ok(())
    }

    /// Does the background's work where there is no background: until memory is below the soft
    /// limit or there is nothing to drain.
    pub(crate) fn make_room_alone(&self) -> Result<()> {
        let (soft, hard) = (self.budget() / 4 * 3, self.budget() / 4 * 5);
        while self.memory.total() > soft {
            match self.work_once() {
                Ok(true) => {}
                Ok(false) => break,
                Err(Error::NoSpace(_)) if self.memory.total() <= hard => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self, hard: u64) -> Result<()> {
        let started = self.os.clock.monotonic();
        self.counters.stalls.inc();
        self.jobs.wake();
        while self.memory.total() > hard {
            self.health.check_writable()?;
            if self.jobs.found_no_space() {
                return Err(Error::NoSpace("no room to drain memory to the disk".to_owned()));
            }
            let waited = self.os.clock.monotonic().saturating_sub(started);
            if waited > STUCK {
                let text = format!("memory for writes stayed full for {} s", STUCK.as_secs());
                return Err(Error::NoSpace(text));
            }
            self.counters.delayed_micros.add(LONGEST_DELAY_US);
            self.os.clock.sleep(Duration::from_micros(LONGEST_DELAY_US));
        }
        Ok(())
    }
}

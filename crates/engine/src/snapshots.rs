//! Which commits are visible, and which old states somebody still reads.
//!
//! What is always true:
//! 1. The watermark moves in timestamp order, and only over commits whose every write is in its
//!    tree: no reader sees half a commit.
//! 2. A snapshot's timestamp is read and registered under one lock, the lock under which merges
//!    learn what is still needed: no version disappears between.

use ftree::Visibility;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Snapshots {
    watermark: AtomicU64,
    /// Live snapshots: timestamp → how many.
    live: Mutex<BTreeMap<u64, usize>>,
    /// Commits that are complete but behind one that is not.
    complete: Mutex<BTreeSet<u64>>,
    advanced: Condvar,
}

impl Snapshots {
    /// Every commit up to here is visible.
    pub(crate) fn watermark(&self) -> u64 {
        self.watermark.load(Ordering::Acquire)
    }

    /// Sets the first watermark, before anybody reads.
    pub(crate) fn start_at(&self, watermark: u64) {
        self.watermark.store(watermark, Ordering::Release);
    }

    /// Registers a snapshot of now.
    pub(crate) fn take(self: &Arc<Self>) -> Arc<Pinned> {
        let mut live = self.live.lock();
        let timestamp = self.watermark();
        *live.entry(timestamp).or_default() += 1;
        Arc::new(Pinned { timestamp, snapshots: Arc::clone(self) })
    }

    fn release(&self, timestamp: u64) {
        let mut live = self.live.lock();
        if let Some(count) = live.get_mut(&timestamp) {
            *count -= 1;
            if *count == 0 {
                live.remove(&timestamp);
            }
        }
    }

    /// The oldest timestamp anybody reads at, now or later.
    pub(crate) fn oldest(&self) -> u64 {
        let live = self.live.lock();
        live.first_key_value().map_or_else(|| self.watermark(), |(timestamp, _)| *timestamp)
    }

    /// What merges must keep.
    pub(crate) fn visibility(&self) -> Visibility {
        let live = self.live.lock();
        let timestamps: Vec<u64> = live.keys().copied().collect();
        Visibility::new(self.watermark(), &timestamps)
    }

    /// How many snapshots are out.
    pub(crate) fn live(&self) -> usize {
        self.live.lock().values().sum()
    }

    /// A commit's writes are all in their trees: moves the watermark, and waits until it has
    /// passed `timestamp`. The wait is for commits before it that are being inserted just now.
    pub(crate) fn publish(&self, timestamp: u64) {
        let mut complete = self.complete.lock();
        complete.insert(timestamp);
        let mut watermark = self.watermark();
        let before = watermark;
        while complete.remove(&(watermark + 1)) {
            watermark += 1;
        }
        if watermark > before {
            self.watermark.store(watermark, Ordering::Release);
            self.advanced.notify_all();
        }
        while self.watermark() < timestamp {
            self.advanced.wait(&mut complete);
        }
    }
}

/// A registered snapshot; dropping it lets its versions go.
pub(crate) struct Pinned {
    pub(crate) timestamp: u64,
    snapshots: Arc<Snapshots>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.snapshots.release(self.timestamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermark_waits_for_the_commit_before() {
        let snapshots = Arc::new(Snapshots::default());
        snapshots.start_at(4);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| snapshots.publish(6));
            while snapshots.complete.lock().is_empty() {
                std::thread::yield_now();
            }
            assert_eq!(snapshots.watermark(), 4);
            assert!(!late.is_finished());
            snapshots.publish(5);
        });
        assert_eq!(snapshots.watermark(), 6);
    }

    #[test]
    fn oldest_is_the_oldest_that_lives() {
        let snapshots = Arc::new(Snapshots::default());
        let first = snapshots.take();
        snapshots.publish(1);
        let second = snapshots.take();
        snapshots.publish(2);
        assert_eq!((snapshots.oldest(), snapshots.live()), (0, 2));
        drop(first);
        assert_eq!(snapshots.oldest(), 1);
        drop(second);
        assert_eq!((snapshots.oldest(), snapshots.live()), (2, 0));
    }
}

//! States that are kept although nobody reads them, so that somebody may come for them.
//!
//! What is always true:
//! 1. A merge keeps every version from the floor on, and what the readers below it see: the floor
//!    and the readers are told together, under the lock under which a reader is let in.
//! 2. The floor is at or below the visible watermark and only rises, until none are kept; what it passed does
//!    not come back.

use crate::watermarks::Visible;
use os::sync::Mutex;
use os::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;

/// No state is kept, or no reader.
const NONE: u64 = u64::MAX;

pub(crate) struct KeptStates {
    inner: Mutex<Inner>,
    /// The oldest reader; changed under the lock.
    oldest: AtomicU64,
}

struct Inner {
    /// Every state from here on is kept.
    floor: u64,
    /// Snapshots of kept states: timestamp → how many.
    readers: BTreeMap<u64, usize>,
}

impl Default for KeptStates {
    fn default() -> Self {
        let inner = Mutex::new(Inner { floor: NONE, readers: BTreeMap::new() });
        Self { inner, oldest: AtomicU64::new(NONE) }
    }
}

impl KeptStates {
    /// Keeps every state from `since` on, or none beyond what is read. `visible` is asked under
    /// the lock: a merge that has not heard of it knew an older one.
    pub(crate) fn keep(&self, since: Option<u64>, visible: impl FnOnce() -> Visible) {
        let mut inner = self.inner.lock();
        inner.floor = since.map_or(NONE, |since| {
            let visible = visible().get();
            let before = if inner.floor == NONE { visible } else { inner.floor };
            assert!(before <= visible, "states are kept of what is visible");
            since.max(before).min(visible)
        });
    }

    /// Lets a reader in at a kept state; false where that is gone, or yet to come.
    pub(crate) fn enter(&self, timestamp: u64, visible: impl FnOnce() -> Visible) -> bool {
        let mut inner = self.inner.lock();
        let kept = timestamp >= inner.floor && timestamp <= visible().get();
        if kept {
            self.count(&mut inner, timestamp);
        }
        kept
    }

    /// One more of a reader that is inside.
    pub(crate) fn enter_again(&self, timestamp: u64) {
        self.count(&mut self.inner.lock(), timestamp);
    }

    fn count(&self, inner: &mut Inner, timestamp: u64) {
        *inner.readers.entry(timestamp).or_default() += 1;
        self.tell_oldest(inner);
    }

    pub(crate) fn leave(&self, timestamp: u64) {
        let mut inner = self.inner.lock();
        debug_assert!(inner.readers.contains_key(&timestamp), "a reader leaves once");
        if let Some(count) = inner.readers.get_mut(&timestamp) {
            *count -= 1;
            if *count == 0 {
                inner.readers.remove(&timestamp);
            }
        }
        self.tell_oldest(&inner);
    }

    fn tell_oldest(&self, inner: &Inner) {
        let oldest = inner.readers.first_key_value().map_or(NONE, |(oldest, _)| *oldest);
        self.oldest.store(oldest, Ordering::Release);
    }

    /// The oldest reader, or `u64::MAX`. Takes no lock.
    pub(crate) fn oldest_reader(&self) -> u64 {
        self.oldest.load(Ordering::Acquire)
    }

    /// At or below everything that is kept, or `u64::MAX`.
    pub(crate) fn oldest_kept(&self) -> u64 {
        let inner = self.inner.lock();
        inner.readers.first_key_value().map_or(NONE, |(oldest, _)| *oldest).min(inner.floor)
    }

    /// The floor, or `u64::MAX`; adds the readers to `timestamps`.
    pub(crate) fn tell(&self, timestamps: &mut Vec<u64>) -> u64 {
        let inner = self.inner.lock();
        timestamps.extend(inner.readers.keys());
        inner.floor
    }

    /// How many readers are inside.
    pub(crate) fn readers(&self) -> usize {
        self.inner.lock().readers.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_kept_from_where_it_was_asked_for() {
        let kept_states = KeptStates::default();
        assert!(!kept_states.enter(10, || Visible::at(10)), "nothing is kept by itself");
        kept_states.keep(Some(7), || Visible::at(10));
        assert!(!kept_states.enter(9, || Visible::at(14)), "it was gone already");
        assert!(!kept_states.enter(15, || Visible::at(14)), "it has not come yet");
        assert!(kept_states.enter(12, || Visible::at(14)));
        let told = || {
            let mut readers = Vec::new();
            (kept_states.tell(&mut readers), readers)
        };
        assert_eq!((told(), kept_states.oldest_reader()), ((10, vec![12]), 12));
        kept_states.keep(Some(13), || Visible::at(14));
        assert_eq!((told(), kept_states.oldest_kept()), ((13, vec![12]), 12));
        kept_states.enter_again(12);
        kept_states.leave(12);
        assert_eq!(kept_states.readers(), 1);
        kept_states.leave(12);
        assert_eq!((told(), kept_states.oldest_kept()), ((13, vec![]), 13));
        kept_states.keep(Some(11), || Visible::at(14));
        assert!(!kept_states.enter(12, || Visible::at(14)), "it was let go");
        kept_states.keep(None, || Visible::at(14));
        assert_eq!((kept_states.oldest_kept(), kept_states.oldest_reader()), (NONE, NONE));
    }
}

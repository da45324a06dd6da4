//! How many units make runs one at once, in all trees of a context. Such a unit takes several times
//! as long as others do, and while all who work are at one, nobody drains a memtable.
//!
//! Always true: as many run as places are taken; who asks gets one only below the limit.

use os::sync::atomic::{AtomicU32, Ordering};

/// The places for merges.
pub struct Merges {
    running: AtomicU32,
    most: AtomicU32,
}

impl Default for Merges {
    fn default() -> Self {
        Self { running: AtomicU32::new(0), most: AtomicU32::new(u32::MAX) }
    }
}

impl Merges {
    /// From now on no more than `most` begin at once where that is asked for
    /// ([`Effort::Paced`](crate::Effort::Paced)); without it there is no limit.
    pub fn allow(&self, most: u32) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// How many are under way.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// A place, if there is one or it is needed whether or not there is.
    pub(crate) fn begin(&self, paced: bool) -> Option<Merging<'_>> {
        let most = if paced { self.most.load(Ordering::Relaxed) } else { u32::MAX };
        let more = |running: u32| (running < most).then_some(running + 1);
        let begun = self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        begun.is_ok().then(|| Merging(self))
    }
}

/// A place that is taken; given back when dropped.
pub(crate) struct Merging<'a>(&'a Merges);

impl Drop for Merging<'_> {
    fn drop(&mut self) {
        let before = self.0.running.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a merge ends once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_for_those_who_ask_so_and_come_back() {
        let merges = Merges::default();
        let free = (merges.begin(true), merges.begin(true));
        assert_eq!(merges.running(), 2, "no limit is set");
        drop(free);
        merges.allow(1);
        let first = merges.begin(true);
        assert!(first.is_some() && merges.begin(true).is_none());
        let needed = merges.begin(false);
        assert!(needed.is_some());
        assert_eq!(merges.running(), 2);
        drop(first);
        assert!(merges.begin(true).is_none(), "one is under way");
        drop(needed);
        assert!(merges.begin(true).is_some());
        assert_eq!(merges.running(), 0);
    }
}

//! How many units make runs one at once, in all trees of a context. Such a unit takes several times
//! as long as others do, and while all who work are at one, nobody drains a memtable.
//!
//! Always true: as many merges run as permits are held; a paced caller gets one only below the
//! limit.

use os::sync::atomic::{AtomicU32, Ordering};

/// Limits the merges that run at the same time.
pub struct MergeLimiter {
    running: AtomicU32,
    most: AtomicU32,
}

impl Default for MergeLimiter {
    fn default() -> Self {
        Self { running: AtomicU32::new(0), most: AtomicU32::new(u32::MAX) }
    }
}

impl MergeLimiter {
    /// From now on no more than `most` begin at once where that is asked for
    /// ([`Effort::Paced`](crate::Effort::Paced)); without it there is no limit.
    pub fn allow(&self, most: u32) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// How many are under way.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// A permit: where `paced`, only below the limit.
    pub(crate) fn begin(&self, paced: bool) -> Option<MergePermit<'_>> {
        let most = if paced { self.most.load(Ordering::Relaxed) } else { u32::MAX };
        let more = |running: u32| (running < most).then_some(running + 1);
        let begun = self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        begun.is_ok().then(|| MergePermit(self))
    }
}

/// The right to run one merge; given back when dropped.
pub(crate) struct MergePermit<'a>(&'a MergeLimiter);

impl Drop for MergePermit<'_> {
    fn drop(&mut self) {
        let before = self.0.running.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a merge ends once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_for_paced_callers_and_come_back() {
        let limiter = MergeLimiter::default();
        let free = (limiter.begin(true), limiter.begin(true));
        assert_eq!(limiter.running(), 2, "no limit is set");
        drop(free);
        limiter.allow(1);
        let first = limiter.begin(true);
        assert!(first.is_some() && limiter.begin(true).is_none());
        let needed = limiter.begin(false);
        assert!(needed.is_some());
        assert_eq!(limiter.running(), 2);
        drop(first);
        assert!(limiter.begin(true).is_none(), "one is under way");
        drop(needed);
        assert!(limiter.begin(true).is_some());
        assert_eq!(limiter.running(), 0);
    }
}

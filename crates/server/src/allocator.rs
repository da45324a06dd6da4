//! What the allocator is told: when to give pages that nothing uses back to the kernel.
//!
//! It keeps them for a while ([`KEPT_MS`], set in `.cargo/config.toml`), because memory that was given back
//! and is wanted again must be cleared by the kernel: a reply of 16 MB would be four thousand page faults, each time. Large
//! objects (`oversize_threshold` there) lie in an arena of their own, which all threads share, so that what one has freed
//! serves another. Where the process is near its bound, everything that is unused is given back at once.

use std::sync::atomic::{AtomicU64, Ordering};
use tikv_jemalloc_ctl::{Access, AsName, background_thread, max_background_threads, opt};

/// How long pages are kept, as `dirty_decay_ms` says.
const KEPT_MS: isize = 200;
/// What may come at once before anybody looks again: a large document's copies, what was freed and is kept meanwhile, and some.
const AHEAD_BYTES: u64 = 80 << 20;

/// Threads of the allocator's own. One gives back what all arenas have kept for too long; by itself jemalloc starts four
/// of them, on machines with two processors too.
const BACKGROUND_THREADS: usize = 1;

/// Lets the allocator give unused pages back by itself, not only when somebody allocates: parked
/// connections allocate nothing.
pub(crate) fn give_back_in_background() {
    let started = max_background_threads::write(BACKGROUND_THREADS);
    if let Err(error) = started.and_then(|()| background_thread::write(true)) {
        tracing::warn!(target: "CONTROL", %error, "Unused memory is returned later");
    }
}

/// Watches over the process's pages.
pub(crate) struct Pages {
    near: u64,
    /// What clients held when it was last told.
    seen: AtomicU64,
}

impl Pages {
    /// Of a process that is to stay below `bound` bytes.
    pub(crate) fn below(bound: u64) -> Self {
        Self { near: bound.saturating_sub(AHEAD_BYTES), seen: AtomicU64::new(0) }
    }

    /// Clients hold `total` bytes by now, more than before or less. Where the process is near its bound,
    /// nothing that is unused is kept: neither what was freed just now nor what is in the way of what comes.
    pub(crate) fn watch(&self, total: u64) {
        let before = self.seen.swap(total, Ordering::Relaxed);
        if total != before && os::resident_bytes() > self.near {
            give_back();
        }
    }
}

/// Gives all unused pages back now.
fn give_back() {
    // An arena that keeps pages for no time at all gives back those it has. One that was never used
    // cannot be told so, and has none; the last one has the large objects.
    for arena in 0..=opt::narenas::read().unwrap_or(0) {
        let name = format!("arena.{arena}.dirty_decay_ms\0");
        for keep in [0, KEPT_MS] {
            let _unused_arena = name.as_bytes().name().write(keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_looked_at_where_what_clients_hold_changes() {
        let pages = Pages::below(100 << 20);
        assert_eq!(pages.near, 20 << 20);
        for total in [10, 5, 7] {
            pages.watch(total);
            assert_eq!(pages.seen.load(Ordering::Relaxed), total);
        }
        assert_eq!(Pages::below(0).near, 0, "always near");
    }
}

//! What one transaction's private writes take of the cache's bound.
//!
//! Always true: it is at least what they occupy, but for the first [`FREE`] bytes: a small
//! transaction touches no shared counter.

use cachetable::{CacheTable, MemoryKind, Reservation};

/// Transactions up to here are not counted.
const FREE: u64 = 16 << 10;
/// Larger ones are counted in steps of this.
const STEP: u64 = 64 << 10;

#[derive(Default)]
pub(crate) struct Charge(Option<Reservation>);

impl Charge {
    /// The writes occupy `bytes` by now. True where that changed the account.
    #[inline]
    pub(crate) fn follow(&mut self, cache: &CacheTable, bytes: u64) -> bool {
        let wanted = if bytes <= FREE { 0 } else { bytes.next_multiple_of(STEP) };
        match &mut self.0 {
            None if wanted == 0 => return false,
            None => self.0 = Some(cache.reserve(MemoryKind::WriteSets, wanted)),
            // What a rollback gave back may be needed again: only half of it counts.
            Some(held) if wanted <= held.bytes() && wanted >= held.bytes() / 2 => return false,
            Some(held) => cache.resize(held, wanted),
        }
        let held = self.0.as_ref().map_or(0, Reservation::bytes);
        assert!(held >= wanted, "memory is counted before it is used");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_covers_the_writes_and_goes_with_them() {
        let cache = CacheTable::new(1 << 20);
        let mut charge = Charge::default();
        assert!(!charge.follow(&cache, FREE));
        assert_eq!(cache.held(MemoryKind::WriteSets), 0);
        for bytes in [FREE + 1, 100 << 10, 300 << 10, 290 << 10, 2 << 10, 1 << 20] {
            charge.follow(&cache, bytes);
            let held = cache.held(MemoryKind::WriteSets);
            assert!(held >= bytes - FREE.min(bytes) && held <= bytes * 2 + STEP, "{held}: {bytes}");
        }
        drop(charge);
        assert_eq!(cache.held(MemoryKind::WriteSets), 0);
    }
}

//! Read debt: what reads have paid for the runs of a node, in bytes of merging for the same price.
//!
//! Reads note what they could have saved had the node's runs been flushed. Once that is the price
//! of flushing the heaviest child, the flush has paid for itself, and the node asks for it. So
//! ranges that are read become plain leaves, and what nobody reads is left alone.

use os::sync::atomic::{AtomicU64, Ordering};

/// A merge moves a byte in about 10 ns; asking a run's filter takes about 0.3 µs.
const PROBED_RUN: u64 = 32;
/// A scan reads a page of each run, mostly from the disk.
const OPENED_RUN: u64 = 4 << 10;
/// An entry a scan steps over, because it is deleted or hidden.
const SKIPPED_ENTRY: u64 = 16;
/// An update that a read applies, because it lies apart from its base: some copying of a document.
const GATHERED_UPDATE: u64 = 128;
/// A point read that finds updates in a run opens a page for them and goes on below. Mostly it waits for the disk,
/// for about 100 µs, and nothing was read ahead for it as it is for a scan.
const GATHERED_PAGE: u64 = 8 << 10;
/// One in so many point reads takes notes, for all of them: readers share the node's counter.
const SAMPLE: u64 = 32;

/// What a point read that takes notes counts; `None` for one that does not. Which one does
/// depends on key and timestamp alone, so that a run of the simulator repeats itself.
pub(crate) fn sampled(hash: u64, ts: u64) -> Option<u64> {
    let mixed = hash ^ ts.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    mixed.is_multiple_of(SAMPLE).then_some(PROBED_RUN * SAMPLE)
}

/// What a scan counts that opens so many runs.
pub(crate) fn opened(runs: u64) -> u64 {
    runs * OPENED_RUN
}

/// What a scan counts that has stepped over so many entries.
pub(crate) fn skipped(entries: u64) -> u64 {
    entries * SKIPPED_ENTRY
}

/// What a point read counts that found so many updates in one of a node's runs, none of them its base. Every one
/// counts, not a sample: such reads are few beside those that find a value at once, and wait for much more.
pub(crate) fn gathered(updates: u64) -> u64 {
    if updates == 0 { 0 } else { GATHERED_PAGE + updates * GATHERED_UPDATE }
}

/// One node's debt.
#[derive(Default)]
pub(crate) struct Reads {
    noted: AtomicU64,
    /// The price of a flush; 0 where nothing waits.
    price: u64,
}

impl Reads {
    pub(super) fn new(noted: u64, price: u64) -> Self {
        Self { noted: AtomicU64::new(noted), price }
    }

    /// Adds to the debt; true at the moment it reaches the price.
    #[must_use]
    pub(crate) fn note(&self, bytes: u64) -> bool {
        if self.price == 0 || bytes == 0 {
            return false;
        }
        let before = self.noted.fetch_add(bytes, Ordering::Relaxed);
        before < self.price && before.saturating_add(bytes) >= self.price
    }

    pub(crate) fn noted(&self) -> u64 {
        self.noted.load(Ordering::Relaxed)
    }

    /// The flush has paid for itself.
    pub(crate) fn is_due(&self) -> bool {
        self.price > 0 && self.noted() >= self.price
    }

    /// What is left once a flush was done.
    pub(super) fn paid(&self) -> u64 {
        self.noted().saturating_sub(self.price)
    }
}

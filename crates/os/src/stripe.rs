//! Stripes: a small number per thread, for state that is split ("striped") so that threads seldom
//! write to the same cache line.
//!
//! Always true: a stripe only spreads load. Whatever is split by it is right with every thread in
//! one stripe, and whichever thread looks.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many stripes there are; a power of two.
pub const STRIPES: usize = 16;

/// This thread's stripe, below [`STRIPES`]. Threads get them in turn, in the order they first ask.
pub fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        stripe.get()
    })
}

/// A value on cache lines of its own: two, because the hardware fetches them in pairs.
#[repr(align(128))]
#[derive(Default, Debug)]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_keeps_its_stripe_and_not_all_share_one() {
        let stripes: std::collections::BTreeSet<usize> = (0..2 * STRIPES)
            .map(|_| {
                let both = std::thread::scope(|scope| scope.spawn(|| (stripe(), stripe())).join());
                let (first, again) = both.unwrap();
                assert_eq!(first, again);
                first
            })
            .collect();
        assert!(stripes.len() > 1 && stripes.iter().all(|stripe| *stripe < STRIPES), "{stripes:?}");
    }

    #[test]
    fn padded_values_share_no_line() {
        let pair = [Padded(1_u8), Padded(2)];
        let at = |padded: &Padded<u8>| std::ptr::from_ref(padded).addr();
        assert_eq!(at(&pair[1]) - at(&pair[0]), 128);
    }
}

//! Lanes: a small number per thread, for state that is split so that threads seldom write to the
//! same cache line.
//!
//! Always true: a lane only spreads load. Whatever is split by it is right with every thread in
//! one lane, and whichever thread looks.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many lanes there are; a power of two.
pub const LANES: usize = 16;

/// This thread's lane, below [`LANES`]. Threads get them in turn, in the order they first ask.
pub fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LANE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    LANE.with(|lane| {
        if lane.get() == usize::MAX {
            lane.set(NEXT.fetch_add(1, Ordering::Relaxed) % LANES);
        }
        lane.get()
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
    fn thread_keeps_its_lane_and_not_all_share_one() {
        let lanes: std::collections::BTreeSet<usize> = (0..2 * LANES)
            .map(|_| {
                let both = std::thread::scope(|scope| scope.spawn(|| (lane(), lane())).join());
                let (first, again) = both.unwrap();
                assert_eq!(first, again);
                first
            })
            .collect();
        assert!(lanes.len() > 1 && lanes.iter().all(|lane| *lane < LANES), "{lanes:?}");
    }

    #[test]
    fn padded_values_share_no_line() {
        let pair = [Padded(1_u8), Padded(2)];
        let at = |padded: &Padded<u8>| std::ptr::from_ref(padded).addr();
        assert_eq!(at(&pair[1]) - at(&pair[0]), 128);
    }
}

//! A small number per thread, for state that is split so that threads seldom share a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// This thread's number; threads get them in the order they first ask.
pub(crate) fn of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

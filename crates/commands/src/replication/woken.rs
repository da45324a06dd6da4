//! Who waits on its own thread to be called, and looks now and then whether it may wait any longer.

use os::Call;
use os::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// How often who waits on its thread looks whether its operation goes on.
const LOOK: Duration = Duration::from_millis(25);

/// Whether it was called since the last wait ended.
#[derive(Default)]
pub(crate) struct Woken(Arc<(Mutex<bool>, Condvar)>);

impl Woken {
    /// Ends a wait, or the next one.
    pub(crate) fn call(&self) -> Call {
        let woken = Arc::clone(&self.0);
        Arc::new(move || {
            *woken.0.lock() = true;
            woken.1.notify_all();
        })
    }

    /// Waits until it was called, or it is time to look whether the operation goes on.
    pub(crate) fn wait(&self) {
        let mut is_woken = self.0.0.lock();
        if !*is_woken {
            self.0.1.wait_for(&mut is_woken, LOOK);
        }
        *is_woken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::Os;

    #[test]
    fn a_call_ends_a_wait_or_the_next_one() {
        let woken = Woken::default();
        let (call, clock) = (woken.call(), Os::real().clock);
        let is_ended_by_calls = |_| {
            call();
            call();
            let begun = clock.monotonic();
            woken.wait();
            clock.monotonic() < begun + LOOK
        };
        // A busy machine may let this thread stand for longer than that.
        assert!((0..20).any(is_ended_by_calls), "it was called before");
        let begun = clock.monotonic();
        woken.wait();
        assert!(clock.monotonic() >= begun + LOOK, "two calls are one");
    }
}

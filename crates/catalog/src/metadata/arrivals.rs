//! Waiting at the end of a capped collection.
//!
//! Always true: the number of commits only grows; who took it before a snapshot and waits for
//! another one misses no commit that the snapshot does not show.

use os::sync::{Condvar, Mutex};
use os::{Call, Watch, Watchers};
use std::sync::Arc;
use std::time::Duration;

/// Tells readers at the end of a collection that something has arrived.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    commits: Mutex<u64>,
    woken: Condvar,
    /// Those who wait on no thread.
    watchers: Arc<Watchers>,
}

impl Arrivals {
    /// To be called once the arrivals are visible.
    pub(crate) fn tell(&self) {
        *self.commits.lock() += 1;
        self.woken.notify_all();
        self.watchers.tell();
    }

    /// Has `call` made when they are told next. The caller looks at [`Self::seen`] after this.
    pub(crate) fn watch(&self, call: Call) -> Watch {
        self.watchers.watch(call)
    }

    /// How often they were told.
    pub(crate) fn seen(&self) -> u64 {
        *self.commits.lock()
    }

    /// Waits until [`Self::seen`] is no longer `seen`, or for `time`; says whether it changed.
    pub(crate) fn wait(&self, seen: u64, time: Duration) -> bool {
        let mut commits = self.commits.lock();
        if *commits == seen {
            self.woken.wait_for(&mut commits, time);
        }
        *commits != seen
    }
}

//! A worker's thread, as far as the pool asks for it: what it has used, and its priority.

use os::ThreadNumber;
use std::time::Duration;

/// Steps that a request in the background is below others: beside one of those it gets about a tenth of a
/// processor, and all of one that nobody else wants.
const BACKGROUND_STEPS: i32 = 10;

/// A worker's thread. Asked only while it runs.
pub(crate) trait WorkerThread: Send + Sync {
    /// Processor time that it has used.
    fn processor_time(&self) -> Duration;
    /// Others come first from now on.
    fn work_in_background(&self);
    /// It is as before again. `false` where the system does not let it: a process may not raise a priority
    /// unless it has the right to.
    fn end_background(&self) -> bool;
}

/// A thread of the system.
pub(crate) struct SystemThread {
    number: ThreadNumber,
    /// Its priority at first.
    nice: i32,
}

impl SystemThread {
    pub(crate) fn of_this_thread() -> Self {
        let number = ThreadNumber::of_this_thread();
        Self { number, nice: number.nice() }
    }
}

impl WorkerThread for SystemThread {
    fn processor_time(&self) -> Duration {
        self.number.processor_time()
    }

    fn work_in_background(&self) {
        let _as_before_where_refused = self.number.set_nice(self.nice + BACKGROUND_STEPS);
    }

    fn end_background(&self) -> bool {
        self.number.set_nice(self.nice)
    }
}

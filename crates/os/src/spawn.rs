//! Threads, as the system sees them: every one has a name.

use rustix::process::Pid;
use std::io;
use std::thread;
use std::time::Duration;

/// Five steps: each is worth about a fifth of the processor to whoever competes.
const BACKGROUND_NICE: i32 = 5;

/// What a thread runs.
pub type Job = Box<dyn FnOnce() + Send>;

/// Starts threads.
pub trait Spawner: Send + Sync {
    /// Starts a thread with the usual stack (2 MiB).
    ///
    /// # Errors
    /// Where the machine gives no more threads. The simulated twin always returns `Unsupported`:
    /// under it the program runs its jobs step by step on one thread.
    fn spawn(&self, name: &str, job: Job) -> io::Result<JoinHandle> {
        self.spawn_with_stack(name, None, job)
    }

    /// Starts a thread with a stack of `stack_bytes`.
    ///
    /// # Errors
    /// As [`Spawner::spawn`].
    fn spawn_with_stack(
        &self,
        name: &str,
        stack_bytes: Option<usize>,
        job: Job,
    ) -> io::Result<JoinHandle>;
}

/// A running thread. Dropping the handle lets it run on by itself.
#[derive(Debug)]
pub struct JoinHandle(thread::JoinHandle<()>);

/// The thread that was joined had panicked; the message it left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("thread panicked: {0}")]
pub struct Panicked(pub String);

impl JoinHandle {
    pub(crate) fn new(inner: thread::JoinHandle<()>) -> Self {
        Self(inner)
    }

    /// Waits for the thread's end.
    ///
    /// # Errors
    /// [`Panicked`] where it ended by a panic.
    pub fn join(self) -> Result<(), Panicked> {
        self.0.join().map_err(|payload| {
            let text = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned());
            Panicked(text.unwrap_or_else(|| "no message".to_owned()))
        })
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// The calling thread works on in the background: while others want the processor it gets about a
/// third of what one of them gets. Says nothing where the machine does not let it.
pub fn work_in_background() {
    // A thread's own priority, for Linux keeps one per thread.
    let _ = rustix::process::setpriority_process(None, BACKGROUND_NICE);
}

/// A thread as the system knows it. Of use only while the thread runs: its number may go to another
/// afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadNumber(Pid);

impl ThreadNumber {
    /// The calling thread's.
    pub fn of_this_thread() -> Self {
        Self(rustix::thread::gettid())
    }

    /// How far it is below others where both want a processor, in the system's steps; 0 where the system does
    /// not tell.
    pub fn nice(self) -> i32 {
        rustix::process::getpriority_process(Some(self.0)).unwrap_or(0)
    }

    /// Sets [`Self::nice`], for a thread that must still run. Says whether the system let it be: a smaller
    /// number than it has takes a right that servers seldom have.
    pub fn set_nice(self, nice: i32) -> bool {
        rustix::process::setpriority_process(Some(self.0), nice).is_ok()
    }

    /// Processor time that the thread has used; none where the system does not tell.
    pub fn processor_time(self) -> Duration {
        crate::machine::processor_time_of(self.0.as_raw_nonzero().get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_priority_is_its_own() {
        let usual = ThreadNumber::of_this_thread().nice();
        thread::scope(|scope| {
            scope.spawn(|| {
                let own = ThreadNumber::of_this_thread();
                assert!(own.set_nice(usual + 3));
                assert_eq!(own.nice(), usual + 3);
            });
        });
        assert_eq!(ThreadNumber::of_this_thread().nice(), usual);
    }

    #[test]
    fn a_threads_processor_time_grows_with_its_work() {
        let own = ThreadNumber::of_this_thread();
        let before = own.processor_time();
        let mut sum = 0_u64;
        while own.processor_time() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(own.processor_time() > before);
    }
}

//! The gate that every command passes before it writes, and that `fsync: {lock: true}` closes.
//!
//! Always true: while the gate is closed no command of a client writes; those that were writing when
//! it was to be closed have ended before it is. A writer that finds it open pays for two counters of
//! its own stripe and shares nothing with other writers; one that finds it closed waits for as long
//! as its interrupt lets it.

use errors::{Code, Error, Result};
use os::sync::{Condvar, Mutex};
use os::{Clock, Padded, STRIPES, stripe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often a waiting writer looks whether it was told to stop.
const LOOK: Duration = Duration::from_millis(20);

/// What is kept while the gate is closed.
pub type GateHold = Box<dyn std::any::Any + Send>;

/// The gate.
#[derive(Default)]
pub struct WriteGate {
    /// Commands that write now, by the stripe of their thread.
    writers: [Padded<AtomicU64>; STRIPES],
    /// More than 0: closed, or about to be.
    closed: AtomicU64,
    /// Guards who closes and opens it.
    locks: Mutex<Locks>,
    /// Guards nothing but the wait for the gate to open.
    waiting: Mutex<()>,
    opened: Condvar,
}

#[derive(Default)]
struct Locks {
    count: u64,
    held: Option<GateHold>,
}

/// A command that writes; dropping it says that it is done.
pub struct Writing<'a> {
    gate: &'a WriteGate,
    stripe: usize,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.gate.writers[self.stripe].fetch_sub(1, Ordering::SeqCst);
    }
}

impl WriteGate {
    /// Waits for the gate to be open, as long as `check` lets it.
    pub fn enter(&self, check: impl Fn() -> Result<()>) -> Result<Writing<'_>> {
        let stripe = stripe();
        loop {
            // The order decides: a writer is counted before it looks, and whoever closes the gate
            // says so before he counts.
            self.writers[stripe].fetch_add(1, Ordering::SeqCst);
            let writing = Writing { gate: self, stripe };
            if self.closed.load(Ordering::SeqCst) == 0 {
                return Ok(writing);
            }
            drop(writing);
            let mut waiting = self.waiting.lock();
            while self.closed.load(Ordering::SeqCst) != 0 {
                check()?;
                self.opened.wait_for(&mut waiting, LOOK);
            }
        }
    }

    /// Whether it is closed, or about to be.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// Closes the gate, once more where it is closed, and says how often it is now. The first time
    /// waits up to `timeout` for those who write, then takes what `hold` gives until it is opened.
    pub fn close(
        &self,
        clock: &dyn Clock,
        timeout: Duration,
        check: impl Fn() -> Result<()>,
        hold: impl FnOnce() -> Result<GateHold>,
    ) -> Result<u64> {
        let mut locks = self.locks.lock();
        if locks.count == 0 {
            self.closed.store(1, Ordering::SeqCst);
            let held = self.wait_for_writers(clock, timeout, check).and_then(|()| hold());
            match held {
                Ok(held) => locks.held = Some(held),
                Err(error) => {
                    self.open();
                    return Err(error);
                }
            }
        }
        locks.count += 1;
        Ok(locks.count)
    }

    fn wait_for_writers(
        &self,
        clock: &dyn Clock,
        timeout: Duration,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let deadline = clock.monotonic().saturating_add(timeout);
        while self.writers.iter().any(|stripe| stripe.load(Ordering::SeqCst) > 0) {
            check()?;
            if clock.monotonic() >= deadline {
                return Err(Error::new(
                    Code::LOCK_TIMEOUT,
                    "Fsync lock timed out: commands that write did not end in time",
                ));
            }
            clock.sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Takes back one closing, and says how many are left; `None` where it is open.
    pub fn unlock(&self) -> Option<u64> {
        let mut locks = self.locks.lock();
        locks.count = locks.count.checked_sub(1)?;
        if locks.count == 0 {
            let held = locks.held.take();
            drop(held);
            self.open();
        }
        Some(locks.count)
    }

    /// Opens it however often it was closed: the server ends.
    pub fn give_up(&self) {
        while self.unlock().is_some() {}
    }

    fn open(&self) {
        self.closed.store(0, Ordering::SeqCst);
        drop(self.waiting.lock());
        self.opened.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::Os;
    use std::sync::Arc;

    #[expect(clippy::unnecessary_wraps, reason = "what a gate asks may fail")]
    fn nobody() -> Result<()> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "what is held may fail")]
    fn nothing() -> Result<GateHold> {
        Ok(Box::new(()))
    }

    #[test]
    fn a_closed_gate_counts_and_opens_when_all_are_taken_back() {
        let (gate, os) = (WriteGate::default(), Os::real());
        assert_eq!(gate.unlock(), None);
        for count in 1..=3 {
            let closed = gate.close(&*os.clock, Duration::ZERO, nobody, nothing);
            assert_eq!(closed.unwrap(), count);
        }
        let stop = || Err(Error::new(Code::INTERRUPTED, "stop"));
        assert_eq!(gate.enter(stop).err().unwrap().code(), Code::INTERRUPTED);
        assert_eq!([gate.unlock(), gate.unlock(), gate.unlock()], [Some(2), Some(1), Some(0)]);
        assert!(gate.enter(stop).is_ok() && !gate.is_closed());
    }

    #[test]
    fn it_is_closed_only_when_writers_have_ended() {
        let (gate, os) = (WriteGate::default(), Os::real());
        let writing = gate.enter(nobody).unwrap();
        let refused = gate.close(&*os.clock, Duration::from_millis(5), nobody, nothing);
        assert_eq!(refused.err().unwrap().code(), Code::LOCK_TIMEOUT);
        assert!(gate.enter(nobody).is_ok(), "who could not close it left it open");
        drop(writing);
        let failed = gate.close(&*os.clock, Duration::ZERO, nobody, || {
            Err(Error::new(Code::OUT_OF_DISK_SPACE, "full"))
        });
        assert_eq!(failed.err().unwrap().code(), Code::OUT_OF_DISK_SPACE);
        assert!(!gate.is_closed());
    }

    #[test]
    fn writers_of_many_threads_never_write_while_it_is_closed() {
        let (gate, os) = (Arc::new(WriteGate::default()), Os::real());
        let inside = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
                let job = move || {
                    for _ in 0..2000 {
                        let writing = gate.enter(nobody).unwrap();
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(writing);
                    }
                };
                os.spawner.spawn("writer", Box::new(job)).unwrap()
            })
            .collect();
        for _ in 0..50 {
            gate.close(&*os.clock, Duration::from_mins(1), nobody, nothing).unwrap();
            assert_eq!(inside.load(Ordering::SeqCst), 0);
            gate.unlock();
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

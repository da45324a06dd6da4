//! `parking_lot`'s condition variable, whose waiters say that they are about to wait.

use super::{MutexGuard, WaitTimeoutResult};
use crate::about_to_wait;
use std::time::Duration;

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Wakes one waiter; whether there was one.
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }

    /// Wakes all waiters; how many there were.
    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }

    /// Waits until woken.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        about_to_wait();
        self.0.wait(guard);
    }

    /// As [`Condvar::wait_for`], for what another thread is about to do: it is not said that this one waits, so nobody
    /// else begins with something meanwhile.
    pub fn wait_briefly<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        self.0.wait_for(guard, time)
    }

    /// Waits until woken or for `time`.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        about_to_wait();
        self.0.wait_for(guard, time)
    }
}

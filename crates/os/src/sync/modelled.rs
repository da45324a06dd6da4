//! The same names over shuttle's scheduler, with as much of their interfaces as the workspace uses.
//!
//! Always true: an atomic has the size and the bit patterns of the standard library's, so that
//! zeroed memory is a valid one; a wait with a timeout may time out at any moment, for shuttle
//! knows no time.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Another thread may go on here.
fn switch() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// A thread that spins lets the others go first.
pub fn spin_loop() {
    shuttle::thread::yield_now();
}

/// See [`std::thread::yield_now`].
pub fn yield_now() {
    shuttle::thread::yield_now();
}

/// A mutual exclusion lock without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// Holds a [`Mutex`]. Empty only inside [`Condvar::wait`].
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// Open, around `value`.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())))
    }

    /// Takes the lock if it is open.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }

    /// The value; nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The value on its own.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

const HELD: &str = "a guard is empty only while its thread waits";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

/// Whether a wait ended by its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// It did.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    /// Opens the lock and waits.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect(HELD);
        guard.0 = Some(self.0.wait(held).unwrap_or_else(|poisoned| poisoned.into_inner()));
    }

    /// Opens the lock and waits, or (by the schedule's choice) times out at once. A timeout also
    /// lets others go on, but does not open the lock: to time out while somebody else holds it
    /// would need a clock.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        use shuttle::rand::Rng;
        if shuttle::rand::thread_rng().r#gen::<bool>() {
            return WaitTimeoutResult(true);
        }
        self.wait(guard);
        WaitTimeoutResult(false)
    }

    /// The same here.
    pub fn wait_briefly<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        self.wait_for(guard, time)
    }

    /// Wakes one who waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T>(shuttle::sync::RwLock<T>);

/// Holds a [`RwLock`] with others.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T>(shuttle::sync::RwLockReadGuard<'a, T>);

/// Holds a [`RwLock`] alone.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T>(shuttle::sync::RwLockWriteGuard<'a, T>);

impl<T> RwLock<T> {
    /// Open, around `value`.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }

    /// Waits for the writer.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard(self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Waits for everybody.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard(self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Atomics whose every operation may be preceded by another thread's.
pub mod atomic {
    use super::switch;
    pub use std::sync::atomic::{Ordering, compiler_fence};

    /// See [`std::sync::atomic::fence`].
    pub fn fence(_: Ordering) {
        switch();
    }

    macro_rules! common {
        ($name:ident $(<$generic:ident>)?, $value:ty) => {
            #[doc = concat!("See [`std::sync::atomic::", stringify!($name), "`].")]
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name $(<$generic>)? (std::sync::atomic::$name $(<$generic>)?);

            #[allow(missing_docs, reason = "the standard library says it")]
            impl $(<$generic>)? $name $(<$generic>)? {
                pub const fn new(value: $value) -> Self {
                    Self(std::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    switch();
                    self.0.load(order)
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    switch();
                    self.0.store(value, order);
                }

                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    switch();
                    self.0.swap(value, order)
                }

                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    switch();
                    self.0.compare_exchange(current, new, success, failure)
                }

                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(current, new, success, failure)
                }

                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }

                pub fn into_inner(self) -> $value {
                    self.0.into_inner()
                }
            }
        };
    }

    macro_rules! number {
        ($name:ident, $value:ty) => {
            common!($name, $value);

            #[allow(missing_docs, reason = "the standard library says it")]
            impl $name {
                pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    switch();
                    self.0.fetch_add(value, order)
                }

                pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                    switch();
                    self.0.fetch_sub(value, order)
                }

                pub fn fetch_update(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    mut update: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    let mut seen = self.load(fetch);
                    while let Some(new) = update(seen) {
                        match self.compare_exchange(seen, new, set, fetch) {
                            Ok(old) => return Ok(old),
                            Err(now) => seen = now,
                        }
                    }
                    Err(seen)
                }

                pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                    switch();
                    self.0.fetch_max(value, order)
                }

                pub fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                    switch();
                    self.0.fetch_min(value, order)
                }

                pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    switch();
                    self.0.fetch_or(value, order)
                }

                pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                    switch();
                    self.0.fetch_and(value, order)
                }
            }
        };
    }

    number!(AtomicU8, u8);
    number!(AtomicU32, u32);
    number!(AtomicU64, u64);
    number!(AtomicI64, i64);
    number!(AtomicUsize, usize);
    common!(AtomicBool, bool);
    common!(AtomicPtr<T>, *mut T);
}

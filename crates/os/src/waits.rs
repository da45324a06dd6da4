//! What a thread waits for: said before it waits, so that another can use the processor meanwhile; and
//! summed up after it, so that whoever runs an operation can tell what its time went to.
//!
//! Always true: the sums only grow, and a thread sees its own alone.

use std::cell::{Cell, OnceCell};
use std::time::Duration;

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Somebody else's lock.
    Lock,
    /// A page that is read from the disk, decoding included.
    DiskRead,
    /// The log on its way to the disk.
    LogSync,
    /// Room for writes in memory.
    Throttle,
}

/// Time waited, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits([Duration; 4]);

thread_local! {
    static WAITS: Cell<Waits> = const { Cell::new(Waits([Duration::ZERO; 4])) };
}

thread_local! {
    static BEFORE_WAITS: OnceCell<Box<dyn Fn()>> = const { OnceCell::new() };
}

/// From now on `call` is called whenever this thread says that it is about to wait. Said once for a
/// thread; later ones are not taken.
pub fn before_waits(call: impl Fn() + 'static) {
    BEFORE_WAITS.with(|before| {
        let _the_first_stays = before.set(Box::new(call));
    });
}

/// Whether anybody is told before this thread waits.
pub(crate) fn is_announced() -> bool {
    BEFORE_WAITS.with(|before| before.get().is_some())
}

/// Said by a thread before it waits for something that may take longer than some microseconds: a lock,
/// the disk, memory, time.
pub fn about_to_wait() {
    BEFORE_WAITS.with(|before| {
        if let Some(call) = before.get() {
            call();
        }
    });
}

impl Waits {
    /// Of this thread since it started.
    pub fn now() -> Self {
        WAITS.get()
    }

    /// Adds to what this thread has waited.
    pub fn add(kind: Wait, time: Duration) {
        let mut waits = WAITS.get();
        waits.0[kind as usize] += time;
        WAITS.set(waits);
    }

    /// What was added after `before`, on the same thread.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind].saturating_sub(before.0[kind])))
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind] + other.0[kind]))
    }

    /// The time of one kind.
    pub fn of(self, kind: Wait) -> Duration {
        self.0[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_before_waits_is_this_threads_own() {
        let count = std::rc::Rc::new(Cell::new(0));
        let called = std::rc::Rc::clone(&count);
        about_to_wait();
        before_waits(move || called.set(called.get() + 1));
        about_to_wait();
        std::thread::scope(|scope| {
            scope.spawn(about_to_wait);
        });
        about_to_wait();
        assert_eq!(count.get(), 2);
    }

    #[test]
    fn a_thread_sees_what_it_waited_itself() {
        let before = Waits::now();
        Waits::add(Wait::Lock, Duration::from_micros(3));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                Waits::add(Wait::Lock, Duration::from_secs(9));
                assert_eq!(Waits::now().of(Wait::Lock), Duration::from_secs(9));
            });
        });
        Waits::add(Wait::Lock, Duration::from_micros(4));
        let waited = Waits::now().since(before);
        assert_eq!(waited.of(Wait::Lock), Duration::from_micros(7));
        assert_eq!(waited.of(Wait::Throttle), Duration::ZERO);
        assert_eq!(waited.plus(waited).of(Wait::Lock), Duration::from_micros(14));
    }
}

//! What a thread has waited for, so that whoever runs an operation on it can tell what its time
//! went to.
//!
//! Always true: the sums only grow, and a thread sees its own alone.

use std::cell::Cell;
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

    /// The time of one kind.
    pub fn of(self, kind: Wait) -> Duration {
        self.0[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}

//! State that belongs to a session and is used by one request at a time: its open transaction, or
//! what its retryable write has done so far.
//!
//! | from | to | function |
//! |---|---|---|
//! | – or idle | busy | [`Checkouts::check_out`]; waits while another request has it |
//! | busy | idle | [`StateGuard`] dropped |
//! | idle | gone | [`Checkouts::remove`], [`Checkouts::clear`] |
//! | busy | gone | [`StateGuard`] dropped by a panic |
//! | busy | busy, doomed | [`Checkouts::remove`], [`Checkouts::clear`]; gone when dropped |
//!
//! What is always true: values are dropped outside the locks, for dropping one may open a
//! transaction's locks.

use crate::SessionId;
use errors::Result;
use os::sync::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

const SHARDS: usize = 16;
/// How often a waiting request looks whether it was told to stop.
const RETURN_WAIT: Duration = Duration::from_millis(20);

struct Entry<V> {
    /// `None` while a request has it.
    idle: Option<V>,
    /// The operation that has it, or had it last.
    runner: u64,
    doomed: bool,
}

struct Shard<V> {
    /// Guards the entries.
    map: Mutex<BTreeMap<SessionId, Entry<V>>>,
    returned: Condvar,
}

/// The registry.
pub struct Checkouts<V> {
    shards: [Shard<V>; SHARDS],
}

impl<V> Default for Checkouts<V> {
    fn default() -> Self {
        let shard = |_| Shard { map: Mutex::default(), returned: Condvar::new() };
        Self { shards: std::array::from_fn(shard) }
    }
}

impl<V> Checkouts<V> {
    /// Takes a session's state for operation `runner`; `new` makes it where there is none. Waits
    /// while another request has it, as long as `check` lets it.
    pub fn check_out(
        &self,
        id: SessionId,
        runner: u64,
        new: impl FnOnce() -> V,
        check: impl Fn() -> Result<()>,
    ) -> Result<StateGuard<'_, V>> {
        let shard = self.shard(id);
        let mut map = shard.map.lock();
        loop {
            let Some(entry) = map.get_mut(&id) else {
                map.insert(id, Entry { idle: None, runner, doomed: false });
                drop(map);
                return Ok(StateGuard { registry: self, id, value: Some(new()) });
            };
            if let Some(value) = entry.idle.take() {
                entry.runner = runner;
                return Ok(StateGuard { registry: self, id, value: Some(value) });
            }
            shard.returned.wait_for(&mut map, RETURN_WAIT);
            check()?;
        }
    }

    /// Ends a session's state. Where a request has it, it is gone once that ends; the result
    /// names the operation then.
    pub fn remove(&self, id: SessionId) -> Option<u64> {
        let mut map = self.shard(id).map.lock();
        let entry = map.get_mut(&id)?;
        if entry.idle.is_none() {
            entry.doomed = true;
            return Some(entry.runner);
        }
        let dead = map.remove(&id);
        drop(map);
        drop(dead);
        None
    }

    /// Ends all states; those that requests have, once these end.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut dead = Vec::new();
            shard.map.lock().retain(|_, entry| {
                entry.doomed = true;
                let idle = entry.idle.take();
                let is_busy = idle.is_none();
                dead.extend(idle);
                is_busy
            });
            drop(dead);
        }
    }

    /// Ends a session's state where no request has it and `spare` says that nothing is lost; whether
    /// there is none now.
    pub fn remove_if(&self, id: SessionId, spare: impl FnOnce(&mut V) -> bool) -> bool {
        let mut map = self.shard(id).map.lock();
        let Some(entry) = map.get_mut(&id) else { return true };
        if !entry.idle.as_mut().is_some_and(spare) {
            return false;
        }
        let dead = map.remove(&id);
        drop(map);
        drop(dead);
        true
    }

    /// What `look` says of a session's state; `None` where there is none, or a request has it.
    pub fn peek<T>(&self, id: SessionId, look: impl FnOnce(&V) -> T) -> Option<T> {
        self.shard(id).map.lock().get(&id)?.idle.as_ref().map(look)
    }

    /// Changes every idle state; what `edit` takes out of them is given back.
    pub fn edit_idle<D>(&self, mut edit: impl FnMut(SessionId, &mut V) -> Option<D>) -> Vec<D> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            for (id, entry) in shard.map.lock().iter_mut() {
                taken.extend(entry.idle.as_mut().and_then(|value| edit(*id, value)));
            }
        }
        taken
    }

    /// The operations that have a state now.
    pub fn runners(&self) -> Vec<u64> {
        let mut runners = Vec::new();
        for shard in &self.shards {
            let map = shard.map.lock();
            runners.extend(map.values().filter(|e| e.idle.is_none()).map(|e| e.runner));
        }
        runners
    }

    fn shard(&self, id: SessionId) -> &Shard<V> {
        &self.shards[usize::from(id.id[15]) % SHARDS]
    }
}

/// Dropping it gives the state back: a session's state in the hands of one request.
pub struct StateGuard<'a, V> {
    registry: &'a Checkouts<V>,
    id: SessionId,
    /// Taken only by `drop`.
    value: Option<V>,
}

impl<V> StateGuard<'_, V> {
    /// The session.
    pub fn id(&self) -> SessionId {
        self.id
    }
}

impl<V> Deref for StateGuard<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value.as_ref().expect("only `drop` takes it")
    }
}

impl<V> DerefMut for StateGuard<'_, V> {
    fn deref_mut(&mut self) -> &mut V {
        self.value.as_mut().expect("only `drop` takes it")
    }
}

impl<V> Drop for StateGuard<'_, V> {
    fn drop(&mut self) {
        let shard = self.registry.shard(self.id);
        let mut map = shard.map.lock();
        let dead = match map.get_mut(&self.id) {
            // What a request left that panicked is half done.
            Some(entry) if !entry.doomed && !std::thread::panicking() => {
                entry.idle = self.value.take();
                None
            }
            _ => map.remove(&self.id),
        };
        drop(map);
        shard.returned.notify_all();
        drop(dead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use errors::{Code, Error};

    const ID: SessionId = SessionId::of_nobody([7; 16]);

    fn take(checkouts: &Checkouts<u32>) -> Result<StateGuard<'_, u32>> {
        checkouts.check_out(ID, 9, || 0, || Err(Error::new(Code::INTERRUPTED, "enough")))
    }

    #[test]
    fn state_comes_back_as_it_was_left() {
        let checkouts = Checkouts::default();
        *take(&checkouts).unwrap() += 5;
        assert_eq!(checkouts.peek(ID, |state| *state), Some(5));
        let taken = take(&checkouts).unwrap();
        assert_eq!((*taken, checkouts.peek(ID, |state| *state)), (5, None));
    }

    #[test]
    fn a_second_request_waits_for_the_first() {
        let checkouts = Checkouts::default();
        let mut first = take(&checkouts).unwrap();
        assert_eq!(take(&checkouts).err().unwrap().code(), Code::INTERRUPTED);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| *checkouts.check_out(ID, 10, || 0, || Ok(())).unwrap());
            *first = 3;
            drop(first);
            assert_eq!(second.join().unwrap(), 3);
        });
    }

    #[test]
    fn cleared_states_are_gone_once_nobody_has_them() {
        let checkouts = Checkouts::default();
        *take(&checkouts).unwrap() = 5;
        checkouts.clear();
        let mut busy = take(&checkouts).unwrap();
        assert_eq!(*busy, 0);
        *busy = 6;
        checkouts.clear();
        drop(busy);
        assert_eq!(*take(&checkouts).unwrap(), 0);
    }

    #[test]
    fn state_left_by_a_panic_is_gone() {
        let checkouts = Checkouts::default();
        *take(&checkouts).unwrap() = 5;
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _state = take(&checkouts).unwrap();
                panic!("on purpose");
            });
            assert!(panics.join().is_err());
        });
        assert_eq!(*take(&checkouts).unwrap(), 0);
    }

    #[test]
    fn state_removed_while_in_use_does_not_come_back() {
        let checkouts = Checkouts::default();
        let mut out = take(&checkouts).unwrap();
        *out = 8;
        assert_eq!(checkouts.remove(ID), Some(9));
        drop(out);
        assert_eq!(*take(&checkouts).unwrap(), 0);
        assert_eq!(checkouts.remove(ID), None);
        assert!(checkouts.edit_idle(|_, _| Some(())).is_empty());
    }
}
